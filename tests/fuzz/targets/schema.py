"""Untrusted JSON Schema: accepted or refused in bounded time, and consistent about each value."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs  # noqa: F401 - loading it takes time that no input shall be blamed for

from interlock import schema
from interlock.errors import SchemaError
from tests.fuzz.choices import Choices
from tests.fuzz.watch import check_text

LIMIT = 0.3  # seconds; each document is processed three times, some 25 ms each at worst
KEYWORDS = [
    *("type", "properties", "required", "items", "prefixItems", "additionalProperties", "not"),
    *("anyOf", "oneOf", "allOf", "if", "then", "else", "$ref", "$defs", "definitions", "$id", "id"),
    *("$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$schema"),
    *("pattern", "patternProperties", "propertyNames", "const", "enum", "minimum", "multipleOf"),
    *("maxLength", "minItems", "uniqueItems", "contains", "minContains", "dependentSchemas"),
    *("dependentRequired", "dependencies", "unevaluatedProperties", "unevaluatedItems", "format"),
    *("maxProperties", "exclusiveMinimum", "contentSchema", "default", "examples", "title"),
]
WORDS = [
    *("string", "object", "array", "integer", "number", "boolean", "null", "any", "a", "b", ""),
    *("#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#a", "b", "http://x/y", "file:///x", "#/a"),
    *("^a+$", "(a+)+$", "(?=a)", "[", "\\d{1,9999}", "(a|a)*", "\\p{L}", "a" * 300, "~0~1", "%25"),
    *("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"),
    *("http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2019-09/schema"),
]
TOKENS = [f'"{each}"'.encode() for each in (*KEYWORDS, *WORDS)] + [b":{", b"},", b"[{", b"true"]


def target(data: bytes) -> None:
    choices = Choices(data)
    if choices.flag():
        document: Any = wrapped(choices, schema_of(choices))
        value = choices.one_of([value_of(choices), choices.json()])
        for _ in range(choices.number(3)):
            value = choices.one_of([[value] * choices.number(16), {"a": value}, [value]])
        written = json.dumps(document).encode()
    else:
        value, written = value_of(choices), choices.rest()
    refused = problem(schema.check, written)
    if isinstance(refused, str):
        assert problem(schema.check_tool_input, written)
    validator = problem(schema.compile, written)
    if isinstance(validator, str):
        return
    assert not isinstance(refused, str)  # `check` refuses nothing that `compile` accepts
    assert isinstance(validator, schema.Validator)
    fits = validator.is_valid(value)
    errors = validator.errors(value)
    assert fits == (errors == [])
    assert len(errors) <= 5
    for line in (*errors, *validator.errors(value, echo=False)):
        assert "\n" not in line
        assert len(line) < 2000


def problem(check: Any, written: bytes) -> Any:
    try:
        return check(written)
    except SchemaError as error:
        check_text(error)
        return str(error)


def schema_of(choices: Choices, depth: int = 6) -> Any:
    kind = choices.number(16)
    if kind == 0:
        return choices.flag()
    if kind == 1 or not depth:
        return choices.json(1)
    return {
        choices.one_of(KEYWORDS): argument_of(choices, depth - 1) for _ in range(choices.number(5))
    }


def wrapped(choices: Choices, schema: Any) -> Any:
    """Return a document that is deep, wide or both, from a few bytes."""
    if choices.number(8):
        return schema
    for _ in range(choices.number(40)):
        if len(json.dumps(schema)) > 3000:
            break
        match choices.number(5):
            case 0:
                schema = {"items": schema}
            case 1:
                schema = {"properties": {"a": schema}}
            case 2:
                schema = {"$defs": {"a": schema}, "$ref": "#/$defs/a"}
            case 3:
                keyword = choices.one_of(["anyOf", "allOf", "oneOf", "prefixItems"])
                schema = {keyword: [schema] * (1 + choices.number(12))}
            case _:
                schema = {"not": schema, **(schema if isinstance(schema, dict) else {})}
    return schema


def argument_of(choices: Choices, depth: int) -> Any:
    match choices.number(8):
        case 0 | 1:
            return choices.one_of(WORDS)
        case 2:
            return schema_of(choices, depth)
        case 3:
            return [schema_of(choices, depth) for _ in range(choices.number(4))]
        case 4:
            return {choices.one_of(WORDS): schema_of(choices, depth) for _ in range(3)}
        case 5:
            return choices.some_of(WORDS, 3)
        case 6:
            return choices.number(10) - 1
        case _:
            return choices.json(2)


def value_of(choices: Choices, depth: int = 5) -> Any:
    """Return a value of the few names and words that the schemas use as well."""
    match choices.number(6 if depth else 4):
        case 0:
            return choices.one_of(["a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "", "b"])
        case 1:
            return choices.number(4)
        case 2:
            return choices.flag()
        case 3:
            return None
        case 4:
            return [value_of(choices, depth - 1) for _ in range(choices.number(4))]
        case _:
            names = choices.some_of(["a", "b", "", "c"], 3)
            return {name: value_of(choices, depth - 1) for name in names}
