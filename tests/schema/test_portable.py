"""Any tool's schema can be offered to any provider, and its arguments come back as they should."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import schema
from interlock.schema.gemini import narrowed
from interlock.schema.portable import PortableSchema, portable
from tests.providers.schema_rules import gemini, refusals
from tests.support.rows import each_row

Json = dict[str, Any]
ANYTHING = {
    "type": ["string", "number", "boolean", "object", "array", "null"],
    "items": {"type": ["string", "number", "boolean", "object", "null"]},
}
TEXT = {"type": "string"}
FREE = {"type": "object", "properties": {}, "additionalProperties": True}


def offered(document: Any) -> PortableSchema:
    return portable(msgspec.json.encode(document))


def translated(document: Any) -> Json:
    found: Json = msgspec.json.decode(offered(document).encoded)
    return found


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def member(subschema: Any) -> Any:
    """Return the translation of a property's schema."""
    return translated(of(a=subschema))["properties"]["a"]


@each_row(
    "subschema, expected",
    [
        # What other drafts write
        (
            {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            {"type": "integer", "exclusiveMinimum": 0},
        ),
        (
            {"type": "integer", "maximum": 9, "exclusiveMaximum": False},
            {"type": "integer", "maximum": 9},
        ),
        (
            {"type": "array", "items": [TEXT, {"type": "number"}], "additionalItems": False},
            {
                "type": "array",
                "prefixItems": [TEXT, {"type": "number"}],
                "items": {"anyOf": [TEXT, {"type": "number"}]},
                "maxItems": 2,
            },
        ),
        ({"type": "string", "required": True}, TEXT),
        ({"type": "any"}, ANYTHING),
        ({"type": "int"}, {"type": "integer"}),
        ({"type": "STRING"}, TEXT),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"anyOf": [TEXT], "nullable": True}, {"anyOf": [TEXT, {"type": "null"}]}),
        ({"type": "string", "divisibleBy": 0, "id": "x", "$comment": "c", "x-order": 1}, TEXT),
        # What is no schema
        (True, ANYTHING),
        (None, ANYTHING),
        ({}, ANYTHING),
        ("string", TEXT),
        ({"title": "T"}, {"title": "T", **ANYTHING}),
        # What only some engines and grammars know
        (
            {"pattern": "^(?!undefined$)"},
            {"type": "string", "description": "Pattern: ^(?!undefined$)"},
        ),
        ({"type": "string", "pattern": "^[a-z]{2}$"}, {"type": "string", "pattern": "^[a-z]{2}$"}),
        ({"type": "string", "format": "uri"}, {"type": "string", "description": "Format: uri."}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        (
            {"type": "string", "contentEncoding": "base64", "description": "A picture."},
            {"type": "string", "description": "A picture. Encoding: base64."},
        ),
        (
            {"type": "string", "maxLength": 10_000},
            {"type": "string", "description": "At most 10,000 characters."},
        ),
        ({"type": "array"}, {"type": "array", "items": ANYTHING}),
        ({"type": "object"}, FREE),
        (
            {"type": "object", "patternProperties": {"^x": TEXT}, "additionalProperties": False},
            {**FREE, "additionalProperties": TEXT},
        ),
        # Values
        ({"enum": []}, ANYTHING),
        ({"enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"type": "string", "enum": ["a", None, "a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        ({"const": 1}, {"type": "integer", "enum": [1]}),
        ({"anyOf": [{"const": "a"}, {"enum": ["b"]}]}, {"type": "string", "enum": ["a", "b"]}),
        ({"type": "string", "default": None}, TEXT),
        (
            {"anyOf": [TEXT, {"type": "null"}], "default": None},
            {"anyOf": [TEXT, {"type": "null"}], "default": None},
        ),
        # Combinations
        (
            {"allOf": [of(x=TEXT), {"required": ["x"]}], "description": "d"},
            {"description": "d", **of(x=TEXT), "required": ["x"]},
        ),
        ({"type": "string", "not": {"const": ""}}, TEXT),
        (
            {**of(x=TEXT, y=TEXT), "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
            {"description": "Use one of these sets: x; y.", **of(x=TEXT, y=TEXT)},
        ),
        ({**of(x=TEXT), "if": {"required": ["x"]}, "then": of(y=TEXT)}, of(y=TEXT, x=TEXT)),
        ({"oneOf": [of(x=TEXT), of(y=TEXT)]}, {"anyOf": [of(x=TEXT), of(y=TEXT)]}),
        # A call without a required member would be refused, so it is offered.
        ({"type": "object", "required": ["x"]}, {**of(x=ANYTHING), "required": ["x"]}),
    ],
)
def test_a_part_that_some_provider_refuses_is_written_as_all_accept(
    subschema: Any, expected: Any
) -> None:
    assert member(subschema) == expected


@each_row(
    "document, expected",
    [
        ({}, of()),
        (
            {"type": "object", "additionalProperties": False},
            {**of(), "additionalProperties": False},
        ),
        (
            {"$ref": "#/definitions/A", "definitions": {"A": {**of(x=TEXT), "required": ["x"]}}},
            {**of(x=TEXT), "required": ["x"]},
        ),
        ({"$ref": "#x", "$defs": {"A": {"$anchor": "x", **of(x=TEXT)}}}, of(x=TEXT)),
        (
            {
                "$id": "https://e.org/a",
                **of(x={"$ref": "https://e.org/b"}),
                "$defs": {"B": {"$id": "b", "type": "string"}},
            },
            {**of(x={"$ref": "#/$defs/b"}), "$defs": {"b": TEXT}},
        ),
        (
            of(x={"$ref": "#/$defs/a~1b"}) | {"$defs": {"a/b": TEXT}},
            {**of(x={"$ref": "#/$defs/a_1b"}), "$defs": {"a_1b": TEXT}},
        ),
        (
            of(x={"$ref": "#/$defs/A", "description": "d"}) | {"$defs": {"A": TEXT}},
            of(x={"description": "d", "type": "string"}),
        ),
        (of(x={"$ref": "https://example.org/elsewhere"}), of(x=ANYTHING)),
        (
            of(child={"$ref": "#"}),
            {
                **of(child={"$ref": "#/$defs/definition"}),
                "$defs": {"definition": of(child={"$ref": "#/$defs/definition"})},
            },
        ),
        (
            {
                "oneOf": [
                    {**of(kind={"const": "file"}, path=TEXT), "required": ["kind", "path"]},
                    {**of(kind={"const": "url"}, url=TEXT), "required": ["kind", "url"]},
                ]
            },
            {
                "description": "Use one of these sets: "
                'kind = "file" and path; kind = "url" and url.',
                **of(kind={"type": "string", "enum": ["file", "url"]}, path=TEXT, url=TEXT),
                "required": ["kind"],
            },
        ),
        (
            {**of(x=TEXT), "allOf": [{"required": ["x"]}, {"anyOf": [of(y=TEXT), of(z=TEXT)]}]},
            {
                "description": "Use one of these sets: y; z.",
                **of(y=TEXT, z=TEXT, x=TEXT),
                "required": ["x"],
            },
        ),
        ({"enum": [{"x": 1}]}, of()),
        ({"patternProperties": {"^x": TEXT}}, {**of(), "additionalProperties": TEXT}),
    ],
)
def test_the_root_is_a_plain_object(document: Any, expected: Any) -> None:
    assert translated(document) == expected


def test_renamed_properties_come_back_at_every_depth() -> None:
    node = of(**{"@id": TEXT, "next": {"$ref": "#/$defs/N"}})
    document = of(
        **{
            "$top": {"type": "integer"},
            "top": TEXT,
            "名前": TEXT,
            "x" * 65: TEXT,
            "nodes": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/N"}, TEXT]}},
            "map": {"type": "object", "additionalProperties": node},
        },
    ) | {"required": ["$top"], "$defs": {"N": node}}
    found = offered(document)
    arguments = {
        "$top": 1,
        "top": "t",
        "名前": "n",
        "x" * 65: "x",
        "nodes": [{"@id": "a", "next": {"@id": "b"}}, "c"],
        "map": {"@id": {"@id": "d"}},
        "unknown": {"id": "kept"},
    }

    sent = found.to_model(arguments)

    assert refusals("t", msgspec.json.decode(found.encoded)) == {}
    assert list(sent)[:3] == ["top_2", "top", "argument"]
    assert sent["nodes"] == [{"id": "a", "next": {"id": "b"}}, "c"]
    assert sent["map"] == {"@id": {"id": "d"}}  # a free member keeps its name
    assert found.to_server(sent) == arguments
    assert found.to_server(arguments) == arguments  # the server's own names are accepted


def test_the_text_about_alternatives_has_the_names_for_models() -> None:
    found = translated(
        of(**{"$a": TEXT, "b": TEXT}) | {"anyOf": [{"required": ["$a"]}, {"required": ["b"]}]}
    )

    assert found["description"] == "Use one of these sets: a; b."


def test_a_schema_without_odd_names_has_nothing_to_rename() -> None:
    found = offered(of(a=TEXT))

    assert found.renames is None
    assert found.to_server({"$a": 1}) == {"$a": 1}


def test_hostile_schemas_are_translated_in_bounded_time() -> None:
    doubling: Json = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}", "title": str(i)} for i in range(2)]}
        for n in range(30)
    }
    doubling["d30"] = TEXT
    deep: Json = {}
    for _ in range(60):
        deep = {"properties": {"a": deep}}
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3_000)}
    started = time.process_time()

    for document in (
        of(a={"$ref": "#/$defs/d0"}) | {"$defs": doubling},
        of(a={"$ref": "#/$defs/a"})
        | {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        of(**{f"p{n}": {"allOf": [{"$ref": "#"}]} for n in range(30)}),
        of(a=deep),
        of(a={"$ref": "#/$defs/d0"}) | {"$defs": chain},
    ):
        assert refusals("t", translated(document)) == {}
    assert time.process_time() - started < 60


# Any schema

NAMES = ["a", "b", "$top", "ids[]", "名前", "", "x" * 70, "type", "$ref", "items"]
NUMBERS = [0, 1, -1, 2.5, 1e300, True, "5", None, 10_000]
VALUES = ["a", "", None, 1, 2.0, True, [], {"a": 1}]
TYPES = ["string", "object", "array", "integer", "number", "null", "any", "Object", 1, None]
SCALARS: dict[str, list[Any]] = {
    "type": [*TYPES, ["string", "null"], ["object", "integer"], []],
    "enum": [["a"], ["a", None, 1], [], None, [{}, []]],
    "const": VALUES,
    "default": VALUES,
    "minimum": NUMBERS,
    "exclusiveMinimum": NUMBERS,
    "maxLength": NUMBERS,
    "maxItems": NUMBERS,
    "pattern": ["^a$", "(?=a)", "\\p{L}", "a|", "[", "^(a)\\1$", None],
    "format": ["uri", "date", "int32", 1],
    "description": ["d", None, 1],
    "nullable": [True, False],
    "$schema": ["http://json-schema.org/draft-07/schema#", "", None],
    "$id": ["x", "#x"],
    "$ref": ["#", "#/$defs/A", "#/$defs/B", "#/nothing", "other.json", 1],
    "required": [["a", "$top"], ["a", "a", 1], True, None, "b"],
}
ONE = ("items", "additionalItems", "additionalProperties", "not", "then")
MANY = ("anyOf", "oneOf", "allOf", "items")
MAPS = ("properties", "patternProperties", "dependencies")


def odd_schema(random: Random, depth: int = 0) -> Any:
    """Return a schema of odd parts, valid or not."""
    if depth and random.random() < 0.15:
        return random.choice([True, False, None, "string", 1, []])
    found = {
        key: random.choice(SCALARS[key])
        for key in random.sample(list(SCALARS), random.randint(0, 4))
    }
    if depth > 3 or (depth and random.random() < 0.4):
        return found

    def inner() -> Any:
        return odd_schema(random, depth + 1)

    for key in random.sample((*ONE, *MANY, *MAPS, *MAPS), random.randint(1, 3)):
        count = random.randint(0, 3)
        if key in MAPS:
            found[key] = {name: inner() for name in random.sample(NAMES, count)}
        elif key in MANY and (key not in ONE or count):
            found[key] = [inner() for _ in range(count)]
        else:
            found[key] = inner()
    return found


def example(subschema: Json, document: Json, depth: int = 0) -> Any:
    """Return a value that has every member which a translated schema names."""
    if "$ref" in subschema:
        subschema = document["$defs"][subschema["$ref"].rpartition("/")[2]]
    if "anyOf" in subschema:
        return example(subschema["anyOf"][-1], document, depth)
    if depth < 6 and "object" in subschema.get("type", ()):
        properties = subschema.get("properties", {})
        return {name: example(each, document, depth + 1) for name, each in properties.items()}
    if depth < 6 and "array" in subschema.get("type", ()):
        return [example(subschema["items"], document, depth + 1)]
    return 0


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_any_schema_is_accepted_by_all_providers_and_its_arguments_come_back(seed: int) -> None:
    random = Random(seed)
    definitions = {name: odd_schema(random, 1) for name in ("A", "B")}
    document = odd_schema(random) | {"$defs": definitions}
    found = offered(document)
    shown = msgspec.json.decode(found.encoded)

    assert refusals("t", shown) == {}, shown
    assert msgspec.json.decode(portable(found.encoded).encoded) == shown, "translated twice"
    assert gemini("t", msgspec.json.decode(narrowed(found.encoded))) == ""
    schema.compile(found.with_server_names)
    arguments = example(shown, shown)
    sent = found.to_server(arguments)
    assert found.to_model(sent) == arguments
    own = msgspec.json.decode(found.with_server_names)
    assert sent == example(own, own)


@pytest.mark.parametrize("size", [200])
def test_many_odd_tools_are_translated_quickly(size: int) -> None:
    """A list of 200 tools is translated once, and found again afterwards."""
    documents = [
        msgspec.json.encode(
            of(**{f"$p{n}": TEXT, "filter[x]": {"$ref": "#/$defs/A"}})
            | {"$defs": {"A": of(a=TEXT)}}
        )
        for n in range(size)
    ]
    first = [portable(each) for each in documents]

    assert all(one is portable(each) for one, each in zip(first, documents, strict=True))
