"""Decoders for the results of requests. A malformed result raises `RemoteProtocolError`.

A second, slower decoding reads what the strict one refuses. Text counts as a text block, and one
block as a list of one. A block of an unknown type, or a malformed one, becomes `UnknownContent`, so
that the other blocks are kept. For other members, see `leniency`. `repaired` does the same for
results that a gateway passes on: its clients are strict, so they get such a block as a text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from interlock.errors import OutOfMemory, RemoteProtocolError
from interlock.protocol.envelope import encode, encode_lossy
from interlock.protocol.leniency import decode_leniently, strict_form
from interlock.types import (
    CallToolResult,
    Content,
    EmbeddedResource,
    GetPromptResult,
    JsonObject,
    PromptMessage,
    ReadResourceResult,
    ResourceLink,
    Role,
    TextContent,
    ToolResultContent,
    ToolUseContent,
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
    if blocks and "structuredContent" in members:
        with contextlib.suppress(RemoteProtocolError):  # such as 1e400; the text still counts
            return _joined(members, blocks, what)
        del members["structuredContent"]
    return _joined(members, blocks, what)


def _joined(members: dict[str, Raw], blocks: list[Raw], what: str) -> CallToolResult:
    result = decode(CallToolResult, Raw(encode(members)), what)
    return replace(result, content=[_decode_one_of(blocks, each, what) for each in blocks])


def _decode_prompt_slowly(raw: Raw) -> GetPromptResult:
    what = "prompts/get result"
    members = decode(dict[str, Raw], raw, what)
    messages = [
        replace(rest, content=_decode_block(content, what))
        for rest, content in _messages_in(members.pop("messages", _NULL), what)
    ]
    result = decode(GetPromptResult, Raw(encode(members)), what)
    return replace(result, messages=messages)


def _messages_in(listed: Raw, what: str) -> Iterator[tuple[PromptMessage, Raw]]:
    """Return each message with an empty text as its content, and each block of its content."""
    for message in _list_of(dict[str, Raw], listed, what):
        content = message.pop("content", Raw(b"{}"))
        message["content"] = Raw(b'{"type":"text","text":""}')
        decoded = decode(PromptMessage, Raw(encode(message)), what)
        # Several blocks are several messages.
        is_list = bytes(content).startswith(b"[")
        for block in decode(list[Raw], content, what) if is_list else [content]:
            yield decoded, block


def _list_of(type: type[_T], listed: Raw, what: str) -> list[_T]:
    """Decode a list, whose single object may be written without the list."""
    written = b"[]" if listed == _NULL else bytes(listed)
    if written.startswith(b"{"):
        written = b"[]" if written == b"{}" else b"[%b]" % written
    return decode(list[type], Raw(written), what)  # type: ignore[valid-type]


def _blocks_in(content: Raw, what: str) -> list[Raw]:
    if content == _NULL:
        return []
    is_one = bytes(content).startswith((b'"', b"{"))
    blocks = [content] if is_one else decode(list[Raw], content, what)
    return [each for each in blocks if each != _NULL]


def _decode_one_of(blocks: list[Raw], block: Raw, what: str) -> Content:
    """Decode a block; its JSON is a text if it has no meaning, but there are other blocks."""
    try:
        return _decode_block(block, what)
    except RemoteProtocolError:
        if len(blocks) == 1:
            raise
        return TextContent(text=bytes(block).decode(errors="replace"))


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
    if fields.get("type") == "text" and "text" in fields and text is None:
        return TextContent(text="")
    if fields.get("type", "text") == "text" and text is not None:
        return TextContent(text=text if isinstance(text, str) else encode(text).decode())
    if not isinstance(fields.get("type"), str):
        raise msgspec.ValidationError("content without a type")
    return UnknownContent(fields=fields)


# Results for strict clients. The shapes have only the members because of which a client refuses a
# whole result, such as https://github.com/BerriAI/litellm/pull/36920; others stay encoded.


class _Shape(Struct, gc=False, rename="camel"):
    annotations: dict[str, Raw] | UnsetType = UNSET
    meta: dict[str, Raw] | UnsetType = field(name="_meta", default=UNSET)


class _TextShape(_Shape, kw_only=True, tag_field="type", tag="text"):
    text: str


class _ImageShape(_Shape, kw_only=True, tag_field="type", tag="image"):
    data: str
    mime_type: str


class _AudioShape(_ImageShape, tag="audio"):
    pass


class _LinkShape(_Shape, kw_only=True, tag_field="type", tag="resource_link"):
    uri: str
    name: str
    mime_type: str | UnsetType = UNSET


class _ContentsShape(_Shape, kw_only=True):
    uri: str
    mime_type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.text is UNSET and self.blob is UNSET:  # an empty text, as Go omits it
            raise ValueError("neither text nor blob")


class _ResourceShape(_Shape, kw_only=True, tag_field="type", tag="resource"):
    resource: _ContentsShape


_BlockShape = _TextShape | _ImageShape | _AudioShape | _LinkShape | _ResourceShape


class _MessageShape(Struct, gc=False):
    role: Role
    content: _BlockShape


class ResultShape(_Shape):
    """The members that decide how to handle a result, as in `ResultHead`."""

    is_error: bool = False
    result_type: str | UnsetType = UNSET


class _CallShape(ResultShape):
    content: list[_BlockShape] | UnsetType = UNSET


class _PromptShape(ResultShape):
    messages: list[_MessageShape] | UnsetType = UNSET


class _ReadShape(ResultShape):
    contents: list[_ContentsShape] | UnsetType = UNSET


_fits_block = msgspec.json.Decoder(_BlockShape).decode
CHECKS: dict[str, Callable[[Raw], ResultShape]] = {
    "tools/call": msgspec.json.Decoder(_CallShape).decode,
    "prompts/get": msgspec.json.Decoder(_PromptShape).decode,
    "resources/read": msgspec.json.Decoder(_ReadShape).decode,
}
"""Decoders by method, which raise msgspec's errors for a result that strict clients refuse."""


def repaired(method: str, raw: Raw) -> Raw:
    """Return a result that `CHECKS` refuses in a form that strict clients accept.

    Raises:
        RemoteProtocolError, OutOfMemory: The result is malformed, as for `decode_call`.
    """
    what = f"{method} result"
    members = decode(dict[str, Raw], raw, what)
    changed: JsonObject = {}
    of: type[CallToolResult | GetPromptResult | ReadResourceResult] = ReadResourceResult
    if method == "tools/call":
        of, blocks = CallToolResult, _blocks_in(members.pop("content", _NULL), what)
        changed = {"content": [_strict_block(blocks, each, what) for each in blocks]}
    elif method == "prompts/get":
        of = GetPromptResult
        messages = _messages_in(members.pop("messages", _NULL), what)
        changed = {
            "messages": [
                {"role": each.role, "content": _strict_block([content], content, what)}
                for each, content in messages
            ]
        }
    rest = Raw(strict_form(of, encode_lossy(members)))
    decode(of, rest, what)
    found: JsonObject = dict(decode(dict[str, Raw], rest, what))
    if "contents" in found and method == "resources/read":
        contents = decode(list[dict[str, Raw]], found["contents"], what)
        empty = {"text": Raw(b'""')}
        found["contents"] = [each if "blob" in each else empty | each for each in contents]
    return Raw(encode_lossy(found | changed))


def _strict_block(blocks: list[Raw], raw: Raw, what: str) -> Content | Raw:
    """Return a block that strict clients accept; text with the JSON of any other block."""
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        _fits_block(raw)
        return raw
    block = _decode_one_of(blocks, raw, what)
    if isinstance(block, UnknownContent | ToolUseContent | ToolResultContent):
        return TextContent(text=bytes(raw).decode(errors="replace"))
    if isinstance(block, ResourceLink):
        return replace(block, name=block.name or block.uri)
    if isinstance(block, EmbeddedResource) and block.resource.text is block.resource.blob:
        return replace(block, resource=replace(block.resource, text=""))
    return block
