"""Kept results: sealed, of one owner, within bounds, and cleaned up."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import durable
from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Results
from interlock.errors import NotKept
from interlock.store import kept_results
from interlock.store.database.database import open_database
from interlock.store.database.disk_reserve import RESERVE, DiskReserve
from interlock.store.kept_results import KeptResultStore
from tests.faults.failing_disk import failing_disk

ANNA, BERT = ("default", "user:anna"), ("default", "user:bert")
KEY = bytes(range(32))
CANARY = b"canary-k7 " * 1_000
SECOND = 1_000_000


@pytest.fixture
def clock() -> list[int]:
    """The time in microseconds; change the first item."""
    return [1_800_000_000 * SECOND]


@asynccontextmanager
async def opened(
    place: str,
    folder: Path,
    clock: list[int],
    *,
    per_user: int = 10**6,
    total: int = 10**9,
    key: bytes = KEY,
) -> AsyncIterator[KeptResultStore]:
    database = await open_database(place)
    settings = Results(per_user=per_user, total=total)
    try:
        yield KeptResultStore(
            database,
            None if "://" in place else folder,
            key,
            lambda: settings,
            keep=lambda: 60,
            clock=lambda: clock[0],
        )
    finally:
        await database.close()


@pytest.fixture
def stored(place: str, tmp_path: Path, dump: Any) -> Callable[[], Awaitable[list[str]]]:
    """Return the ids of the results whose bytes are stored."""

    async def ids() -> list[str]:
        if "://" not in place:
            return [path.name for path in (tmp_path / "results").iterdir()]
        return sorted({row[0] for row in (await dump(place))["kept_chunks"][1:]})

    return ids


async def test_results_of_all_users_have_a_limit_and_leave_the_reserve_free(
    place: str, tmp_path: Path, clock: list[int], stored
):
    async with opened(place, tmp_path / "results", clock, total=2_500) as store:
        for owner in (ANNA, BERT):
            await store.keep(owner, "c_1", bytes(1_000))
        with pytest.raises(NotKept, match=r"all users take 3,000 bytes with it \(limit 2,500\)"):
            await store.keep(BERT, "c_2", bytes(1_000))
        assert len(await stored()) == 2

        clock[0] += 61 * SECOND
        await store.sweep()
        await store.keep(ANNA, "c_3", bytes(2_000))
        store.reserve = DiskReserve(tmp_path, free=lambda _: RESERVE)
        with pytest.raises(NotKept, match="are for the audit trail"):
            await store.keep(BERT, "c_4", bytes(100))
        assert store.refused == 2


async def test_result_is_read_back_by_its_owner_alone(place: str, tmp_path: Path, clock: list[int]):
    async with opened(place, tmp_path / "results", clock) as store:
        kept = await store.keep(ANNA, "c_1", CANARY)

        assert await store.load(ANNA, kept.id) == CANARY
        assert await store.load(BERT, kept.id) is None
        assert await store.load(("acme", ANNA[1]), kept.id) is None
        assert await store.load(ANNA, "r_0\0\ud800") is None
        assert kept.expires == clock[0] + 60 * SECOND


async def test_result_in_postgresql_is_read_on_another_machine_and_encrypted_for_its_row(
    postgres_place: str, tmp_path: Path, clock: list[int], dump, change, monkeypatch
):
    monkeypatch.setattr(kept_results, "CHUNK", 1_000)
    async with opened(postgres_place, tmp_path / "here", clock) as store:
        mine, yours = await store.keep(ANNA, "c", CANARY), await store.keep(BERT, "c", CANARY)
    _, *chunks = (await dump(postgres_place))["kept_chunks"]
    assert len(chunks) == 2 * 11
    assert not any(b"canary" in content for _, _, content in chunks)
    assert os.listdir(tmp_path) == []  # noqa: PTH208

    async with opened(postgres_place, tmp_path / "there", clock) as store:
        assert await store.load(ANNA, mine.id) == CANARY
        changed = f"WHERE id = '{yours.id}' AND number = 3"
        await change(postgres_place, f"UPDATE kept_chunks SET content = 'x' {changed}")
        assert await store.load(BERT, yours.id) is None
        await change(postgres_place, f"DELETE FROM kept_results WHERE id = '{yours.id}'")
    assert {id for id, *_ in (await dump(postgres_place))["kept_chunks"][1:]} == {mine.id}


async def test_result_file_is_readable_by_its_owner_only_and_encrypted_for_its_row(
    sqlite: str, tmp_path: Path, clock: list[int]
):
    folder = tmp_path / "results"
    async with opened(sqlite, folder, clock) as store:
        mine, yours = await store.keep(ANNA, "c", CANARY), await store.keep(BERT, "c", CANARY)
        files = {path.name: path for path in folder.iterdir()}
        assert sorted(files) == sorted([mine.id, yours.id])
        for path in files.values():
            assert (path.stat().st_mode & 0o777, b"canary" in path.read_bytes()) == (0o600, False)
        assert folder.stat().st_mode & 0o777 == 0o700

        files[yours.id].write_bytes(files[mine.id].read_bytes())
        assert await store.load(BERT, yours.id) is None
        files[mine.id].write_bytes(files[mine.id].read_bytes()[:-1])
        assert await store.load(ANNA, mine.id) is None
        files[mine.id].unlink()
        assert await store.load(ANNA, mine.id) is None
    async with opened(sqlite, folder, clock, key=bytes(32)) as other:
        assert await other.load(BERT, yours.id) is None


async def test_expired_result_is_absent_and_its_bytes_are_swept(
    place: str, tmp_path: Path, clock: list[int], stored
):
    folder = tmp_path / "results"
    async with opened(place, folder, clock) as store:
        old = await store.keep(ANNA, "c", b"old")
        clock[0] += 30 * SECOND
        new = await store.keep(ANNA, "c", b"newer")
        clock[0] += 30 * SECOND
        assert await store.load(ANNA, old.id) is None

        await store.sweep()
        assert await stored() == [new.id]
        assert store.bytes == 5


async def test_oldest_results_of_a_user_make_room_for_new_ones(
    place: str, tmp_path: Path, clock: list[int], stored
):
    async with opened(place, tmp_path / "results", clock, per_user=100) as store:
        kept = []
        for owner, size in ((ANNA, 60), (BERT, 60), (ANNA, 30), (ANNA, 40)):
            clock[0] += 1
            kept.append((owner, await store.keep(owner, "c", bytes(size))))
        found = [await store.load(owner, each.id) is not None for owner, each in kept]

        assert found == [False, True, True, True]
        assert store.bytes == 130
        assert len(await stored()) == 3
        with pytest.raises(NotKept, match="larger than the space of a user"):
            await store.keep(ANNA, "c", bytes(101))


async def test_result_is_not_kept_on_a_full_disk_and_leaves_no_file(
    sqlite: str, tmp_path: Path, clock: list[int], monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))

    folder = tmp_path / "results"
    async with opened(sqlite, folder, clock) as store:
        with monkeypatch.context() as patched:
            patched.setattr(durable, "replace", full)
            with pytest.raises(NotKept, match="No space left on device"):
                await store.keep(ANNA, "c", CANARY)
    with failing_disk() as disk:
        async with opened(sqlite, folder, clock) as store:
            disk.arm("full", 1, lasting=True)
            with pytest.raises(NotKept, match="the database cannot be written"):
                await store.keep(ANNA, "c", CANARY)
            disk.disarm()
            assert [*folder.iterdir()] == []
            await store.keep(ANNA, "c", CANARY)


async def test_start_deletes_files_without_rows_and_rows_without_files(
    sqlite: str, tmp_path: Path, clock: list[int], dump
):
    folder = tmp_path / "results"
    async with opened(sqlite, folder, clock) as store:
        lost, kept = [await store.keep(ANNA, "c", b"x") for _ in range(2)]
        (folder / lost.id).unlink()
        for name, age in (("r_orphan", 3_600), (".r_half.x", 3_600), ("r_under_way", 0)):
            (folder / name).write_bytes(b"")
            at = (folder / name).stat().st_mtime - age
            os.utime(folder / name, (at, at))

        await store.reconcile(folder)

    assert sorted(path.name for path in folder.iterdir()) == sorted([kept.id, "r_under_way"])
    _, *rows = (await dump(sqlite))["kept_results"]
    assert [row[0] for row in rows] == [kept.id]


async def test_clean_up_runs_while_the_store_is_open(sqlite: str, tmp_path: Path):
    secret = GatewayKey(bytes(range(32)))
    async with KeptResultStore.beside(sqlite, secret, Results) as store:
        kept = await store.keep(ANNA, "c", b"x")
    folder = tmp_path / kept_results.FOLDER
    orphan = folder / "r_orphan"
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))

    async with KeptResultStore.beside(sqlite, secret, Results) as store:
        while orphan.exists():
            assert await store.load(ANNA, kept.id) == b"x"
        assert (folder / kept.id).exists()
