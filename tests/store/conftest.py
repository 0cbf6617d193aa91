"""Databases for tests: a new SQLite file, and a new database of a real PostgreSQL server."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection, create_engine, inspect

from interlock.store import ConversationStore
from interlock.store.database.connection import AsyncConnection, connect, dispose
from tests.store.audit_chains import Rows

_numbers = count()
PLACES = ["sqlite", pytest.param("postgres", marks=pytest.mark.program("PostgreSQL"))]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5)  # it has nothing left to do
        assert not thread.is_alive()


# PostgreSQL


async def _create(server: str) -> str:
    # A schema behaves like a database and is created a hundred times faster.
    name = f"test{next(_numbers)}"
    await _execute(server, f"CREATE SCHEMA {name}")
    return f"{server}&search_path={name}"


async def _execute(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _database(server: str, name: str) -> str:
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
async def postgres(postgres_server: str) -> str:
    """The URL of an empty database."""
    return await _create(postgres_server)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The path of a database that does not exist yet."""
    return str(tmp_path / "conversations.db")


@pytest.fixture(params=PLACES)
def new_place(request: pytest.FixtureRequest, created_databases: None) -> str:
    """The location of a database without tables, of either kind."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """The URL of an empty database, to be copied."""
    url = _database(postgres_server, "template")

    async def make() -> None:
        await _execute(postgres_server, "CREATE DATABASE template")
        async with ConversationStore.open(url):
            pass

    asyncio.run(make())
    return url


@pytest.fixture
async def postgres_place(postgres_server: str, postgres_template: str) -> str:
    name = f"test{next(_numbers)}"
    statement = f"CREATE DATABASE {name} TEMPLATE template STRATEGY file_copy"
    await _execute(postgres_server, statement)
    return _database(postgres_server, name)


@pytest.fixture
def sqlite_place(sqlite: str, empty_database: Path) -> str:
    return shutil.copy(empty_database, sqlite)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    """The location of an empty database, of either kind: a copy, which is made faster."""
    return request.getfixturevalue(f"{request.param}_place")


@pytest.fixture
async def empty(place: str) -> AsyncIterator[ConversationStore]:
    async with ConversationStore.open(place) as store:
        yield store


@pytest.fixture(scope="module", params=PLACES)
def shared_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The location of a database that the tests of one file share."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("shared") / "conversations.db")
    return asyncio.run(_create(request.getfixturevalue("postgres_server")))


@pytest.fixture
async def store(shared_place: str) -> AsyncIterator[ConversationStore]:
    async with ConversationStore.open(shared_place) as store:
        yield store


# Access without the store


@asynccontextmanager
async def _connected(place: str) -> AsyncIterator[AsyncConnection]:
    if "://" in place:
        creator = {"async_creator_fn": lambda: asyncpg.connect(place)}
        engine = create_engine("postgresql+asyncpg://", connect_args=creator)
    else:
        engine = create_engine(f"sqlite+aiosqlite:///{place}")
    try:
        async with connect(engine) as connection:
            yield connection
            await connection.commit()
    finally:
        await dispose(engine)


@pytest.fixture
def change() -> Callable[..., Awaitable[None]]:
    """Run SQL statements on a database."""

    async def run(place: str, *statements: str) -> None:
        async with _connected(place) as connection:
            for statement in statements:
                await connection.run_sync(Connection.exec_driver_sql, statement)

    return run


@pytest.fixture
def dump() -> Callable[[str], Awaitable[object]]:
    """Return the columns and rows of all tables in a database."""

    async def everything(place: str) -> object:
        found = {}
        async with _connected(place) as connection:
            for table in await connection.run_sync(lambda it: inspect(it).get_table_names()):
                query = f"SELECT * FROM {table} ORDER BY 1"
                rows = await connection.run_sync(Connection.exec_driver_sql, query)
                found[table] = [tuple(rows.keys()), *map(tuple, rows)]
        return found

    return everything


@pytest.fixture
def rows(dump: Callable[[str], Awaitable[Any]]) -> Rows:
    """Return the rows of a table in a database, in order."""

    async def read(place: str, table: str = "audit") -> list[dict[str, Any]]:
        columns, *found = (await dump(place))[table]
        named = [dict(zip(columns, row, strict=True)) for row in found]
        return sorted(named, key=lambda row: (row["writer"], row["seq"]))

    return read
