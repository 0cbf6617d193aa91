"""Schemas for models stay within their budget, and accept all that the whole schema accepts."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings

from interlock.openapi import budget


def size(schema: Any) -> int:
    return len(msgspec.json.encode(schema))


def tool(properties: dict[str, Any], **definitions: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "$defs": definitions} if definitions else schema


def ref(name: str, **siblings: Any) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}", **siblings}


def test_small_schema_is_shown_unchanged():
    schema = tool({"a": {"type": "string", "title": "A", "description": "x" * 500}})

    fitted = budget.fit(schema)

    assert fitted.schema == schema
    assert fitted.steps == ()


def test_definitions_are_inlined_where_the_result_fits():
    schema = tool(
        {"a": ref("A", description="Mine."), "b": {"items": ref("A")}, "c": ref("B", minimum=1)},
        A={"type": "object", "description": "An A.", "properties": {"b": ref("B")}},
        B={"type": "integer", "maximum": 5},
    )

    assert budget.fit(schema).schema == tool(
        {
            "a": {
                "type": "object",
                "description": "Mine.",
                "properties": {"b": {"type": "integer", "maximum": 5}},
            },
            "b": {
                "items": {
                    "type": "object",
                    "description": "An A.",
                    "properties": {"b": {"type": "integer", "maximum": 5}},
                }
            },
            "c": {"allOf": [{"type": "integer", "maximum": 5}], "minimum": 1},
        }
    )


def test_recursive_definition_stays_a_definition():
    schema = tool(
        {"tree": ref("Tree")},
        Tree={"properties": {"children": {"items": ref("Tree")}, "name": ref("Name")}},
        Name={"type": "string"},
    )

    fitted = budget.fit(schema).schema

    assert list(fitted["$defs"]) == ["Tree"]
    assert fitted["$defs"]["Tree"]["properties"]["name"] == {"type": "string"}


def test_definition_used_often_is_shared_where_inlining_is_too_large():
    wide = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(60)}}
    arguments = {"once": ref("Once"), **{f"a{i}": ref("Wide") for i in range(20)}}
    schema = tool(arguments, Wide=wide, Once={"type": "null"})

    fitted = budget.fit(schema)

    assert list(fitted.schema["$defs"]) == ["Wide"]
    assert fitted.schema["properties"]["once"] == {"type": "null"}
    assert fitted.steps == ()
    assert fitted.size <= budget.INPUT_BYTES


def test_long_descriptions_are_cut_except_descriptions_of_arguments():
    text = "<p>Some words of <b>HTML</b></p>\n\n| a | table |\n|---|---|\n" + "and more words " * 40
    inner = {f"p{i}": {"type": "string", "title": f"P {i}", "description": text} for i in range(12)}
    schema = tool({"a": {"type": "object", "description": text, "properties": inner}})

    fitted = budget.fit(schema)

    shown = fitted.schema["properties"]["a"]
    assert shown["description"].startswith("Some words of HTML\n\nand more words")
    assert len(shown["description"]) > 500
    assert all(len(each["description"]) <= 200 for each in shown["properties"].values())
    assert "title" not in shown["properties"]["p0"]
    assert fitted.steps == ("titles and long descriptions",)


def test_long_enum_becomes_a_description_with_examples():
    values = [f"value-{i:04}" for i in range(800)]

    fitted = budget.fit(tool({"a": {"type": "string", "enum": values}}))

    shown = fitted.schema["properties"]["a"]
    assert "enum" not in shown
    assert shown["description"].startswith("One of 800 values, such as value-0000, value-0001,")
    assert shown["type"] == "string"


def test_deep_schema_is_cut_to_stubs_that_name_their_type_and_schema():
    schema: dict[str, Any] = {"type": "string"}
    definitions = {}
    for level in range(20):
        names = [f"property{i}" for i in range(30)]
        definitions[f"L{level}"] = {"type": "object", "properties": dict.fromkeys(names, schema)}
        schema = ref(f"L{level}")

    fitted = budget.fit(tool({"a": schema}, **definitions))

    assert fitted.size <= budget.INPUT_BYTES
    assert fitted.steps[-1].startswith("nothing below")
    assert '"description":"Schema L' in msgspec.json.encode(fitted.schema).decode()
    assert "$defs" not in fitted.schema


def test_schema_with_many_long_arguments_stays_within_the_budget():
    schema = tool({f"a{i}": {"type": "string", "description": "x" * 900} for i in range(60)})

    assert budget.fit(schema).size <= budget.INPUT_BYTES


_names = st.sampled_from(["A", "B", "C"])
_leaf = st.sampled_from([{"type": "string"}, {"type": "integer"}, {"enum": list(range(60))}, True])
_schemas = st.recursive(
    _leaf | _names.map(ref),
    lambda inner: (
        st.builds(
            lambda p: {"type": "object", "properties": {"k": p}, "description": "d" * 99}, inner
        )
        | st.builds(lambda p: {"type": "array", "items": p}, inner)
        | st.builds(lambda p, q: {"anyOf": [p, q]}, inner, inner)
        | st.builds(lambda p: {"type": "object", "additionalProperties": p, "title": "T"}, inner)
        | st.builds(lambda p: {"not": {"allOf": [p, {"type": "object"}]}}, inner)
    ),
    max_leaves=6,
)
_values = st.recursive(
    st.none() | st.integers(0, 70) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("kl"), inner),
    max_leaves=6,
)


@pytest.mark.slow("tries many examples")
@settings(max_examples=75, deadline=None)
@given(_schemas, st.lists(_schemas, min_size=3, max_size=3), _values, st.integers(40, 600))
def test_fitted_schema_accepts_every_value_that_the_whole_schema_accepts(
    schema: Any, definitions: list[Any], value: Any, limit: int
):
    # A definition that leads back to itself for the same value accepts nothing and everything.
    guarded = [{"type": "object", "properties": {"l": each}} for each in definitions]
    whole = tool({"a": schema}, **dict(zip("ABC", guarded, strict=True)))

    shown = budget.fit(whole, limit).schema

    if jsonschema_rs.validator_for(whole).is_valid({"a": value}):
        assert jsonschema_rs.validator_for(shown).is_valid({"a": value})
