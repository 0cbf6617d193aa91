from __future__ import annotations

import re
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from interlock.errors import SchemaError
from interlock.protocol.headers import (
    ANNOTATION,
    MAX_DEPTH,
    MAX_INTEGER,
    ToolHeaders,
    annotated,
    decode_value,
    encode_value,
)
from interlock.types import Tool
from tests.support.rows import each_row

# What RFC 9110 lets a value be, without the bytes over 0x7f: visible ends, blanks only within.
SAFE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")

# Values


def is_plain(value: str) -> bool:
    """The rule of the specification, character by character."""
    return (
        all(character == "\t" or " " <= character <= "~" for character in value)
        and value == value.strip(" \t")
        and not (value.startswith("=?base64?") and value.endswith("?="))
    )


TEXTS = st.one_of(
    st.text(),
    st.text(st.sampled_from("a \t\r\n\0\x1b\x7f\x80é=?")),
    st.text(st.characters(max_codepoint=0x7F)),
    st.text().map(lambda text: f"=?base64?{text}?="),
    st.text().map(lambda text: f"=?base64?{text}"),
)


@given(TEXTS)
@example("=?base64?=")
@example("=?base64??=")
@example("a\n")
@example("eu\r\nAuthorization: x")
def test_any_text_survives_encoding_as_a_header(value: str):
    """R-16: no value reaches a header unencoded; CR, LF and NUL are impossible."""
    written = encode_value(value)

    assert SAFE.fullmatch(written)
    assert decode_value(written) == value
    assert (written == value) == is_plain(value)


@each_row(
    ("value", "written"),
    [
        ("", ""),
        ("us-west1", "us-west1"),
        ("us west\t1", "us west\t1"),
        (" us", "=?base64?IHVz?="),
        ("us\t", "=?base64?dXMJ?="),
        ("Zürich", "=?base64?WsO8cmljaA==?="),
        ("a\r\nb", "=?base64?YQ0KYg==?="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ("=?BASE64?YQ==?=", "=?BASE64?YQ==?="),
        ("=?base64?YQ==", "=?base64?YQ=="),
        ("YQ==?=", "YQ==?="),
    ],
)
def test_plain_value_is_not_encoded(value: str, written: str):
    assert encode_value(value) == written


@each_row("text", ["=?base64?YQ==", "YQ==?=", "=?Base64?YQ==?=", "=?base64?="])
def test_incomplete_or_unknown_marker_is_text(text: str):
    assert decode_value(text) == text


def test_empty_base64_is_the_empty_text():
    assert decode_value("=?base64??=") == ""


@each_row(
    "inner",
    ["YQ", "YQ=", "YR==", "YQ==YQ==", "Y Q==", "YQ==\n", "Y-_=", "YQ===", "é", "/w==", "=", "7aCA"],
)
def test_base64_that_is_not_strictly_so_is_refused(inner: str):
    """Padding, canonical bits, alphabet, UTF-8: two spellings of a value could pass a filter."""
    with pytest.raises(ValueError, match=r"."):
        decode_value(f"=?base64?{inner}?=")


def test_half_of_a_surrogate_pair_is_refused():
    with pytest.raises(ValueError, match="surrogates not allowed"):
        encode_value("\ud800")


# Annotations


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def header(name: Any, type: Any = "string", **more: Any) -> dict[str, Any]:
    return {"type": type, ANNOTATION: name, **more}


def test_annotations_are_found_through_properties_alone():
    found = annotated(
        schema(
            region=header("Region"),
            count=header("X-count.1", "integer", minimum=0),
            plain={"type": "string"},
            where=schema(zone=header("Zone", "boolean"), properties=schema(deep=header("Deep"))),
        )
    )

    assert found == {
        "Region": ("region",),
        "X-count.1": ("count",),
        "Zone": ("where", "zone"),
        "Deep": ("where", "properties", "deep"),
    }


@each_row(
    "value",
    [
        {},
        {"properties": []},
        {"properties": {"a": True}},
        {"type": ["object", "null"], "x-order": [1, "a", None, [["b"]], {"c": [2.5]}]},
        schema(),
    ],
)
def test_schema_without_header_annotations_yields_no_headers(value: dict[str, Any]):
    assert annotated(value) == {}


@each_row("name", [ANNOTATION, "properties", "items", "const", "$ref", "a.b", ""])
def test_an_argument_may_be_called_like_a_keyword(name: str):
    plain = {"type": "string"}
    named = {name: plain, "$defs": {name: plain}, "required": [name], "default": {name: 1}}

    assert annotated(schema(**{name: header("A")}) | {"$defs": {name: plain}}) == {"A": (name,)}
    assert annotated({**schema(**{name: plain}), "$defs": {name: plain}}) == {}
    assert annotated({"default": named, "enum": [named], "const": named, "examples": [named]}) == {}


INVALID = {
    "empty": schema(value=header("")),
    "object": schema(data=header("Data", "object")),
    "array": schema(items=header("Items", "array")),
    "null": schema(nil=header("Nil", "null")),
    "number": schema(score=header("Score", "number")),
    "twice": schema(one=header("MyField"), two=header("MyField")),
    "twice in other case": schema(one=header("MyField"), two=header("myfield")),
    "space": schema(value=header("My Region")),
    "colon": schema(value=header("Region:Primary")),
    "not ASCII": schema(value=header("Région")),
    "control character": schema(value=header("Region\t1")),
    # ... and what else can be wrong
    "line break at the end": schema(value=header("Region\n")),
    "header injection": schema(value=header("A: b\r\nAuthorization")),
    "no text": schema(value=header(7)),
    "nothing": schema(value=header(None)),
    "true": schema(value=header(True)),
    "types": schema(value=header("A", ["string", "integer"])),
    "no type": schema(value={ANNOTATION: "A"}),
    "reference": schema(value={ANNOTATION: "A", "$ref": "#/$defs/a"}) | {"$defs": {"a": {}}},
    "the schema itself": {ANNOTATION: "A", "type": "string"},
    "twice, nested": schema(one=header("A"), two=schema(three=header("a", "integer"))),
    "schemas in a list": schema(value={"properties": [header("A")]}),
}


@each_row("case", list(INVALID))
def test_forbidden_annotation_is_named_in_the_error(case: str):
    with pytest.raises(SchemaError, match=ANNOTATION) as caught:
        annotated(INVALID[case])

    assert str(caught.value).isprintable()


def test_annotation_error_names_problem_and_place():
    def reason(case: str) -> str:
        with pytest.raises(SchemaError) as caught:
            annotated(INVALID[case])
        return str(caught.value)

    assert reason("colon") == "x-mcp-header of value is not a valid header name: 'Region:Primary'"
    assert reason("number") == "x-mcp-header 'Score': score is not a string, integer or boolean"
    assert reason("twice, nested") == "x-mcp-header 'a' is used twice; rename one"
    assert reason("the schema itself") == (
        "x-mcp-header 'A' must be in a plain argument, not in the schema itself"
    )


KEYWORDS = (
    "items contains additionalProperties propertyNames unevaluatedProperties not if then else"
)


@each_row("keyword", [*KEYWORDS.split(), "contentSchema", "x-unknown"])
def test_an_annotation_below_another_keyword_is_forbidden(keyword: str):
    for inner in (header("A"), schema(a=header("A"))):
        with pytest.raises(SchemaError):
            annotated(schema(value={keyword: inner}))
        with pytest.raises(SchemaError):
            annotated({keyword: inner})


@each_row("keyword", ["oneOf", "anyOf", "allOf", "prefixItems"])
def test_an_annotation_below_a_choice_is_forbidden(keyword: str):
    with pytest.raises(SchemaError):
        annotated(schema(value={keyword: [{}, schema(a=header("A"))]}))


@each_row("keyword", ["$defs", "definitions", "patternProperties", "dependentSchemas"])
def test_an_annotation_in_a_definition_or_pattern_is_forbidden(keyword: str):
    with pytest.raises(SchemaError):
        annotated(schema() | {keyword: {"a": header("A")}})


def nested(depth: int, inner: dict[str, Any]) -> dict[str, Any]:
    for _ in range(depth):
        inner = schema(a=inner)
    return inner


def test_a_schema_may_be_nested_deeper_than_python_recurses():
    assert annotated(nested(5000, {"type": "string"})) == {}
    with pytest.raises(SchemaError):
        annotated(nested(5000, header("A")))


def test_header_of_an_argument_nested_over_the_limit_is_refused():
    assert annotated(nested(MAX_DEPTH, header("A"))) == {"A": ("a",) * MAX_DEPTH}
    with pytest.raises(SchemaError, match="must be in a plain argument"):
        annotated(nested(MAX_DEPTH + 1, header("A")))


def test_memory_for_many_arguments_without_headers_is_bounded():
    """A few MB could name millions of arguments, each with a path of its own."""
    many = nested(MAX_DEPTH - 1, schema(**{f"{number}": {} for number in range(10_000)}))
    tracemalloc.start()
    assert annotated(many) == {}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 100_000


# What a client sends


def learnt(**properties: Any) -> ToolHeaders:
    headers = ToolHeaders()
    headers.learn(Tool("route", schema(**properties)))
    return headers


ROUTE = learnt(
    region=header("Region"),
    count=header("Count", "integer"),
    dry=header("Dry", "boolean"),
    where=schema(zone=header("Zone")),
)


@each_row(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": "eu"}, {"Region": "eu"}),
        ({"region": ""}, {"Region": ""}),
        ({"region": " é"}, {"Region": "=?base64?IMOp?="}),
        ({"region": None, "other": "x"}, {}),
        ({"count": 42}, {"Count": "42"}),
        ({"count": 42.0}, {"Count": "42"}),
        ({"count": -0.0}, {"Count": "0"}),
        ({"count": 1e15}, {"Count": "1000000000000000"}),
        ({"count": MAX_INTEGER}, {"Count": "9007199254740991"}),
        ({"count": -MAX_INTEGER}, {"Count": "-9007199254740991"}),
        ({"dry": True}, {"Dry": "true"}),
        ({"dry": False, "region": "eu"}, {"Region": "eu", "Dry": "false"}),
        ({"where": {"zone": "a"}}, {"Zone": "a"}),
        ({"where": {}}, {}),
    ],
)
@each_row("is_encoded", [False, True], ids=["decoded", "encoded"])
def test_headers_repeat_arguments(
    arguments: dict[str, Any], headers: dict[str, str], is_encoded: bool
):
    given = Raw(msgspec.json.encode(arguments)) if is_encoded else arguments

    sent = ROUTE.of("route", given)
    assert sent == {f"Mcp-Param-{name}": value for name, value in headers.items()}


@each_row(
    "arguments",
    [
        {"count": 1.5},
        {"count": MAX_INTEGER + 1},
        {"count": -MAX_INTEGER - 1},
        {"count": 10**5000},
        {"count": 1e300},
        {"count": float("inf")},
        {"count": float("nan")},
        {"region": ["eu"]},
        {"region": {"a": "eu"}},
        {"where": "eu"},
        {"where": [{"zone": "a"}]},
    ],
)
def test_value_without_header_spelling_has_no_header(arguments: dict[str, Any]):
    assert ROUTE.of("route", arguments) == {}


@pytest.mark.slow("tries many examples")
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["zone", "x"]), inner),
    ),
    st.sampled_from(["region", "count", "dry", "where"]),
)
def test_no_argument_breaks_a_header(value: Any, name: str):
    """R-16, for arguments of any kind."""
    for key, text in ROUTE.of("route", {name: value}).items():
        assert re.fullmatch(r"Mcp-Param-[A-Z][a-z]+", key)
        assert SAFE.fullmatch(text)


def test_an_unknown_tool_and_one_without_annotations_have_no_headers():
    headers = learnt(region={"type": "string"})

    assert headers.of("route", {"region": "eu"}) == {}
    assert headers.of("other", {"region": "eu"}) == {}


def test_tool_listed_again_has_its_new_headers():
    headers = learnt(region=header("Region"))
    headers.learn(Tool("route", schema(region=header("Area"))))
    assert headers.of("route", {"region": "eu"}) == {"Mcp-Param-Area": "eu"}

    headers.learn(Tool("route", schema()))
    assert headers.of("route", {"region": "eu"}) == {}


def test_a_tool_whose_annotations_are_not_valid_has_no_headers():
    headers = learnt(region=header("Region"))

    with pytest.raises(SchemaError):
        headers.learn(Tool("route", schema(region=header("Region"), area=header("région"))))
    assert headers.of("route", {"region": "eu"}) == {}


def test_tool_headers_can_be_replaced_by_others():
    headers, other = learnt(region=header("Region")), ToolHeaders()
    other.learn(Tool("other", schema(zone=header("Zone"))))
    headers.replace(other)
    other.learn(Tool("later", schema(zone=header("Zone"))))

    assert headers.of("route", {"region": "eu"}) == {}
    assert headers.of("other", {"zone": "a"}) == {"Mcp-Param-Zone": "a"}
    assert headers.of("later", {"zone": "a"}) == {}
