"""Following a trail: each record once, from every writer, whatever is deleted meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import AuditUnavailable
from interlock.store import AuditReader, AuditRecord, open_trail
from interlock.store.audit.following import TrailFollower
from interlock.store.audit.reading import _Queries
from interlock.store.audit.upkeep import DAY, AuditUpkeep
from interlock.store.database.claims import Row
from interlock.text.timestamps import now_micros


class Looks:
    """The pauses of a follower: after each, the next step runs, and the last one ends it."""

    def __init__(self, *steps: Callable[[], Awaitable[object]]) -> None:
        self._steps = [*steps]

    async def pause(self, _seconds: float) -> None:
        if not self._steps:
            raise asyncio.CancelledError
        await self._steps.pop(0)()


async def followed(follower: TrailFollower) -> list[str]:
    found: list[str] = []
    try:
        async for records in follower.records():
            found += [each["kind"] for each in records]
    except asyncio.CancelledError:
        pass
    return found


async def test_new_records_and_writers_are_read_once_and_a_purge_repeats_nothing(place: str):
    key = GatewayKey.random()
    audit = Audit(copy="")
    async with open_trail(place, key, audit) as writer, AuditReader.open(place) as reader:

        async def write() -> None:
            await writer.append(AuditRecord("intent", "c1"))

        async def write_by_another() -> None:
            async with open_trail(place, key, audit) as other:
                await other.append(AuditRecord("refused", "c2"))

        async def purge() -> None:
            await AuditUpkeep(writer, key, 0.0).purge(now_micros() + 2 * DAY)
            await writer.append(AuditRecord("outcome", "c1"))

        looks = Looks(write, write_by_another, purge)
        found = await followed(TrailFollower(reader._queries, None, print, looks.pause))

    chains = ["started", "intent"], ["started", "refused", "stopped"], ["checkpoint", "outcome"]
    assert found == [kind for chain in chains for kind in chain]


class Unreliable(_Queries):
    """Queries that fail from the second one on, three times."""

    calls = 0

    async def fetch(self, sql: str, *parameters: object) -> list[Row]:
        self.calls += 1
        if 2 <= self.calls <= 4:
            raise AuditUnavailable("the database does not answer")
        return await super().fetch(sql, *parameters)


async def test_database_that_fails_is_reported_once_and_read_again(sqlite_place: str):
    async def nothing() -> None: ...

    problems: list[str] = []
    async with (
        open_trail(sqlite_place, GatewayKey.random(), Audit(copy="")),
        AuditReader.open(Path(sqlite_place)) as reader,
    ):
        looks = Looks(*[nothing] * 4)
        queries = Unreliable(reader._tables)
        found = await followed(TrailFollower(queries, None, problems.append, looks.pause))

    assert found == ["started"]
    assert problems == ["the database does not answer"]
