"""Audit records in PostgreSQL: lost connections, locks, and what the server would not sync."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuditUnavailable
from interlock.store import AuditWriter
from tests.store.audit_chains import INTENT, Rows, check_chains, within_a_second

KEY = GatewayKey(bytes(range(32)))


async def test_a_lost_connection_is_replaced(postgres: str, rows: Rows, change):
    async with AuditWriter.open(postgres, key=KEY) as writer:
        await writer.append(INTENT)
        await change(
            postgres,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'interlock'",
        )
        with suppress(AuditUnavailable):  # if the client has not noticed yet
            await writer.append(INTENT)
        await writer.append(INTENT)

    assert check_chains(await rows(postgres))[writer.id] >= 2


async def test_a_table_locked_on_a_server_fails_appends_within_a_second(postgres: str, rows: Rows):
    async with AuditWriter.open(postgres, key=KEY) as writer:
        other = await asyncpg.connect(postgres)
        async with other.transaction():
            await other.execute("LOCK TABLE audit")
            await within_a_second(writer.append(INTENT))
        await other.close()
        await asyncio.gather(*(writer.append(INTENT) for _ in range(3)))

    assert check_chains(await rows(postgres)) == {writer.id: 3}


async def test_commit_is_synced_even_if_synchronous_commit_is_off(postgres: str, change):
    await change(postgres, "ALTER ROLE interlock SET synchronous_commit = off")
    try:
        async with AuditWriter.open(postgres, key=KEY) as writer:
            setting = await writer._tables._connection.fetchval("SHOW synchronous_commit")
    finally:
        await change(postgres, "ALTER ROLE interlock RESET synchronous_commit")

    assert setting == "on"
