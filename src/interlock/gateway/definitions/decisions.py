"""Operators' decisions about definitions: list, show, accept and reject.

The command `interlock lock` and the admin API call these methods.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
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

# Records a decision, given its name, the change of the table, and each pin before and after. The
# change and its records are written together; without a change, only the records are written.
Record = Callable[[str, Claim | None, Sequence[Change]], Awaitable[None]]

_Pins: TypeAlias = list[Pin]


class Shown(Struct, frozen=True):
    """A pin, with the differences between its accepted and its offered definition.

    Attributes:
        lines: A diff of the definitions, with invisible characters made visible.
    """

    pin: Pin
    lines: list[str]

    @property
    def hash(self) -> str:
        """The hash to pass to `accept`: the hash of the server's current definition."""
        return self.pin.seen_hash or self.pin.hash or ""

    def as_json(self) -> JsonObject:
        """Return the pin as JSON for the admin API."""
        pin = self.pin
        accepted = None if pin.definition is None else msgspec.json.decode(pin.definition)
        seen = None if pin.seen_definition is None else msgspec.json.decode(pin.seen_definition)
        return as_json(pin) | {"accepted": accepted, "seen": seen, "diff": self.lines}


_Shown: TypeAlias = list[Shown]


class Definitions:
    """Operators' methods for pins. Each method may raise a `StoreError`.

    Args:
        store: The storage for pins.
        by: The principal that decides.
        record: Records each decision; None to record nothing.
        file: The lock file in strict mode, which accepted definitions are also written to; None if
            the database decides.
    """

    def __init__(
        self, store: PinStore, *, by: str, record: Record | None = None, file: Path | None = None
    ) -> None:
        self._store = store
        self._by = by
        self._record = record
        self._file = file

    async def list(self, server: str | None = None) -> _Pins:
        return [each for each in await self._store.list(server) if each.kind != "list"]

    async def find(self, address: str) -> _Pins:
        """Return the pins at an address: of a tool, a prompt or both, or of a server itself.

        Raises:
            StoreError: No definition has this address.
        """
        server, colon, name = address.partition(":")
        pins = await self.list(server)
        kinds = ("tool", "prompt") if colon else ("server",)
        found = [each for each in pins if each.kind in kinds and each.name == name]
        if not found:
            raise StoreError(f"no definition of {address!r}: see `interlock lock status`")
        return found

    async def show(self, address: str) -> _Shown:
        """Return the pins at an address, with the differences between their definitions.

        Raises:
            StoreError: No definition has this address.
        """
        return [self.shown(each) for each in await self.find(address)]

    def shown(self, pin: Pin) -> Shown:
        return Shown(pin, diff(pin))

    async def waiting(self, server: str) -> _Pins:
        """Return a server's definitions that wait for a decision, with the server itself first."""
        return [each for each in await self.list(server) if each.waits]

    async def rewritten(self) -> _Pins:
        """Return the definitions that only this version of interlock writes differently."""
        return [each for each in await self.list() if each.is_rewritten]

    async def accept(self, pin: Pin, hash: str, *, risk_from_hints: bool = False) -> Pin:
        """Accept the definition that the operator saw.

        Args:
            pin: The pin of the definition.
            hash: The hash of the definition that the operator saw.
            risk_from_hints: Whether to also adopt the risk that the server states for the tool.

        Raises:
            DefinitionChanged: The server now offers a different definition.
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
        """Reject a definition, so that it is not offered; delete the pin if its item was removed.

        Args:
            pin: The pin of the definition.
            hash: The hash of the definition that the operator saw; None for the current definition.

        Raises:
            DefinitionChanged: The server now offers a different definition.
        """
        if self._file is not None:
            raise ConfigError(f"{pin.address} is in {self._file}: remove it there (mode strict)")
        record = self._recorded("reject")
        _, after = await self._store.reject(pin, hash, by=self._by, record=record)
        return after

    async def export(self, path: Path) -> int:
        """Write all accepted definitions to a file; return their number.

        Raises:
            OSError: The file cannot be written.
        """
        return lock_file.write(path, await self._store.list())

    async def import_file(self, path: Path) -> _Pins:
        """Accept the definitions in a file, and no others for the servers in this file.

        Returns:
            The pins that are now accepted.

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
        """Return a function that records the start of an acceptance, installs the file, and records
        it.

        The order ensures that the trail contains "accept" only for definitions that the file
        accepts, and that the file accepts only definitions that the trail contains. The database
        changes last: the file is authoritative, so the next list repairs the database.
        """
        is_put = False

        async def recorded(claim: Claim, changes: Sequence[Change]) -> None:
            nonlocal is_put
            if not is_put:  # the store calls this again if another writer changed the row
                if self._record is not None:
                    await self._record("accept_started", None, changes)
                put()
                is_put = True
            change = self._recorded("accept") or self._store.unrecorded
            await change(claim, changes)

        return recorded


def decision_of(decision: str, change: Change) -> tuple[JsonObject, str, str]:
    """Return a decision's audit record, with the server and the tool that it concerns."""
    before, after = change
    pins = {"before": before, "after": after}
    shown = {name: as_json(pin) for name, pin in pins.items() if pin is not None}
    server = next((each.server for each in (after, before) if each is not None), "")
    tool = next((each.address for each in (after, before) if each is not None and each.name), "")
    return {"decision": decision, **shown}, server, tool


def as_json(pin: Pin) -> JsonObject:
    """Return a pin as JSON, for commands and the admin API."""
    found: JsonObject = {
        "server": pin.server,
        "kind": pin.kind,
        "tool": pin.address if pin.kind != "server" else None,
        "state": pin.state,
        "since": rfc3339(pin.since or None),
        "hash": pin.hash,
        "seenHash": pin.seen_hash,
        "rewritten": pin.is_rewritten or None,
        "risk": pin.risk,
        "decidedBy": pin.decided_by,
        "decidedAt": rfc3339(pin.decided_at),
    }
    return {name: value for name, value in found.items() if value is not None}


def _hinted(pin: Pin) -> Risk | None:
    if pin.kind != "tool":
        return None
    definition = msgspec.json.decode(pin.seen_definition or pin.definition or "{}")
    hints = definition.get("annotations") or {}
    reads = hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True
    return "read" if reads else "write"


def _with(file: Path, pin: Pin, hash: str, risk: Risk | None) -> list[Pin]:
    """Return the pins of a lock file, updated with the definition that the operator saw."""
    accepted = pin.accepted()
    if hash != accepted.hash or accepted.definition is None:
        raise DefinitionChanged(f"{pin.address} {CHANGED} {pin.address}`")
    pins = lock_file.read(file) if file.exists() else []
    others = [each for each in pins if (each.server, each.key) != (pin.server, pin.key)]
    known = next((each.risk for each in pins if each not in others), None)
    return [*others, replace(accepted, risk=risk or known)]


_HEADS = ("---", "+++")  # of a unified diff
_PATH = re.compile(r"[^:+ ]+")
_VARIABLE = re.compile(r"(\b(?:properties|\$defs|arguments)\.)[^.]+|\[\d+\]")
_INVISIBLE = re.compile(rf"[\x00-\x09\x0b-\x1f\x7f-\x9f{INVISIBLE}]")


def diff(pin: Pin) -> list[str]:
    """Return a unified diff from the accepted definition to the last offered definition.

    If no definition was ever accepted, all lines are added lines. Members are sorted, and each line
    of a longer text is a separate line after its member.
    """
    before = _lines(pin.definition)
    after = _lines(pin.accepted().definition)
    if pin.state == "gone":
        after = []
    found = difflib.unified_diff(before, after, "accepted", "offered", n=2, lineterm="")
    return [*found] if before != after else [f" {line}" for line in after]


def summary(pins: Iterable[Pin]) -> list[tuple[str, list[Pin]]]:
    """Return the kinds of differences in definitions, each with the definitions that have it.

    A kind is a sign and a member, such as "+ inputSchema.title"; a number or the name of an
    argument within the member is shown as `*`. The most frequent kind is first.
    """
    found: dict[str, list[Pin]] = {}
    for pin in pins:
        changed = [each for each in diff(pin) if each[:1] in "+-" and each[:3] not in _HEADS]
        for kind in {f"{each[0]} {_member(each[1:])}": None for each in changed}:
            found.setdefault(kind, []).append(pin)
    return sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))


def _member(line: str) -> str:
    path = _PATH.match(line)
    return _VARIABLE.sub(r"\1*", path[0] if path is not None else line)


def visible(text: str) -> str:
    """Return text with invisible and direction-changing characters escaped."""
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
    """Return a line with path and value for each leaf of a JSON value."""
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
