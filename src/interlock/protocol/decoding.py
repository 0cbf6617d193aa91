"""Decoders for the results of requests. A malformed result raises `RemoteProtocolError`.

A second, slower decoding reads what the strict one refuses. Text counts as a text block, and one
block as a list of one. A block of an unknown type, or a malformed one, becomes `UnknownContent`, so
that the other blocks are kept. For other members, see `leniency`.
"""

from __future__ import annotations

import contextlib
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from interlock.errors import OutOfMemory, RemoteProtocolError
from interlock.protocol.envelope import encode
from interlock.protocol.leniency import decode_leniently
from interlock.types import (
    CallToolResult,
    Content,
    GetPromptResult,
    JsonObject,
    PromptMessage,
    TextContent,
    UnknownContent,
    decode_content,
)

_T = TypeVar("_T")
_NULL = Raw(b"null")


def decode(type: type[_T], raw: Raw, what: str) -> _T:
    """Decode `raw` as `type`.

    Raises:
        RemoteProtocolError: `raw` is not a valid `type`; the text names `what`.
        OutOfMemory: The value does not fit into memory.
    """
    try:
        return decode_leniently(type, raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {what}: {error}") from None
    except MemoryError:
        raise OutOfMemory(f"a {what} does not fit into memory") from None


class ResultHead(Struct, rename="camel", gc=False):
    """The members of a result that decide how to handle it; other members stay encoded."""

    is_error: bool = False
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)
    content: Raw | UnsetType = UNSET
    structured_content: Raw | UnsetType = UNSET


class _Message(Struct):
    content: Content


decode_head = msgspec.json.Decoder(ResultHead).decode  # raises msgspec's errors, not ours
_decode_call_fast = msgspec.json.Decoder(CallToolResult).decode
_decode_prompt_fast = msgspec.json.Decoder(GetPromptResult).decode


def decode_call(raw: Raw) -> CallToolResult:
    """Decode the result of tools/call; raise as `decode` does."""
    try:
        return _decode_call_fast(raw)
    except (msgspec.DecodeError, RecursionError, MemoryError):
        return _decode_call_slowly(raw)


def decode_prompt(raw: Raw) -> GetPromptResult:
    """Decode the result of prompts/get; raise as `decode` does."""
    try:
        return _decode_prompt_fast(raw)
    except (msgspec.DecodeError, RecursionError, MemoryError):
        return _decode_prompt_slowly(raw)


def _decode_call_slowly(raw: Raw) -> CallToolResult:
    what = "tools/call result"
    members = decode(dict[str, Raw], raw, what)
    blocks = _blocks_in(members.pop("content", _NULL), what)
    result = decode(CallToolResult, Raw(encode(members)), what)
    return replace(result, content=[_decode_block(each, what) for each in blocks])


def _decode_prompt_slowly(raw: Raw) -> GetPromptResult:
    what = "prompts/get result"
    members = decode(dict[str, Raw], raw, what)
    messages = []
    listed = members.pop("messages", _NULL)
    for message in decode(list[dict[str, Raw]], Raw(b"[]") if listed == _NULL else listed, what):
        content = _decode_block(message.pop("content", Raw(b"{}")), what)
        message["content"] = Raw(b'{"type":"text","text":""}')
        rest = decode(PromptMessage, Raw(encode(message)), what)
        messages.append(replace(rest, content=content))
    result = decode(GetPromptResult, Raw(encode(members)), what)
    return replace(result, messages=messages)


def _blocks_in(content: Raw, what: str) -> list[Raw]:
    if content == _NULL:
        return []
    is_one = bytes(content).startswith((b'"', b"{"))
    blocks = [content] if is_one else decode(list[Raw], content, what)
    return [each for each in blocks if each != _NULL]


def _decode_block(raw: Raw, what: str) -> Content:
    try:
        try:
            return decode_content(raw)
        except msgspec.ValidationError:
            return _decode_odd_block(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {what}: {error}") from None
    except MemoryError:
        raise OutOfMemory(f"a {what} does not fit into memory") from None


def _decode_odd_block(raw: Raw) -> Content:
    if bytes(raw).startswith(b'"'):
        return TextContent(text=msgspec.json.decode(raw, type=str))
    with contextlib.suppress(msgspec.ValidationError):
        return decode_leniently(_Message, b'{"content":%b}' % raw).content
    fields = msgspec.json.decode(raw, type=JsonObject)
    text = fields.get("text")
    if fields.get("type", "text") == "text" and text is not None:
        return TextContent(text=text if isinstance(text, str) else encode(text).decode())
    if not isinstance(fields.get("type"), str):
        raise msgspec.ValidationError("content without a type")
    return UnknownContent(fields=fields)
