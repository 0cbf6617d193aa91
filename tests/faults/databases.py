"""The databases that rows share, and a tool whose calls are recorded in one."""

from __future__ import annotations

from functools import cache

from interlock.store import AuditRecord, AuditWriter
from tests.faults.ground import CANARY, Ground
from tests.servers.postgres import Postgres

INTENT = AuditRecord("intent", "c1", "user:anna", "k1", "crm", "crm:refund")


class AuditedTool:
    """A tool whose calls are recorded before they run.

    Attributes:
        effects: How often the tool ran.
    """

    def __init__(self, writer: AuditWriter) -> None:
        self._writer = writer
        self.effects = 0

    async def call(self) -> None:
        """Record a call, then run it."""
        await self._writer.append(INTENT)
        self.effects += 1
        self._writer.append_soon(AuditRecord("outcome", "c1", status="ok"))


@cache
def postgres() -> Postgres:
    """Return the server that all rows share, because creating it takes longer than any row."""
    return Postgres()


def started(ground: Ground) -> Postgres:
    """Start the server; it is stopped at the end of the scenario."""
    server = postgres()
    server.start()
    ground.stack.callback(server.stop)
    return server


def url_of(server: Postgres) -> str:
    """Return the URL with a password, which the server does not require."""
    return server.url.replace("interlock@", f"interlock:{CANARY}@")
