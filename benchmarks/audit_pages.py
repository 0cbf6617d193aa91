"""Measure pages of a long audit trail, with every combination of filters.

python -m benchmarks.audit_pages make LOCATION [--records 10000000]    fill a new database
python -m benchmarks.audit_pages measure LOCATION [--rounds 3]         the slowest pages first

LOCATION is a SQLite file or a postgresql:// URL. In the trail one user makes 40 % of all calls and
never calls the tool that has 30 % of the others, and one key was used for the oldest 100 calls
only. So some filters that match much have nothing, or only the oldest, in common.
"""

from __future__ import annotations

import argparse
import asyncio
from itertools import combinations
from statistics import median
from time import perf_counter

from sqlalchemy import text

from interlock.store.audit.reading import AuditReader, CallFilter
from interlock.store.database import database as database_module
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import open_database
from interlock.store.database.tables import audit

START = 1_760_000_000_000_000  # microseconds since 1970 of the first call
EVERY = 3_000_000  # microseconds between two calls
BODY = (
    '{"surface":"mcp","risk":"write","bytes":512,"client":"claude-code","view":"support",'
    '"revision":"2025-11-25","rule":"everybody-reads",'
    '"argumentsHash":"n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg"}'
)
RESULT = '{"ms":12.5,"bytes":512}'
SERIES = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT :a UNION ALL SELECT i + 1 FROM n WHERE i < :b)",
    "postgresql": "WITH n(i) AS (SELECT generate_series(CAST(:a AS bigint), CAST(:b AS bigint)))",
}
CALLS = """
, r AS (SELECT i, (i * 2654435761) % 1000003 AS r1, (i * 40503) % 65537 AS r2 FROM n)
, u AS (SELECT i, r1, r2, CASE WHEN r1 % 10 < 4 THEN 0 ELSE 1 + r1 % 400 END AS u FROM r)
, c AS (SELECT i, r1, u,
          CASE WHEN u <> 0 AND r2 % 10 < 3 THEN 0 ELSE 1 + r2 % 99 END AS t,
          CASE WHEN r1 % 100 < 95 THEN 'ok' WHEN r1 % 100 < 98 THEN 'error' ELSE 'tool_error' END
            AS status
        FROM u)
INSERT INTO audit (writer, seq, at, tenant, kind, call, "user", key, server, tool, status, reason,
                   body, hash)
SELECT 'aaaaaaaaaaaa', 2 * i - CASE WHEN kind = 'intent' THEN 1 ELSE 0 END,
       :start + i * :every + CASE WHEN kind = 'intent' THEN 0 ELSE 20000 END,
       '', kind, 'c_' || i, 'user:u' || u,
       CASE WHEN i <= 100 THEN 'rare' ELSE 'k' || u || '_' || (r1 % 3) END,
       'crm', 'crm:t' || t,
       CASE WHEN kind = 'intent' THEN '' ELSE status END,
       CASE WHEN kind <> 'intent' AND status = 'error' THEN 'upstream_error' ELSE '' END,
       CASE WHEN kind = 'intent' THEN CAST(:body AS text) ELSE CAST(:result AS text) END,
       CAST('00000000000000000000000000000000' AS BYTES)
FROM c CROSS JOIN (SELECT 'intent' AS kind UNION ALL SELECT 'outcome') AS kinds
ORDER BY i, kind
"""
FILTERS = {
    "user": ("user:u0", "user:u7"),
    "key": ("rare", "k0_1", "k7_1"),
    "tool": ("crm:t0", "crm:t5", "crm:absent"),
    "status": ("ok", "error", "timeout", "refused", "running"),
    "reason": ("upstream_error", "denied_by_rule"),
    "until": (START + 1_000 * EVERY,),
}
PIECE = 250_000  # calls that are inserted in one transaction


async def make(location: str, records: int) -> None:
    database_module.COMMAND_TIMEOUT = 3_600.0  # an index of a long table takes minutes
    database = await open_database(location)
    started = perf_counter()

    async def without_indexes(connection: AsyncConnection) -> None:
        for index in audit.indexes:
            await connection.run_sync(index.drop)

    async def with_indexes(connection: AsyncConnection) -> None:
        for index in audit.indexes:
            await connection.run_sync(index.create)
        head = (
            "INSERT INTO audit_heads (writer, started, ended, host, seq, hash)"
            " VALUES ('aaaaaaaaaaaa', 0, 1, 'benchmark', 0, CAST('' AS {}))"
        )
        await connection.execute(text(head.format(_bytes_of(connection))))

    await database.write(without_indexes)
    for first in range(1, records // 2 + 1, PIECE):
        last = min(first + PIECE - 1, records // 2)
        given = {
            "a": first,
            "b": last,
            "start": START,
            "every": EVERY,
            "body": BODY,
            "result": RESULT,
        }

        async def insert(connection: AsyncConnection, given: dict = given) -> None:
            statement = SERIES[connection.dialect.name] + CALLS.replace(
                "BYTES", _bytes_of(connection)
            )
            await connection.execute(text(statement), given)

        await database.write(insert)
        print(f"{2 * last:,} records, {perf_counter() - started:.0f} s", flush=True)
    await database.write(with_indexes)
    await database.write(lambda each: each.execute(text("ANALYZE audit")))
    await database.close()
    print(f"done, {perf_counter() - started:.0f} s")


def _bytes_of(connection: AsyncConnection) -> str:
    return "blob" if connection.dialect.name == "sqlite" else "bytea"


async def measure(location: str, rounds: int, limit: int) -> None:
    found = await pages(location, rounds, limit)
    print("  max ms  median  calls  more")
    for slowest, middle, count, more, wanted in found[:25]:
        print(f"{slowest:8.1f}{middle:8.1f}{count:7}  {'yes' if more else 'no':4} {wanted}")
    slow = sum(each[1] > 100 for each in found)
    print(f"{len(found)} combinations, {slow} with a median over 100 ms")


async def pages(
    location: str, rounds: int, limit: int
) -> list[tuple[float, float, int, bool, dict]]:
    """Return the most and the median milliseconds of each page, the slowest first."""
    found = []
    for wanted in _combined():
        async with AuditReader.open(location) as reader:
            samples, count = [], 0
            for _ in range(rounds):
                started = perf_counter()
                calls, following = await reader.page(CallFilter(**wanted), limit=limit)
                samples.append((perf_counter() - started) * 1_000)
                count = len(calls)
        found.append((max(samples), median(samples), count, bool(following), wanted))
    return sorted(found, key=lambda each: each[1], reverse=True)


def _combined() -> list[dict]:
    """Return each combination of up to three filters."""
    every: list[dict] = [{}]
    for count in (1, 2, 3):
        for names in combinations(FILTERS, count):
            found: list[dict] = [{}]
            for name in names:
                found = [{**each, name: value} for each in found for value in FILTERS[name]]
            every += found
    return every


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_pages")
    parser.add_argument("what", choices=("make", "measure"))
    parser.add_argument("location")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=50)
    options = parser.parse_args()
    if options.what == "make":
        asyncio.run(make(options.location, options.records))
    else:
        asyncio.run(measure(options.location, options.rounds, options.limit))


if __name__ == "__main__":
    main()
