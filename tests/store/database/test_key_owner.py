"""A database belongs to the first gateway key that uses it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import ConfigError
from interlock.store import AuditWriter
from interlock.store.database.key_loading import load_key
from interlock.store.database.key_owner import open_owned
from interlock.store.database.location import folder_beside

KEY, OTHER = GatewayKey(bytes(range(32))), GatewayKey(bytes(range(1, 33)))


async def test_database_is_opened_by_one_key_only(place: str):
    for _ in range(2):
        await (await open_owned(place, KEY)).close()

    words = f"this database belongs to gateway key {KEY.id}…; set the same INTERLOCK_KEY$"
    with pytest.raises(ConfigError, match=words):
        await open_owned(place, OTHER)
    with pytest.raises(ConfigError, match=words):
        async with AuditWriter.open(place, key=OTHER):
            pass


async def test_a_lost_key_is_not_replaced_by_a_new_one(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("INTERLOCK_KEY", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = folder_beside(place) / "gateway.key"
    key = await load_key(place)  # of a new database
    await (await open_owned(place, key)).close()
    assert (await load_key(place)).id == key.id
    file.unlink()

    words = f"belongs to gateway key {key.id}…, which is missing; put it into {file}, or set INTERL"
    with pytest.raises(ConfigError, match=re.escape(words)):
        await load_key(place)
    assert not file.exists()


async def test_one_key_gets_a_database_that_two_open_at_once(place: str):
    opened = await asyncio.gather(
        *(open_owned(place, key) for key in (KEY, OTHER) * 2), return_exceptions=True
    )

    refused = [isinstance(each, ConfigError) for each in opened]
    for each in opened:
        if not isinstance(each, BaseException):
            await each.close()
    assert refused in ([False, True] * 2, [True, False] * 2)
