from typing import Any

from interlock import schema
from tests.schema.documents import TIME, encode, errors
from tests.support.rows import each_row


@each_row(
    ("value", "expected"),
    [
        ({"timezone": "UTC"}, []),
        ({}, ["missing required argument 'timezone'"]),
        (
            {"tz": "UTC"},
            [
                "unknown argument 'tz' (did you mean 'timezone'?)",
                "missing required argument 'timezone'",
            ],
        ),
        ({"timezone": "UTC", "limit": 500}, ["limit: 500 is more than the maximum 50"]),
        ({"timezone": "UTC", "limit": 0}, ["limit: 0 is less than the minimum 1"]),
        ({"timezone": "UTC", "limit": "5"}, ["limit: '5' is not an integer"]),
        ({"timezone": ""}, ["timezone: '' has 0 characters, the minimum is 1"]),
        ({"timezone": "UTC", "unit": "day"}, ["unit: 'day' is not one of 'hour', 'minute'"]),
        ({"timezone": "UTC", "note": 1}, ["note: 1 is not a string or null"]),
        ({"timezone": "UTC", "filter": {}}, ["filter: missing required property 'items'"]),
        (
            {"timezone": "UTC", "filter": {"items": ["a", "b", 3]}},
            ["filter.items[2]: 3 is not a string"],
        ),
        ([], ["the list is not an object"]),
        ({"timezone": b"UTC"}, ["not a JSON value: Unsupported type: 'bytes'"]),
    ],
)
def test_an_error_names_place_value_and_limit(value: Any, expected: list[str]) -> None:
    assert sorted(errors(TIME, value)) == sorted(expected)


@each_row(
    ("document", "value", "expected"),
    [
        ({"const": "a"}, "b", "'b' is not 'a'"),
        ({"exclusiveMinimum": 3}, 3, "3 is not more than 3"),
        ({"exclusiveMaximum": 3}, 3, "3 is not less than 3"),
        ({"multipleOf": 3}, 4, "4 is not a multiple of 3"),
        ({"maxLength": 1}, "ab", "'ab' has 2 characters, the maximum is 1"),
        ({"minItems": 2}, [1], "has 1 item, the minimum is 2"),
        ({"maxItems": 1}, [1, 2], "has 2 items, the maximum is 1"),
        ({"minProperties": 2}, {"a": 1}, "has 1 member, the minimum is 2"),
        ({"maxProperties": 0}, {"a": 1}, "has 1 member, the maximum is 0"),
        ({"uniqueItems": True}, [1, 1], "has duplicate items"),
        ({"pattern": "^a"}, "b", "'b' does not match the pattern ^a"),
        ({"properties": {"a": False}}, {"a": 1}, "a: 1 is not allowed here"),
        (
            {"properties": {"name": {}, "arguments": {}}, "additionalProperties": False},
            {"timezone": "UTC"},
            "unknown argument 'timezone' (put it into arguments='{\"timezone\": …}')",
        ),
        (
            {"contains": {"type": "null"}},
            [1],
            "has too few or too many items of the required kind",
        ),
        (
            {"propertyNames": {"maxLength": 1}},
            {"ab": 1},
            "a member name is not allowed: 'ab' has 2 characters, the maximum is 1",
        ),
        ({"not": {"type": "null"}}, None, "null is excluded by the schema"),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
            3,
            "3 fits several of the alternatives, but must fit exactly one",
        ),
        (
            {"anyOf": [{"type": "null"}, {"minimum": 5, "type": "integer"}]},
            3,
            "3 is less than the minimum 5",
        ),
        (
            {"anyOf": [{"minimum": 5}, {"minimum": 6}]},
            3,
            "3 fits none of the 2 alternatives",
        ),
        (
            {"anyOf": [{"properties": {"kind": {"const": kind}}} for kind in ("a", "b")]},
            {"kind": "c"},
            "kind: 'c' is not one of 'a', 'b'",
        ),
        ({"properties": {"a b": {"type": "null"}}}, {"a b": 1}, "['a b']: 1 is not null"),
    ],
)
def test_each_keyword_has_its_own_message(document: Any, value: Any, expected: str) -> None:
    assert errors(document, value) == [expected]


def test_a_long_value_is_not_echoed() -> None:
    (line,) = errors({"type": "integer"}, "x" * 100_000)

    assert line.endswith("x…' is not an integer")
    assert len(line) < 120


def test_a_long_number_is_not_echoed() -> None:
    assert errors({"type": "string"}, 10**300) == ["the number is not a string"]


def test_outermost_member_is_named_with_the_given_noun() -> None:
    validator = schema.compile(encode(TIME), member="field")

    assert validator.errors({}) == ["missing required field 'timezone'"]


@each_row(
    ("rule", "value"),
    [
        ({"type": "integer"}, "secret"),
        ({"enum": [1]}, "secret"),
        ({"pattern": "^a"}, "secret"),
        ({"maxLength": 2}, "secret"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "secret"),
        ({"oneOf": [{"properties": {"k": {"const": c}}} for c in "ab"]}, {"k": "secret"}),
        ({"type": "object", "propertyNames": {"maxLength": 1}}, {"secret": 1}),
        ({"minimum": 5}, 4.25),
        ({"not": {}}, "secret"),
    ],
)
def test_error_without_echo_shows_no_value(rule: Any, value: Any) -> None:
    document = encode({"type": "object", "properties": {"a": rule}})

    (line,) = schema.compile(document).errors({"a": value}, echo=False)

    assert line.startswith("a")
    assert "secret" not in line
    assert "4.25" not in line
