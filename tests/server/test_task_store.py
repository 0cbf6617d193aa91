"""Tasks in memory: how long and how many are kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from interlock.errors import InterlockError
from interlock.server import task_store
from interlock.server.task_store import MemoryTasks, Task


def kept(id: str, **members: Any) -> Task:
    now = datetime.now(UTC)
    basic = {"owner": "", "status": "working", "created_at": now, "updated_at": now, "ttl": 60.0}
    return Task(id=id, **{**basic, **members})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(task_store, "monotonic", lambda: now[0])
    return now


async def test_a_task_expires_after_its_ttl(clock):
    store = MemoryTasks()
    task = kept("a")
    await store.put(task)
    clock[0] += 60.0
    assert await store.get("a") == task
    clock[0] += 0.1
    assert await store.get("a") is None
    assert await store.get("b") is None


async def test_the_ttl_counts_from_the_creation_of_a_task(clock):
    store = MemoryTasks()
    task = kept("a")
    await store.put(replace(task, updated_at=task.created_at + timedelta(seconds=50)))
    clock[0] += 11.0
    assert await store.get("a") is None


async def test_a_full_store_refuses_tasks_until_some_have_expired(clock):
    store = MemoryTasks(max_tasks=2)
    for id in "ab":
        await store.put(kept(id))
    with pytest.raises(InterlockError, match="limit 2 tasks"):
        await store.put(kept("c"))
    await store.put(kept("a", status="completed"))  # replaces the task with this id

    clock[0] += 61.0
    await store.put(kept("c"))
    assert await store.get("c") is not None


async def test_a_full_store_refuses_results_but_always_accepts_an_end(clock):
    store = MemoryTasks(max_bytes=100)
    await store.put(kept("a", status="completed", outcome=Raw(b"x" * 90)))
    await store.put(kept("b"))
    with pytest.raises(InterlockError, match="100 bytes of results"):
        await store.put(kept("b", status="completed", outcome=Raw(b"x" * 11)))
    await store.put(kept("b", status="cancelled"))

    clock[0] += 61.0
    await store.put(kept("c", status="completed", outcome=Raw(b"x" * 100)))
    assert await store.get("c") is not None


async def test_one_principal_can_use_only_a_part_of_the_store(clock):
    store = MemoryTasks(max_tasks=8, max_bytes=400)
    for number in range(2):
        await store.put(kept(f"ada-{number}", owner="ada"))
    with pytest.raises(InterlockError, match="25%"):
        await store.put(kept("ada-2", owner="ada"))
    with pytest.raises(InterlockError, match="25%"):
        await store.put(kept("ada-0", owner="ada", outcome=Raw(b"x" * 101)))
    await store.put(kept("ada-0", owner="ada", outcome=Raw(b"x" * 100)))
    await store.put(kept("bob-0", owner="bob", outcome=Raw(b"x" * 100)))

    clock[0] += 61.0
    await store.put(kept("ada-2", owner="ada", outcome=Raw(b"x" * 100)))
    assert await store.get("ada-2") is not None


async def test_many_principals_together_cannot_exceed_the_store():
    store = MemoryTasks(max_bytes=400)
    for owner in "abcd":
        await store.put(kept(owner, owner=owner, outcome=Raw(b"x" * 100)))
    with pytest.raises(InterlockError, match="400 bytes"):
        await store.put(kept("e", owner="e", outcome=Raw(b"x")))


async def test_task_stored_twice_counts_once_towards_the_limit():
    store = MemoryTasks(max_tasks=8, max_bytes=400)
    for _ in range(5):
        await store.put(kept("ada-0", owner="ada", outcome=Raw(b"x" * 50)))

    await store.put(kept("ada-1", owner="ada", outcome=Raw(b"x" * 50)))


async def test_expired_tasks_make_room_while_others_are_kept(clock):
    store = MemoryTasks(max_tasks=8, max_bytes=400)
    await store.put(kept("ada-0", owner="ada", outcome=Raw(b"x" * 100)))
    clock[0] += 30.0
    await store.put(kept("ada-1", owner="ada"))
    clock[0] += 31.0

    await store.put(kept("ada-2", owner="ada", outcome=Raw(b"x" * 100)))
    assert await store.get("ada-1") is not None


async def test_expired_tasks_leave_nothing_behind(clock):
    store = MemoryTasks(max_tasks=4)
    for round in range(10):
        for number in range(4):
            await store.put(kept(f"{round}-{number}", owner=f"p-{round}-{number}"))
        clock[0] += 61.0

    assert len(store._kept) == len(store._counts) == len(store._bytes) == 4
