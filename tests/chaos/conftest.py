"""A PostgreSQL server for each test, because some of them stop it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.postgres import Postgres


@pytest.fixture(autouse=True)
def same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process open the database of the gateways."""
    monkeypatch.setenv("INTERLOCK_KEY", bytes(range(32)).hex())


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.close()
