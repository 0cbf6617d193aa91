"""Whoever can write to the database, but has no key, leaves a sign that `verify` names.

Each mutation is made as an attacker would make it: all columns are put into order again, and hashes
are computed with a key of the attacker's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit
from interlock.store import AuditReader, AuditRecord, AuditWriter
from interlock.store.audit.copy_reading import read_copy
from interlock.store.audit.heads import FIRST_HASH, StoredHead, chain_hash
from interlock.store.audit.postgres_tables import PostgresAudit
from interlock.store.audit.sqlite_tables import SqliteAudit
from interlock.store.audit.verification import REGISTER

KEY = GatewayKey(bytes(range(32)))
OTHER = GatewayKey(bytes(range(1, 33)))
CHANGED = "was changed, or does not follow the record before it"
NAMES = ("user:anna", "k1", "crm", "crm:refund")
Row = tuple[Any, ...]


class Trail(NamedTuple):
    """A trail of three writers, of which the last one still runs, and an older copy of its rows."""

    tables: SqliteAudit | PostgresAudit
    writers: list[str]
    older: dict[str, list[Row]]

    async def run(self, sql: str, *rows: Row) -> None:
        await self.tables.write((sql, rows or [()]))

    async def rows(self, table: str = "audit") -> list[Row]:
        order = {"audit": "writer, seq", "audit_heads": "writer", "audit_register": "id"}[table]
        return await self.tables.fetch(f"SELECT * FROM {table} ORDER BY {order}")

    async def put(self, table: str, rows: list[Row]) -> None:
        marks = ", ".join("?" * len(rows[0]))
        await self.run(f"INSERT INTO {table} VALUES ({marks})", *rows)

    async def chain(self, writer: str) -> list[Row]:
        return [row for row in await self.rows() if row[0] == writer]

    async def replace(self, writer: str, rows: list[Row]) -> None:
        """Replace a chain by other records, with hashes that anybody can compute."""
        await self.run(f"DELETE FROM audit WHERE writer = '{writer}'")
        previous, made = FIRST_HASH, []
        for seq, row in enumerate(rows, 1):
            previous = chain_hash(previous, seq, row[2:12], row[12], OTHER.derive("audit chain"))
            made.append((writer, seq, *row[2:13], previous))
        if made:
            await self.put("audit", made)


async def edit(trail: Trail, writer: str) -> None:
    await trail.run(f"UPDATE audit SET tool = 'crm:other' WHERE writer = '{writer}' AND seq = 3")


async def delete_middle(trail: Trail, writer: str) -> None:
    await trail.run(f"DELETE FROM audit WHERE writer = '{writer}' AND seq = 3")


async def delete_tail(trail: Trail, writer: str) -> None:
    await trail.run(f"DELETE FROM audit WHERE writer = '{writer}' AND seq > 4")


async def delete_head(trail: Trail, writer: str) -> None:
    await trail.run(f"DELETE FROM audit_heads WHERE writer = '{writer}'")


async def delete_chain(trail: Trail, writer: str) -> None:
    await trail.run(f"DELETE FROM audit WHERE writer = '{writer}'")
    await delete_head(trail, writer)


async def swap(trail: Trail, writer: str) -> None:
    rows = await trail.chain(writer)
    await trail.replace(writer, [*rows[:2], rows[3], rows[2], *rows[4:]])


async def renumber(trail: Trail, writer: str) -> None:
    await trail.run(f"DELETE FROM audit WHERE writer = '{writer}' AND seq = 3")
    for seq in range(4, 7):
        where = f"writer = '{writer}' AND seq = {seq}"
        await trail.run(f"UPDATE audit SET seq = {seq - 1} WHERE {where}")


async def fork(trail: Trail, writer: str) -> None:
    """Continue a copy of the chain under another name, with the same head."""
    for table in ("audit", "audit_heads"):
        rows = [row for row in await trail.rows(table) if row[0] == writer]
        await trail.put(table, [("zzzzzzzz", *row[1:]) for row in rows])


async def forge(trail: Trail, writer: str) -> None:
    """Add a chain of calls that nobody made."""
    head = StoredHead("zzzzzzzz", 5, None, "host", 0, FIRST_HASH, None, None, None, 0, None, None)
    await trail.run(
        "INSERT INTO audit_heads (writer, started, host, seq, hash) VALUES (?, ?, ?, ?, ?)",
        (head.writer, head.started, head.host, head.seq, head.hash),
    )
    await trail.replace("zzzzzzzz", await trail.chain(writer))


async def empty(trail: Trail, writer: str) -> None:
    """Remove the records, and put the head back to the state in which it was inserted."""
    await trail.run(f"DELETE FROM audit WHERE writer = '{writer}'")
    await delete_head(trail, writer)
    await trail.put("audit_heads", [h for h in trail.older["audit_heads"] if h[0] == writer])


async def sign_again(trail: Trail, writer: str) -> None:
    """Rewrite the chain, and sign its head with another key."""
    await trail.replace(writer, (await trail.chain(writer))[:4])
    last = (await trail.chain(writer))[-1]
    head = StoredHead(writer, 5, 9, "host", 4, last[-1], None, 9, 4, 0, None, None).signed(OTHER)
    await delete_head(trail, writer)
    row = tuple(getattr(head, name) for name in StoredHead.__struct_fields__)
    await trail.run(
        f"INSERT INTO audit_heads ({', '.join(StoredHead.__struct_fields__)})"
        f" VALUES ({', '.join('?' * len(row))})",
        row,
    )


async def put_back(trail: Trail, writer: str) -> None:
    """Replace all tables by an older copy of them."""
    for table, rows in trail.older.items():
        await trail.run(f"DELETE FROM {table}")
        if rows:
            await trail.put(table, rows)


REMOVED = "1 of 3 writers were removed with all their records"
MOVED = "a writer was removed, added, or put back to an older state"
UNSIGNED = "the head is not signed by this key"
MUTATIONS: dict[Callable[[Trail, str], Awaitable[None]], tuple[str, str]] = {
    edit: ("", CHANGED),
    delete_middle: ("", "is missing"),
    delete_tail: ("", "is missing, with all records up to 6"),
    delete_head: ("", "has records but no head"),
    delete_chain: (REGISTER, REMOVED),
    swap: ("", CHANGED),
    renumber: ("", CHANGED),
    fork: ("zzzzzzzz", UNSIGNED),
    forge: ("zzzzzzzz", "the head has no signature"),
    empty: (REGISTER, MOVED),
    sign_again: ("", UNSIGNED),
}


async def call(writer: AuditWriter, number: int) -> None:
    names = (f"c{number}", *NAMES)
    await writer.append(AuditRecord("intent", *names))
    await writer.append(AuditRecord("outcome", *names, status="ok"))


@pytest.fixture
async def trail(place: str, tmp_path: Path):
    """A trail whose copy has its records, beside the place."""
    settings = Audit(copy=str(tmp_path / "copy"))
    tables = PostgresAudit(place) if place.startswith("postgres") else SqliteAudit(Path(place))
    older: dict[str, list[Row]] = {}
    trail = Trail(tables, [], older)
    for number in range(2):
        async with AuditWriter.open(place, key=KEY, settings=settings) as writer:
            trail.writers.append(writer.id)
            if number:
                for table in ("audit", "audit_heads", "audit_register"):
                    older[table] = await trail.rows(table)
            for step in range(3):
                await call(writer, step)
    async with AuditWriter.open(place, key=KEY, settings=settings) as writer:
        trail.writers.append(writer.id)
        await call(writer, 9)
        writer.sign_soon()
        await call(writer, 10)
        await writer.signed()
        yield trail
    await tables.close()


async def found(place: str, copy: Path | None = None) -> list[tuple[str, str]]:
    async with AuditReader.open(place) as reader:
        verification = await reader.verify(KEY, read_copy([copy], KEY) if copy else None)
    return [(each.writer, each.text) for each in verification.problems]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
async def test_each_mutation_is_named(
    trail: Trail, place: str, mutation: Callable[[Trail, str], Awaitable[None]]
):
    assert await found(place) == []
    where, text = MUTATIONS[mutation]

    await mutation(trail, trail.writers[1])

    assert (where or trail.writers[1], text) in await found(place)


async def test_an_older_database_is_named_by_the_copy_only(
    trail: Trail, place: str, tmp_path: Path
):
    assert await found(place, tmp_path / "copy") == []

    await put_back(trail, "")

    assert await found(place) == []
    _, second, third = trail.writers
    assert await found(place, tmp_path / "copy") == [
        (second, "is missing, with all records up to 6"),
        (third, "is missing with its whole chain"),
    ]


async def test_a_register_that_was_tampered_with_stays_broken(trail: Trail, place: str):
    await delete_chain(trail, trail.writers[0])
    await trail.run("UPDATE audit_register SET heads = 2")
    async with AuditWriter.open(place, key=KEY) as writer:
        await call(writer, 11)

    text = "was changed, or is not signed by this key"
    assert (REGISTER, text) in await found(place)
    await trail.run("DELETE FROM audit_register")
    assert (REGISTER, "is missing") in await found(place)


async def test_a_writer_that_the_copy_does_not_know_is_named(
    trail: Trail, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with AuditWriter.open(place, key=KEY) as writer:  # has the key, but no copy
        await call(writer, 11)
    monkeypatch.setattr("interlock.store.audit.verification.COPY_LAG", 0)

    assert await found(place, tmp_path / "copy") == [(writer.id, "is not in the copy")]
