"""Databases that are locked, full, damaged, read-only, unreachable or not databases."""

from __future__ import annotations

import ast
import asyncio
import ctypes
import os
import sqlite3
import struct
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from signal import SIGKILL

import asyncpg
import pytest
from sqlalchemy import text

import interlock.store
from interlock.errors import InvalidArguments, StoreCorrupt, StoreError, StoreLocked
from interlock.messages import UserMessage
from interlock.store import ConversationStore
from interlock.store.database import database
from tests.faults.failing_disk import failing_disk
from tests.store.filled import HELLO, fill, read
from tests.support.forked import run_forked
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("created_databases")

# Locked


async def test_a_lock_held_too_long_by_another_process_fails_a_write(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.05)
    async with ConversationStore.open(sqlite) as store:
        made = await store.create()
        with closing(sqlite3.connect(sqlite, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreLocked, match=f"{sqlite} is locked by another process"):
                await store.append(made.id, HELLO)
            assert await store.messages(made.id) == []  # reading goes on
        await store.append(made.id, HELLO)


async def test_a_write_waits_for_a_lock_of_another_process(sqlite: str):
    async with ConversationStore.open(sqlite) as store:
        made = await store.create()
        with closing(sqlite3.connect(sqlite, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            appending = asyncio.create_task(store.append(made.id, HELLO))
            await store.messages(made.id)
            assert not appending.done()
        await appending

        assert await store.messages(made.id) == [HELLO]


async def test_a_locked_file_cannot_be_opened(sqlite: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.05)
    with closing(sqlite3.connect(sqlite, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreLocked, match=f"{sqlite} is locked by another process"):
            await fill(sqlite)


async def test_opening_enables_the_log_once_another_writer_has_finished(sqlite: str):
    await fill(sqlite)
    with closing(sqlite3.connect(sqlite, isolation_level=None)) as other:
        assert other.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(fill(sqlite))
        await asyncio.wait([opening], timeout=0.1)
        assert not opening.done()
        other.execute("ROLLBACK")
        await opening

    with closing(sqlite3.connect(sqlite)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_commits_are_fully_synchronous(sqlite: str):
    full = 2
    async with ConversationStore.open(sqlite) as store:
        pragma = text("PRAGMA synchronous")
        assert await store._database.read(lambda connection: connection.scalar(pragma)) == full


async def test_a_statement_that_takes_too_long_fails(
    postgres: str, monkeypatch: pytest.MonkeyPatch
):
    await fill(postgres)
    monkeypatch.setattr(database, "COMMAND_TIMEOUT", 1)
    async with ConversationStore.open(postgres) as store:
        with pytest.raises(StoreLocked, match="took too long to answer"):
            await store._database.read(lambda each: each.execute(text("SELECT pg_sleep(60)")))


async def test_a_row_locked_on_a_server_fails_a_write(
    postgres: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 1)
    async with ConversationStore.open(postgres) as store:
        made = await store.create()
        other = await asyncpg.connect(postgres)
        try:
            async with other.transaction():
                await other.execute("SELECT * FROM conversations FOR UPDATE")
                with pytest.raises(StoreLocked, match="is locked by another process"):
                    await store.append(made.id, HELLO)
        finally:
            await other.close()
        await store.append(made.id, HELLO)


# Damaged


@each_row("content", [b"not a database" * 1000, b"SQLite format 3\0" + b"?" * 8176])
def test_a_file_of_another_format_is_refused_and_not_changed(tmp_path: Path, content: bytes):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)

    with pytest.raises(StoreCorrupt, match=f"{path} is (not a SQLite database|damaged)"):
        asyncio.run(fill(path))

    assert path.read_bytes() == content


@pytest.mark.parametrize("page", range(1, 10))
def test_a_damaged_file_is_refused(tmp_path: Path, page: int):
    path = tmp_path / "conversations.db"
    asyncio.run(fill(path, 200))
    content = bytearray(path.read_bytes())
    content[page * 4096 : page * 4096 + 2048] = b"\xa5" * 2048
    path.write_bytes(content)

    with pytest.raises(StoreCorrupt, match=f"{path} is damaged: restore a backup"):
        asyncio.run(fill(path))


def test_a_truncated_file_is_refused(tmp_path: Path):
    path = tmp_path / "conversations.db"
    asyncio.run(fill(path, 200))
    os.truncate(path, 3 * 4096)

    with pytest.raises(StoreCorrupt, match=f"{path} is damaged: restore a backup"):
        asyncio.run(fill(path))


# Full


@pytest.mark.slow("fills a database")
async def test_a_full_disk_fails_writes_until_there_is_room(sqlite: str):
    async with ConversationStore.open(sqlite) as store:
        made = await store.create()

        async def limit(pages: int) -> None:
            pragma = text(f"PRAGMA max_page_count = {pages}")
            await store._database.read(lambda connection: connection.execute(pragma))

        await limit(120)
        big, acknowledged = UserMessage("x" * 3000), []

        async def append_for_ever() -> None:
            while True:
                await store.append(made.id, big)
                acknowledged.append(big)

        with pytest.raises(StoreError, match=f"{sqlite} cannot grow, the disk is full"):
            await append_for_ever()
        assert len(acknowledged) > 5
        assert await store.messages(made.id) == acknowledged

        await limit(1000)
        await store.append(made.id, HELLO)
        assert await store.messages(made.id) == [*acknowledged, HELLO]


APPEND_UNTIL_FULL = """
import asyncio, resource, sys
from interlock.errors import StoreError
from interlock.messages import UserMessage
from interlock.store import ConversationStore

async def main(place, id):
    async with ConversationStore.open(place) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
        acknowledged = 0
        try:
            while True:
                await store.append(id, UserMessage("x" * 3000))
                acknowledged += 1
        except StoreError as error:
            print(acknowledged, error)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow("waits for a timeout")
def test_files_that_cannot_grow_keep_acknowledged_messages(tmp_path: Path):
    path = tmp_path / "conversations.db"
    id = asyncio.run(fill(path))

    output = python(APPEND_UNTIL_FULL, path, id)

    acknowledged, _, error = output.partition(" ")
    assert error == f"{path} cannot be read or written: is the disk full or failing?\n"
    assert int(acknowledged) > 10
    assert asyncio.run(read(path, id)) == int(acknowledged) + 1


# Not synced


async def test_after_a_failed_sync_a_file_can_only_be_read(tmp_path: Path):
    path = tmp_path / "conversations.db"
    id = await fill(path)
    both = [HELLO, HELLO]
    refused = f"^{path}: the disk did not keep what was written .*: check the disk, then start"
    with failing_disk() as disk:
        async with ConversationStore.open(path) as store, ConversationStore.open(path) as other:
            await store.append(id, HELLO)  # is in the log
            disk.arm("unsynced", 1)
            with pytest.raises(StoreError, match=refused):
                await store.append(id, HELLO)
            disk.disarm()
            disk.arm("unsynced", 1_000)  # only counts
            for each in (store, other):
                with pytest.raises(StoreError, match=refused):
                    await each.append(id, HELLO)
                assert await each.messages(id) == both
        async with ConversationStore.open(path) as store:
            assert (await store.messages(id))[:2] == both
            with pytest.raises(StoreError, match=refused):
                await store.delete(id)
        link = tmp_path / "link.db"
        link.symlink_to(path)
        async with ConversationStore.open(link) as store:
            assert (await store.messages(id))[:2] == both
            with pytest.raises(StoreError, match=r"link\.db: the disk did not keep"):
                await store.delete(id)
        assert disk.count == 0  # a later sync would succeed, but prove nothing

    *_, appended = python(READ_THEN_APPEND, path, id).splitlines()
    assert appended == "appended"


# Read-only


def python(program: str, *arguments: object) -> str:
    """Run a program that must obey file permissions even if we are root; return its output."""
    code, output = run_forked(program, *arguments, before=_obey_file_permissions)
    assert code == 0, output
    return output


def _obey_file_permissions() -> None:
    if os.geteuid() == 0:  # Linux: drop the capabilities that let root ignore them
        version_3, this_process = 0x20080522, 0
        none = bytes(24)
        assert ctypes.CDLL(None).capset(struct.pack("Ii", version_3, this_process), none) == 0


CHECK = """
import asyncio, sys
from interlock.errors import StoreError
from interlock.store.database.maintenance import check

try:
    asyncio.run(check(sys.argv[1]))
except StoreError as error:
    print(error)
"""

READ_THEN_APPEND = """
import asyncio, sys
from interlock.errors import StoreError
from interlock.messages import UserMessage
from interlock.store import ConversationStore

async def main(place, id):
    try:
        async with ConversationStore.open(place) as store:
            print(len(await store.list()), len(await store.resume(id)))
            await store.append(id, UserMessage("more"))
            print("appended")
    except StoreError as error:
        print(error)

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def only_readable(*paths: Path) -> Iterator[None]:
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    yield
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode)


@pytest.mark.slow("waits for a timeout")
@pytest.mark.parametrize(
    "which",
    [
        lambda path: [path],
        lambda path: [path.parent],
        lambda path: [path, path.parent],
    ],
    ids=["file", "folder", "both"],
)
def test_a_read_only_database_can_be_read_and_not_written(
    tmp_path: Path, which: Callable[[Path], list[Path]]
):
    path = tmp_path / "own" / "conversations.db"
    id = asyncio.run(fill(path, 3))

    with only_readable(*which(path)):
        output = python(READ_THEN_APPEND, path, id)

    assert output.splitlines() == [
        "1 3",
        f"{path} is read-only: make the file and its folder writable",
    ]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow("waits for a timeout")
@pytest.mark.parametrize("folder_too", [False, True])
async def test_a_read_only_database_can_be_read_while_another_process_writes(
    tmp_path: Path, folder_too: bool
):
    path = tmp_path / "own" / "conversations.db"
    async with ConversationStore.open(path) as store:
        made = await store.create()
        await store.append(made.id, HELLO)
        with only_readable(path, *[path.parent] * folder_too):
            output = python(READ_THEN_APPEND, path, made.id)

    assert output.splitlines()[0] == "1 1"


@pytest.mark.slow("waits for a timeout")
def test_a_read_only_database_is_read_with_the_log_of_a_killed_process(tmp_path: Path):
    path = tmp_path / "own" / "conversations.db"
    id = asyncio.run(fill(path))
    assert run_forked(APPEND_AND_DIE, path, id)[0] == -SIGKILL
    assert path.with_name("conversations.db-wal").stat().st_size

    with only_readable(path, path.parent):
        assert python(READ_THEN_APPEND, path, id).splitlines()[0] == "1 2"


APPEND_AND_DIE = """
import asyncio, os, sys
from interlock.messages import UserMessage
from interlock.store import ConversationStore

async def main(place, id):
    async with ConversationStore.open(place) as store:
        await store.append(id, UserMessage("last message"))
        os.kill(os.getpid(), 9)

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_database_cannot_be_created_in_a_read_only_folder(tmp_path: Path):
    folder = tmp_path / "own"
    folder.mkdir()

    with only_readable(folder):
        output = python(READ_THEN_APPEND, folder / "new.db", "id")

    assert output == f"{folder}/new.db cannot be created: Permission denied\n"


def test_a_file_without_read_permission_is_refused(tmp_path: Path):
    path = tmp_path / "conversations.db"
    path.touch(0o000)

    for program in (READ_THEN_APPEND, CHECK):
        assert python(program, path, "id") == f"{path} cannot be read: check its permissions\n"


def test_a_read_only_empty_file_is_refused(tmp_path: Path):
    path = tmp_path / "conversations.db"
    path.touch()

    with only_readable(path):
        output = python(READ_THEN_APPEND, path, "id")

    assert output == f"{path} is read-only and empty: make it writable\n"


def test_a_read_only_database_of_an_older_checkout_is_refused_as_such(tmp_path: Path):
    path = tmp_path / "own" / "conversations.db"
    id = asyncio.run(fill(path))
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE alembic_version SET version_num = '0019'")
        database.execute("DROP TABLE schema_compatibility")
        database.commit()

    with only_readable(path, path.parent):
        output = python(READ_THEN_APPEND, path, id)

    reason = "was made by a checkout of interlock before its first release: move it away"
    assert output.startswith(f"{path} {reason}")


# PostgreSQL


async def test_a_broken_connection_is_replaced(postgres: str):
    async with ConversationStore.open(postgres) as store:
        made = await store.create()
        other = await asyncpg.connect(postgres)
        try:
            await other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE application_name = 'interlock'"
            )
        finally:
            await other.close()

        await store.append(made.id, HELLO)


async def test_missing_rights_on_a_server_fail_a_write_and_not_a_read(postgres: str, change):
    await fill(postgres)
    schema = postgres.rpartition("=")[2]
    await change(
        postgres,
        "CREATE ROLE reader LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO reader",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader",
    )

    async with ConversationStore.open(postgres.replace("interlock@", "reader@")) as store:
        (made,) = await store.list()
        assert await store.messages(made.id) == [HELLO]
        with pytest.raises(StoreError, match="does not grant this user the rights it needs"):
            await store.append(made.id, HELLO)
    await change(postgres, "DROP OWNED BY reader", "DROP ROLE reader")


async def test_no_transaction_stays_open_between_calls(postgres: str):
    async with ConversationStore.open(postgres) as store:
        made = await store.create()
        await store.append(made.id, HELLO)
        await store.resume(made.id)
        other = await asyncpg.connect(postgres)
        try:
            states = await other.fetch(
                "SELECT state FROM pg_stat_activity WHERE application_name = 'interlock'"
            )
        finally:
            await other.close()

    assert [row["state"] for row in states] == ["idle"]


# Contents of SQL, errors and logs


@pytest.mark.slow("fills a database")
def test_sql_is_never_built_from_strings():
    calls = [
        node
        for file in Path(interlock.store.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("text", "exec_driver_sql", "execute")
    ]
    built = [call for call in calls if isinstance(call.args[0], ast.JoinedStr | ast.BinOp)]

    assert calls
    assert built == []


async def test_errors_do_not_contain_messages(place: str, change):
    async with ConversationStore.open(place) as store:
        made = await store.create()
        await change(place, "ALTER TABLE messages RENAME COLUMN tool_calls TO calls")

        secret = UserMessage("s3" + "cret")  # split, as a traceback shows this line
        with pytest.raises(StoreError) as failure:
            await store.append(made.id, secret)

    assert secret.content not in "".join(traceback.format_exception(failure.value))
    assert "\n" not in str(failure.value)


async def test_logs_do_not_contain_messages(place: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level("DEBUG")
    id = await fill(place)
    async with ConversationStore.open(place) as store:
        await store.append(id, UserMessage("s3cret"))
        await store.update(id, title="s3cret")
        assert (await store.messages(id))[1].content == "s3cret"
        assert (await store.list())[0].title == "s3cret"

    assert "s3cret" not in caplog.text


@pytest.mark.slow("fills a database")
async def test_writers_of_one_process_do_not_wait_for_the_lock_of_sqlite(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.0)
    async with ConversationStore.open(tmp_path / "x.db") as store:
        made = await store.create()
        await asyncio.gather(*(store.append(made.id, HELLO) for _ in range(30)))

        assert len(await store.messages(made.id)) == 30


# Counted


async def test_the_number_of_errors_counts_failures_and_no_running_transactions(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.05)
    opened = await database.open_database(sqlite)
    try:
        counted: list[int] = []

        async def note(_: object) -> None:
            counted.append(opened.errors)

        async def refuse(_: object) -> None:
            raise InvalidArguments("unknown key")

        await opened.read(note)
        await opened.write(note)
        with pytest.raises(InvalidArguments):
            await opened.write(refuse)
        with closing(sqlite3.connect(sqlite, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreLocked):
                await opened.write(note)
        await opened.write(note)

        # A counter that falls back to 0 is a restart to Prometheus, and the 1 before it an error.
        assert [*counted, opened.errors] == [0, 0, 1, 1]
    finally:
        await opened.close()
