"""Decoders for the results of requests. A malformed result raises `RemoteProtocolError`.

Content of an unknown type becomes `UnknownContent`, and null may stand for an optional member; this
needs a second, slower decoding.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from interlock.errors import OutOfMemory, RemoteProtocolError
from interlock.protocol.envelope import encode
from interlock.protocol.optional_members import decode_leniently
from interlock.types import CallToolResult, Content, GetPromptResult, PromptMessage, decode_content

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
    blocks = decode(list[Raw], _list_in(members, "content"), what)
    result = decode(CallToolResult, Raw(encode(members)), what)
    return replace(result, content=[_decode_block(each, what) for each in blocks])


def _decode_prompt_slowly(raw: Raw) -> GetPromptResult:
    what = "prompts/get result"
    members = decode(dict[str, Raw], raw, what)
    messages = []
    for message in decode(list[dict[str, Raw]], _list_in(members, "messages"), what):
        content = _decode_block(message.pop("content", Raw(b"{}")), what)
        message["content"] = Raw(b'{"type":"text","text":""}')
        rest = decode(PromptMessage, Raw(encode(message)), what)
        messages.append(replace(rest, content=content))
    result = decode(GetPromptResult, Raw(encode(members)), what)
    return replace(result, messages=messages)


def _list_in(members: dict[str, Raw], key: str) -> Raw:
    listed = members.pop(key, _NULL)
    return Raw(b"[]") if listed == _NULL else listed


def _decode_block(raw: Raw, what: str) -> Content:
    try:
        try:
            return decode_content(raw)
        except msgspec.ValidationError:
            return decode_leniently(_Message, b'{"content":%b}' % raw).content
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {what}: {error}") from None
    except MemoryError:
        raise OutOfMemory(f"a {what} does not fit into memory") from None
