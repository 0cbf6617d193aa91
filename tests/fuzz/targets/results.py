"""Results of servers: each is decoded, or an error of its call only."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from interlock.client import listing
from interlock.errors import RemoteProtocolError
from interlock.protocol.decoding import decode, decode_call, decode_prompt
from interlock.protocol.envelope import encode
from interlock.types import (
    CompleteResult,
    CreateMessageParams,
    DiscoverResult,
    ElicitParams,
    InitializeResult,
    LogMessage,
    ReadResourceResult,
)
from tests.fuzz.choices import Choices
from tests.fuzz.watch import check_text

TOKENS = [
    *(b'"content":[', b'"type":"text"', b'"text":"x"', b'"type":"image"', b'"data":"YQ=="'),
    *(b'"mimeType":"a/b"', b'"type":"resource"', b'"resource":{"uri":"x:y"', b'"type":"new"'),
    *(b'"isError":true', b'"structuredContent":{', b'"resultType":"input_required"', b'"_meta":{'),
    *(b'"inputRequests":{', b'"messages":[', b'"role":"user"', b'"tools":[', b'"name":"x"'),
    *(b'"inputSchema":{"type":"object"}', b'"nextCursor":"x"', b'"ttlMs":1', b'"contents":[{'),
    *(b'"completion":{"values":[', b'"annotations":{"priority":', b'"icons":[', b'"prompts":['),
]
# What answers are made of, and values that fit more or less.
MEMBERS = [
    *("content", "type", "text", "data", "mimeType", "resource", "uri", "isError", "_meta"),
    *("structuredContent", "resultType", "inputRequests", "requestState", "messages", "role"),
    *("tools", "name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    *("nextCursor", "ttlMs", "cacheScope", "resources", "resourceTemplates", "uriTemplate"),
    *("prompts", "arguments", "required", "contents", "blob", "completion", "values", "total"),
    *("protocolVersion", "supportedVersions", "capabilities", "serverInfo", "version", "icons"),
    *("method", "params", "message", "mode", "requestedSchema", "level", "logger", "priority"),
    *("maxTokens", "systemPrompt", "stopSequences", "toolChoice", "size", "audience", "src"),
]
VALUES: list[Any] = [
    *("text", "image", "audio", "resource", "resource_link", "tool_use", "tool_result", "new"),
    *("user", "assistant", "complete", "input_required", "x", "YQ==", "x:y", "info", "form", ""),
    *(
        True,
        None,
        0,
        1.5,
        {},
        [],
        {"type": "object"},
        [{"type": "text", "text": "x"}],
        "2025-11-25",
    ),
]
TYPES: list[Any] = [
    *(CompleteResult, DiscoverResult, InitializeResult, ReadResourceResult, LogMessage),
    *(ElicitParams, CreateMessageParams),
]
KINDS: list[Any] = [listing.TOOLS, listing.RESOURCES, listing.TEMPLATES, listing.PROMPTS]


def target(data: bytes) -> None:
    choices = Choices(data)
    which, as_it_is = choices.number(4), choices.flag()
    raw = Raw(choices.rest() if as_it_is else encode(whole_answer_of(choices)))
    try:
        match which:
            case 0:
                encode(decode_call(raw))
            case 1:
                encode(decode_prompt(raw))
            case 2:
                asyncio.run(pages(raw))
            case _:
                for type in TYPES:
                    encode(decode(type, raw, "result"))
    except RemoteProtocolError as error:
        check_text(error)


def whole_answer_of(choices: Choices) -> Any:
    """Begin with what all answers of a kind have."""
    block = choices.one_of([{"type": "text", "text": "x"}, {"type": "new", "x": 1}, None])
    block = answer_of(choices, 2) if block is None else block
    tool = {"name": choices.one_of(["a", "b", 7]), "inputSchema": answer_of(choices, 2)}
    start: Any = choices.one_of(
        [
            {},
            {"content": [block, block]},
            {"messages": [{"role": "user", "content": block}]},
            {"tools": [tool, tool, answer_of(choices, 2)]},
            {"prompts": [{"name": "a"}], "resources": [{"uri": "x:y", "name": "a"}]},
            {"contents": [{"uri": "x:y", "text": "x"}], "completion": {"values": ["a"]}},
        ]
    )
    rest = answer_of(choices)
    return {**start, **rest} if isinstance(rest, dict) else start or rest


def answer_of(choices: Choices, depth: int = 5) -> Any:
    if not depth:
        return choices.one_of(VALUES)
    match choices.number(8):
        case 0 | 1 | 2:
            return choices.one_of(VALUES)
        case 3:
            return [answer_of(choices, depth - 1) for _ in range(choices.number(4))]
        case 4:
            return choices.json(2)
        case _:
            names = choices.some_of(MEMBERS, 6)
            return {name: answer_of(choices, depth - 1) for name in names}


async def pages(raw: Raw) -> None:
    asked = 0

    async def ask(params: bytes) -> Raw:
        nonlocal asked
        asked += 1
        return raw

    for kind in KINDS:
        asked = 0
        try:
            found = await listing.collect(kind, ask)
        finally:
            assert asked <= 2  # a cursor that comes twice ends it
        assert len({kind.key(each) for each in found}) == len(found)
        assert all("\n" not in reason for reason in found.skipped)
        encode(list(found))
