"""Converts tool results so that Claude Code passes them to the model completely.

Claude Code drops the text beside `structuredContent`, rejects a whole result because of one block
of unknown type, and replaces a long result with a file or an error. So structured content and
unknown blocks become text here. The toolbox cuts long results; see `interlock.layers.results`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, to_builtins

from interlock.calls import Outcome
from interlock.protocol.envelope import encode, encode_lossy
from interlock.types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent

MAX_RESULT = 48_000  # bytes; above 50,000 characters Claude Code writes a file instead

_KNOWN = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)


def shape(outcome: Outcome) -> bytes:
    """Return the encoded result for Claude Code.

    Raises:
        RemoteProtocolError: The result is malformed.
    """
    raw = bytes(outcome.raw)
    result = outcome.result
    has_structure = b'"structuredContent"' in raw
    if not has_structure and all(isinstance(each, _KNOWN) for each in result.content):
        return one_line(raw)
    content: list[Any] = [
        each if isinstance(each, _KNOWN) else TextContent(text=_as_json(each))
        for each in result.content
    ]
    if result.structured is not None and not any(isinstance(each, TextContent) for each in content):
        content.append(TextContent(text=_as_json(result.structured)))
    return encode_lossy({"content": content, "isError": result.is_error})


def one_line(raw: bytes) -> bytes:
    """Remove newlines from valid JSON, where they occur only between tokens."""
    return raw.replace(b"\n", b" ").replace(b"\r", b" ")


def error(text: str) -> bytes:
    """Return an encoded result that reports an error with this text."""
    return encode_lossy({"content": [{"type": "text", "text": text}], "isError": True})


def _as_json(value: object) -> str:
    return encode(to_builtins(value, enc_hook=_plain)).decode()


def _plain(value: object) -> object:
    if isinstance(value, Raw):
        return bytes(value).decode()
    raise NotImplementedError  # msgspec's signal that it cannot encode the object
