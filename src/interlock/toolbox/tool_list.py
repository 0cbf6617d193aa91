"""One server's tools: those that the toolbox offers, and why others are missing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock import aio, schema
from interlock.calls import Entry
from interlock.client.listing import Listing
from interlock.config import ToolFilter
from interlock.errors import InvalidArguments, SchemaError
from interlock.protocol.envelope import encode
from interlock.schema.tool_input import checked_input
from interlock.toolbox import names
from interlock.toolbox.pins import CheckedLists
from interlock.types import JsonObject, Tool, ToolAnnotations

NOT_ALLOWED = "not allowed by the configuration"  # the end of a line in `missing`
MAX_TOOLS = 1_000
MAX_DESCRIPTION = 8 * 1024  # characters


class Unusable(Struct, frozen=True):
    """A tool that a server has listed but that cannot be called.

    Attributes:
        name: The tool's name at the server; "" if the name is not valid.
        detail: Why the tool cannot be called, in one line.
        is_hidden: Whether the operator has excluded the tool.
        reason: A stable code for why the tool cannot be called.
        entry: The tool, so that a policy can decide about it; None if only its name is known.
    """

    name: str
    detail: str
    is_hidden: bool = False
    reason: str = "tool_invalid"
    entry: Entry | None = None


class ToolList:
    """One server's tools: the usable tools, and why other tools are unusable.

    Args:
        server: The server's name in the toolbox.
        admitted: The operator's filter for tools; None to admit all tools.
        checked: The accepted definitions.
        operation_of: Returns the API operation that a tool calls; "" if the server is not an API.

    Attributes:
        entries: The tools that can be called.
        unusable: The tools that cannot be called.
        missing: One line for each tool that is missing.
        listing: The last list from the server.
        validators: The validators for tools that have been called. A validator is made on the
            first call, because it takes several times the memory of its schema.
    """

    def __init__(
        self,
        server: str,
        admitted: ToolFilter | None,
        checked: CheckedLists,
        operation_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._operation_of = operation_of
        self.entries: tuple[Entry, ...] = ()
        self.unusable: tuple[Unusable, ...] = ()
        self.missing: tuple[str, ...] = ()
        self.listing: Listing[Tool] = Listing()
        self._server = server
        self._filter = admitted
        self._checked = checked
        self._schemas: dict[str, bytes] = {}  # schemas of the usable tools
        self.validators: dict[str, schema.Validator] = {}
        self._wrong: dict[str, tuple[int, str]] = {}  # tool -> number of wrong results, last error

    def validator(self, tool: str) -> schema.Validator | None:
        """Return the validator for a tool's arguments; None if the tool is not listed."""
        encoded = self._schemas.get(tool)
        if encoded is not None and tool not in self.validators:
            self.validators[tool] = schema.compile(encoded)
        return self.validators.get(tool)

    def errors(self, tool: str, arguments: JsonObject, *, echo: bool) -> list[str]:
        """Return the errors in a tool's arguments; the texts show values if `echo` is true."""
        validator = self.validator(tool)
        return [] if validator is None else validator.errors(arguments, echo=echo)

    @property
    def flagged(self) -> list[str]:
        """One line for each tool whose results break the protocol."""
        return [
            f"tool {tool!r}: {times} wrong results, the last one: {error}"
            for tool, (times, error) in self._wrong.items()
        ]

    def note_wrong_result(self, tool: str, problem: str) -> None:
        """Count a result of a tool that breaks the protocol, or the tool's output schema."""
        times, _ = self._wrong.get(tool, (0, ""))
        self._wrong[tool] = times + 1, problem

    def forget_wrong_results(self) -> None:
        """Reset the counts of wrong results, because the tools were listed again."""
        self._wrong.clear()

    def mark(self, *, stale: bool) -> None:
        """Mark the tools as stale because their server is down, or as current."""
        self.entries = tuple(replace(each, stale=stale) for each in self.entries)

    async def install(self, listing: Listing[Tool], notes: Sequence[str]) -> None:
        """Replace the tools by a new list; other tasks run while many tools are read.

        A tool whose definition and pin have not changed keeps its `Entry`, so that what others
        have made of it stays valid.

        Args:
            listing: The server's list.
            notes: Further lines for `missing`.
        """
        before = self._sources()
        missing = [*listing.skipped, *notes]
        unusable = [Unusable(_name_in(line), line) for line in listing.skipped]
        if listing.truncated:
            missing.append(listing.truncated)
        entries: list[Entry] = []
        pairs = zip(listing, listing.definitions, strict=True)
        for count, (tool, definition) in enumerate(pairs, 1):
            if count % aio.SLICE == 0:
                await asyncio.sleep(0)
            if len(entries) == MAX_TOOLS:
                missing.append(f"the list is cut after {MAX_TOOLS} tools of {len(listing)}")
                break
            try:
                known = before.get(tool.name)
                entries.append(self._kept(known, definition) or self._entry(tool, definition))
            except (SchemaError, InvalidArguments) as error:
                missing.append(f"tool {tool.name!r}: {error}")
                unusable.append(self._unusable(tool, error))
        self.listing = listing
        self._schemas = {each.tool.name: each.input_schema for each in entries}
        self.validators = {}
        self.entries = tuple(entries)
        self.unusable = tuple(unusable)
        self.missing = tuple(missing)

    def _sources(self) -> dict[str, tuple[JsonObject, Entry]]:
        """Return the tools by name, each with the definition of which it was made."""
        entries = {each.tool.name: each for each in self.entries}
        pairs = zip(self.listing, self.listing.definitions, strict=True)
        return {
            tool.name: (definition, entries[tool.name])
            for tool, definition in pairs
            if tool.name in entries
        }

    def _kept(self, known: tuple[JsonObject, Entry] | None, definition: JsonObject) -> Entry | None:
        """Return the tool as it was before, if a new list would make an equal one; else None."""
        if known is None or known[0] != definition:
            return None
        entry, name = known[1], known[1].tool.name
        parts = self._checked.hash("tool", name), self._checked.risk(name), self._operation_of(name)
        if parts != (entry.pin, entry.risk, entry.operation):
            return None
        if self._checked.obstacle("tool", name):
            return None
        return replace(entry, stale=False) if entry.stale else entry

    def _entry(self, tool: Tool, definition: JsonObject) -> Entry:
        if not tool.name:
            raise InvalidArguments("it has no name")
        if self._filter is not None and not self._filter.admits(tool.name):
            raise _Filtered(NOT_ALLOWED)
        if obstacle := self._checked.obstacle("tool", tool.name):
            raise _Quarantined(obstacle)
        given = encode(tool.input_schema)
        encoded = checked_input(given)  # raises an error now rather than in the first call
        if encoded is not given:
            tool = replace(tool, input_schema=msgspec.json.decode(encoded))
        if len(tool.description) > MAX_DESCRIPTION:
            tool = replace(tool, description=tool.description[:MAX_DESCRIPTION] + " [cut]")
            definition = {**definition, "description": tool.description}
        wire_name = names.wire_name(self._server, tool.name)
        definition = {**definition, "name": wire_name, "inputSchema": tool.input_schema}
        return self._made(tool, encoded, encode(definition))

    def _unusable(self, tool: Tool, error: Exception) -> Unusable:
        """Return the record of a tool that cannot be called.

        A policy decides by the accepted annotations whether a caller sees the record, so that
        callers who saw the tool before are told why it is missing.
        """
        reason = "tool_quarantined" if isinstance(error, _Quarantined) else "tool_invalid"
        accepted = self._checked.accepted_annotations(tool.name)
        if accepted is not None:
            tool = replace(tool, annotations=_annotations(accepted))
        known = self._made(tool, b"{}") if tool.name else None
        return Unusable(tool.name, str(error), isinstance(error, _Filtered), reason, known)

    def _made(self, tool: Tool, input_schema: bytes, definition: bytes = b"") -> Entry:
        return Entry(
            server=self._server,
            tool=replace(tool),  # a new object, because policies cache decisions by object
            address=names.address(self._server, tool.name),
            wire_name=names.wire_name(self._server, tool.name),
            input_schema=input_schema,
            definition=definition,
            pin=self._checked.hash("tool", tool.name),
            risk=self._checked.risk(tool.name),
            operation=self._operation_of(tool.name),
            is_always_listed=self._filter is not None and self._filter.lists(tool.name),
        )


class _Filtered(InvalidArguments):
    """The error for a tool that the configuration excludes."""


class _Quarantined(InvalidArguments):
    """The error for a tool whose definition waits until the operator accepts it."""


def _annotations(definition: JsonObject) -> ToolAnnotations | None:
    try:
        return msgspec.convert(definition, ToolAnnotations) if definition else None
    except msgspec.ValidationError:  # a lock file may contain an invalid definition
        return None


_SKIPPED = re.compile(r"tool '([^']{1,128})' ")


def _name_in(line: str) -> str:
    """Return the name of the tool in a line of `Listing.skipped`."""
    found = _SKIPPED.match(line)
    return found[1] if found is not None else ""
