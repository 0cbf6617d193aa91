"""Results from bytes: new content survives, malformed answers are the peer's fault."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from interlock.errors import OutOfMemory, RemoteProtocolError
from interlock.protocol import decoding
from interlock.protocol.decoding import decode, decode_call, decode_prompt, repaired
from interlock.types import (
    AudioContent,
    CallToolResult,
    CompleteResult,
    GetPromptResult,
    InitializeResult,
    ListPage,
    PromptMessage,
    ReadResourceResult,
    TextContent,
    UnknownContent,
)
from tests.support.rows import each_row

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "uri", "data", "mimeType"]), inner
        )
    ),
    max_leaves=8,
)


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


def test_a_result_is_decoded_as_its_type():
    result = decode(CompleteResult, raw({"completion": {"values": ["a"]}}), "completion")

    assert result.completion.values == ["a"]
    assert decode(CompleteResult, raw({"completion": {}}), "completion").completion.values == []


@each_row("text", [b"[]", b"null", b"1", b'{"completion":[1]}', b"{", b"[" * 5_000])
def test_decode_error_names_the_result(text: bytes):
    with pytest.raises(RemoteProtocolError, match=r"^malformed completion/complete result: "):
        decode(CompleteResult, Raw(text), "completion/complete result")


def test_replaced_content_keeps_its_position():
    new = {"type": "video", "url": "x"}
    blocks = [{"type": "text", "text": "1"}, new, {"type": "audio", "data": "", "mimeType": "a/b"}]

    result = decode_call(raw({"content": blocks, "isError": True, "_meta": {"k": 1}}))

    assert result.content == [
        TextContent(text="1"),
        UnknownContent(fields=new),
        AudioContent(data="", mime_type="a/b"),
    ]
    assert (result.is_error, result.meta) == (True, {"k": 1})


@each_row("block", [5, True, [], {}, {"type": None, "text": "x"}])
def test_a_block_without_a_meaning_leaves_the_other_blocks(block: object):
    result = raw({"content": [block, {"type": "text", "text": "ok"}]})

    assert [each.text for each in decode_call(result).content] == [  # type: ignore[union-attr]
        json.dumps(block),
        "ok",
    ]
    passed_on = msgspec.json.decode(repaired("tools/call", result))["content"]
    assert [each["type"] for each in passed_on] == ["text", "text"]
    with pytest.raises(RemoteProtocolError):
        decode_call(raw({"content": [block or 5]}))


def test_a_prompt_message_with_several_blocks_becomes_several_messages():
    blocks = [{"type": "text", "text": each} for each in "ab"]

    found = decode_prompt(raw({"messages": [{"role": "assistant", "content": blocks}]})).messages

    assert found == [PromptMessage(role="assistant", content=TextContent(text=t)) for t in "ab"]


def test_replaced_content_leaves_the_rest_of_a_result_unchanged():
    members = {"structuredContent": None, "resultType": "complete", "future": 1}

    result = decode_call(raw({"content": [{"type": "new"}], **members}))

    assert result.structured_content is None
    assert decode_call(raw({**members, "content": []})).structured_content is None


def test_structured_content_that_cannot_be_decoded_leaves_the_text():
    number = Raw(b'{"content":[{"type":"text","text":"1"}],"structuredContent":{"a":1e400}}')

    result = decode_call(number)

    assert (result.text, result.structured_content) == ("1", UNSET)
    with pytest.raises(RemoteProtocolError, match="out of range"):
        decode_call(Raw(b'{"content":[],"structuredContent":{"a":1e400}}'))


def test_replaced_content_keeps_its_position_in_prompts():
    new = {"type": "video", "url": "x"}
    messages = [
        {"role": "user", "content": {"type": "text", "text": "1"}},
        {"role": "assistant", "content": new},
    ]

    result = decode_prompt(raw({"messages": messages, "description": "d"}))

    assert [each.role for each in result.messages] == ["user", "assistant"]
    assert [each.content for each in result.messages] == [
        TextContent(text="1"),
        UnknownContent(fields=new),
    ]
    assert result.description == "d"


@each_row(
    "result",
    [
        [],
        None,
        {"content": {}},
        {"content": 5},
        {"content": [5]},
        {"content": [{"text": None}]},
        {"content": [{"type": "new"}], "isError": "no"},
        {"content": [], "_meta": [1]},
    ],
)
def test_a_malformed_call_result_is_refused(result: object):
    with pytest.raises(RemoteProtocolError, match="malformed tools/call result"):
        decode_call(raw(result))


IMAGE_WITHOUT_TYPE = {"type": "image", "data": "AA=="}


@each_row(
    ("content", "blocks"),
    [
        ("a", [TextContent(text="a")]),
        (["a", None], [TextContent(text="a")]),
        ({"type": "text", "text": "a"}, [TextContent(text="a")]),
        ([{"text": "a"}], [TextContent(text="a")]),
        ([{"type": "text", "text": 5}], [TextContent(text="5")]),
        ([{"type": "text", "text": None}], [TextContent(text="")]),
        ([{"type": "text", "text": {"a": 1}}], [TextContent(text='{"a":1}')]),
        ([{"type": "text", "text": "a", "_meta": []}], [TextContent(text="a", meta={})]),
        ([{"type": "text", "text": "a", "annotations": "x"}], [TextContent(text="a")]),
        (
            [{"type": "text", "text": "a"}, IMAGE_WITHOUT_TYPE],
            [TextContent(text="a"), UnknownContent(fields=IMAGE_WITHOUT_TYPE)],
        ),
    ],
)
def test_odd_content_is_read_where_its_meaning_is_plain(content: Any, blocks: Any):
    result = decode_call(raw({"content": content, "isError": "true", "_meta": []}))

    assert (result.content, result.is_error, result.meta) == (blocks, True, {})


@each_row(
    "result",
    [
        [],
        {"messages": "x"},
        {"messages": [1]},
        {"messages": [{}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "system", "content": {"type": "text", "text": "x"}}]},
        {"messages": [{"role": "system", "content": {"type": "new"}}]},
        {"messages": [{"role": "user", "content": {"type": "new"}}], "description": [1]},
    ],
)
def test_a_malformed_prompt_is_refused(result: object):
    with pytest.raises(RemoteProtocolError, match="malformed prompts/get result"):
        decode_prompt(raw(result))


TEXT = {"type": "text", "text": "a"}


@each_row(
    ("method", "given", "passed_on"),
    [
        # https://github.com/BerriAI/litellm/pull/36920
        ("tools/call", {"content": [TEXT, IMAGE_WITHOUT_TYPE]}, [TEXT, IMAGE_WITHOUT_TYPE]),
        ("tools/call", {"content": [{"type": "widget"}, TEXT]}, [{"type": "widget"}, TEXT]),
        ("tools/call", {"content": [{"type": "text", "text": None}]}, [{**TEXT, "text": ""}]),
        ("tools/call", {"content": [{**TEXT, "annotations": None}]}, [TEXT]),
        ("tools/call", {"content": TEXT, "isError": "true", "_meta": []}, [TEXT]),
        (
            "tools/call",
            {"content": [{"type": "resource_link", "uri": "a:b"}]},
            [{"type": "resource_link", "uri": "a:b", "name": "a:b"}],
        ),
        (
            "prompts/get",
            {"messages": {"role": "user", "content": {"type": "widget"}}},
            [{"role": "user", "content": {"type": "widget"}}],
        ),
        ("resources/read", {"contents": {"uri": "a", "text": "b"}}, [{"uri": "a", "text": "b"}]),
        ("resources/read", {"contents": [{"uri": "a"}]}, [{"uri": "a", "text": ""}]),
        (
            "tools/call",
            {"content": [{"type": "resource", "resource": {"uri": "a"}}]},
            [{"type": "resource", "resource": {"uri": "a", "text": ""}}],
        ),
    ],
)
def test_result_that_strict_clients_refuse_is_repaired(method: str, given: Any, passed_on: Any):
    with pytest.raises(msgspec.ValidationError):
        decoding.CHECKS[method](raw(given))

    repaired = decoding.repaired(method, raw(given))

    decoding.CHECKS[method](repaired)  # a strict client accepts it
    (items,) = (each for each in msgspec.json.decode(repaired).values() if isinstance(each, list))
    for block, expected in zip(items, passed_on, strict=True):
        holder, wanted = (block.get("content", block), expected.get("content", expected))
        if wanted in (IMAGE_WITHOUT_TYPE, {"type": "widget"}):  # becomes a text with its JSON
            assert (holder["type"], json.loads(holder["text"])) == ("text", wanted)
        else:
            assert holder == wanted


@each_row(
    ("method", "result"),
    [
        ("tools/call", {"content": [5]}),
        ("tools/call", {"content": [{"a": 1}]}),
        ("tools/call", {"content": [], "isError": "no"}),
        ("prompts/get", {"messages": [{"role": "system", "content": TEXT}]}),
        ("resources/read", {"contents": ["a"]}),
    ],
)
def test_result_without_a_plain_meaning_is_not_repaired(method: str, result: Any):
    with pytest.raises(RemoteProtocolError, match=f"malformed {method} result"):
        decoding.repaired(method, raw(result))


@pytest.mark.slow("made-up input, and much of it")
@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["content", "messages", "isError", "_meta", "resultType"], JSON)
    )
    | JSON
)
def test_no_result_raises_anything_but_a_protocol_error(result: Any):
    def attempt(decode: Any) -> None:
        try:
            decode(raw(result))
        except RemoteProtocolError as error:
            assert "\n" not in str(error)  # noqa: PT017 - success is as good

    for each in (CallToolResult, GetPromptResult, ReadResourceResult, InitializeResult, ListPage):
        attempt(partial(decode, each, what="result"))
    attempt(decode_call)
    attempt(decode_prompt)


@pytest.mark.parametrize(
    "kind", [decode_call, decode_prompt, partial(decode, ListPage, what="tools/list result")]
)
def test_decoding_without_memory_raises_out_of_memory(kind: Any, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    for name in ("_decode_call_fast", "_decode_prompt_fast"):
        monkeypatch.setattr(decoding, name, full)
    monkeypatch.setattr(decoding.msgspec.json, "decode", full)
    with pytest.raises(OutOfMemory, match=r"/(call|get|list) result does not fit into memory"):
        kind(raw({}))
