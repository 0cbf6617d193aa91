"""Kept results: sealed, of one owner, within bounds, and cleaned up."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

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
            folder,
            key,
            lambda: settings,
            keep=lambda: 60,
            owns_rows="://" not in place,
            clock=lambda: clock[0],
        )
    finally:
        await database.close()


async def test_results_of_all_users_have_a_limit_and_leave_the_reserve_free(
    place: str, tmp_path: Path, clock: list[int]
):
    async with opened(place, tmp_path / "results", clock, total=2_500) as store:
        for owner in (ANNA, BERT):
            await store.keep(owner, "c_1", bytes(1_000))
        with pytest.raises(NotKept, match=r"all users take 3,000 bytes with it \(limit 2,500\)"):
            await store.keep(BERT, "c_2", bytes(1_000))
        assert len([*(tmp_path / "results").iterdir()]) == 2

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


async def test_expired_result_is_absent_and_its_file_is_swept(
    place: str, tmp_path: Path, clock: list[int]
):
    folder = tmp_path / "results"
    async with opened(place, folder, clock) as store:
        old = await store.keep(ANNA, "c", b"old")
        clock[0] += 30 * SECOND
        new = await store.keep(ANNA, "c", b"newer")
        clock[0] += 30 * SECOND
        assert await store.load(ANNA, old.id) is None

        await store.sweep()
        assert [path.name for path in folder.iterdir()] == [new.id]
        assert store.bytes == 5


async def test_oldest_results_of_a_user_make_room_for_new_ones(
    place: str, tmp_path: Path, clock: list[int]
):
    async with opened(place, tmp_path / "results", clock, per_user=100) as store:
        kept = []
        for owner, size in ((ANNA, 60), (BERT, 60), (ANNA, 30), (ANNA, 40)):
            clock[0] += 1
            kept.append((owner, await store.keep(owner, "c", bytes(size))))
        found = [await store.load(owner, each.id) is not None for owner, each in kept]

        assert found == [False, True, True, True]
        assert store.bytes == 130
        assert len([*(tmp_path / "results").iterdir()]) == 3
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

        await store.reconcile()

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
