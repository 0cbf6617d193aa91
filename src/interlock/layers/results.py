"""The size limit on results: a model gets the beginning of a large result and can read the rest.

1. A result within the limit is passed on unchanged and is not decoded.
2. A larger result is stored whole for its owner. The model gets an excerpt, a sentence that
   explains how to read more, and a link.
3. Images and audio of up to 1 MiB each are passed on whole, and are not part of the size.
4. Programs and people get whole results; see `WHOLE`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from msgspec import Raw

from interlock.calls.call import Call, Caller, Outcome
from interlock.calls.entry import Item
from interlock.config import Config
from interlock.config.gateway import OWN, Results
from interlock.errors import InvalidArguments, NotKept, UnknownResource
from interlock.layers import excerpts
from interlock.layers.excerpts import Part
from interlock.layers.kept_results import (
    URI,
    KeptDocument,
    KeptPart,
    MemoryResults,
    Reading,
    ResultStore,
    contents,
    owner_of,
    read,
    read_on,
    span,
    split_id,
)
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode_lossy
from interlock.revisions import FEATURES
from interlock.store.kept import Kept
from interlock.text.timestamps import rfc3339
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    ImageContent,
    JsonObject,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    Tool,
    ToolAnnotations,
    decode_content,
)

META_KEY = "interlock/result"
MAX_MEDIA = 1024 * 1024  # bytes of an image or audio block that is passed on whole
QUICK = 512 * 1024  # bytes that the event loop processes itself, within a few milliseconds
RESERVE = 1_024  # bytes kept free for the text and links after an excerpt
WHOLE = ("library", "cli", "app")  # surfaces that get whole results
_LINKING = ("mcp", "claude")  # surfaces whose readers can read resources

_T = TypeVar("_T")
_log = logging.getLogger("interlock.results")


class ResultLimits:
    """The limits on the size of results.

    Args:
        results: The limits for all tools, for individual tools, and for views.
        servers: Limits by the server's name in addresses; such a limit replaces the limit for all
            tools.

    Attributes:
        is_on: Whether results are limited.
        smallest: The lowest limit, in bytes; smaller results are never cut.
    """

    def __init__(
        self, results: Results | None = None, servers: Mapping[str, int] | None = None
    ) -> None:
        self._results = results or Results()
        self._servers = servers or {}
        self.is_on = self._results.max > 0
        found = [self._results.max, *self._results.tools.values(), *self._results.views.values()]
        self.smallest = min([*found, *self._servers.values()]) if self.is_on else sys.maxsize

    @classmethod
    def from_config(cls, config: Config, results: Results | None = None) -> ResultLimits:
        """Return the limits of a configuration.

        Args:
            config: The configuration.
            results: The member `gateway.results`, with variables replaced.
        """
        every = config.servers
        servers = {
            each.namespace or name: each.max_result_bytes
            for name, each in every.items()
            if each.max_result_bytes is not None
        }
        return cls(results, servers)

    def of(self, call: Call) -> int:
        """Return the limit of a call's result in bytes: the tool's, the server's, or the common
        limit.

        The caller's view and the call itself can lower the limit.
        """
        if not self.is_on:
            return self.smallest if call.result_limit is None else call.result_limit
        server, address = call.entry.server, call.entry.address
        tools = self._results.tools.items()
        of_tool = [size for pattern, size in tools if fnmatchcase(address, pattern)]
        limit = min(of_tool, default=self._servers.get(server, self._results.max))
        principal = call.caller.principal
        view = principal.view if principal is not None else ""
        limits = (limit, self._results.views.get(view), call.result_limit)
        return min(each for each in limits if each is not None)


class ResultBudget:
    """Cuts results to the limit, and stores the whole results.

    Args:
        store: Stores whole results; None to store them in memory.
        limits: The limits on the size of results.

    Attributes:
        store: Stores whole results.
        limits: The current limits.
    """

    def __init__(
        self, store: ResultStore | None = None, limits: ResultLimits | None = None
    ) -> None:
        self.store = store or MemoryResults()
        self.limits = limits or ResultLimits()

    def limit_to(self, limits: ResultLimits) -> None:
        """Replace the limits, for the results of later calls."""
        self.limits = limits

    async def fit(self, call: Call, outcome: Outcome) -> Outcome:
        """Return a call's outcome, cut to the limit for its caller.

        Raises:
            RemoteProtocolError: The result exceeds the limit and is malformed.
        """
        entry = call.entry
        if call.caller.surface in WHOLE or isinstance(entry, Item) or entry.server == OWN:
            return outcome
        limit = self.limits.of(call)
        if len(outcome.raw) <= limit or outcome.is_question:
            return outcome
        large = await _apart(len(outcome.raw), _Large, outcome)
        if large.size <= limit:
            return outcome
        kept: Kept | None = None
        problem = ""
        try:
            kept = await self.store.keep(owner_of(call.caller.principal), call.id, large.whole)
        except NotKept as error:
            problem = str(error)
            _log.warning("a result of %s is not kept: %s", entry.address, problem)
        excerpt = _Excerpt(large, call, limit)
        raw = await _apart(large.size, excerpt.encode, kept, problem)
        id = kept.id if kept is not None else ""
        return Outcome(raw, kept=id, size=len(outcome.raw), is_error=outcome.is_error)

    async def read(self, caller: Caller, reading: Reading, size: int) -> CallToolResult:
        """Return a part of a caller's kept result, and state the call that reads the next part.

        Args:
            caller: The owner of the result.
            reading: Selects the part to read.
            size: The maximum number of bytes to return.

        Raises:
            InvalidArguments: The caller has no kept result with this id, or the result has no such
                part.
            StoreError: The store is unavailable.
        """
        content = await self._load(caller, reading.id)
        if content is None:
            raise InvalidArguments(
                f"no kept result {reading.id!r}; it may have expired: call the tool again"
            )
        return await _apart(len(content), lambda: read(KeptDocument.decode(content), reading, size))

    async def resource(self, caller: Caller, uri: str) -> ReadResourceResult:
        """Return a caller's kept result as a resource.

        Raises:
            UnknownResource: The caller has no kept result with this URI.
            StoreError: The store is unavailable.
        """
        content = await self._load(caller, uri)
        found = None
        if content is not None:
            found = await _apart(len(content), lambda: contents(KeptDocument.decode(content), uri))
        if found is None:
            raise UnknownResource(uri)
        return found

    async def _load(self, caller: Caller, id: str) -> bytes | None:
        name, _ = split_id(id)
        return await self.store.load(owner_of(caller.principal), name)

    async def answer(self, call: Call) -> Outcome:
        """Handle a call of the tool `read_result`, or a read of a kept result as a resource.

        Raises:
            Exception: The errors that `read` and `resource` raise.
        """
        if isinstance(call.entry, Item):
            name, found = split_id(call.name)[0], await self.resource(call.caller, call.name)
            return Outcome(Raw(encode_lossy(found)), kept=name)
        reading = Reading(**call.arguments)
        size = _room(self.limits.of(call))
        result = await self.read(call.caller, reading, size)
        return Outcome(Raw(encode_lossy(result)), kept=split_id(reading.id)[0])


async def _apart(size: int, work: Callable[..., _T], *args: object) -> _T:
    """Run `work`; use a thread if processing `size` bytes would delay other calls."""
    return work(*args) if size <= QUICK else await asyncio.to_thread(work, *args)


def _room(limit: int) -> int:
    """Return the maximum bytes of an excerpt, so that the whole answer stays within a limit."""
    return max(limit - RESERVE, limit // 2, 1)


class _Large:
    """A decoded result that exceeds the limit.

    Attributes:
        members: The encoded members of the result.
        blocks: The content blocks.
        structured: The encoded structured content; b"" if the result has none.
        size: Bytes of the content and the structured content, without media that is passed on
            whole.
        whole: The encoded content to store.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.members = decode(dict[str, Raw], outcome.raw, "tools/call result")
        content = self.members.get("content", Raw(b"[]"))
        encoded = decode(list[Raw], content, "content")
        self.blocks = [decode_content(each) for each in encoded]
        self.whole = b'{"content":%b}' % bytes(content)
        self.structured = b""
        if "structuredContent" in self.members:
            self.structured = bytes(self.members["structuredContent"])
            self.whole = b'%b,"structuredContent":%b}' % (self.whole[:-1], self.structured)
        media = (len(raw) for raw, each in zip(encoded, self.blocks, strict=True) if _passes(each))
        self.size = len(self.whole) - sum(media)


def _passes(block: Content) -> bool:
    return isinstance(block, ImageContent | AudioContent) and _bytes_of(block.data) <= MAX_MEDIA


def _bytes_of(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


class _Excerpt:
    """The result that a model gets in place of a large result."""

    def __init__(self, large: _Large, call: Call, limit: int) -> None:
        self._large = large
        self._call = call
        self._limit = limit
        self._document = KeptDocument(large.blocks, large.structured)
        features = FEATURES.get(call.caller.revision)
        self._links = call.caller.surface in _LINKING and (features is None or features.links)

    def encode(self, kept: Kept | None, problem: str) -> Raw:
        """Encode the result.

        Args:
            kept: The stored result; None if it could not be stored.
            problem: Why the result could not be stored.
        """
        text = self._document.text
        part = None if text is None else _beginning(text, _room(self._limit))
        content: list[Content | JsonObject] = []
        if part is not None:
            content.append(TextContent(text=part.text))
        content += self._others()
        content.append(TextContent(text=self._sentence(part, kept, problem)))
        if kept is not None and self._links:
            content += self._links_to(kept)
        members: JsonObject = {
            key: each
            for key, each in self._large.members.items()
            if key not in ("content", "structuredContent")
        }
        meta = decode(dict[str, Raw], members.get("_meta", Raw(b"{}")), "_meta")
        shown = len(part.text.encode()) if part is not None else 0
        about: JsonObject = {"bytes": self._large.size, "shown": shown}
        if kept is not None:
            about = {"id": kept.id, **about, "expires": rfc3339(kept.expires)}
        members |= {"content": content, "_meta": {**meta, META_KEY: about}}
        if self._must_fail():
            members["isError"] = True
        return Raw(encode_lossy(members))

    def _must_fail(self) -> bool:
        """Return whether the client requires structured content unless the result is an error."""
        entry, caller = self._call.entry, self._call.caller
        if isinstance(entry, Item) or caller.surface != "mcp":
            return False
        features = FEATURES.get(caller.revision)
        return entry.tool.output_schema is not None and (features is None or features.structured)

    def _others(self) -> list[Content | JsonObject]:
        """Return the blocks that are never cut: images, audio, and links if they are few."""
        links = [each for each in self._large.blocks if isinstance(each, ResourceLink)]
        keeps_links = len(encode_lossy(links)) <= RESERVE
        return [
            each
            for each in self._large.blocks
            if _passes(each) or (keeps_links and isinstance(each, ResourceLink))
        ]

    @property
    def _binary(self) -> list[KeptPart]:
        """The binary parts that are not passed on."""
        blocks = self._large.blocks
        return [
            each
            for each in self._document.parts
            if each.text is None and not _passes(blocks[each.number - 1])
        ]

    def _sentence(self, part: Part | None, kept: Kept | None, problem: str) -> str:
        sentence = f"{self._large.size:,} bytes"
        if part is not None:
            sentence += f", {span(part)} are above"
        binary = [f"part {each.number} is {each.mime_type}" for each in self._binary[:10]]
        if binary:
            sentence += f", {', '.join(binary)}"
        if kept is None:
            return f"{sentence}; the rest is not kept ({problem}); call with narrower arguments"
        if part is not None and not part.is_last:
            return f"{sentence}; {read_on(kept.id, part.following)}"
        if binary:
            id = f"{kept.id}/{self._binary[0].number}"
            return f"{sentence}; {read_on(id, {'offset': 0})}"
        return f"{sentence}; the whole is kept as {kept.id}"

    def _links_to(self, kept: Kept) -> list[ResourceLink]:
        whole = ResourceLink(
            uri=f"{URI}{kept.id}", name=kept.id, title="The whole result", size=self._large.size
        )
        binary = [
            ResourceLink(
                uri=f"{URI}{kept.id}/{each.number}",
                name=f"{kept.id}/{each.number}",
                mime_type=each.mime_type,
                size=len(each.data),
            )
            for each in self._binary
        ]
        return [whole, *binary]


def _beginning(text: str, size: int) -> Part:
    items = excerpts.items_of(text)
    if items is not None:
        part = excerpts.part_of_items(items, 0, size, None)
        if part is not None:
            return part
    return excerpts.part_of_text(text, 0, size)


# The tool

_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The id of the result, r_…."},
        "line": {"type": "integer", "minimum": 1, "description": "The first line to read."},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "Instead of a line: the index of the first character, of the first item "
            "of an array, or of the first byte of binary data.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "description": "The most lines to read; with offset characters, items or bytes; with "
            "find matches.",
        },
        "find": {
            "type": "string",
            "minLength": 1,
            "description": "A text to search for literally; returns the lines that contain it.",
        },
        "pointer": {
            "type": "string",
            "description": 'A JSON pointer into a result that is JSON, such as "/items/3"; "" is '
            "the whole.",
        },
    },
    "required": ["id"],
    "additionalProperties": False,
}
READ_RESULT = Tool(
    name="read_result",
    title="Read a kept result",
    description=(
        "Read on in a tool result that was too large to be shown whole. Its last line states the "
        "id and where to go on. Returns the next lines that fit; find searches, pointer selects a "
        "part of JSON."
    ),
    input_schema=_SCHEMA,
    annotations=ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)
