"""Results too large for a model, which are stored for their owner and read in parts.

A kept result is the encoded `content` and `structuredContent` of a tool's result. Its parts are
numbered from 1: the content blocks first, then the structured content.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from interlock.auth.principal import Principal
from interlock.errors import InvalidArguments, NotKept
from interlock.layers import excerpts
from interlock.layers.excerpts import Part
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode_lossy
from interlock.store.kept import Kept, Owner
from interlock.text.timestamps import now_micros
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    ImageContent,
    ReadResourceResult,
    ResourceContents,
    TextContent,
    UnknownContent,
    decode_content,
)

URI = "interlock://results/"
TOOL = "interlock__read_result"
JSON = "application/json"
MEMORY = 64 * 1024 * 1024  # bytes that `MemoryResults` stores
KEEP = 3_600.0  # seconds until a kept result expires
MATCH_WIDTH = 400  # characters around a match in a long line
_NOT_JSON = object()
_decode_members = msgspec.json.Decoder(dict[str, Raw] | list[Raw]).decode
_LOCAL = ("default", "user:local")


def owner_of(principal: Principal | None) -> Owner:
    """Return the owner under which a caller's results are stored; None is the local user."""
    return _LOCAL if principal is None else (principal.tenant or _LOCAL[0], principal.id)


class ResultStore(Protocol):
    """A storage for results. Only a result's owner can load it."""

    async def keep(self, owner: Owner, call: str, content: bytes) -> Kept:
        """Store a result.

        Args:
            owner: The owner, the only user who can load the result.
            call: The id of the call that returned the result.
            content: The encoded result.

        Raises:
            NotKept: The store is full, or the disk or the database fails.
        """
        ...

    async def load(self, owner: Owner, id: str) -> bytes | None:
        """Return a result; None if it expired, never existed, or belongs to another owner.

        Raises:
            StoreError: The disk or the database fails.
        """
        ...


class MemoryResults:
    """Stores results in memory, and drops the oldest when they exceed `size` bytes together.

    Args:
        size: The maximum number of bytes of all results together.
        keep: Seconds until a result expires.
        clock: Returns the time in microseconds since 1970.
    """

    def __init__(
        self, size: int = MEMORY, keep: float = KEEP, *, clock: Callable[[], int] = now_micros
    ) -> None:
        self._size = size
        self._keep = keep
        self._clock = clock
        self._kept: OrderedDict[str, tuple[Owner, int, bytes]] = OrderedDict()
        self.bytes = 0

    async def keep(self, owner: Owner, call: str, content: bytes) -> Kept:  # noqa: ARG002
        if len(content) > self._size:
            raise NotKept(f"it is larger than the {self._size:,} bytes that are kept in memory")
        kept = Kept.new(self._keep, self._clock())
        self._kept[kept.id] = owner, kept.expires, content
        self.bytes += len(content)
        while self.bytes > self._size:
            self._drop(next(iter(self._kept)))
        return kept

    async def load(self, owner: Owner, id: str) -> bytes | None:
        found = self._kept.get(id)
        if found is None or found[0] != owner:
            return None
        if found[1] <= self._clock():
            self._drop(id)
            return None
        return found[2]

    def _drop(self, id: str) -> None:
        self.bytes -= len(self._kept.pop(id)[2])


# Reading


class KeptPart(Struct, frozen=True):
    """A content block of a kept result, or its structured content, as text or as bytes."""

    number: int
    mime_type: str
    text: str | None
    data: bytes = b""


class _Kept(Struct, rename="camel"):
    content: list[Raw] = []
    structured_content: Raw = Raw()


class KeptDocument:
    """A kept result, decoded.

    Args:
        structured: The encoded structured content; b"" if the result has none.
    """

    def __init__(self, blocks: Sequence[Content], structured: bytes) -> None:
        self._structured = structured
        self.parts = [part_of(number, each) for number, each in enumerate(blocks, 1)]
        if self._structured:
            text = self._structured.decode()
            self.parts.append(KeptPart(len(blocks) + 1, JSON, text))

    @classmethod
    def decode(cls, content: bytes) -> KeptDocument:
        """Decode a result that `ResultStore.load` returned."""
        kept = decode(_Kept, Raw(content), "kept result")
        blocks = [decode_content(each) for each in kept.content]
        return cls(blocks, bytes(kept.structured_content))

    @cached_property
    def text(self) -> str | None:
        """All text, joined by newlines. Structured content is left out if a block repeats it."""
        texts = [each.text for each in self.parts if each.text is not None]
        if self._structured and len(texts) > 1:
            value = _value(self._structured)
            if any(_value(each) == value for each in texts[:-1]):
                texts.pop()
        return "\n".join(texts) if texts else None

    @property
    def json(self) -> bytes | str:
        """The encoded structured content; the text if the result has none."""
        return self._structured or self.text or ""

    def part(self, number: int | None) -> KeptPart | None:
        """Return the part with a number; None for the first binary part."""
        if number is None:
            return next((each for each in self.parts if each.text is None), None)
        return next((each for each in self.parts if each.number == number), None)


def part_of(number: int, block: Content) -> KeptPart:
    """Return a content block as a part of a kept result."""
    if isinstance(block, TextContent):
        return KeptPart(number, "text/plain", block.text)
    if isinstance(block, ImageContent | AudioContent):
        return KeptPart(number, block.mime_type, None, _bytes_of(block.data))
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        if resource.blob is not None:
            mime_type = resource.mime_type or "application/octet-stream"
            return KeptPart(number, mime_type, None, _bytes_of(resource.blob))
        return KeptPart(number, resource.mime_type or "text/plain", resource.text or "")
    fields = block.fields if isinstance(block, UnknownContent) else block
    return KeptPart(number, JSON, encode_lossy(fields).decode())


def _bytes_of(data: str) -> bytes:
    try:
        return b64decode(data)
    except ValueError:  # the server sent invalid Base64
        return data.encode("utf-8", "replace")


def _value(encoded: str | bytes) -> Any:
    try:
        return msgspec.json.decode(encoded)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _NOT_JSON


class Reading(Struct, frozen=True):
    """The selected part of a kept result: the arguments of the tool `read_result`."""

    id: str
    line: int | None = None
    offset: int | None = None
    limit: int | None = None
    find: str | None = None
    pointer: str | None = None


def split_id(id: str) -> tuple[str, int | None]:
    """Split "ID", "ID/NUMBER" or a URI into the id of a result and the number of a part."""
    name, slash, number = id.removeprefix(URI).partition("/")
    if not slash:
        return name, None
    return name, int(number) if number.isascii() and number.isdecimal() else 0


def read(document: KeptDocument, reading: Reading, size: int) -> CallToolResult:
    """Return a part of a kept result, and state the call that reads the next part.

    Args:
        document: The result.
        reading: Selects the part to read.
        size: The maximum number of bytes to return.

    Raises:
        InvalidArguments: The result has no such part, or an argument does not suit the result.
    """
    _, number = split_id(reading.id)
    part = document.part(number) if number is not None else None
    if number is not None and part is None:
        raise InvalidArguments(f"{reading.id} does not exist; the result has fewer parts")
    if part is None and document.text is None:
        part = document.part(None)
    if part is not None and part.text is None:
        return _read_bytes(part, reading, size)
    text = part.text if part is not None and part.text is not None else document.text or ""
    items = None
    if reading.pointer is not None:
        whole = text if part is not None else document.json
        text, items = _at(whole, reading.pointer)
    if reading.find is not None:
        return _found(text, reading, size)
    if items is not None:
        _check_offset(reading, len(items))
        found = excerpts.part_of_items(items, reading.offset or 0, size, reading.limit)
        if found is not None:
            return _answer(found, reading)
        index = reading.offset or 0
        raise InvalidArguments(
            f"item {index} is too large for one answer ({len(items[index]):,} bytes, limit "
            f"{size:,}); read it with pointer {reading.pointer}/{index}"
        )
    return _answer(_slice(text, reading, size), reading)


def _slice(text: str, reading: Reading, size: int) -> Part:
    if reading.offset is not None:
        _check_offset(reading, len(text))
        return excerpts.part_of_text(text, reading.offset, size, characters=reading.limit)
    start = excerpts.start_of_line(text, reading.line or 1)
    if start is None:
        raise InvalidArguments(
            f"line {reading.line} does not exist; there are {excerpts.lines_in(text):,} lines"
        )
    return excerpts.part_of_text(text, start, size, lines=reading.limit)


def _check_offset(reading: Reading, total: int) -> None:
    offset = reading.offset or 0
    if offset and offset >= total:
        raise InvalidArguments(f"offset {offset} is past the end ({total:,})")


def _answer(part: Part, reading: Reading) -> CallToolResult:
    following = dict(part.following)
    if reading.pointer is not None:
        following["pointer"] = reading.pointer
    if part.is_last:
        note = f"{span(part)}; this is the end"
    else:
        note = f"{span(part)}; {read_on(reading.id, following)}"
    return CallToolResult(content=[TextContent(text=part.text), TextContent(text=note)])


def span(part: Part) -> str:
    """Return the position of a part in the whole text, such as "lines 1–20 of 300"."""
    if not part.total:
        return "no text"
    return f"{part.unit} {part.first:,}–{part.last:,} of {part.total:,}"


def read_on(id: str, following: dict[str, object]) -> str:
    """Return a sentence that tells the model which call reads the next part."""
    arguments = msgspec.json.format(encode_lossy({"id": id, **following}), indent=0).decode()
    return f"read on with {TOOL} {arguments}"


# JSON


def _at(whole: bytes | str, pointer: str) -> tuple[str, list[Raw] | None]:
    """Return the value at a JSON pointer as text, and its items if it is an array."""
    value: Raw | bytes | str = whole
    steps = pointer.split("/")
    if steps[0]:
        raise InvalidArguments(f"pointer {pointer!r} is not valid; it begins with /, or is empty")
    for step in steps[1:]:
        value = _member(value, step.replace("~1", "/").replace("~0", "~"), pointer)
    encoded = value if isinstance(value, str) else bytes(value).decode()
    items = excerpts.items_of(encoded)
    if items is not None:
        return encoded, items
    found = _value(encoded)
    if found is _NOT_JSON:
        raise InvalidArguments("the result is not JSON; read it by line or offset")
    return (found if isinstance(found, str) else encoded), None


def _member(value: Raw | bytes | str, step: str, pointer: str) -> Raw:
    try:
        members: dict[str, Raw] | list[Raw] = _decode_members(value)
    except msgspec.ValidationError:  # the value is neither an object nor an array
        members = {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidArguments("the result is not JSON; read it by line or offset") from None
    if isinstance(members, dict) and step in members:
        return members[step]
    if isinstance(members, list) and step.isascii() and step.isdecimal():
        if int(step) < len(members):
            return members[int(step)]
        raise InvalidArguments(f"pointer {pointer!r}: the array has {len(members):,} items")
    if isinstance(members, dict) and members:
        names = ", ".join([*members][:20])
        raise InvalidArguments(f"pointer {pointer!r}: no member {step!r}; there are {names}")
    raise InvalidArguments(f"pointer {pointer!r}: no member {step!r}")


# Searching


def _found(text: str, reading: Reading, size: int) -> CallToolResult:
    """Return the lines that contain the searched text, each with its line number."""
    wanted = reading.find or ""
    start = reading.offset
    if start is None:
        start = excerpts.start_of_line(text, reading.line or 1)
    at = -1 if start is None or not wanted else text.find(wanted, start)
    lines: list[str] = []
    counted, number = 0, 1  # `number` is the number of the line at index `counted`
    while at >= 0:
        number += text.count("\n", counted, at)
        counted = at
        shown, end = _match(text, at, at + len(wanted), number)
        size -= len(encode_lossy(shown))
        if size < 0 or len(lines) == (reading.limit or len(text)):
            break
        lines.append(shown)
        at = text.find(wanted, end)
    note = f"{len(lines):,} match{'' if len(lines) == 1 else 'es'}"
    if at >= 0:
        following: dict[str, object] = {"find": wanted, "offset": at}
        if reading.pointer is not None:
            following["pointer"] = reading.pointer
        note = f"the first {note}; {read_on(reading.id, following)}"
    if not lines:
        note = f"no match for {wanted!r}"
    return CallToolResult(content=[TextContent(text="\n".join([*lines, note]))])


def _match(text: str, at: int, end: int, number: int) -> tuple[str, int]:
    """Return the matching line as text, and the index where the search continues."""
    begin = text.rfind("\n", 0, at) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    if line_end - begin <= 2 * MATCH_WIDTH:
        return f"line {number}: {text[begin:line_end]}", line_end
    begin, line_end = max(begin, at - MATCH_WIDTH // 2), min(line_end, end + MATCH_WIDTH // 2)
    return f"line {number}, offset {begin}: …{text[begin:line_end]}…", line_end


# Bytes


def _read_bytes(part: KeptPart, reading: Reading, size: int) -> CallToolResult:
    if reading.find is not None or reading.pointer is not None or reading.line is not None:
        raise InvalidArguments(
            f"the result is binary ({part.mime_type}); read it by offset and limit"
        )
    _check_offset(reading, len(part.data))
    start = reading.offset or 0
    data = part.data[start : start + min(reading.limit or len(part.data), size * 3 // 4)]
    end = start + len(data)
    shown = Part("", "bytes", start + 1, end, len(part.data), None, end)
    uri = f"{URI}{reading.id.removeprefix(URI)}"
    block = EmbeddedResource(
        resource=ResourceContents(uri=uri, mime_type=part.mime_type, blob=b64encode(data).decode())
    )
    answer = _answer(shown, reading)
    return CallToolResult(content=[block, *answer.content[1:]])


def contents(document: KeptDocument, id: str) -> ReadResourceResult | None:
    """Return a kept result, or one of its parts, as a resource; None if the part does not exist.

    Args:
        document: The result.
        id: The id of the result, or "ID/NUMBER" for a single part.
    """
    name, number = split_id(id)
    parts: Sequence[KeptPart] = document.parts
    if number is not None:
        parts = [each for each in parts if each.number == number]
        if not parts:
            return None
    whole = len(document.parts) == 1
    return ReadResourceResult(
        contents=[
            ResourceContents(
                uri=f"{URI}{name}" if whole and number is None else f"{URI}{name}/{each.number}",
                mime_type=each.mime_type,
                text=each.text,
                blob=None if each.text is not None else b64encode(each.data).decode(),
            )
            for each in parts
        ]
    )
