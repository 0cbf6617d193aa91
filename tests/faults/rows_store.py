"""What a disk, another process or a kill may do to stored conversations."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from interlock.agent import Agent
from interlock.errors import StoreCorrupt, StoreError, StoreLocked
from interlock.messages import Message, ToolMessage, UserMessage
from interlock.models.scripted import ScriptedModel
from interlock.store import ConversationStore
from tests.faults.failing_disk import FailingDisk, failing_disk
from tests.faults.ground import Ground
from tests.faults.matrix import row

SQLITE = "SQLite"
CROWD = Path(__file__).parents[1] / "store" / "crowd.py"
HELLO = UserMessage("hello")


class Kept:
    """A database, and what was acknowledged.

    Args:
        path: Of a database that has a conversation of one message already.
        id: Of that conversation.
    """

    def __init__(self, path: Path, id: str) -> None:
        self.path = path
        self.id = id
        self.messages: list[Message] = [HELLO]
        self.made: set[str] = {id}

    async def use(self) -> None:
        """Do some of everything."""
        async with ConversationStore.open(self.path) as store:
            for number in range(2):
                await store.append(self.id, UserMessage(f"message {number} " + "x" * 2_000))
                self.messages.append(UserMessage(f"message {number} " + "x" * 2_000))
            self.made.add((await store.create("another")).id)
            await store.update(self.id, title="first")
            assert await store.messages(self.id) == self.messages

    async def check(self) -> None:
        """See that all that was acknowledged is there, and nothing in halves."""
        async with ConversationStore.open(self.path) as store:
            messages = await store.messages(self.id)
            assert messages[: len(self.messages)] == self.messages
            assert len(messages) <= len(self.messages) + 1
            assert self.made <= {each.id for each in await store.list()}
            await store.append(self.id, HELLO)
        with closing(sqlite3.connect(self.path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def filled(path: Path) -> str:
    """Make a database with one conversation of one message; give its id."""
    async with ConversationStore.open(path) as store:
        made = await store.create()
        await store.append(made.id, HELLO)
        return made.id


async def fail_in_turn(ground: Ground, kind: str, *, lasting: bool = False) -> None:
    """Use a database as often as it has operations that can fail so, and fail each in turn."""
    template = ground.folder / "template.db"
    id = await filled(template)
    failures = 0
    with failing_disk() as disk, mock.patch("interlock.store.database.LOCK_TIMEOUT", 0.05):
        nth = 0
        while True:
            nth += 1
            path = ground.folder / f"{nth}.db"
            shutil.copy(template, path)
            kept = Kept(path, id)
            failures += await one_failure(ground, kept, disk, kind, nth, lasting=lasting)
            failed = disk.failed
            disk.disarm()
            await kept.check()
            path.unlink()
            if not failed:
                break
    assert nth > 2
    ground.kept.insert(0, (0.0, f"{nth - 1} operations, {failures} errors, nothing lost"))


async def one_failure(
    ground: Ground, kept: Kept, disk: FailingDisk, kind: str, nth: int, *, lasting: bool
) -> int:
    """Use a database whose disk fails; count the errors, which is one or none."""
    loop = asyncio.get_running_loop()
    disk.arm(kind, nth, lasting=lasting)
    began = loop.time()
    error = None
    try:
        await kept.use()
    except StoreError as reason:
        error = reason
    if error is None:
        return 0
    assert type(error) is (StoreLocked if kind == "locked" else StoreError)
    assert str(kept.path) in str(error)
    ground.keep(loop.time() - began, type(error).__name__)
    return 1


@row(
    "Disk full",
    "StoreError at each write in turn; all that was acknowledged is there",
    SQLITE,
    within=1.0,
)
async def is_full_for_a_moment(ground: Ground) -> None:
    await fail_in_turn(ground, "full")


@row(
    "Disk full: and stays full",
    "StoreError from each write on; all that was acknowledged is there",
    SQLITE,
    within=1.0,
)
async def is_full(ground: Ground) -> None:
    await fail_in_turn(ground, "full", lasting=True)


@row(
    "SQLite locked / corrupt",
    "waited for at each lock in turn",
    SQLITE,
    within=1.0,
)
async def is_locked_for_a_moment(ground: Ground) -> None:
    await fail_in_turn(ground, "locked")


@row(
    "SQLite locked / corrupt: an operation that fails",
    "StoreError at each read, write and lock in turn; all that was acknowledged is there",
    SQLITE,
    within=1.0,
)
async def is_broken_for_a_moment(ground: Ground) -> None:
    await fail_in_turn(ground, "broken")


@row(
    "fsync error",
    "StoreError at each sync in turn, and from then on at every write; nothing is synced again; "
    "all that was acknowledged is there for this process and the next",
    SQLITE,
    within=1.0,
)
async def does_not_sync(ground: Ground) -> None:
    template = ground.folder / "template.db"
    id = await filled(template)
    # A log that is emptied after each write is synced as often as can be.
    with failing_disk() as disk, mock.patch("interlock.store.sqlite_file.LONGEST_LOG", 0):
        nth, failed = 0, 1
        while failed:
            nth += 1
            path = ground.folder / f"{nth}.db"
            shutil.copy(template, path)
            kept = Kept(path, id)
            disk.arm("unsynced", nth)
            await use_though_a_sync_fails(ground, kept)
            failed = disk.failed
            assert disk.count == (nth if failed else nth - 1)
            disk.disarm()
            with mock.patch("interlock.store.sqlite_file._unsynced", set()):  # as in a new process
                await kept.check()
    assert nth > 10
    ground.kept.insert(0, (0.0, f"{nth - 1} syncs, nothing lost"))


async def use_though_a_sync_fails(ground: Ground, kept: Kept) -> None:
    """Write five times, and see that each write after the first error is refused."""
    loop = asyncio.get_running_loop()
    errors = []
    async with ConversationStore.open(kept.path) as store:
        for number in range(5):
            message = UserMessage(f"message {number} " + "x" * 2_000)
            began = loop.time()
            try:
                await store.append(kept.id, message)
            except StoreError as error:
                ground.keep(loop.time() - began, StoreError.__name__)
                errors.append(str(error))
            else:
                kept.messages.append(message)
                assert not errors
            assert await store.messages(kept.id) == kept.messages
    for error in errors:
        assert re.match(f"{kept.path}: .*fsync.*check the disk, then start again$", error)


@row(
    "SQLite locked / corrupt: by another process",
    "StoreLocked after the time that we wait (5 s; here 0.3)",
    SQLITE,
    within=1.0,
)
async def is_locked(ground: Ground) -> None:
    path = ground.folder / "locked.db"
    id = await filled(path)
    with (
        mock.patch("interlock.store.database.LOCK_TIMEOUT", 0.3),
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        async with ConversationStore.open(path) as store:
            other.execute("BEGIN IMMEDIATE")
            assert await store.messages(id) == [HELLO]
            with ground.promise(StoreLocked, "is locked by another process"):
                await store.append(id, HELLO)
            other.execute("ROLLBACK")
            await store.append(id, HELLO)


@row(
    "SQLite locked / corrupt: a damaged file",
    "StoreCorrupt at the start, with what to do; the file is left as it is",
    SQLITE,
    within=1.0,
)
async def is_damaged(ground: Ground) -> None:
    path = ground.folder / "damaged.db"
    id = await filled(path)
    async with ConversationStore.open(path) as store:
        await store.append(id, *[UserMessage("x" * 3000)] * 20)
    content = bytearray(path.read_bytes())
    content[8192:12288] = b"\xff" * 4096
    for damaged in (bytes(content), b"not a database " * 1000, bytes(content[:-6000])):
        path.write_bytes(damaged)
        with ground.promise(StoreCorrupt, "damaged: restore a backup|not a SQLite database"):
            async with ConversationStore.open(path):
                pass
        assert path.read_bytes() == damaged


@row(
    "kill -9 of us mid-write: ten times",
    "it opens again; all that was acknowledged is there, the rest whole or absent",
    SQLITE,
    within=5.0,
)
async def is_killed(ground: Ground) -> None:
    path = ground.folder / "killed.db"
    id = await filled(path)
    command = [sys.executable, CROWD, "kill", path, id, "10", "110"]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    acknowledged = ran.stdout.decode().split()
    with ground.promise(outcome=f"{len(acknowledged)} pairs acknowledged, none lost"):
        async with ConversationStore.open(path) as store:
            messages = await store.messages(id)
            assert messages == await store.resume(id)
    kept = [each.content for each in messages if isinstance(each, ToolMessage)]
    assert set(acknowledged) <= set(kept)
    assert len(kept) == len(set(kept)) <= len(acknowledged) + 10


@row(
    "Disk full: while an agent answers",
    "StoreError; what was stored is a valid conversation",
    SQLITE,
    within=1.0,
)
async def is_full_while_an_agent_answers(ground: Ground) -> None:
    path = ground.folder / "agent.db"
    id = await filled(path)
    with failing_disk() as disk:
        async with ConversationStore.open(path) as store:

            async def record(new: Any) -> None:
                await store.append(id, *new)

            agent = Agent(ScriptedModel(["Good day."]), record=record)
            disk.arm("full", 1, lasting=True)
            with ground.promise(StoreError, "the disk is full: free some space"):
                await agent.complete([HELLO])
            disk.disarm()
            assert await store.messages(id) == [HELLO]


@row(
    "Disk full: or broken, while the database is made",
    "StoreError at every seventh operation; after that it can be made",
    SQLITE,
    within=1.0,
)
async def fails_while_it_is_made(ground: Ground) -> None:
    loop, errors = asyncio.get_running_loop(), 0
    with failing_disk() as disk:
        for kind in ("full", "broken"):
            nth = 1
            while True:
                path = ground.folder / f"{kind}-{nth}.db"
                disk.arm(kind, nth)
                began, id = loop.time(), ""
                with suppress(StoreError):
                    id = await filled(path)
                failed = disk.failed
                disk.disarm()
                if not id:
                    errors += 1
                    ground.keep(loop.time() - began, StoreError.__name__)
                    await filled(path)
                if not failed:
                    break
                nth += 7
    ground.kept.insert(0, (0.0, f"{errors} errors, then made"))
