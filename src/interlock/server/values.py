"""Conversion of a function's return value to the result of a tool or resource."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from math import isfinite
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Raw

from interlock.errors import LocalProtocolError, ToolError
from interlock.protocol.envelope import encode_into
from interlock.schema.signature import pydantic_encode
from interlock.text import quoting
from interlock.text.quoting import replace_surrogates
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    ImageContent,
    ReadResourceResult,
    ResourceContents,
    TextContent,
)

_CONTENT = get_args(Content)
# Not `encode`, which ends the process when it runs out of memory.
encode_value_into = msgspec.json.Encoder(enc_hook=pydantic_encode).encode_into


def image(data: bytes, mime_type: str = "image/png") -> ImageContent:
    """Return an image block with these bytes."""
    return ImageContent(data=base64.b64encode(data).decode(), mime_type=mime_type)


def audio(data: bytes, mime_type: str = "audio/wav") -> AudioContent:
    """Return an audio block with these bytes."""
    return AudioContent(data=base64.b64encode(data).decode(), mime_type=mime_type)


def tool_result(value: Any) -> CallToolResult:
    """Return the result of a tool that has no output schema.

    Args:
        value: A `CallToolResult`, text, a content block, a list of text and blocks, or another
            value that msgspec or pydantic can encode as JSON.

    Raises:
        LocalProtocolError: The value cannot be encoded as JSON.
        ToolError: The value contains NaN or infinity.
    """
    if isinstance(value, CallToolResult):
        if value.structured_content is not UNSET and not isinstance(value.structured_content, Raw):
            check_finite(value.structured_content)
        return value
    if value is None:
        return CallToolResult()
    if isinstance(value, str):
        return CallToolResult(content=[TextContent(text=value)])
    if isinstance(value, _CONTENT):
        return CallToolResult(content=[value])
    if isinstance(value, list | tuple) and value and all(isinstance(v, _CONTENT) for v in value):
        return CallToolResult(content=list(value))
    encoded = to_json(value)
    if b"null" in encoded:
        check_finite(value)
    return CallToolResult(content=[TextContent(text=encoded.decode())])


def to_json(value: Any) -> bytes:
    """Encode any value as JSON; lone surrogates in its text become U+FFFD.

    Raises:
        LocalProtocolError: The value cannot be encoded as JSON.
    """
    encoded = bytearray()
    try:
        try:
            encode_value_into(value, encoded)
        except UnicodeEncodeError:
            encode_into(replace_surrogates(_builtins(value)), encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        name = type(value).__name__
        raise LocalProtocolError(f"{name} cannot be written as JSON: {error}") from error
    return bytes(encoded)


def check_finite(value: Any) -> None:
    """Refuse NaN and infinity: JSON has no such numbers, and msgspec would encode them as null.

    Raises:
        ToolError: The value contains such a number; the text names the place of the first.
    """
    plain = _builtins(value)
    try:
        json.dumps(plain, allow_nan=False)  # much faster than a search in Python code
    except (TypeError, ValueError):
        path = _path_to_non_finite(plain)
        if path is not None:
            where = quoting.place(path) or "the result itself"
            raise ToolError(
                f"the result has a number that JSON cannot express, NaN or infinity, at {where}; "
                "the tool must return null or a string there"
            ) from None


def _path_to_non_finite(value: Any) -> list[str | int] | None:
    if isinstance(value, float):
        return None if isfinite(value) else []
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, each in items:
        path = _path_to_non_finite(each)
        if path is not None:
            return [key if isinstance(key, int) else str(key), *path]
    return None


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else pydantic_encode(value)


def resource_result(value: Any, uri: str, mime_type: str | None) -> ReadResourceResult:
    """Return the result of reading a resource.

    Args:
        value: Text, bytes, contents, a list of contents, or another value, which is encoded as
            JSON.
        uri: The URI that was read.
        mime_type: The media type of text and bytes; None for the default.
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
