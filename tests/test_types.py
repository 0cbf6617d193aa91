"""Messages and objects as structs: what they read, what they write, what they leave out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from interlock import types
from interlock.types import (
    CallToolParams,
    CallToolResult,
    ClientCapabilities,
    CompleteParams,
    CompletionArgument,
    CompletionContext,
    CreateMessageResult,
    ElicitResult,
    GetPromptParams,
    ImageContent,
    ListParams,
    PromptReference,
    ReadResourceParams,
    ReadResourceResult,
    ResourceContents,
    ResourceTemplateReference,
    SubscriptionFilter,
    TextContent,
    Tool,
    ToolAnnotations,
    UnknownContent,
    Wire,
    decode_content,
)
from tests.support.rows import each_row


def written(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def read(type: type[Any], value: object) -> Any:
    return msgspec.json.decode(json.dumps(value), type=type)


WIRE_TYPES = [
    each for each in vars(types).values() if isinstance(each, type) and issubclass(each, Wire)
]


def test_wire_types_are_frozen_documented_and_named_as_in_the_specification():
    for kind in WIRE_TYPES:
        for field in msgspec.structs.fields(kind):
            assert "_" not in field.encode_name.removeprefix("_meta"), kind
        assert kind.__struct_config__.frozen, kind
        assert kind.__doc__, kind


def test_fields_are_in_camel_case_and_defaults_are_left_out():
    tool = Tool(
        name="add",
        input_schema={"type": "object"},
        output_schema={"type": "object"},
        annotations=ToolAnnotations(read_only_hint=True),
        meta={"k": 1},
    )

    assert written(tool) == {
        "name": "add",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "_meta": {"k": 1},
    }
    assert read(Tool, written(tool)) == tool


def test_unknown_fields_are_ignored():
    fields = {"name": "x", "inputSchema": {}, "execution": {"taskSupport": "optional"}, "new": 1}

    assert read(Tool, fields) == Tool(name="x", input_schema={})


@each_row(
    "fields",
    [{}, {"name": "x"}, {"name": 1, "inputSchema": {}}, {"name": "x", "inputSchema": True}],
)
def test_a_tool_needs_name_and_schema(fields: object):
    with pytest.raises(msgspec.ValidationError):
        read(Tool, fields)


def test_missing_tool_annotations_default_to_destructive():
    hints = read(ToolAnnotations, {})

    assert (hints.read_only_hint, hints.destructive_hint) == (False, True)
    assert (hints.idempotent_hint, hints.open_world_hint) == (False, True)


# Params


@each_row(
    ("params", "wire"),
    [
        (CallToolParams(name="x"), {"name": "x"}),
        (CallToolParams(name="x", arguments={}), {"name": "x", "arguments": {}}),
        (CallToolParams(name="x", arguments=Raw(b'{"a":1}')), {"name": "x", "arguments": {"a": 1}}),
        (
            CallToolParams(name="x", input_responses={"k": {}}, request_state=""),
            {"name": "x", "inputResponses": {"k": {}}, "requestState": ""},
        ),
        (ReadResourceParams(uri="a:b"), {"uri": "a:b"}),
        (GetPromptParams(name="x", arguments={}), {"name": "x", "arguments": {}}),
        (ListParams(), {}),
        (ListParams(cursor=""), {"cursor": ""}),
        (ClientCapabilities(sampling={}, roots=None), {"sampling": {}}),
        (SubscriptionFilter(tools_list_changed=True), {"toolsListChanged": True}),
        (ElicitResult(action="accept", content={}), {"action": "accept", "content": {}}),
        (
            CompleteParams(
                ref=PromptReference(name="p"),
                argument=CompletionArgument(name="a", value=""),
                context=CompletionContext(arguments={"b": "c"}),
            ),
            {
                "ref": {"type": "ref/prompt", "name": "p"},
                "argument": {"name": "a", "value": ""},
                "context": {"arguments": {"b": "c"}},
            },
        ),
        (ResourceTemplateReference(uri="a:{b}"), {"type": "ref/resource", "uri": "a:{b}"}),
    ],
)
def test_params_are_written_as_the_specification_wants(params: Wire, wire: object):
    assert written(params) == wire


# Results


def test_null_structured_content_differs_from_none():
    missing, null = read(CallToolResult, {}), read(CallToolResult, {"structuredContent": None})

    assert missing.structured_content is UNSET
    assert null.structured_content is None
    assert missing.structured is None
    assert null.structured is None


@each_row("structure", [{"a": 1}, [1], "x", 0, False])
def test_structured_content_may_be_any_json_value(structure: object):
    assert read(CallToolResult, {"structuredContent": structure}).structured == structure


def test_a_result_without_type_is_complete():
    assert read(CallToolResult, {"content": []}).result_type == "complete"
    asked = read(
        CallToolResult, {"resultType": "input_required", "inputRequests": {"k": {"method": "m"}}}
    )
    assert asked.input_requests["k"].method == "m"
    assert asked.input_requests["k"].params == Raw(b"{}")


def test_sampling_text_joins_one_block_or_all():
    one = CreateMessageResult(role="assistant", content=TextContent(text="a"), model="m")
    blocks = [TextContent(text="a"), ImageContent(data="", mime_type="image/png")]
    several = CreateMessageResult(
        role="assistant", content=[*blocks, TextContent(text="b")], model="m"
    )

    assert one.text == "a"
    assert several.text == "a\nb"


def test_text_of_a_result_is_the_text_of_its_text_blocks():
    content = [
        TextContent(text="one"),
        ImageContent(data="", mime_type="image/png"),
        UnknownContent(fields={"type": "new", "text": "not this"}),
        TextContent(text="two"),
    ]
    contents = [
        ResourceContents(uri="a", text="one"),
        ResourceContents(uri="b", blob="AAAA"),
        ResourceContents(uri="c", text=""),
    ]

    assert CallToolResult(content=content).text == "one\ntwo"
    assert CallToolResult().text == ""
    assert ReadResourceResult(contents=contents).text == "one\n"


# Content

BLOCKS = [
    {"type": "text", "text": "hello", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "text": "x"}},
    {"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}, "_meta": {"k": 1}},
    {"type": "resource_link", "uri": "a:b", "name": "b", "size": 3, "icons": [{"src": "data:,"}]},
    {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}},
    {"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "2"}]},
]


@each_row("block", BLOCKS)
def test_content_blocks_are_encoded_as_they_were_decoded(block: dict[str, Any]):
    decoded = decode_content(Raw(json.dumps(block).encode()))

    assert not isinstance(decoded, UnknownContent)
    assert written(decoded) == block


@each_row("kind", ["video", "Text", "x/y"])
def test_content_of_an_unknown_type_is_kept_whole(kind: str):
    block = {"type": kind, "fields": {"a": 1}, "data": [None]}

    assert decode_content(Raw(json.dumps(block).encode())) == UnknownContent(fields=block)


@each_row(
    "block",
    [
        {},
        {"type": 1},
        {"type": None},
        {"text": "x"},
        {"type": "text"},
        {"type": "image", "data": "A"},
    ],
)
def test_a_malformed_block_of_a_known_type_is_refused(block: object):
    with pytest.raises(msgspec.ValidationError):
        decode_content(Raw(json.dumps(block).encode()))


@each_row("block", ["[]", "1", "null", '"text"'])
def test_a_block_is_an_object(block: str):
    with pytest.raises(msgspec.ValidationError):
        decode_content(Raw(block.encode()))
