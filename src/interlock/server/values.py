"""What a tool, resource or prompt returned -> the result that the specification wants."""

from __future__ import annotations

import base64
from typing import Any, get_args

import msgspec
from msgspec import Raw

from interlock.errors import LocalProtocolError
from interlock.schema.signature import pydantic_encode
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    ReadResourceResult,
    ResourceContents,
    TextContent,
)

_CONTENT = get_args(Content)
# Not `encode`: see `interlock.protocol.envelope`.
_encode_into = msgspec.json.Encoder(enc_hook=pydantic_encode).encode_into


def image(data: bytes, mime_type: str = "image/png") -> ImageContent:
    """Make an image block from bytes."""
    return ImageContent(data=base64.b64encode(data).decode(), mime_type=mime_type)


def audio(data: bytes, mime_type: str = "audio/wav") -> AudioContent:
    """Make an audio block from bytes."""
    return AudioContent(data=base64.b64encode(data).decode(), mime_type=mime_type)


def tool_result(value: Any, *, structured: bool) -> CallToolResult:
    """Make a tool's result.

    Args:
        value: A `CallToolResult`, text, a content block or list of such, or any value that
            msgspec or pydantic can write as JSON.
        structured: Whether the tool has an output schema. Then the value is given as
            structured content, with its JSON as text beside it.

    Raises:
        LocalProtocolError: The value has no JSON.
    """
    if isinstance(value, CallToolResult):
        return value
    if not structured:
        if value is None:
            return CallToolResult()
        if isinstance(value, str):
            return CallToolResult(content=[TextContent(text=value)])
        if isinstance(value, _CONTENT):
            return CallToolResult(content=[value])
        if (
            isinstance(value, list | tuple)
            and value
            and all(isinstance(v, _CONTENT) for v in value)
        ):
            return CallToolResult(content=list(value))
    encoded = to_json(value)
    text = TextContent(text=encoded.decode())
    if not structured:
        return CallToolResult(content=[text])
    return CallToolResult(content=[text], structured_content=Raw(encoded))


def to_json(value: Any) -> bytes:
    """Write any value as JSON.

    Raises:
        LocalProtocolError: It has none.
    """
    encoded = bytearray()
    try:
        _encode_into(value, encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalProtocolError(f"{type(value).__name__} has no JSON: {error}") from error
    return bytes(encoded)


def resource_result(value: Any, uri: str, mime_type: str | None) -> ReadResourceResult:
    """Make the result of reading `uri`: from text, bytes, contents or a list of contents.

    Anything else is written as JSON.
    """
    if isinstance(value, ReadResourceResult):
        return value
    if isinstance(value, ResourceContents):
        return ReadResourceResult(contents=[value])
    if isinstance(value, list) and value and all(isinstance(v, ResourceContents) for v in value):
        return ReadResourceResult(contents=value)
    if isinstance(value, bytes | bytearray):
        blob = base64.b64encode(value).decode()
        kind = mime_type or "application/octet-stream"
        return ReadResourceResult(contents=[ResourceContents(uri=uri, mime_type=kind, blob=blob)])
    text = value if isinstance(value, str) else to_json(value).decode()
    kind = mime_type or ("text/plain" if isinstance(value, str) else "application/json")
    return ReadResourceResult(contents=[ResourceContents(uri=uri, mime_type=kind, text=text)])


def prompt_result(value: Any, description: str | None) -> GetPromptResult:
    """Make a prompt from text, a message, content, or a list of such."""
    if isinstance(value, GetPromptResult):
        return value
    values = value if isinstance(value, list | tuple) else [value]
    return GetPromptResult(messages=[_message(each) for each in values], description=description)


def _message(value: Any) -> PromptMessage:
    if isinstance(value, PromptMessage):
        return value
    if isinstance(value, _CONTENT):
        return PromptMessage(role="user", content=value)
    text = value if isinstance(value, str) else to_json(value).decode()
    return PromptMessage(role="user", content=TextContent(text=text))
