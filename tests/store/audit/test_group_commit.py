"""Group commit, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from interlock.errors import AuditFailed, AuditUnavailable
from interlock.store.audit import group_commit
from interlock.store.audit.group_commit import GroupCommit


class Disk:
    """Notes each group and commits it once `ready` is set; raises `error` if there is one."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self.error: Exception | None = None

    async def commit(self, group: list[int]) -> None:
        self.groups.append(group)
        await self.ready.wait()
        if self.error is not None:
            raise self.error


@pytest.fixture
async def disk() -> Disk:
    return Disk()


@pytest.fixture
async def group(disk: Disk) -> GroupCommit[int]:
    return GroupCommit(disk.commit, "the disk")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


async def test_items_added_during_a_commit_form_the_next_group_in_order(disk, group):
    disk.ready.clear()
    first = asyncio.create_task(group.add(1))
    await until(lambda: disk.groups == [[1]])
    others = [asyncio.create_task(group.add(number)) for number in (2, 3)]
    await asyncio.sleep(0)
    group.add_soon(4)
    assert not first.done()

    disk.ready.set()
    await asyncio.gather(first, *others)

    assert disk.groups == [[1], [2, 3, 4]]


async def test_callers_that_add_again_at_once_stay_in_one_group(disk, group):
    async def add_three_times(start: int) -> None:
        for number in range(3):
            await group.add(start + number)

    await asyncio.gather(*(add_three_times(start) for start in (10, 20, 30)))

    assert disk.groups == [[10, 20, 30], [11, 21, 31], [12, 22, 32]]


async def test_items_of_successive_turns_share_a_commit(disk, group):
    async def add_after(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await group.add(turns)

    await asyncio.gather(*map(add_after, range(5)))

    assert disk.groups == [[0, 1, 2, 3, 4]]


async def test_item_is_committed_while_others_keep_coming(disk, group, monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_GROUP", 10**9)

    async def add_in_each_turn() -> None:
        while True:
            group.add_soon(1)
            await asyncio.sleep(0)

    adding = asyncio.create_task(add_in_each_turn())
    await group.add(0)
    adding.cancel()

    assert 0 in disk.groups[0]


async def test_a_failed_commit_fails_each_caller_and_the_next_one_succeeds(disk, group):
    disk.error = AuditUnavailable("disk full")
    errors = await asyncio.gather(group.add(1), group.add(2), return_exceptions=True)
    disk.error = None
    await group.add(3)

    assert [repr(error) for error in errors] == ["AuditUnavailable('disk full')"] * 2
    assert errors[0] is not errors[1]
    assert disk.groups == [[1, 2], [3]]


async def test_queued_item_without_a_waiter_joins_the_next_commit(disk, group):
    await group.add(1)
    group.add_soon(2)
    await group.add(3)

    assert disk.groups == [[1], [2, 3]]


async def test_queued_item_without_a_waiter_is_committed_without_further_items(disk, group):
    group.add_soon(1)
    await until(lambda: disk.groups == [[1]])


async def test_items_added_soon_are_committed_again_after_a_failure(disk, group):
    disk.error = AuditUnavailable("disk full")
    group.add_soon(1)
    with pytest.raises(AuditUnavailable):
        await group.add(2)
    disk.error = None
    await group.add(3)

    assert disk.groups == [[1, 2], [1, 3]]


async def test_items_added_soon_are_kept_up_to_a_limit_and_the_rest_is_reported(
    disk, group, monkeypatch, caplog
):
    monkeypatch.setattr(group_commit, "MAX_RETRIED", 2)
    disk.error = AuditUnavailable("disk full")
    for number in range(5):
        group.add_soon(number)
    with pytest.raises(AuditUnavailable):
        await group.add(5)
    disk.error = None
    await group.close()

    assert disk.groups[-1] == [0, 1]
    assert "the disk: 3 audit records may be lost" in caplog.text


async def test_long_queue_is_committed_in_groups_of_limited_size(disk, group, monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_GROUP", 2)
    for number in range(4):
        group.add_soon(number)
    await group.add(4)

    assert disk.groups == [[0, 1], [2, 3], [4]]


async def test_long_queue_is_not_tried_again_and_again_while_commits_fail(disk, group, monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_GROUP", 2)
    disk.error = AuditUnavailable("disk full")
    for number in range(5):
        group.add_soon(number)
    await until(lambda: bool(disk.groups))
    await until(lambda: group._task is None)
    assert disk.groups == [[0, 1]]

    disk.error = None
    await group.add(5)
    assert disk.groups[1:] == [[0, 1], [2, 3], [4, 5]]


async def test_after_a_fatal_error_nothing_is_committed_again(disk, group):
    disk.error = AuditFailed("fsync failed")
    group.add_soon(1)
    with pytest.raises(AuditFailed):
        await group.add(2)
    await group.close()

    assert disk.groups == [[1, 2]]


async def test_queued_item_of_a_cancelled_caller_is_committed(disk, group):
    disk.ready.clear()
    caller = asyncio.create_task(group.add(1))
    await until(lambda: disk.groups == [[1]])
    caller.cancel()
    disk.ready.set()
    await group.add(2)

    assert caller.cancelled()
    assert disk.groups == [[1], [2]]


async def test_a_commit_that_hangs_fails_all_callers_until_it_ends(disk, group, monkeypatch):
    monkeypatch.setattr(group_commit, "WAIT", 0.02)
    disk.ready.clear()
    first = asyncio.create_task(group.add(1))
    await until(lambda: disk.groups == [[1]])
    second = asyncio.create_task(group.add(2))
    errors = await asyncio.gather(first, second, return_exceptions=True)
    assert [str(error) for error in errors] == [
        "the disk did not answer within 0.02 s: try again"
    ] * 2
    with pytest.raises(AuditUnavailable):
        await group.add(3)

    disk.ready.set()
    await until(lambda: group._task is None)
    await group.add(4)

    assert disk.groups == [[1], [4]]


async def test_an_unexpected_error_reaches_the_caller_and_does_not_end_the_writer(disk, group):
    disk.error = TypeError("a bug")
    with pytest.raises(TypeError):
        await group.add(1)
    disk.error = None
    await group.add(2)


async def test_close_commits_queued_records_and_refuses_new_ones(disk, group):
    group.add_soon(1)
    await group.close()

    assert disk.groups == [[1]]
    with pytest.raises(AuditUnavailable, match="the disk has been closed"):
        await group.add(2)
    with pytest.raises(AuditUnavailable, match="the disk has been closed"):
        group.add_soon(3)


async def test_close_stops_waiting_for_a_hanging_commit(disk, group, monkeypatch, caplog):
    monkeypatch.setattr(group_commit, "CLOSE_WAIT", 0.01)
    disk.ready.clear()
    group.add_soon(1)
    await until(lambda: disk.groups == [[1]])
    group.add_soon(2)

    await group.close()

    assert "the disk: 2 audit records may be lost" in caplog.text
    disk.ready.set()
    await until(lambda: group._task is None)
