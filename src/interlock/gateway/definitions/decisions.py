"""The definitions that servers offer, for operators: list, show, accept and reject.

The command `interlock lock` and the admin API are made of these methods.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.durable import NotSynced
from interlock.errors import ConfigError, DefinitionChanged, StoreError
from interlock.gateway.definitions import lock_file
from interlock.store.database.claims import Claim
from interlock.store.pin import Pin, Risk
from interlock.store.pins import CHANGED, Change, PinStore
from interlock.text.quoting import INVISIBLE
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

# Writes a decision with its audit records: what was decided, the change of the table, and each pin
# before and after it. Without a change of the table it writes the records alone.
Record = Callable[[str, Claim | None, Sequence[Change]], Awaitable[None]]

_Pins: TypeAlias = list[Pin]


class Shown(Struct, frozen=True):
    """A pin with both definitions.

    Attributes:
        pin: The pin.
        lines: The differences, with invisible characters made visible.
    """

    pin: Pin
    lines: list[str]

    @property
    def hash(self) -> str:
        """The hash to accept: of what the server offers."""
        return self.pin.seen_hash or self.pin.hash or ""

    def as_json(self) -> JsonObject:
        """Return the object of the admin API."""
        pin = self.pin
        accepted = None if pin.definition is None else msgspec.json.decode(pin.definition)
        seen = None if pin.seen_definition is None else msgspec.json.decode(pin.seen_definition)
        return as_json(pin) | {"accepted": accepted, "seen": seen, "diff": self.lines}


_Shown: TypeAlias = list[Shown]


class Definitions:
    """What operators do with pins. Every method may raise a `StoreError`.

    Args:
        store: The pins.
        by: Principal that decides.
        record: Records each decision; None for no record.
        file: The lock file that the configuration obeys; None if the database decides. What is
            accepted is written to this file as well.
    """

    def __init__(
        self, store: PinStore, *, by: str, record: Record | None = None, file: Path | None = None
    ) -> None:
        self._store = store
        self._by = by
        self._record = record
        self._file = file

    async def list(self, server: str | None = None) -> _Pins:
        """Return the pins of a server, or of all."""
        return [each for each in await self._store.list(server) if each.kind != "list"]

    async def find(self, address: str) -> _Pins:
        """Return what an address names: a tool and perhaps a prompt, or a server itself.

        Raises:
            StoreError: It names no definition.
        """
        server, colon, name = address.partition(":")
        pins = await self.list(server)
        kinds = ("tool", "prompt") if colon else ("server",)
        found = [each for each in pins if each.kind in kinds and each.name == name]
        if not found:
            raise StoreError(f"no definition of {address!r}: see `interlock lock status`")
        return found

    async def show(self, address: str) -> _Shown:
        """Return the definitions that an address names, and how they differ.

        Raises:
            StoreError: It names no definition.
        """
        return [self.shown(each) for each in await self.find(address)]

    def shown(self, pin: Pin) -> Shown:
        """Return a pin with its differences."""
        return Shown(pin, diff(pin))

    async def waiting(self, server: str) -> _Pins:
        """Return what waits of a server, with the server itself first."""
        return [each for each in await self.list(server) if each.waits]

    async def accept(self, pin: Pin, hash: str, *, risk_from_hints: bool = False) -> Pin:
        """Accept the definition that was shown.

        Args:
            pin: Which one.
            hash: Of the definition that was shown.
            risk_from_hints: State the risk of a tool as its server does, from now on.

        Raises:
            DefinitionChanged: The server offers another definition by now.
            ConfigError: The lock file cannot be read or written.
        """
        risk = _hinted(pin) if risk_from_hints else None
        accept = partial(self._store.accept, pin, hash, by=self._by, risk=risk)
        if self._file is None:
            return (await accept(record=self._recorded("accept")))[1]
        try:
            with lock_file.staged(self._file, _with(self._file, pin, hash, risk)) as put:
                _, after = await accept(record=self._recorded_around(put))
        except (OSError, NotSynced) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"{self._file} cannot be written: {why}") from error
        return after

    async def reject(self, pin: Pin, hash: str | None = None) -> Pin | None:
        """Reject a definition, so that it is not offered. What is gone is forgotten.

        Args:
            pin: Which one.
            hash: Of the definition that was shown; None for the present one.

        Raises:
            DefinitionChanged: The server offers another definition by now.
        """
        if self._file is not None:
            raise ConfigError(f"{pin.address} is in {self._file}: remove it there (mode strict)")
        record = self._recorded("reject")
        _, after = await self._store.reject(pin, hash, by=self._by, record=record)
        return after

    async def export(self, path: Path) -> int:
        """Write all accepted definitions to a file, and return how many there are.

        Raises:
            OSError: It cannot be written.
        """
        return lock_file.write(path, await self._store.list())

    async def import_file(self, path: Path) -> _Pins:
        """Accept what a file states of its servers, and nothing else of them.

        Returns:
            What is accepted now.

        Raises:
            ConfigError: The file cannot be read, or is not a lock file.
        """
        if self._file is not None:
            raise ConfigError(f"gateway.lock.mode is strict: write to {self._file} instead")
        decided = {"decided_by": self._by, "decided_at": now_micros()}
        pins = [replace(each, **decided) for each in lock_file.read(path)]
        await self._store.replace(pins, record=self._recorded("import"))
        return [each for each in pins if each.kind != "list"]

    def _recorded(self, decision: str) -> Callable[..., Awaitable[None]] | None:
        return None if self._record is None else partial(self._record, decision)

    def _recorded_around(self, put: Callable[[], None]) -> Callable[..., Awaitable[None]]:
        """Return what records an acceptance as begun, puts the lock file in place, and records it.

        So the audit trail never says "accept" of what the lock file does not accept, and the file
        accepts nothing of which the audit trail says nothing. The database changes last: the file
        decides, and what follows from it is written again with the next list.
        """
        is_put = False

        async def recorded(claim: Claim, changes: Sequence[Change]) -> None:
            nonlocal is_put
            if not is_put:  # called again if the row was changed meanwhile
                if self._record is not None:
                    await self._record("accept_started", None, changes)
                put()
                is_put = True
            change = self._recorded("accept") or self._store.unrecorded
            await change(claim, changes)

        return recorded


def decision_of(decision: str, change: Change) -> tuple[JsonObject, str, str]:
    """Return what the audit trail says of a decision, and which server and tool it is about."""
    before, after = change
    pins = {"before": before, "after": after}
    shown = {name: as_json(pin) for name, pin in pins.items() if pin is not None}
    server = next((each.server for each in (after, before) if each is not None), "")
    tool = next((each.address for each in (after, before) if each is not None and each.name), "")
    return {"decision": decision, **shown}, server, tool


def as_json(pin: Pin) -> JsonObject:
    """Return the object of a pin, as commands and the admin API show it."""
    found: JsonObject = {
        "server": pin.server,
        "kind": pin.kind,
        "tool": pin.address if pin.kind != "server" else None,
        "state": pin.state,
        "since": rfc3339(pin.since or None),
        "hash": pin.hash,
        "seenHash": pin.seen_hash,
        "risk": pin.risk,
        "decidedBy": pin.decided_by,
        "decidedAt": rfc3339(pin.decided_at),
    }
    return {name: value for name, value in found.items() if value is not None}


def _hinted(pin: Pin) -> Risk | None:
    """Return the risk that a server states of its tool."""
    if pin.kind != "tool":
        return None
    definition = msgspec.json.decode(pin.seen_definition or pin.definition or "{}")
    hints = definition.get("annotations") or {}
    reads = hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True
    return "read" if reads else "write"


def _with(file: Path, pin: Pin, hash: str, risk: Risk | None) -> list[Pin]:
    """Return the pins of a lock file, with what was shown among them."""
    definition = pin.seen_definition or pin.definition
    if hash != (pin.seen_hash or pin.hash) or definition is None:
        raise DefinitionChanged(f"{pin.address} {CHANGED} {pin.address}`")
    pins = lock_file.read(file) if file.exists() else []
    others = [each for each in pins if (each.server, each.key) != (pin.server, pin.key)]
    known = next((each.risk for each in pins if each not in others), None)
    return [*others, replace(pin, hash=hash, definition=definition, risk=risk or known)]


_INVISIBLE = re.compile(rf"[\x00-\x09\x0b-\x1f\x7f-\x9f{INVISIBLE}]")


def diff(pin: Pin) -> list[str]:
    """Return the lines of a unified diff from the accepted definition to the one seen.

    Of a definition that was never accepted, all lines are added. Members are sorted, and every
    line of a longer text has a line of its own, after its member.
    """
    before = _lines(pin.definition)
    after = _lines(pin.seen_definition if pin.waits else pin.definition)
    if pin.state == "gone":
        after = []
    found = difflib.unified_diff(before, after, "accepted", "offered", n=2, lineterm="")
    return [*found] if before != after else [f" {line}" for line in after]


def visible(text: str) -> str:
    """Return text with an escape for each character that is not shown, or that changes others."""
    return _INVISIBLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _lines(definition: str | None) -> list[str]:
    if definition is None:
        return []
    document: JsonObject = msgspec.json.decode(definition)
    return [visible(line) for line in _of(document, "")]


def _of(value: Any, path: str) -> list[str]:
    """Return a line for each leaf of a value: its path, and what it is."""
    if isinstance(value, dict) and value:
        pairs = sorted((f"{path}.{key}" if path else key, each) for key, each in value.items())
        return [line for inner, each in pairs for line in _of(each, inner)]
    if isinstance(value, list) and value:
        return [line for i, each in enumerate(value) for line in _of(each, f"{path}[{i}]")]
    if isinstance(value, str):
        first, *others = value.split("\n")
        return [f"{path}: {_quoted(first)}", *(f"{path}+ {_quoted(each)}" for each in others)]
    return [f"{path}: {msgspec.json.encode(value).decode()}"]


def _quoted(line: str) -> str:
    return msgspec.json.encode(line).decode()
