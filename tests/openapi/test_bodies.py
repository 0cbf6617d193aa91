"""Bodies: JSON, forms, multipart with files, text and bytes."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from interlock.errors import InvalidArguments
from interlock.openapi import bodies, document
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.selection import read_tools
from tests.openapi.decoding import parts
from tests.support.rows import each_row

PHOTO = bytes(range(256))
FLAT = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "size": {"type": "integer"},
    },
}


def plan(
    media: dict[str, Any], *, required: bool = True, tool: dict[str, Any] | None = None
) -> Plan:
    operation = {"requestBody": {"required": required, "content": media}}
    root = {"openapi": "3.1.0", "paths": {"/x": {"post": operation}}}
    plans, missing = compile_tools(
        document.read(msgspec.json.encode(root)),
        read_tools({"tool": {"operation": "POST /x", **(tool or {})}}),
    )
    assert missing == {}
    return plans["tool"]


def json_plan(schema: Any, **options: Any) -> Plan:
    return plan({"application/json": {"schema": schema}}, **options)


def body_of(tool: Plan, arguments: dict[str, Any]) -> Any:
    body = tool.request(arguments).body
    return None if body is None else msgspec.json.decode(body)


# JSON


def test_flat_and_nested_arguments_send_the_same_body():
    value = {"name": "a", "note": None, "size": 0}
    flat = json_plan(FLAT)
    nested = json_plan(FLAT, tool={"body": "nested"})

    assert set(flat.arguments) == {"name", "note", "size"}
    assert nested.arguments == {"body": {"in": "body", "name": None}}
    assert body_of(flat, value) == body_of(nested, {"body": value}) == value


@each_row(
    "schema",
    [
        {"type": "array", "items": {}},
        {"type": "string"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {**FLAT, "additionalProperties": True},
        {"oneOf": [FLAT, {"type": "string"}]},
        {**FLAT, "minProperties": 2},
        {"type": ["object", "null"], "properties": FLAT["properties"]},
        {"type": "object"},
        True,
        {},
    ],
)
def test_body_that_is_not_a_plain_object_is_one_argument(schema: Any):
    assert json_plan(schema).arguments == {"body": {"in": "body", "name": None}}


def test_optional_body_with_required_parts_is_one_optional_argument():
    tool = json_plan(FLAT, required=False)

    assert set(tool.arguments) == {"body"}
    assert tool.request({}).body is None
    assert not any(name == "Content-Type" for name, _ in tool.request({}).headers)


def test_parts_of_all_of_are_merged_into_flat_arguments():
    parts_of = {"allOf": [FLAT, {"required": ["x"], "properties": {"x": {"type": "integer"}}}]}

    tool = json_plan(parts_of)

    assert set(tool.arguments) == {"name", "note", "size", "x"}
    assert tool.definition["inputSchema"]["required"] == ["name", "x"]


def test_required_body_without_arguments_is_an_empty_object():
    tool = json_plan({"type": "object", "properties": {"a": {"type": "integer"}}})

    assert body_of(tool, {}) == {}


def test_constant_property_is_sent_also_in_an_optional_body_and_cannot_be_set():
    schema = {"type": "object", "properties": {"kind": {"type": "string"}, "a": {}}}
    tool = json_plan(schema, required=False, tool={"arguments": {"kind": {"value": "x"}}})

    assert body_of(tool, {}) == {"kind": "x"}
    assert body_of(tool, {"a": 1}) == {"kind": "x", "a": 1}
    with pytest.raises(InvalidArguments, match="unknown argument 'kind'"):
        tool.request({"kind": "y"})


def test_null_is_sent_for_a_nullable_property_and_refused_for_others():
    tool = json_plan(FLAT)

    assert body_of(tool, {"name": "a", "note": None}) == {"name": "a", "note": None}
    with pytest.raises(InvalidArguments, match="size"):
        tool.request({"name": "a", "size": None})


@each_row(
    ("names", "wanted", "sent"),
    [
        (["text/plain", "application/json"], "", "application/json"),
        (["application/xml", "application/vnd.x+json; v=2"], "", "application/vnd.x+json; v=2"),
        (["*/*"], "", "application/json"),
        (["application/x-www-form-urlencoded", "multipart/form-data"], "", "multipart/form-data"),
        (["application/json", "text/plain"], "text/plain", "text/plain"),
        (["application/merge-patch+json"], "", "application/merge-patch+json"),
    ],
)
def test_simplest_or_configured_media_type_is_sent(names: list[str], wanted: str, sent: str):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = plan({name: {"schema": schema} for name in names}, tool={"contentType": wanted})
    arguments = {"body": "x"} if "body" in tool.arguments else {"a": "x"}

    assert dict(tool.request(arguments).headers)["Content-Type"].startswith(sent)


# Files


def test_multipart_carries_files_json_and_lists_byte_for_byte():
    binary = {"type": "string", "format": "binary"}
    schema = {
        "type": "object",
        "properties": {
            "photo": binary,
            "more": {"type": "array", "items": binary},
            "data": FLAT,
            "tags": {"type": "array", "items": {"type": "string"}},
            "encoded": {"type": "string", "format": "byte"},
        },
    }
    tool = plan({"multipart/form-data": {"schema": schema}})
    encoded = base64.b64encode(PHOTO).decode()
    request = tool.request(
        {
            "photo": {"base64": encoded, "name": 'a "b".png', "type": "image/png"},
            "more": [{"text": "é"}, {"base64": encoded, "name": "x.bin"}],
            "data": {"name": "a"},
            "tags": ["x", "y"],
            "encoded": encoded,
        }
    )

    found = parts(dict(request.headers)["Content-Type"], request.body or b"")
    octets = "application/octet-stream"
    assert found == {
        "photo": [{"file": "a %22b%22.png", "type": "image/png", "data": PHOTO}],
        "more": [
            {"file": "file", "type": octets, "data": "é".encode()},
            {"file": "x.bin", "type": octets, "data": PHOTO},
        ],
        "data": [{"name": "a"}],
        "tags": ["x", "y"],
        "encoded": [encoded],
    }


def test_whole_body_of_bytes_is_a_file():
    tool = plan({"application/octet-stream": {}})
    encoded = base64.b64encode(PHOTO).decode()

    request = tool.request({"body": {"base64": encoded, "type": "image/png"}})

    assert request.body == PHOTO
    assert dict(request.headers)["Content-Type"] == "image/png"


@each_row(
    ("file", "problem"),
    [
        ({}, "exactly one of text, base64 and resource"),
        ({"text": "a", "base64": "YQ=="}, "exactly one"),
        ({"base64": "*"}, "base64 text of a file is not valid"),
        ({"text": "x" * (bodies.MAX_FILE_BYTES + 1)}, "too large"),
        ({"path": "/etc/passwd"}, "unknown"),
        ("/etc/passwd", "not an object"),
    ],
)
def test_malformed_file_is_refused(file: Any, problem: str):
    with pytest.raises(InvalidArguments, match=problem):
        plan({"application/octet-stream": {}}).request({"body": file})


def test_headers_of_a_part_cannot_be_injected():
    schema = {"type": "object", "properties": {"f": {"type": "string", "format": "binary"}}}
    tool = plan({"multipart/form-data": {"schema": schema}})

    with pytest.raises(InvalidArguments, match="Content-Type"):
        tool.request({"f": {"text": "a", "type": "a\r\nX: 1"}})
    body = tool.request({"f": {"text": "a", "name": 'a"\r\nX: 1'}}).body or b""
    assert b"\r\nX: 1" not in body


# Forms


def test_form_writes_nested_values_as_stripe_reads_them():
    schema = {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "properties": {"order id": {"type": "string"}}},
            "items": {"type": "array", "items": {"type": "object"}},
            "words": {"type": "array", "items": {"type": "string"}},
            "count": {"type": "integer"},
        },
    }
    tool = plan({"application/x-www-form-urlencoded": {"schema": schema}})

    body = tool.request(
        {
            "metadata": {"order id": "a&b"},
            "items": [{"price": "p", "tags": ["x"]}, {"price": "q"}],
            "words": ["a", "b"],
            "count": 0,
        }
    ).body

    assert body == (
        b"metadata%5Border%20id%5D=a%26b&items%5B0%5D%5Bprice%5D=p&items%5B0%5D%5Btags%5D%5B0%5D=x"
        b"&items%5B1%5D%5Bprice%5D=q&words=a&words=b&count=0"
    )


def test_body_over_the_limit_is_refused():
    tool = plan({"text/plain": {"schema": {"type": "string"}}})

    with pytest.raises(InvalidArguments, match="request body is too large"):
        tool.request({"body": "x" * (bodies.MAX_BODY_BYTES + 1)})
