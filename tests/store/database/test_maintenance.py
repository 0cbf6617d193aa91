"""Upgrades and checks of databases, for operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import StoreError
from interlock.store.database.key_owner import open_owned
from interlock.store.database.maintenance import CREATED, check, pending, upgrade
from interlock.store.database.schema_version import REVISION

KEY = GatewayKey(bytes(range(32)))


async def test_upgrade_creates_what_is_missing_and_only_once(new_place: str, change):
    assert await pending(new_place) == (REVISION, [CREATED])
    assert await upgrade(new_place) == (REVISION, [CREATED])
    assert await pending(new_place) == await upgrade(new_place) == (REVISION, [])

    await change(new_place, "DROP INDEX approvals_open", "DROP TABLE kept_chunks")
    lacking = ["index approvals_open", "table kept_chunks"]
    assert await pending(new_place) == await upgrade(new_place) == (REVISION, lacking)
    assert await pending(new_place) == (REVISION, [])


async def test_check_names_what_is_missing_and_the_key_that_the_database_needs(
    place: str, change, monkeypatch: pytest.MonkeyPatch
):
    await (await open_owned(place, KEY)).close()
    monkeypatch.setenv("INTERLOCK_KEY", bytes(range(32)).hex())
    about, problems = await check(place)
    assert (about.rpartition(" ")[2], problems) == (REVISION, [])

    await change(place, "DROP INDEX approvals_open")
    monkeypatch.setenv("INTERLOCK_KEY", bytes(range(1, 33)).hex())
    _, (index, key) = await check(place)
    assert index == "index approvals_open is missing: run `interlock db upgrade`"
    assert f"belongs to gateway key {KEY.id}" in key


async def test_check_of_a_damaged_file_or_of_none_fails(tmp_path: Path, sqlite_place: str, change):
    with pytest.raises(StoreError, match=r"none\.db does not exist yet"):
        await check(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()

    await change(sqlite_place, "INSERT INTO kept_chunks VALUES ('x', 0, ''), ('x', 1, '')")
    _, (problem,) = await check(sqlite_place)
    assert problem == "2 rows of kept_chunks refer to a row of kept_results that does not exist"
