"""Faults of the disk, of another process and of our own to conversations and audit records."""

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
from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuditFailed, AuditUnavailable, StoreCorrupt, StoreError, StoreLocked
from interlock.messages import Message, ToolMessage, UserMessage
from interlock.models.scripted import ScriptedModel
from interlock.store import AuditWriter, ConversationStore
from tests.faults.databases import AuditedTool
from tests.faults.failing_disk import FailingDisk, failing_disk
from tests.faults.ground import Ground
from tests.faults.matrix import SQLITE, row

KEY = GatewayKey(bytes(range(32)))

PROGRAM = Path(__file__).parents[1] / "store" / "many_processes.py"
HELLO, LONG = UserMessage("hello"), UserMessage("x" * 2_000)


class StoredConversation:
    """A conversation in a SQLite file, and the changes that were acknowledged.

    Args:
        path: The file, which already has a conversation of one message.
        id: The id of that conversation.
    """

    def __init__(self, path: Path, id: str) -> None:
        self.path = path
        self.id = id
        self.messages: list[Message] = [HELLO]
        self.created: set[str] = {id}

    async def use(self) -> None:
        """Append, create, update and read."""
        async with ConversationStore.open(self.path) as store:
            await store.append(self.id, LONG)
            self.messages.append(LONG)
            self.created.add((await store.create("another")).id)
            await store.update(self.id, title="first")
            assert await store.messages(self.id) == self.messages

    async def check(self) -> None:
        """Check that acknowledged changes are there, and others as a whole or not at all."""
        async with ConversationStore.open(self.path) as store:
            messages = await store.messages(self.id)
            assert messages[: len(self.messages)] == self.messages
            assert len(messages) <= len(self.messages) + 1
            assert self.created <= {each.id for each in await store.list()}
            await store.append(self.id, HELLO)
        with closing(sqlite3.connect(self.path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def create_conversation(path: Path) -> str:
    """Create a database with one conversation of one message; return its id."""
    async with ConversationStore.open(path) as store:
        made = await store.create()
        await store.append(made.id, HELLO)
        return made.id


async def fail_in_turn(ground: Ground, kind: str, *, lasting: bool = False) -> None:
    """Use a database once for each operation that can fail in this way; fail each in turn."""
    template = ground.folder / "template.db"
    id = await create_conversation(template)
    failures, nth = 0, 1
    with failing_disk() as disk, mock.patch("interlock.store.database.database.LOCK_TIMEOUT", 0.05):
        while True:
            path = ground.folder / f"{nth}.db"
            shutil.copy(template, path)
            stored = StoredConversation(path, id)
            failures += await one_failure(ground, stored, disk, kind, nth, lasting=lasting)
            failed, count = disk.failed, disk.count
            disk.disarm()
            await stored.check()
            path.unlink()
            if not failed:
                break
            nth += disk.step
    assert count > 10
    ground.kept.insert(0, (0.0, f"{count} operations, {failures} errors, nothing lost"))


async def one_failure(
    ground: Ground,
    stored: StoredConversation,
    disk: FailingDisk,
    kind: str,
    nth: int,
    *,
    lasting: bool,
) -> int:
    """Use a database whose disk fails; return the number of errors, 0 or 1."""
    loop = asyncio.get_running_loop()
    disk.arm(kind, nth, lasting=lasting)
    began = loop.time()
    error = None
    try:
        await stored.use()
    except StoreError as reason:
        error = reason
    if error is None:
        return 0
    assert type(error) is (StoreLocked if kind == "locked" else StoreError)
    assert str(stored.path) in str(error)
    ground.keep(loop.time() - began, type(error).__name__)
    return 1


@row(
    "Disk full",
    "StoreError when any one write fails; all acknowledged changes are there",
    SQLITE,
    within=1.0,
)
async def is_full_for_a_moment(ground: Ground) -> None:
    await fail_in_turn(ground, "full")


@row(
    "Disk full: for good",
    "StoreError from any one write on; all acknowledged changes are there",
    SQLITE,
    within=1.0,
)
async def is_full(ground: Ground) -> None:
    await fail_in_turn(ground, "full", lasting=True)


@row(
    "SQLite locked / corrupt",
    "each lock is waited for",
    SQLITE,
    within=1.0,
)
async def is_locked_for_a_moment(ground: Ground) -> None:
    await fail_in_turn(ground, "locked")


@row(
    "SQLite locked / corrupt: an operation that fails",
    "StoreError when any one read, write or lock fails; all acknowledged changes are there",
    SQLITE,
    within=1.0,
)
async def is_broken_for_a_moment(ground: Ground) -> None:
    await fail_in_turn(ground, "broken")


@row(
    "fsync error",
    "StoreError when any one sync fails, and at every later write; nothing is synced again; all "
    "acknowledged changes are there for this process and the next",
    SQLITE,
    within=1.0,
)
async def does_not_sync(ground: Ground) -> None:
    template = ground.folder / "template.db"
    id = await create_conversation(template)
    # The log is synced most often if it is emptied after each write.
    with failing_disk() as disk, mock.patch("interlock.store.database.sqlite_file.LONGEST_LOG", 0):
        nth, failed = 0, 1
        while failed:
            nth += 1
            path = ground.folder / f"{nth}.db"
            shutil.copy(template, path)
            stored = StoredConversation(path, id)
            disk.arm("unsynced", nth)
            await use_although_a_sync_fails(ground, stored)
            failed = disk.failed
            assert disk.count == (nth if failed else nth - 1)
            disk.disarm()
            with mock.patch(
                "interlock.store.database.sqlite_file._unsynced", set()
            ):  # as in a new process
                await stored.check()
    assert nth > 10
    ground.kept.insert(0, (0.0, f"{nth - 1} syncs, nothing lost"))


async def use_although_a_sync_fails(ground: Ground, stored: StoredConversation) -> None:
    """Write five times; check that each write after the first error fails."""
    loop = asyncio.get_running_loop()
    errors = []
    async with ConversationStore.open(stored.path) as store:
        for number in range(5):
            message = UserMessage(f"message {number} " + "x" * 2_000)
            began = loop.time()
            try:
                await store.append(stored.id, message)
            except StoreError as error:
                ground.keep(loop.time() - began, StoreError.__name__)
                errors.append(str(error))
            else:
                stored.messages.append(message)
                assert not errors
            assert await store.messages(stored.id) == stored.messages
    for error in errors:
        assert re.match(f"{stored.path}: .*fsync.*check the disk, then start again$", error)


@row(
    "SQLite locked / corrupt: by another process",
    "StoreLocked after 5 s (0.3 s in this test)",
    SQLITE,
    within=1.0,
)
async def is_locked(ground: Ground) -> None:
    path = ground.folder / "locked.db"
    id = await create_conversation(path)
    with (
        mock.patch("interlock.store.database.database.LOCK_TIMEOUT", 0.3),
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
    "StoreCorrupt at the start, with a remedy; the file is not changed",
    SQLITE,
    within=1.0,
)
async def is_damaged(ground: Ground) -> None:
    path = ground.folder / "damaged.db"
    id = await create_conversation(path)
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
    "it can be opened again; acknowledged changes are there, others as a whole or not at all",
    SQLITE,
    within=5.0,
)
async def is_killed(ground: Ground) -> None:
    path = ground.folder / "killed.db"
    id = await create_conversation(path)
    command = [sys.executable, PROGRAM, "kill", path, id, "10", "110"]
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
    "StoreError; the stored conversation is valid",
    SQLITE,
    within=1.0,
)
async def is_full_while_an_agent_answers(ground: Ground) -> None:
    path = ground.folder / "agent.db"
    id = await create_conversation(path)
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
    "Disk full: or failing, while the database is created",
    "StoreError at every seventh operation; afterwards the database can be created",
    SQLITE,
    within=1.0,
)
async def fails_while_it_is_created(ground: Ground) -> None:
    loop, errors = asyncio.get_running_loop(), 0
    with failing_disk() as disk:
        for kind in ("full", "broken"):
            nth = 1
            while True:
                path = ground.folder / f"{kind}-{nth}.db"
                disk.arm(kind, nth)
                began, id = loop.time(), ""
                with suppress(StoreError):
                    id = await create_conversation(path)
                failed = disk.failed
                disk.disarm()
                if not id:
                    errors += 1
                    ground.keep(loop.time() - began, StoreError.__name__)
                    await create_conversation(path)
                if not failed:
                    break
                nth += 7 * disk.step
    ground.kept.insert(0, (0.0, f"{errors} errors, then created"))


# Audit records


@row(
    "Disk full, audit",
    "AuditUnavailable before the effect of each call; once there is room, calls succeed",
    SQLITE,
    within=1.0,
)
async def is_full_for_audit_records(ground: Ground) -> None:
    with failing_disk() as disk:
        async with AuditWriter.open(ground.folder / "audit.db", key=KEY) as writer:
            tool = AuditedTool(writer)
            await tool.call()
            disk.arm("full", 1, lasting=True)
            with ground.promise(AuditUnavailable, "the disk is full: free some space"):
                await tool.call()
            assert tool.effects == 1
            disk.disarm()
            with ground.promise(outcome="recorded and run"):
                await tool.call()
            assert tool.effects == 2


@row(
    "fsync error: of audit records",
    "AuditFailed before the effect of each call; nothing is synced again",
    SQLITE,
    within=1.0,
)
async def does_not_sync_audit_records(ground: Ground) -> None:
    with failing_disk() as disk:
        async with AuditWriter.open(ground.folder / "audit.db", key=KEY) as writer:
            tool = AuditedTool(writer)
            disk.arm("unsynced", 1)
            for _ in range(3):
                with ground.promise(AuditFailed, "check the disk, then start again"):
                    await tool.call()
            assert (tool.effects, disk.count) == (0, 1)


@row(
    "SQLite locked / corrupt: by another process, audit",
    "AuditUnavailable before the effect of each call; once it is unlocked, calls succeed",
    SQLITE,
    within=1.0,
)
async def is_locked_for_audit_records(ground: Ground) -> None:
    path = ground.folder / "audit.db"
    async with AuditWriter.open(path, key=KEY) as writer:
        tool = AuditedTool(writer)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with ground.promise(AuditUnavailable, "is locked by another process"):
                await tool.call()
        assert tool.effects == 0
        with ground.promise(outcome="recorded and run"):
            await tool.call()
