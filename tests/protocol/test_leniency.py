"""Members in another form than the specification's, in every object of the specification."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct, inspect

from interlock import types
from interlock.protocol.leniency import decode_leniently, decode_params
from interlock.types import (
    CallToolResult,
    Completion,
    ElicitParams,
    InitializeParams,
    InitializeResult,
    ListPage,
    Prompt,
    ReadResourceResult,
    Resource,
    Result,
    Tool,
)
from tests.support.rows import each_row

Json = dict[str, Any]

OBJECTS = [
    each
    for name in types.__all__
    if isinstance(each := getattr(types, name), type) and issubclass(each, Struct)
]


def sample(of: inspect.Type) -> Any:
    """Return a small valid value: the required members only."""
    if isinstance(of, inspect.StructType):
        tag = {of.tag_field: of.tag} if of.tag_field else {}
        return tag | {each.encode_name: sample(each.type) for each in of.fields if each.required}
    if isinstance(of, inspect.UnionType):
        return sample(of.types[0])
    if isinstance(of, inspect.LiteralType):
        return of.values[0]
    plain = {inspect.StrType: "x", inspect.IntType: 1, inspect.FloatType: 1.5}
    plain |= {inspect.BoolType: True, inspect.ListType: [], inspect.DictType: {}}
    return plain.get(type(of), {})


def read(type: type[Any], value: object) -> Any:
    return decode_leniently(type, msgspec.json.encode(value))


@each_row("type", OBJECTS)
def test_null_is_a_missing_member_exactly_where_the_member_is_optional(type: Any):
    described = inspect.type_info(type)
    assert isinstance(described, inspect.StructType)
    small = sample(described)
    for field in described.fields:
        value = small | {field.encode_name: None}
        if field.required or field.encode_name == "inputResponses":
            with pytest.raises(msgspec.ValidationError):
                read(type, value)
        else:
            missing = getattr(read(type, small), field.name)
            assert getattr(read(type, value), field.name) in (missing, None, Raw(b"null"))


@each_row(
    ("written", "size"),
    [("1234", 1234), ('"1234"', 1234), ("12.0", 12), ('"12.0"', 12), ("-1", -1)],
)
def test_a_number_keeps_its_value_in_every_form(written: str, size: int):
    encoded = b'{"uri":"a","icons":false,"size":%b}' % written.encode()
    assert decode_leniently(Resource, encoded).size == size
    for wrong in (b"12.5", b'"12 "', b'"1e3"', b"true", b'""'):
        with pytest.raises(msgspec.ValidationError):
            decode_leniently(Resource, b'{"uri":"a","size":%b}' % wrong)


@each_row(
    ("given", "read_as"),
    [
        # https://github.com/logiscape/mcp-sdk-php/issues/1
        ({"capabilities": [], "serverInfo": None}, {}),
        ({"capabilities": {"tools": []}}, {"capabilities": {"tools": {}}}),
        (
            {"capabilities": {"tools": True, "logging": False}},
            {"capabilities": {"tools": {}}},
        ),
        # https://github.com/springfall2008/batpred/issues/3496
        ({"capabilities": {"tools": [{"name": "x"}]}}, {"capabilities": {"tools": {}}}),
        ({"instructions": ["x"]}, {}),
        (
            {"serverInfo": {"name": "x", "version": 1.5}},
            {"serverInfo": {"name": "x", "version": "1.5"}},
        ),
        ({"serverInfo": {"version": "1"}}, {}),
        ({"serverInfo": {"name": "x", "icons": "x.png"}}, {"serverInfo": {"name": "x"}}),
    ],
)
def test_odd_members_of_a_handshake_are_read_as_meant(given: Json, read_as: Json):
    version = {"protocolVersion": "2025-06-18"}
    assert read(InitializeResult, version | given) == read(InitializeResult, version | read_as)


@each_row(
    ("type", "value", "same"),
    [
        (Tool, {"annotations": {"readOnlyHint": None}}, {"annotations": {}}),
        (CallToolResult, {"content": [{"isError": None}]}, {"content": [{}]}),
    ],
)
def test_null_is_ignored_further_inside(type: Any, value: Json, same: Json):
    inner = {"type": "tool_result", "toolUseId": "x"}

    def whole(json: Json) -> Json:
        if "content" in json:
            return {"content": [inner | each for each in json["content"]]}
        return {"name": "x", "inputSchema": {"default": None}} | json

    assert read(type, whole(value)) == read(type, whole(same))


def test_null_in_values_of_users_stays():
    schema = {"default": None, "properties": {"a": None}}
    assert read(Tool, {"name": "x", "inputSchema": schema, "title": None}).input_schema == schema
    told = read(CallToolResult, {"structuredContent": {"a": None}, "isError": None})
    assert (told.structured_content, told.is_error) == ({"a": None}, False)
    assert read(Result, {"_meta": {"a": None}, "resultType": None}).meta == {"a": None}


@each_row(
    ("type", "encoded"),
    [
        (CallToolResult, b"null"),  # a whole result
        (CallToolResult, b'{"isError":"no"}'),
        (InitializeResult, b'{"protocolVersion":"2025-06-18","capabilities":[1]}'),
        (InitializeResult, b'{"protocolVersion":"2025-06-18","capabilities":{"tools":"yes"}}'),
        (InitializeResult, b'{"protocolVersion":"2025-06-18","capabilities":{"tools":1}}'),
        (InitializeResult, b'{"protocolVersion":20250618}'),
        (CallToolResult, b'{"isError":null,"content":[{"type":"text","text":null}]}'),
        (InitializeResult, b'{"protocolVersion":null}'),
    ],
)
def test_a_member_without_a_plain_meaning_is_refused(type: Any, encoded: bytes):
    with pytest.raises(msgspec.ValidationError):
        decode_leniently(type, encoded)


@each_row(
    ("type", "given", "read_as"),
    [
        (ListPage, {"tools": {"name": "x"}}, {"tools": [{"name": "x"}]}),
        (ReadResourceResult, {"contents": {"uri": "a"}}, {"contents": [{"uri": "a"}]}),
        # https://github.com/mpx/lua-cjson/issues/11
        (ListPage, {"prompts": {}}, {"prompts": []}),
        (Prompt, {"name": "x", "arguments": {}}, {"name": "x", "arguments": []}),
    ],
)
def test_an_object_where_a_list_of_objects_belongs_is_a_list_of_one(
    type: Any, given: Json, read_as: Json
):
    assert msgspec.json.encode(read(type, given)) == msgspec.json.encode(read(type, read_as))
    for neighbour in ({"values": {"a": 1}}, {"values": {}}):  # a list of texts
        with pytest.raises(msgspec.ValidationError):
            read(Completion, neighbour)


def test_null_params_are_no_params():
    assert decode_params(Result, Raw(b"null")) == Result()
    with pytest.raises(msgspec.ValidationError, match="message"):
        decode_params(ElicitParams, Raw(b"null"))
    with pytest.raises(msgspec.ValidationError, match="array"):
        decode_params(Result, Raw(b"[]"))


@each_row("info", [{}, {"clientInfo": []}, {"clientInfo": {"version": "1"}}])
def test_a_client_without_a_name_may_begin_a_session(info: Json):
    given = {"protocolVersion": "2025-06-18", "capabilities": [], **info}

    assert read(InitializeParams, given).client_info.name == ""
