"""Arguments as models send them: read as they are meant, or left as they are."""

from __future__ import annotations

import json
from typing import Any

from interlock import schema
from interlock.schema.conversion import convert
from tests.support.rows import each_row

INTEGER, TEXT, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
NUMBER, BOOLEAN = {"type": "number"}, {"type": "boolean"}
INTEGERS = {"type": "array", "items": INTEGER}
TAGGED = {
    "oneOf": [
        {"properties": {"kind": {"const": "count"}, "value": INTEGER}, "required": ["kind"]},
        {"properties": {"kind": {"const": "flag"}, "value": BOOLEAN}, "required": ["kind"]},
    ]
}


def converted(given: Any, *, keep_null: tuple[str, ...] = (), **members: Any) -> Any:
    """Convert the argument `a`; return all arguments, and what was read."""
    whole = {"type": "object", "properties": members, "$defs": {"N": {"allOf": [INTEGER]}}}
    validator = schema.compile(json.dumps(whole).encode())
    return convert({"a": given}, validator, keep_null)


@each_row(
    "rule, given, read",
    [
        (INTEGER, "5", 5),
        (INTEGER, " -5\n", -5),
        (INTEGER, "5.0", 5),
        (INTEGER, "123456789012345678901234567890", 123456789012345678901234567890),
        (NUMBER, "5.0", 5.0),
        (NUMBER, "0.1", 0.1),
        (BOOLEAN, "true", True),
        (INTEGERS, "[1,2]", [1, 2]),
        (INTEGERS, ["1", 2], [1, 2]),
        ({"type": "object", "properties": {"b": INTEGERS}}, '{"b": "[\\"1\\"]"}', {"b": [1]}),
        ({"type": "object", "additionalProperties": INTEGER}, {"any": "1"}, {"any": 1}),
        ({"$ref": "#/$defs/N"}, "5", 5),
        ({"anyOf": [INTEGERS, NULL]}, "[1]", [1]),
        ({"anyOf": [INTEGERS, {"type": "array", "items": TEXT}]}, '["x"]', ["x"]),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": True}, "true", True),
        ({"anyOf": [INTEGER, NULL]}, "null", None),
        (TAGGED, {"kind": "flag", "value": "true"}, {"kind": "flag", "value": True}),
    ],
)
def test_json_text_is_read_where_the_schema_takes_no_text(rule: Any, given: Any, read: Any):
    assert converted(given, a=rule) == ({"a": read}, {"a": "text"})
    assert type(converted(given, a=rule)[0]["a"]) is type(read)


@each_row(
    "rule, given",
    [
        (INTEGER, "5x"),
        (INTEGER, "5.5"),
        (INTEGER, "12345678901234567890.5"),
        (NUMBER, "12345678901234567890.5"),  # a float has fewer digits
        (NUMBER, "NaN"),
        (NUMBER, "1e400"),
        (INTEGER, "1e999999999"),
        (BOOLEAN, "True"),
        (BOOLEAN, "1"),
        (INTEGERS, "1,2"),
        (INTEGERS, "1"),
        ({"type": "object"}, '{"b": 1, "b": 2}'),
        ({"type": "object"}, "[" * 100_000),
        # The schema takes text, if another one, so the text may have been meant as text.
        ({"type": "string", "maxLength": 1}, "12"),
        ({"anyOf": [{"type": "string", "pattern": "^x"}, INTEGER]}, "12"),
        ({"enum": ["1", 2]}, "2"),
        # An item cannot be left out, because the others would move.
        (INTEGERS, [1, None]),
    ],
)
def test_a_value_without_one_lossless_reading_stays_as_it_is(rule: Any, given: Any):
    assert converted(given, a=rule) == ({"a": given}, {})


@each_row("rule", [{"type": ["string", "object"]}, TEXT, {}, {"enum": ["[1]"]}])
def test_text_stays_text_where_the_schema_takes_it(rule: Any):
    assert converted("[1]", a=rule) == ({"a": "[1]"}, {})


@each_row(
    "rule, given, read",
    [
        (TEXT, None, {}),
        (INTEGER, "null", {}),
        ({"enum": ["x", "y"]}, None, {}),
        ({"anyOf": [INTEGER, TEXT]}, None, {}),
        ({"type": ["string", "null"]}, None, {"a": None}),
        ({}, None, {"a": None}),
        ({"type": "object", "properties": {"b": TEXT}}, {"b": None}, {"a": {}}),
        (
            {"type": "object", "properties": {"b": TEXT}, "required": ["b"]},
            {"b": None},
            {"a": {"b": None}},
        ),
    ],
)
def test_null_is_left_out_if_the_member_is_optional_and_takes_no_null(
    rule: Any, given: Any, read: Any
):
    assert converted(given, a=rule)[0] == read
    assert converted(given, a=rule, keep_null=("a",))[0] == {"a": given}


def test_valid_members_are_converted_beside_invalid_members():
    arguments = {"a": "1", "b": "x", "c": None}
    members = {"a": INTEGER, "b": INTEGER, "c": TEXT}
    whole = json.dumps({"properties": members, "required": ["c"]}).encode()

    found, read = convert(arguments, schema.compile(whole))

    assert (found, read) == ({"a": 1, "b": "x", "c": None}, {"a": "text"})
    assert arguments == {"a": "1", "b": "x", "c": None}


def test_a_thousand_rows_are_converted_at_once():
    row = {"type": "object", "properties": {"n": INTEGER, "note": TEXT}}
    given = [{"n": "1", "note": "2"}] * 1_000

    found, _ = converted(json.dumps(given), a={"type": "array", "items": row})

    assert found == {"a": [{"n": 1, "note": "2"}] * 1_000}
