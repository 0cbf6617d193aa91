"""A store of the definitions that operators have accepted, and those that servers last sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import Delete, Insert, Row, Select, Update, delete, insert, select, text, update

from interlock.errors import DefinitionChanged, StoreError
from interlock.store.database import tables
from interlock.store.database.changes import ChangeReader, change_statement
from interlock.store.database.claims import Claim
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.recorded import (
    Record,
    claim_of,
    make_change,
    statement_of,
    unrecorded,
)
from interlock.store.database.rows import storable
from interlock.store.pin import PROMPTS, Key, Kinds, Offered, Pin, Risk, compare
from interlock.text.timestamps import now_micros

CHANGED = "has changed since it was shown, so nothing was decided: see `interlock lock diff"
KIND: Final = "pins"  # the kind of rows in `changes`
_TENANT = "default"
_ORDER = ("server", "tool", "prompt", "list")
_FIELDS = tuple(each.name for each in msgspec.structs.fields(Pin))
_pins = tables.pins.c
_columns = [_pins[name] for name in _FIELDS]


_Pins: TypeAlias = list[Pin]
Change: TypeAlias = tuple[Pin | None, Pin | None]  # a pin before and after a change


class PinStore:
    """A store of pins in one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = ChangeReader(KIND)

    @property
    def unrecorded(self) -> Record:
        """A `Record` that makes a change without writing an audit record."""
        return unrecorded(self._database)

    async def list(self, server: str | None = None) -> _Pins:
        """Return the pins of one server, or of all servers."""
        return await self._database.read(lambda connection: _load(connection, server))

    async def check(
        self,
        server: str,
        offered: Sequence[Offered],
        kinds: Kinds,
        *,
        locked: Mapping[Key, Pin] | None = None,
    ) -> tuple[dict[Key, Pin], _Pins]:
        """Compare a server's list with its pins, and store the definitions in the list as seen.

        Args:
            server: The name of the server.
            offered: The definitions in the list.
            kinds: The kinds of definitions that such a list contains.
            locked: The server's accepted definitions from the lock file; None without a lock file,
                when the database decides, or else the server's first list.

        Returns:
            The pins of these kinds, and those of them whose state or definition is new.
        """
        # An item gets no pin if a text column cannot store its name.
        offered = [each for each in offered if storable(each.name) == each.name]

        def compared(known: _Pins) -> tuple[dict[Key, Pin], dict[Key, Pin]]:
            before = {each.key: each for each in known if each.kind in kinds}
            basis = before if locked is None else _locked(before, locked)
            accepts_first = locked is None
            return before, compare(
                server, basis, offered, kinds, accepts_first=accepts_first, now=now_micros()
            )

        before, pins = compared(await self.list(server))
        if before == pins:
            return pins, []

        async def work(connection: AsyncConnection) -> tuple[dict[Key, Pin], _Pins]:
            if connection.dialect.name == "postgresql":
                await connection.execute(_LOCK, {"server": storable(server)})
            before, pins = compared(await _load(connection, server))
            written = [pin for key, pin in pins.items() if before.get(key) != pin]
            await _write(connection, before, written)
            for key in before.keys() - pins.keys():
                await connection.execute(delete(tables.pins).where(*_is(before[key])))
            return pins, [each for each in written if _is_news(before.get(each.key), each)]

        return await self._database.write(work)

    async def accept(
        self,
        pin: Pin,
        hash: str,
        *,
        by: str,
        risk: Risk | None = None,
        record: Record | None = None,
    ) -> tuple[Pin, Pin]:
        """Accept the definition that a server offers now.

        Args:
            hash: The hash of the definition that the operator saw.
            by: The id of the principal that accepts the definition.
            risk: The new risk of the tool; None to keep it.
            record: Writes the change with its audit record; called with a list of one `Change`.

        Returns:
            The pin before and after the change.

        Raises:
            DefinitionChanged: The server now offers a different definition.
        """
        now = now_micros()

        def decided(found: Pin) -> Pin:
            _check(found, hash)
            return msgspec.structs.replace(
                found.accepted(),
                risk=risk or found.risk,
                since=found.since if found.seen_hash is None else now,
                decided_by=by,
                decided_at=now,
            )

        return await self._decide(pin, decided, record)

    async def reject(
        self, pin: Pin, hash: str | None, *, by: str, record: Record | None = None
    ) -> tuple[Pin, Pin | None]:
        """Reject a definition: a waiting definition keeps waiting, an accepted one waits again.

        If the server no longer offers the definition, its pin is deleted.

        Args:
            hash: The hash of the definition that the operator saw; None for the present definition.
            by: The id of the principal that rejects the definition.
            record: Writes the change with its audit record, as in `accept`.

        Returns:
            The pin before and after the change; None after it if the pin was deleted.

        Raises:
            DefinitionChanged: The server now offers a different definition.
        """
        now = now_micros()

        def decided(found: Pin) -> Pin | None:
            if hash is not None:
                _check(found, hash)
            if found.state == "gone":
                return None
            if found.state == "accepted":
                found = msgspec.structs.replace(found.rejected(), since=now)
            return msgspec.structs.replace(found, decided_by=by, decided_at=now)

        return await self._decide(pin, decided, record)

    async def _decide(
        self, pin: Pin, decided: Callable[[Pin], Any], record: Record | None
    ) -> tuple[Pin, Any]:
        query = select(*_columns).where(*_is(pin))
        while True:
            row = await self._database.read(lambda each: _one(each, query))
            if row is None:
                raise StoreError(f"no definition of {pin.address}: see `interlock lock status`")
            before = _pin(row)
            after: Pin | None = decided(before)
            where = (*_is(before), *(_pins[name] == value for name, value in _row(before).items()))
            change: Update | Delete = delete(tables.pins).where(*where)
            if after is not None:
                change = update(tables.pins).where(*where).values(_row(after))
            claim = claim_of(change, change_statement(KIND, before.server))
            if await make_change(self._database, claim, record, [(before, after)]):
                return before, after

    async def replace(self, pins: Sequence[Pin], *, record: Record | None = None) -> None:
        """Write pins, and delete all other pins of the same servers.

        Args:
            pins: The pins of one or more servers.
            record: Writes the pins with their audit records in one transaction; it is called with a
                list of `Change`.
        """
        servers = sorted({each.server for each in pins})
        if not servers:
            return
        written = {(each.server, each.key): each for each in pins}
        known = {(each.server, each.key): each for each in await self.list()}
        before = {key: pin for key, pin in known.items() if pin.server in servers}
        changes = [
            (before.get(key), written.get(key))
            for key in {**before, **written}
            if key[1] != PROMPTS  # this pin marks that a list arrived, and has no definition
        ]
        steps: list[Insert | Delete] = [delete(tables.pins).where(*_of(each)) for each in servers]
        steps += [insert(tables.pins).values(tenant=_TENANT, **_row(each)) for each in pins]
        statements = [(sql, [row]) for sql, row in map(statement_of, steps)]
        (first, (row,)), *others = (change_statement(KIND, server) for server in servers)
        await make_change(
            self._database, Claim(first, row, [*statements, *others]), record, changes
        )

    async def changed(self) -> set[str]:
        """Return the servers whose pins an operator has changed since the last call."""
        return await self._database.read(self._changes.read)


# Two gateways that list a server for the first time would insert the same rows.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('pins ' || :server, 0))")


async def _one(connection: AsyncConnection, query: Select[Any]) -> Row[Any] | None:
    row: Row[Any] | None = (await connection.execute(query)).one_or_none()
    return row


def _check(pin: Pin, hash: str) -> None:
    """Raise unless this is the hash of the definition that the server offers now or last."""
    if hash != (pin.seen_hash or pin.hash):
        raise DefinitionChanged(f"{pin.address} {CHANGED} {pin.address}`")


def _is_news(before: Pin | None, pin: Pin) -> bool:
    """Return whether more has changed than what the server states beside its definition."""
    if before is None or before.seen_hash != pin.seen_hash:
        return True
    return (before.state, before.hash) != (pin.state, pin.hash)


def _locked(before: Mapping[Key, Pin], locked: Mapping[Key, Pin]) -> dict[Key, Pin]:
    """Return the lock file's pins, with the definitions that the database has as seen."""
    found = dict(locked)
    for key, seen in before.items():
        accepted = locked.get(key)
        found[key] = msgspec.structs.replace(
            seen,
            **{name: getattr(accepted, name, None) for name in ("hash", "definition", "source")},
            format=accepted.format if accepted is not None else 1,
            risk=accepted.risk if accepted is not None else None,
        )
    return found


async def _load(connection: AsyncConnection, server: str | None) -> _Pins:
    query = select(*_columns).where(_pins.tenant == _TENANT)
    if server is not None:
        query = query.where(_pins.server == storable(server))
    found = [_pin(row) for row in await connection.execute(query)]
    return sorted(found, key=lambda each: (each.server, _ORDER.index(each.kind), each.name))


async def _write(
    connection: AsyncConnection, before: Mapping[Key, Pin], pins: Iterable[Pin]
) -> None:
    added = []
    for each in pins:
        if each.key in before:
            await connection.execute(update(tables.pins).where(*_is(each)).values(_row(each)))
        else:
            added.append({"tenant": _TENANT, **_row(each)})
    if added:
        await connection.execute(insert(tables.pins), added)


def _is(pin: Pin) -> tuple[Any, ...]:
    return *_of(pin.server), _pins.kind == pin.kind, _pins.name == storable(pin.name)


def _of(server: str) -> tuple[Any, ...]:
    return _pins.tenant == _TENANT, _pins.server == storable(server)


def _row(pin: Pin) -> dict[str, Any]:
    row = msgspec.structs.asdict(pin)
    return row | {name: storable(row[name]) for name in ("server", "name")}


def _pin(row: Any) -> Pin:
    return Pin(**row._mapping)
