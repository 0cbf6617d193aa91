"""Pins: the definitions that an operator has accepted from a server.

Lists are compared with the pins when a list arrives or the pins change, not on each call. While the
pins cannot be read, no definition is accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from interlock.errors import InterlockError
from interlock.store.pin import PROMPTS, SERVER, Key, Kind, Kinds, Offered, Pin, Risk
from interlock.types import JsonObject

_decode = msgspec.json.Decoder(JsonObject).decode


def offered_tool(
    definition: JsonObject, operation: JsonObject | None, stated: JsonObject | None = None
) -> Offered:
    """Return the part of a tool to pin.

    Args:
        definition: The tool as the server lists it.
        operation: The parts of an API's tool that a model does not see; None for other tools.
        stated: A hash of the API's document about the operation; None for other tools.
    """
    document = definition if operation is None else {**definition, "operation": operation}
    return Offered("tool", definition["name"], document, definition if stated is None else stated)


def offered_server(launch: JsonObject, instructions: str | None) -> Offered:
    """Return the parts to pin of the server itself: its launch and instructions."""
    document: JsonObject = {"launch": launch, "instructions": instructions or ""}
    return Offered("server", "", document, document)


def offered_prompts(definitions: Iterable[JsonObject]) -> list[Offered]:
    """Return the parts to pin of listed prompts."""
    marks = [Offered(*PROMPTS, {})]
    return marks + [Offered("prompt", each["name"], each, each) for each in definitions]


class PinKeeper(Protocol):
    """Stores the pins of all servers.

    Attributes:
        key: The key for the hashes that replace variables' values in a launch command.
    """

    @property
    def key(self) -> bytes: ...

    def follow(self, check: Callable[[Collection[str]], Awaitable[None]]) -> None:
        """Call `check` whenever pins may have changed, with the names of their servers."""
        ...

    async def check(
        self, server: str, offered: Sequence[Offered], kinds: Kinds
    ) -> Mapping[Key, Pin] | None:
        """Compare a list with the pins, and store the list.

        Returns:
            The pins for these kinds of items; None if everything is accepted.

        Raises:
            InterlockError: The pins cannot be read or written.
        """
        ...

    async def pins(self, server: str) -> Sequence[Pin]:
        """Return the pins of a server as they are stored.

        Raises:
            InterlockError: The pins cannot be read.
        """
        ...


class CheckedLists:
    """The definitions that one server offers, and which of them are accepted.

    Args:
        server: The server's name.
        keeper: Stores the pins; None to accept every definition.

    Attributes:
        lock: Held while a list is checked and installed, so that a newer list is installed last.
    """

    def __init__(self, server: str, keeper: PinKeeper | None) -> None:
        self.lock = asyncio.Lock()
        self._server = server
        self._keeper = keeper
        self._offered: dict[Kinds, Sequence[Offered]] = {}
        self._hashes: dict[Key, str] = {}
        self._pins: dict[Key, Pin] | None = {}  # None if everything is accepted
        self._problems: dict[Kinds, str] = {}

    @property
    def key(self) -> bytes:
        return b"" if self._keeper is None else self._keeper.key

    async def check(self, offered: Sequence[Offered], kinds: Kinds) -> None:
        """Compare a list with the pins, unless it equals the last compared list."""
        if self.is_same(offered, kinds) and kinds not in self._problems:
            return
        self._hashes = {key: each for key, each in self._hashes.items() if key[0] not in kinds}
        self._hashes |= {(each.kind, each.name): each.hash for each in offered}
        self._offered[kinds] = offered
        await self._check(kinds)

    async def tools_seen_last(self) -> list[Offered]:
        """Return the tools last compared with the pins, by this or an earlier process.

        Raises:
            InterlockError: The pins cannot be read.
        """
        pins = await self._keeper.pins(self._server) if self._keeper is not None else ()
        return [
            each for each in map(Offered.kept, pins) if each is not None and each.kind == "tool"
        ]

    async def instructions_seen_last(self) -> str:
        """Return the server's instructions that were last compared with the pin.

        Raises:
            InterlockError: The pins cannot be read.
        """
        pins = await self._keeper.pins(self._server) if self._keeper is not None else ()
        seen = [pin.accepted().definition for pin in pins if pin.kind == "server"]
        text = next(filter(None, seen), None)
        return "" if text is None else str(_decode(text).get("instructions", ""))

    async def check_again(self) -> bool:
        """Compare all lists with the pins again; return whether the result has changed."""
        before = self._pins, dict(self._problems)
        for kinds in self._offered:
            await self._check(kinds)
        return before != (self._pins, self._problems)

    def is_same(self, offered: Sequence[Offered], kinds: Kinds) -> bool:
        before = self._offered.get(kinds)
        return before is not None and [(each.hash, each.source) for each in before] == [
            (each.hash, each.source) for each in offered
        ]

    async def _check(self, kinds: Kinds) -> None:
        if self._keeper is None:
            self._pins = None
            return
        others = {key: pin for key, pin in (self._pins or {}).items() if key[0] not in kinds}
        try:
            found = await self._keeper.check(self._server, self._offered[kinds], kinds)
        except InterlockError as error:
            self._problems[kinds] = f"pins cannot be read: {error}"
            self._pins = others
            return
        self._problems.pop(kinds, None)
        self._pins = None if found is None else {**others, **found}

    def hash(self, kind: Kind, name: str) -> str:
        """Return the hash of an item's definition as the server offers it."""
        return self._hashes.get((kind, name), "")

    @property
    def compares(self) -> bool:
        """Whether definitions are compared with pins; if not, all are accepted."""
        return self._keeper is not None and self._pins is not None

    def accepted(self, tool: str) -> str:
        """Return the hash of a tool's accepted definition; "" if the tool has no pin."""
        pin = (self._pins or {}).get(("tool", tool))
        if pin is not None and pin.is_rewritten:
            pin = pin.accepted()
        return "" if pin is None else pin.hash or ""

    def accepted_annotations(self, tool: str) -> JsonObject | None:
        """Return the annotations in a tool's accepted definition; None if it has no pin."""
        pin = (self._pins or {}).get(("tool", tool))
        if pin is None or pin.definition is None:
            return None
        found: JsonObject = _decode(pin.definition).get("annotations") or {}
        return found

    def risk(self, tool: str) -> Risk | None:
        """Return the risk that the operator stated when accepting a tool; None if not stated."""
        pin = (self._pins or {}).get(("tool", tool))
        return pin.risk if pin is not None else None

    def obstacle(self, kind: Kind, name: str) -> str:
        """Return why a tool or prompt waits to be accepted, in one line; "" if it is accepted."""
        if self._pins is None:
            return ""
        for problem in self._problems.values():
            return problem
        server = self._pins.get(SERVER)
        if server is None or server.waits:
            return (
                f"the launch or the instructions of {self._server} are not accepted; they wait for"
                f" `interlock lock accept {self._server}`"
            )
        pin = self._pins.get((kind, name))
        if pin is not None and not pin.waits:
            return ""
        what = "is new" if pin is None or pin.state == "new" else "has changed"
        return f"its definition {what} and waits for `interlock lock accept {self._server}:{name}`"
