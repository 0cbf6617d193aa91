"""Results of tools in the form in which Claude Code passes them on to the model whole.

Claude Code drops the text beside `structuredContent`, rejects a whole result for one block of an
unknown type, and replaces long results by a file or an error. So structured content becomes text,
unknown blocks become text, and a long result is cut: the model gets the beginning, and the URIs of
the other parts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from msgspec import Raw, Struct, to_builtins

from interlock.calls import Outcome
from interlock.protocol.envelope import encode, encode_lossy
from interlock.types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

MAX_RESULT = 48_000  # characters of text; from 50,000 on Claude Code writes a file instead
MAX_KEPT = 64 * 1024 * 1024  # characters of all parts that are kept
URI = "interlock://results/"

_KNOWN = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)


class _Kept(Struct):
    parts: list[str]
    size: int


class Results:
    """Shapes results, and keeps the parts of those that are too long.

    Args:
        limit: Characters of text that the model gets at once; 0 for no limit.
    """

    def __init__(self, limit: int = MAX_RESULT) -> None:
        self.limit = limit
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0

    def shape(self, outcome: Outcome, server: str) -> bytes:
        """Return a result, encoded, in the form for Claude Code.

        Args:
            outcome: The result.
            server: The name under which Claude Code reads the parts of a long result.

        Raises:
            RemoteProtocolError: The result is malformed.
        """
        raw = bytes(outcome.raw)
        result = outcome.result
        fits = not self.limit or len(raw) <= self.limit or _size(result.content) <= self.limit
        has_structure = b'"structuredContent"' in raw
        if fits and not has_structure and all(isinstance(each, _KNOWN) for each in result.content):
            return one_line(raw)
        content = [
            each if isinstance(each, _KNOWN) else TextContent(text=_as_json(each))
            for each in result.content
        ]
        if result.structured is not None and not any(
            isinstance(each, TextContent) for each in content
        ):
            content.append(TextContent(text=_as_json(result.structured)))
        if self.limit and _size(content) > self.limit:
            content = self._cut(content, server)
        return encode_lossy({"content": content, "isError": result.is_error})

    def read(self, uri: str) -> str | None:
        """Return a part of a kept result; None if it is not kept."""
        id, _, number = uri.removeprefix(URI).partition("/")
        kept = self._kept.get(id)
        if kept is None or not (number.isascii() and number.isdecimal()):
            return None
        at = int(number) - 1
        return kept.parts[at] if 0 <= at < len(kept.parts) else None

    def _cut(self, content: list[Any], server: str) -> list[Any]:
        text = "\n".join(_text(each) for each in content)
        rest = [each for each in content if not _text(each)]
        # With as many escapes in each part as in the whole text.
        parts = _parts(text, int((self.limit - 500) * len(text) / _weight(text)))
        id = self._keep(parts)
        note = (
            f"\n[part 1 of {len(parts)} of a result of {len(text):,} characters; to read the"
            f" others, read the resources {URI}{id}/2 to {URI}{id}/{len(parts)} of server"
            f" {server!r}]"
        )
        return [TextContent(text=parts[0] + note), *rest]

    def _keep(self, parts: list[str]) -> str:
        id = f"r_{token_hex(8)}"
        size = sum(map(len, parts))
        self._kept[id] = _Kept(parts, size)
        self._size += size
        while self._size > MAX_KEPT and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._size -= oldest.size
        return id


def one_line(raw: bytes) -> bytes:
    """Return valid JSON without newlines, which it has only between its tokens."""
    return raw.replace(b"\n", b" ").replace(b"\r", b" ")


def error(text: str) -> bytes:
    """Return an encoded error result with this text."""
    return encode_lossy({"content": [{"type": "text", "text": text}], "isError": True})


def _size(content: Sequence[object]) -> int:
    """Return the characters of all text as Claude Code counts it: escaped as in JSON."""
    return sum(_weight(_text(each)) for each in content)


def _weight(text: str) -> int:
    return len(text) + sum(map(text.count, '\n"\\\t\r'))


def _text(block: object) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, EmbeddedResource):
        return block.resource.text or ""
    return ""


def _as_json(value: object) -> str:
    return encode(to_builtins(value, enc_hook=_plain)).decode()


def _plain(value: object) -> object:
    if isinstance(value, Raw):
        return bytes(value).decode()
    raise NotImplementedError  # msgspec's signal that it cannot encode the object


def _parts(text: str, size: int) -> list[str]:
    """Cut a text into parts of at most `size` characters, after a newline where there is one."""
    parts = []
    at = 0
    while len(text) - at > size:
        end = text.rfind("\n", at + size // 2, at + size) + 1 or at + size
        parts.append(text[at:end])
        at = end
    return [*parts, text[at:]]
