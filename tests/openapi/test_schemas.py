"""Schemas of every OpenAPI version as JSON Schema 2020-12."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from interlock.openapi import document
from interlock.openapi.references import DocumentError
from interlock.openapi.schemas import Translator
from tests.support.rows import each_row


def translator(direction: Any = "input", version: str = "3.0.3", **schemas: Any) -> Translator:
    root = {"openapi": version, "components": {"schemas": schemas}}
    return Translator(document.read(msgspec.json.encode(root)), direction)


def translate(schema: Any, direction: Any = "input", **schemas: Any) -> Any:
    found = translator(direction, **schemas)
    translated = found.translate(schema)
    definitions = found.definitions([translated])
    whole = {"$defs": definitions, "allOf": [translated]} if definitions else translated
    jsonschema_rs.validator_for(whole)  # raises if it is not a valid schema
    return translated


def accepts(schema: Any, value: Any, **schemas: Any) -> bool:
    found = translator(**schemas)
    translated = found.translate(schema)
    whole = {"$defs": found.definitions([translated]), "allOf": [translated]}
    return jsonschema_rs.validator_for(whole).is_valid(value)


@each_row(
    ("schema", "translated"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"enum": ["a"], "nullable": True}, {"enum": ["a", None]}),
        ({"const": "a", "nullable": True}, {"enum": ["a", None]}),
        ({"nullable": True}, {}),
        ({"type": "integer", "x-nullable": True}, {"type": ["integer", "null"]}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"type": "file"}, {"type": "string", "format": "binary"}),
        (
            {"type": "string", "example": "a", "xml": {}, "externalDocs": {}, "x-a": 1, "$id": "b"},
            {"type": "string"},
        ),
        ({"items": [{}, {"type": "string"}]}, {"prefixItems": [{}, {"type": "string"}]}),
        ({"oneOf": [{"minimum": 1}, {"maximum": 2}]}, {"anyOf": [{"minimum": 1}, {"maximum": 2}]}),
    ],
)  # fmt: skip
def test_keyword_of_an_older_version_is_translated(schema: Any, translated: Any):
    assert translate(schema) == translated


@each_row(
    ("schema", "translated"),
    [
        ({"type": "any"}, {}),
        ({"type": ["string", "datetime"]}, {}),
        ({"type": "object", "required": True}, {"type": "object"}),
        ({"required": ["a", 1, "a"]}, {"required": ["a"]}),
        ({"minLength": "1", "maxLength": 5.0, "minimum": "0"}, {"maxLength": 5}),
        ({"enum": []}, {}),
        ({"properties": [], "items": 1, "allOf": []}, {}),
        ({"type": "string", "enum": [1, True]}, {"type": "string", "enum": ["1", "true"]}),
        ({"type": "number", "enum": ["a"]}, {"enum": ["a"]}),
        ({"multipleOf": 0}, {}),
        ("text", {}),
        (None, {}),
    ],
)
def test_broken_keyword_is_left_out(schema: Any, translated: Any):
    assert translate(schema) == translated


def test_reference_beside_nullable_also_accepts_null_and_keeps_its_description():
    schema = {"$ref": "#/components/schemas/A", "nullable": True, "description": "An A."}

    assert translate(schema, A={"type": "string"}) == {
        "description": "An A.",
        "anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}],
    }


def test_definitions_keep_their_names_and_equal_names_get_a_suffix():
    found = translator(A={"type": "string"}, B={"properties": {"A": {"type": "integer"}}})
    translated = found.translate(
        {
            "properties": {
                "a": {"$ref": "#/components/schemas/A"},
                "b": {"$ref": "#/components/schemas/B/properties/A"},
            }
        }
    )

    assert found.definitions([translated]) == {"A": {"type": "string"}, "A_2": {"type": "integer"}}


def test_recursive_definitions_are_collected_once():
    found = translator(Tree={"properties": {"t": {"$ref": "#/components/schemas/Tree"}}})
    translated = found.translate({"$ref": "#/components/schemas/Tree"})

    tree = {"properties": {"t": {"$ref": "#/$defs/Tree"}}}
    assert found.definitions([translated]) == {"Tree": tree}


def test_read_only_properties_are_removed_together_with_their_requirement():
    parts: dict[str, Any] = {
        "Base": {
            "type": "object",
            "required": ["id", "key"],
            "properties": {
                "id": {"type": "string", "readOnly": True},
                "key": {"type": "string", "writeOnly": True},
            },
        },
        "Stamp": {"type": "string", "readOnly": True},
    }
    schema = {
        "allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "at"]}],
        "properties": {"at": {"$ref": "#/components/schemas/Stamp"}},
    }

    for direction, kept in (("input", ["key"]), ("output", ["id"])):
        found = translator(direction, **parts)
        translated = found.translate(schema)
        base = found.definitions([translated])["Base"]
        assert isinstance(base, dict)
        assert base["required"] == kept
        assert list(base["properties"]) == kept
    assert "at" not in str(translate(schema, "input", **parts))


def test_requirement_of_a_base_is_dropped_where_a_part_makes_it_read_only():
    base = {"required": ["id"], "properties": {"id": {"type": "string"}}}
    schema = {
        "allOf": [
            {"$ref": "#/components/schemas/Base"},
            {"properties": {"id": {"type": "string", "readOnly": True}}},
        ]
    }

    assert accepts(schema, {}, Base=base)


def test_discriminator_fixes_its_property_in_each_alternative():
    schema = {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {
            "propertyName": "kind",
            "mapping": {"cat": "#/components/schemas/Cat", "dog": "Dog", "hound": "Dog"},
        },
    }
    parts = {
        "Cat": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "purrs": {"const": 1}},
        },
        "Dog": {"type": "object", "properties": {"kind": {"type": "string"}}},
    }

    assert accepts(schema, {"kind": "hound"}, **parts)
    assert accepts(schema, {"kind": "cat", "purrs": 1}, **parts)
    assert not accepts(schema, {"kind": "cat", "purrs": 2}, **parts)
    assert not accepts(schema, {"kind": "bird"}, **parts)


def test_pattern_that_needs_backtracking_is_dropped_and_named_in_a_warning():
    found = translator()

    assert found.translate({"pattern": "^(?!a)b"}) == {}
    assert found.translate({"pattern": "^a{2}$"}) == {"pattern": "^a{2}$"}
    assert found.translate({"patternProperties": {"(?=x)": {}, "^y": {}}}) == {
        "patternProperties": {"^y": {}}
    }


def test_property_whose_name_is_a_keyword_is_a_property():
    schema = {
        "properties": {"$ref": {"type": "string"}, "default": {"$ref": "#/components/schemas/A"}}
    }

    assert translate(schema, A={"type": "integer"}) == {
        "properties": {"$ref": {"type": "string"}, "default": {"$ref": "#/$defs/A"}}
    }
    assert translate({"default": {"$ref": "#/nowhere"}}) == {"default": {"$ref": "#/nowhere"}}


def test_reference_that_leads_nowhere_or_to_text_is_refused():
    for reference in ("#/components/schemas/No", "#/openapi"):
        with pytest.raises(DocumentError, match=r"does not lead to a schema|leads nowhere"):
            translate({"items": {"$ref": reference}})
