import contextlib
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import schema
from interlock.errors import SchemaError
from interlock.schema import inspection
from tests.schema.documents import TIME, doubling, encode, errors
from tests.support.rows import each_row


def nested(depth: int, leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


# Values


def test_errors_are_limited_in_number() -> None:
    validator = schema.compile(encode({"items": {"type": "integer"}}))

    assert len(validator.errors(["x"] * 100)) == 5
    assert len(validator.errors(["x"] * 100, limit=2)) == 2


def test_is_valid_agrees_with_errors_also_for_values_outside_json() -> None:
    validator = schema.compile(encode(TIME))

    assert validator.is_valid({"timezone": "UTC"})
    assert not validator.is_valid({"timezone": 1})
    assert not validator.is_valid({"timezone": b"UTC"})
    assert not validator.is_valid("\ud800")


# Schemas that are refused


@each_row(
    ("document", "reason"),
    [
        (5, "a schema must be an object or a boolean, not a number"),
        ({"type": "strnig"}, "'strnig' is not a type of JSON Schema"),
        ({"$ref": "#/$defs/none"}, "the reference '#/$defs/none' does not lead to a schema"),
        (
            {"$ref": "#"},
            "a reference leads back to its own place without going deeper into the value, "
            "so checking would never end",
        ),
    ],
)
def test_an_invalid_schema_is_refused_with_its_reason(document: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        schema.check(encode(document))

    assert str(caught.value) == reason


@each_row(
    "reference",
    ["http://127.0.0.1:{port}/s.json", "//127.0.0.1:{port}/s", "file:///etc/passwd", "other.json"],
)
def test_external_references_are_refused_and_never_fetched(reference: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connected = threading.Event()

        def listen() -> None:
            try:
                listener.accept()[0].close()
                connected.set()
            except OSError:
                pass

        thread = threading.Thread(target=listen)
        thread.start()
        target = reference.format(port=listener.getsockname()[1])
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            document = {"properties": {"a": {keyword: target}}}
            with pytest.raises(SchemaError, match="leads outside of the schema"):
                schema.compile(encode(document))
        # The value of `default` or an unknown keyword is not a schema, so its `$ref` is ignored.
        schema.compile(encode({"default": {"$ref": target}, "x-more": {"$ref": target}}))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()

    assert not connected.is_set()


@each_row("depth", [33, 1_000, 20_000])
def test_a_schema_nested_too_deeply_is_refused(depth: int) -> None:
    with pytest.raises(SchemaError, match="deeper than"):
        schema.check(b'{"allOf":[' * depth + b"{}" + b"]}" * depth)


def test_a_schema_over_256_kib_is_refused() -> None:
    fits = b'{"description":"' + b"x" * (256 * 1024 - 18) + b'"}'
    schema.check(fits)

    with pytest.raises(SchemaError, match="262,145 bytes, over the limit of 262,144"):
        schema.check(fits + b" ")


@each_row("text", [b"", b"{", b"\xff", b'{"a":NaN}', b'{"a":1e999}'])
def test_a_schema_must_be_json(text: bytes) -> None:
    with pytest.raises(SchemaError, match="the schema is not JSON"):
        schema.check(text)


def test_an_invalid_bound_is_refused_by_compile() -> None:
    document = encode({"type": "object", "properties": {"a": {"required": True}}})
    schema.check(document)

    with pytest.raises(SchemaError, match=r"not valid: properties\.a\.required: true is not of"):
        schema.compile(document)


@each_row(
    ("document", "reason"),
    [
        (True, "an input schema must be an object, not a boolean"),
        ({}, 'an input schema must say "type": "object", which is missing'),
        ({"type": "array"}, 'an input schema must say "type": "object", not \'array\''),
        ({"type": "object", "properties": {"a": {"type": 5}}}, "5 is not a type of JSON Schema"),
    ],
)
def test_the_input_schema_of_a_tool_must_describe_an_object(document: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        schema.check_tool_input(encode(document))

    assert str(caught.value) == reason


@pytest.mark.slow("starts a program")
def test_check_tool_input_does_not_load_the_schema_engine() -> None:
    code = (
        "import sys; from interlock import schema\n"
        'schema.check_tool_input(b\'{"type":"object"}\')\n'
        "sys.exit('jsonschema_rs' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Schemas that are accepted


@each_row(
    "dialect",
    [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
    ],
)
def test_each_supported_dialect_works(dialect: str) -> None:
    document = {"$schema": dialect, "type": "object", "properties": {"a": {"type": "null"}}}

    assert errors(document, {"a": 1}) == ["a: 1 is not null"]


@each_row(
    "document",
    [
        {"properties": {"a": {"$ref": "#/$defs/x~1y%25"}}, "$defs": {"x/y%": {"type": "null"}}},
        {"properties": {"a": {"$ref": "#n"}}, "$defs": {"q": {"$anchor": "n", "type": "null"}}},
        {"$id": "https://e.org/s", "properties": {"a": {"$ref": "/s#/$defs/n"}}}
        | {"$defs": {"n": {"type": "null"}}},
        {"$id": "https://e.org/s", "properties": {"a": {"$ref": "n"}}}
        | {"$defs": {"q": {"$id": "https://e.org/n", "type": "null"}}},
        {"properties": {"a": {"$ref": "#/components/n"}}, "components": {"n": {"type": "null"}}},
        {
            "properties": {"a": {"$ref": "#/anyOf/1"}},
            "anyOf": [{"minProperties": 1}, {"type": "null"}],
        },
        {"$schema": "http://json-schema.org/draft-07/schema#"}
        | {
            "properties": {"a": {"$ref": "#n"}},
            "definitions": {"q": {"$id": "#n", "type": "null"}},
        },
        {"x-unknown": [1], "properties": {"a": {"type": ["null"], "x-header": "A"}}},
        {"dependencies": {"b": ["c"]}, "properties": {"a": {"type": "null"}}},
    ],
)
def test_internal_references_and_unknown_keywords_are_accepted(document: Any) -> None:
    validator = schema.compile(encode(document))

    assert validator.is_valid({"a": None})
    assert not validator.is_valid({"a": 1})


def test_true_accepts_everything_and_false_nothing() -> None:
    assert schema.compile(b"true").is_valid(1)
    assert not schema.compile(b"false").is_valid(1)


def test_a_format_is_not_checked() -> None:
    document = {"$schema": "http://json-schema.org/draft-07/schema#", "format": "date"}

    assert errors(document, "tomorrow") == []


# Hostile patterns


def test_a_pattern_with_exponential_backtracking_runs_in_linear_time() -> None:
    (line,) = errors({"pattern": "^(a+)+$"}, "a" * 1_000_000 + "!")

    assert line.endswith("does not match the pattern ^(a+)+$")


@each_row(
    "pattern",
    [
        *(r"^(?!\.)[a-z.]+@[a-z]+$", r"(a)\1", r"(?<=a)b", r"[\w-\d]", "["),
        *(r"^(\d{1,100}){1,100}$", r"^(\d{1,1000}){1,1000}$"),  # would be large when compiled
    ],
)
def test_a_pattern_that_needs_backtracking_is_not_checked(pattern: str) -> None:
    validator = schema.compile(encode({"items": {"pattern": pattern, "minLength": 2}}))

    assert validator.errors(["xy"]) == []
    assert validator.errors(["x"]) == ["[0]: 'x' has 1 character, the minimum is 2"]


@each_row(
    ("document", "value"),
    [
        ({"not": {"pattern": "(?!a)"}}, "b"),
        ({"oneOf": [{"pattern": "^(?!a)"}, {"pattern": "^a"}]}, "a"),
        ({"if": {"pattern": "(?!a)"}, "then": {"maxLength": 0}}, "b"),
        ({"contains": {"pattern": "(?!a)"}, "maxContains": 1}, ["b", "c"]),
        ({"patternProperties": {"^(?!a)": {}}, "additionalProperties": False}, {"b": 1}),
        (
            {
                "oneOf": [{"patternProperties": {"^(?!a)": {}}}, {"not": {}}],
                "unevaluatedProperties": False,
            },
            {"b": 1},
        ),
    ],
)
def test_an_unchecked_pattern_never_makes_the_schema_stricter(document: Any, value: Any) -> None:
    assert errors(document, value) == []


# Hostile sizes


def test_errors_of_an_expensive_schema_come_in_bounded_time() -> None:
    assert errors(doubling("anyOf", 13), "x") == [
        "does not fit the schema, which is too complex to find the place"
    ]


def test_a_long_list_with_an_expensive_schema_is_refused() -> None:
    bomb = doubling("anyOf", 12)
    validator = schema.compile(encode({"items": {"$ref": bomb["$ref"]}, "$defs": bomb["$defs"]}))

    (line,) = validator.errors([1] * 10_000)
    assert line.startswith("too much to check: 10,001 values, nested 1 deep")
    assert not validator.is_valid([1] * 10_000)
    assert validator.is_valid([1] * 10)


@each_row("depth", [0, 1, 30, 63])
def test_a_recursive_schema_validates_nested_values(depth: int) -> None:
    document = {
        "anyOf": [
            {"type": "integer"},
            {"type": "array", "items": {"$ref": "#"}},
            {"type": "object", "additionalProperties": {"$ref": "#"}},
        ]
    }
    assert errors(document, nested(depth)) == []
    assert errors(document, nested(depth, "x")) != []


def test_a_schema_whose_cost_doubles_with_each_level_is_bounded() -> None:
    each = {"properties": {"a": {"$ref": "#"}}, "required": ["b"]}
    validator = schema.compile(encode({"type": "object", "anyOf": [each, each]}))

    assert validator.errors(nested(10)) != []
    (line,) = validator.errors(nested(60))
    assert line.startswith("too much to check: 61 values, nested 60 deep")


@pytest.mark.slow("works through much data")
@each_row("depth", [65, 1_000, 100_000])
def test_a_value_nested_too_deeply_is_refused(depth: int) -> None:
    validator = schema.compile(b"true")

    assert validator.errors(nested(depth)) == ["nested deeper than 64 levels"]
    assert not validator.is_valid(nested(depth))


def test_a_long_list_of_invalid_items_reports_only_the_first() -> None:
    assert errors({"items": {"type": "integer"}}, ["x"] * 100_000) == ["[0]: 'x' is not an integer"]


# Anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
REFERENCES = st.sampled_from(
    ["#", "#/$defs/a", "#/properties/a", "#/anyOf/0", "#a", "x", "%", "#/"]
)
SCHEMAS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries({"type": st.sampled_from([*inspection._TYPES, 5])})
    | JSON,
    lambda inner: st.dictionaries(
        st.sampled_from(sorted(inspection._KEYWORDS)),
        inner
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner)
        | REFERENCES,
        max_size=4,
    ),
    max_leaves=15,
)


@pytest.mark.slow("made-up input, and much of it")
@settings(max_examples=300, deadline=None, derandomize=True)
@given(SCHEMAS, JSON)
def test_any_schema_either_compiles_or_fails_with_one_line(document: Any, value: Any) -> None:
    try:
        validator = schema.compile(encode(document))
    except SchemaError as error:
        reason = str(error)
    else:
        reason = ""
        assert validator.is_valid(value) == (validator.errors(value) == [])
    assert "\n" not in reason
    assert len(reason) < 400


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary())
def test_any_bytes_either_compile_or_fail_with_a_schema_error(text: bytes) -> None:
    with contextlib.suppress(SchemaError):
        schema.check(text)
