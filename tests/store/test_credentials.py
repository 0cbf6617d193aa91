"""Credentials of users: encrypted for one place, and useless at any other."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import StoreCorrupt, StoreError
from interlock.store import credentials
from interlock.store.credentials import EXPIRING, LOGIN, CredentialStore, Place
from interlock.store.database import connection as connection_module
from interlock.store.database.database import open_database
from interlock.text.timestamps import now_micros
from tests.support.rows import each_row

TOKEN = Place("user:anna", "github", "TOKEN")
KEY = GatewayKey(bytes(range(32)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.db"


@pytest.fixture
async def either(place: str) -> AsyncIterator[CredentialStore]:
    """A store in a database of either kind."""
    database = await open_database(place)
    yield CredentialStore(database, KEY)
    await database.close()


@pytest.fixture
async def store(file: Path) -> AsyncIterator[CredentialStore]:
    database = await open_database(file)
    yield CredentialStore(database, KEY)
    await database.close()


async def test_value_is_read_by_its_user_and_server_only(either: CredentialStore):
    await either.set(TOKEN, "first")
    await either.set(TOKEN, "canary-1234")

    assert await either.values("user:anna", "github") == {"TOKEN": "canary-1234"}
    assert await either.values("user:bert", "github") == {}
    assert await either.values("user:anna", "gitlab") == {}
    assert await either.values("user:anna", "github", tenant="other") == {}


def sealed_in(file: Path) -> bytes:
    """Return the only sealed value of a database."""
    with closing(sqlite3.connect(file)) as database:
        sealed: bytes = database.execute("SELECT sealed FROM credentials").fetchone()[0]
        return sealed


async def test_database_contains_no_value_in_clear(store: CredentialStore, file: Path):
    await store.set(TOKEN, "canary-1234")
    sealed = sealed_in(file)

    assert sealed.startswith(KEY.id.encode())
    for each in file.parent.iterdir():
        assert b"canary-1234" not in each.read_bytes(), each


@pytest.mark.parametrize(
    ("column", "value"),
    [("user", "user:bert"), ("server", "gitlab"), ("name", "OTHER"), ("tenant", "other")],
)
async def test_row_moved_to_another_user_cannot_be_decrypted(
    store: CredentialStore, file: Path, column: str, value: str
):
    await store.set(TOKEN, "canary-1234")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f'UPDATE credentials SET "{column}" = ?', (value,))
    moved = {"user": "user:anna", "server": "github", "tenant": "default", column: value}

    with pytest.raises(StoreCorrupt, match="cannot be decrypted; set it again"):
        await store.values(moved["user"], moved["server"], tenant=moved["tenant"])


async def test_value_of_another_gateway_key_names_the_remedy(store: CredentialStore, file: Path):
    await store.set(TOKEN, "canary-1234")
    database = await open_database(file)
    other = CredentialStore(database, GatewayKey(bytes(range(1, 33))))
    with pytest.raises(StoreCorrupt, match="sealed with another gateway key; set it again"):
        await other.values("user:anna", "github")
    await other.set(TOKEN, "new")

    assert await other.values("user:anna", "github") == {"TOKEN": "new"}
    await database.close()


async def test_deleted_value_is_listed_as_revoked_and_its_secret_is_gone(
    store: CredentialStore, file: Path
):
    await store.set(TOKEN, "canary-1234")

    assert await store.revoke(TOKEN)
    assert not await store.revoke(TOKEN)
    assert await store.values("user:anna", "github") == {}
    (listed,) = await store.list(user="user:anna")
    assert listed.state(now_micros()) == "revoked"
    assert sealed_in(file) == b""


@each_row(
    ("name", "value", "problem"),
    [
        (LOGIN, "x", "is reserved for OAuth logins"),
        ("TOKEN", "", r"text of 1 to 16,384 bytes \(0 were given\)"),
        ("TOKEN", "x" * 16_385, r"16,385 were given"),
        ("TOKEN", "a\0b", "must be text"),
        ("TOKEN", "\ud800", "must be text"),
        ("A\nB", "x", "not a valid name"),
    ],
)
async def test_value_that_cannot_be_stored_is_refused(
    store: CredentialStore, name: str, value: str, problem: str
):
    with pytest.raises(StoreError, match=problem):
        await store.set(Place("user:anna", "github", name), value)


async def test_credential_changes_are_announced_except_refreshes_of_logins(
    store: CredentialStore,
):
    await store.set(TOKEN, "x")
    assert await store.changed() == [Place("user:anna", "github", "")]
    login = Place("user:bert", "github", LOGIN)
    await store.lease(login, "one")
    await store.write(login, b"{}", "ok", None, "one")
    assert await store.changed() == []
    await store.note(login)
    assert await store.changed() == [Place("user:bert", "github", "")]


async def test_login_is_written_by_the_holder_of_its_lease_only(either: CredentialStore):
    login = Place("user:anna", "github", LOGIN)

    holders = [str(number) for number in range(8)]
    leased = await asyncio.gather(*(either.lease(login, each) for each in holders))
    assert leased.count(True) == 1  # though none of them found the row
    holder = holders[leased.index(True)]
    with pytest.raises(StoreError, match="deleted or replaced"):
        await either.write(login, b"theirs", "ok", None, "another")
    await either.write(login, b"ours", "ok", None, holder)
    await either.release(login, holder)
    assert await either.lease(login, "another")
    assert await either.read(login) == b"ours"


async def test_lease_does_not_depend_on_the_clocks_of_gateways(
    postgres_place: str, monkeypatch: pytest.MonkeyPatch
):
    database, login = await open_database(postgres_place), Place("user:anna", "github", LOGIN)
    store = CredentialStore(database, GatewayKey(bytes(range(32))))
    leased = []
    for hours, holder in ((0, "one"), (2, "fast"), (-2, "slow")):
        now = now_micros() + hours * 3_600 * 1_000_000
        monkeypatch.setattr(credentials, "now_micros", lambda now=now: now)
        monkeypatch.setattr(connection_module, "now_micros", lambda now=now: now)
        leased.append(await store.lease(login, holder))
        if holder == "fast":
            await store.release(login, "one")
    await database.close()

    assert leased == [True, False, True]


async def test_refresh_does_not_bring_a_deleted_login_back(either: CredentialStore):
    login = Place("user:anna", "github", LOGIN)
    await either.lease(login, "one")
    await either.write(login, b"first", "ok", None, "one")
    await either.revoke(login)

    with pytest.raises(StoreError, match="deleted or replaced"):
        await either.write(login, b"refreshed", "ok", None, "one")
    assert await either.read(login) is None


async def test_login_without_refresh_expires_and_is_not_usable_then(store: CredentialStore):
    login, now = Place("user:anna", "github", LOGIN), now_micros()
    await store.lease(login, "one")
    await store.write(login, b"x", "ok", now / 1e6 + 3600, "one")
    (listed,) = await store.list()
    states = [listed.state(at) for at in (now - 2 * EXPIRING, now, now + 3601 * 1_000_000)]

    assert states == ["ok", "expiring", "needs_login"]
    assert await store.users_of("github") == [("default", "user:anna")]
    await store.write(login, b"x", "ok", now / 1e6 - 1, "one")
    assert await store.users_of("github") == []
