"""Conversion of a function's return value to the result of a tool or resource."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import isfinite
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Raw, Struct

from interlock.errors import LocalProtocolError, ToolError
from interlock.media import Media
from interlock.protocol.envelope import MAX_NODES, encode_into
from interlock.schema import hooks
from interlock.text import quoting
from interlock.text.quoting import replace_surrogates
from interlock.types import (
    CallToolResult,
    Content,
    ReadResourceResult,
    ResourceContents,
    TextContent,
)

_MEDIA = get_args(Media)
_CONTENT = (*get_args(Content), *_MEDIA)
MARK = b'"type":"'  # in the JSON of each content block, and of some other values
_TAGS = re.compile(
    rb'"type":"(?:|text|image|audio|resource|resource_link|tool_use|tool_result)"'
).search
MAX_DEPTH = 64  # of a value in which content is searched
# Not `encode`, which ends the process when it runs out of memory.
encode_value_into = msgspec.json.Encoder(enc_hook=hooks.write).encode_into


def tool_result(value: Any) -> CallToolResult:
    """Return the result of a tool that has no output schema.

    Args:
        value: A `CallToolResult`, text, content, or another value that msgspec or pydantic can
            encode as JSON. If an element of a list is content, each element becomes a block.

    Raises:
        LocalProtocolError: The value cannot be encoded as JSON.
        ToolError: The value contains NaN or infinity, or content inside of an object.
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
        return CallToolResult(content=[block_of(value)])
    if isinstance(value, Iterator):
        value = listed(value)
    if isinstance(value, list | tuple) and any(isinstance(each, _CONTENT) for each in value):
        return CallToolResult(content=[block_of(each) for each in value])
    encoded, text = _encoded(value)
    if encoded[:1] not in (b"{", b"["):
        return CallToolResult(content=[TextContent(text=text)])
    return CallToolResult(content=[TextContent(text=text)], structured_content=Raw(encoded))


def listed(values: Iterator[Any]) -> list[Any]:
    """Return the values of an iterator.

    Raises:
        LocalProtocolError: There are more values than a message can have.
    """
    found = list(islice(values, MAX_NODES + 1))
    if len(found) > MAX_NODES:
        raise LocalProtocolError(f"the iterator has too many values (limit {MAX_NODES:,})")
    return found


def block_of(value: Any) -> Content:
    """Return content as it is, text as text, and any other value as JSON text."""
    if isinstance(value, _MEDIA):
        value = value.content()
    if not isinstance(value, _CONTENT):
        value = TextContent(text=value if isinstance(value, str) else _encoded(value)[1])
    content: Content = value
    return content


def _encoded(value: Any) -> tuple[bytes, str]:
    """Return the JSON of a value, and the text for it: a JSON string has no quotes there."""
    encoded = to_json(value)
    if b"null" in encoded:
        check_finite(value)
    is_text = encoded.startswith(b'"')
    return encoded, msgspec.json.decode(encoded) if is_text else encoded.decode()


def to_json(value: Any) -> bytes:
    """Encode any value as JSON; lone surrogates in its text become U+FFFD.

    Raises:
        ToolError: The value contains content.
        LocalProtocolError: The value cannot be encoded as JSON.
    """
    encoded = bytearray()
    try:
        try:
            encode_value_into(value, encoded)
        except UnicodeEncodeError:
            encode_into(replace_surrogates(_builtins(value)), encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        refuse_content(value)
        name = type(value).__name__
        raise LocalProtocolError(f"{name} cannot be written as JSON: {error}") from error
    if MARK in encoded:
        refuse_content(value, encoded)
    return bytes(encoded)


def refuse_content(value: Any, encoded: bytes | bytearray | None = None) -> None:
    """Refuse content inside of a value, which would become Base64 in JSON.

    Args:
        encoded: The JSON of the value, if there is one; a search in it is much faster.

    Raises:
        ToolError: The value contains content; the text names the place of the first.
    """
    if encoded is not None and _TAGS(encoded) is None:
        return
    path = _path_to_content(value, 0)
    if path is not None:
        where = quoting.place(path) or "the result itself"
        raise ToolError(
            f"the result has content inside of JSON, at {where}; the tool must return a list with "
            "the content and the other values as its elements"
        )


def _path_to_content(value: Any, depth: int) -> list[str | int] | None:
    if isinstance(value, _CONTENT):
        return []
    if depth > MAX_DEPTH or isinstance(value, str | bytes | int | float | type(None)):
        return None
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    elif isinstance(value, Struct):
        items = ((name, getattr(value, name)) for name in value.__struct_fields__)
    else:
        items = getattr(value, "__dict__", {}).items()
    for key, each in items:
        path = _path_to_content(each, depth + 1)
        if path is not None:
            return [key if isinstance(key, int) else str(key), *path]
    return None


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
    return msgspec.json.decode(value) if isinstance(value, Raw) else hooks.write(value)


def resource_result(value: Any, uri: str, mime_type: str | None) -> ReadResourceResult:
    """Return the result of reading a resource.

    Args:
        value: Text, bytes, an `Image`, `Audio` or `File`, contents, a list of contents, or another
            value, which is encoded as JSON.
        uri: The URI that was read.
        mime_type: The media type of text and bytes; None for the default.
    """
    if isinstance(value, ReadResourceResult):
        return value
    if isinstance(value, ResourceContents):
        return ReadResourceResult(contents=[value])
    if isinstance(value, list) and value and all(isinstance(v, ResourceContents) for v in value):
        return ReadResourceResult(contents=value)
    if isinstance(value, _MEDIA):
        value, mime_type = value.data, mime_type or value.mime_type
    if isinstance(value, bytes | bytearray):
        blob = base64.b64encode(value).decode()
        kind = mime_type or "application/octet-stream"
        return ReadResourceResult(contents=[ResourceContents(uri=uri, mime_type=kind, blob=blob)])
    text = value if isinstance(value, str) else to_json(value).decode()
    kind = mime_type or ("text/plain" if isinstance(value, str) else "application/json")
    return ReadResourceResult(contents=[ResourceContents(uri=uri, mime_type=kind, text=text)])
