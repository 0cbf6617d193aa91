"""Connections to PostgreSQL that fail, and a driver that is not installed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from interlock.errors import MissingExtra, StoreError
from interlock.messages import UserMessage
from interlock.store import ConversationStore
from interlock.store.database import postgres as postgres_module
from tests.support.rows import each_row

HELLO = UserMessage("hello")


async def fill(place: str | Path, count: int = 1) -> str:
    """Create a conversation of `count` messages; return its id."""
    async with ConversationStore.open(place) as store:
        made = await store.create("kept")
        await store.append(made.id, *[HELLO] * count)
        return made.id


@each_row(
    ("url", "words"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/db", r"cannot connect to PostgreSQL 127.0.0.1:1/db: "),
        ("postgresql://me:s3cret@127.0.0.1:port/db", "not a valid postgresql:// URL"),
        ("postgresql://me:s3cret@/db?host=/nowhere", "cannot connect to PostgreSQL /nowhere/db: "),
        ("postgresql://me:s3cret@[::1/db", "not a valid postgresql:// URL"),
        ("postgres://me:s3cret@127.0.0.1:1/db?sslmode=s3cret", "not a valid postgresql:// URL"),
    ],
)
async def test_the_error_of_an_unreachable_server_does_not_contain_the_password(
    url: str, words: str
):
    with pytest.raises(StoreError, match=words) as failure:
        await fill(url)

    assert "s3cret" not in "".join(traceback.format_exception(failure.value))


async def test_a_missing_database_of_a_server_is_named(postgres: str):
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        await fill(postgres.replace("/postgres?", "/nowhere?"))


@pytest.fixture
def pooler(tmp_path: Path, postgres_server: str) -> Iterator[Callable[[str], str]]:
    """Start PgBouncer in front of the server in a mode; return its URL."""
    running: list[subprocess.Popen[bytes]] = []

    def start(mode: str) -> str:
        folder = postgres_server.partition("host=")[2]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        file = Path(tempfile.gettempdir(), f"pgbouncer-{port}.ini")  # which `nobody` can read
        as_user = "user = nobody" if os.geteuid() == 0 else ""
        file.write_text(
            f"[databases]\npostgres = host={folder} user=interlock\n[pgbouncer]\n{as_user}\n"
            f"pool_mode = {mode}\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            "unix_socket_dir =\nauth_type = any\n"
        )
        with (tmp_path / "log").open("wb") as log:
            running.append(subprocess.Popen(["pgbouncer", file], stdout=log, stderr=log))
        while True:
            assert running[-1].poll() is None, (tmp_path / "log").read_text()
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                file.unlink()
                return f"postgresql://interlock@127.0.0.1:{port}/postgres"

    yield start
    for each in running:
        each.terminate()
        each.wait()


@pytest.mark.slow("starts a program")
async def test_transaction_pooler_is_refused_and_a_session_pooler_is_used(
    pooler: Callable[[str], str],
):
    for mode in ("transaction", "statement"):
        with pytest.raises(StoreError) as refused:
            await fill(pooler(mode))
        assert str(refused.value).endswith(
            "/postgres is a transaction pooler, which interlock cannot use: connect to PostgreSQL"
            " directly"
        )
    connection = await postgres_module.connect(
        pooler("session"), timeout=100.0, command_timeout=100.0
    )
    assert await connection.fetchval("SHOW lock_timeout") == "100s"
    await connection.close()
    await postgres_module.refuse_transaction_pooler(pooler("session"), timeout=100.0)


async def test_a_missing_postgresql_driver_is_an_error_that_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(MissingExtra, match="needs the extra postgres: "):
        async with ConversationStore.open("postgresql://127.0.0.1:1/db"):
            pass
