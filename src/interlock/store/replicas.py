"""A store of the gateways that run on a shared database, and of their configurations."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import delete, insert, select, text

from interlock.store.audit.postgres_tables import PostgresAudit
from interlock.store.database.changes import note_change
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.tables import audit_heads, replicas

TIMEOUT = 5.0  # seconds for each answer of a database that is only looked at


class Replica(Struct, frozen=True, kw_only=True):
    """A gateway on a shared database.

    Attributes:
        writer: The id of its audit chain.
        host: The name of its machine.
        version: The version of interlock.
        configuration: The keyed hash of the configuration that it serves.
        loaded: When this configuration was loaded, in microseconds since 1970.
        reloaded: The time of the last common reload that it has followed; 0 for none.
        error: The kind of error because of which its file was not loaded; "" for none.
    """

    writer: str
    host: str
    version: str
    configuration: str
    loaded: int
    reloaded: int = 0
    error: str = ""


_RUNNING = (
    f"SELECT {', '.join(f'r.{name}' for name in Replica.__struct_fields__)}"  # noqa: S608
    " FROM replicas AS r JOIN audit_heads AS h ON h.writer = r.writer WHERE h.ended IS NULL"
    " ORDER BY r.host, h.started, r.writer"
)


class ReplicaStore:
    """A store of the gateways of a database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, replica: Replica, *, reload: int = 0) -> None:
        """Store a gateway's state, and ask all others for a common reload if `reload` is its time.

        The states of gateways whose audit chain is closed are deleted.
        """
        ended = select(audit_heads.c.writer).where(audit_heads.c.ended.is_not(None))
        old = delete(replicas).where(
            (replicas.c.writer == replica.writer) | replicas.c.writer.in_(ended)
        )

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(old)
            await connection.execute(insert(replicas).values(asdict(replica)))
            if reload:
                await note_change(connection, "config", str(reload))

        await self._database.write(work)

    async def remove(self, writer: str) -> None:
        gone = delete(replicas).where(replicas.c.writer == writer)
        await self._database.write(lambda connection: connection.execute(gone))

    async def running(self) -> list[Replica]:
        """Return all running gateways, by host; a killed one is returned for up to a minute."""

        async def work(connection: AsyncConnection) -> list[Replica]:
            return [Replica(**row) for row in (await connection.execute(text(_RUNNING))).mappings()]

        return await self._database.read(work)


async def running_at(url: str) -> list[Replica]:
    """Return all running gateways of a PostgreSQL database, which may not have any tables yet.

    Raises:
        AuditUnavailable: The database does not answer.
    """
    tables = PostgresAudit(url, timeout=TIMEOUT)
    try:
        ((table,),) = await tables.fetch("SELECT to_regclass('replicas')::text")
        rows = [] if table is None else await tables.fetch(_RUNNING)
    finally:
        await tables.close()
    return [Replica(**dict(zip(Replica.__struct_fields__, row, strict=True))) for row in rows]
