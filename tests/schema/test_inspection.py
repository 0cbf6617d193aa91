from typing import Any

import pytest

from interlock.errors import SchemaError
from interlock.schema.cost import by_depth
from interlock.schema.inspection import MAX_SCHEMA_DEPTH, Survey, measure
from tests.support.rows import each_row


def nested(depth: int, leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


@each_row(
    ("document", "reason"),
    [
        ({"type": 5}, "5 is not a type of JSON Schema"),
        ({"type": "strnig"}, "'strnig' is not a type of JSON Schema"),
        ({"properties": []}, "'properties' must be an object of schemas, not a list"),
        ({"properties": {"a": "x"}}, "a schema must be an object or a boolean, not a string"),
        ({"anyOf": []}, "'anyOf' must be a list of schemas, not an empty one"),
        ({"enum": "a"}, "'enum' must be a list, not a string"),
        ({"pattern": 1}, "'pattern' must be a string, not a number"),
        ({"$ref": 1}, "'$ref' must be a string, not a number"),
        ({"$ref": "#/$defs/none"}, "the reference '#/$defs/none' does not lead to a schema"),
        ({"$ref": "#none"}, "the reference '#none' does not lead to a schema"),
        (
            {"$schema": "https://example.com/draft"},
            "$schema 'https://example.com/draft' is not supported; supported are "
            "2019-09, 2020-12, draft-04, draft-06, draft-07",
        ),
        ({"default": nested(65)}, "'default' is nested deeper than 64 levels"),
        ({"enum": [nested(65)]}, "'enum' is nested deeper than 64 levels"),
        (
            {"properties": {f"p{i}": {} for i in range(2_000)}},
            "the schema has more than 2,000 subschemas",
        ),
        (
            {"properties": {f"p{i}": {"pattern": f"^{i}"} for i in range(101)}},
            "the schema has more than 100 patterns",
        ),
        (
            {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(200)}}
            | {"$ref": "#/$defs/d0"},
            "the reference '#/$defs/d200' does not lead to a schema",
        ),
    ],
)
def test_an_invalid_schema_is_refused_with_its_reason(document: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Survey(document)

    assert str(caught.value) == reason


def test_subschemas_nested_too_deeply_are_refused() -> None:
    document: dict[str, Any] = {}
    for _ in range(MAX_SCHEMA_DEPTH - 1):
        document = {"allOf": [document]}
    Survey(document)

    with pytest.raises(SchemaError, match="nested deeper than 32 subschemas"):
        Survey({"allOf": [document]})


@each_row("reference", ["http://e.org/s", "//e.org/s", "file:///s", "other.json"])
def test_an_external_reference_is_refused(reference: str) -> None:
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        with pytest.raises(SchemaError, match="leads outside of the schema"):
            Survey({"properties": {"a": {keyword: reference}}})


@each_row(
    "document",
    [
        {"$id": "http://e.org/", "$ref": "http://[x"},
        {"$id": "http://e.org/", "$ref": "http://a\u2100b/"},
        {"$id": "http://e.org/", "properties": {"a": {"$id": "http://[x"}}},
        {"$id": "//e[/", "$ref": "b"},
        {"$ref": "http://[x#a"},
    ],
)
def test_an_invalid_uri_is_refused(document: Any) -> None:
    with pytest.raises(SchemaError, match=r"it, or the \$id around it, is not a URI"):
        Survey(document)


def test_dynamic_reference_is_followed_to_every_anchor_of_its_name() -> None:
    inner = {"$id": "inner", "$dynamicRef": "#n", "$defs": {"leaf": {"$dynamicAnchor": "n"}}}
    document = {"$id": "https://e.org/", "$dynamicAnchor": "n", "$ref": "inner"}

    with pytest.raises(SchemaError, match="leads back to its own place"):
        by_depth(Survey({**document, "$defs": {"inner": inner}}))


@each_row("index", ["2", "-1", "x", "", "9" * 5_000, "\u0660"])
def test_a_reference_with_an_invalid_list_index_is_refused(index: str) -> None:
    with pytest.raises(SchemaError, match="does not lead to a schema"):
        Survey({"anyOf": [{}, {}], "properties": {"a": {"$ref": f"#/anyOf/{index}"}}})


def test_alternatives_nest_if_one_of_them_has_further_rules() -> None:
    assert not Survey({"anyOf": [{"type": "null"}]}).nests_alternatives()
    assert not Survey({"allOf": [{"items": {}}]}).nests_alternatives()
    assert Survey({"anyOf": [{"items": {}}]}).nests_alternatives()
    assert Survey({"oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {}}}).nests_alternatives()


def test_only_a_schema_without_references_is_a_tree() -> None:
    assert Survey({"items": {"type": "null"}}).is_tree()
    assert not Survey({"items": {"$ref": "#"}}).is_tree()
    assert not Survey({"unevaluatedItems": False}).is_tree()


def test_relaxed_schema_accepts_every_valid_value() -> None:
    document = {
        "items": {"pattern": "(?!a)", "minLength": 1, "not": {"const": "x"}},
        "patternProperties": {"(?!a)": {"type": "null"}},
        "oneOf": [{"pattern": "^a"}],
    }
    survey = Survey(document)
    assert survey.patterns == {"(?!a)", "^a"}

    survey.relax({"(?!a)"})
    assert document == {
        "items": {"minLength": 1},
        "patternProperties": {"": True},
        "allOf": [{"anyOf": [{"pattern": "^a"}]}],
    }


@each_row(
    ("value", "size", "depth"),
    [
        (None, 1, 0),
        ([], 1, 0),
        ([1, [2]], 4, 2),
        ({"a": {"b": 1}}, 3, 2),
        ((1, 2), 3, 1),
        ("x" * 2048, 3, 0),
        (nested(100_000), 66, 65),  # it stops one level over the limit
    ],
)
def test_measure_returns_size_and_depth(value: Any, size: int, depth: int) -> None:
    assert measure(value) == (size, depth)
