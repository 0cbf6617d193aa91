"""Changes of commands are recorded, unless the configuration turns the trail off."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from interlock.cli.gateway.recorder import open_recorder
from interlock.config import Config, loads


def config(database: Path, **audit: str) -> Config:
    gateway = {"database": str(database), "audit": audit}
    return loads(msgspec.json.encode({"mcpServers": {}, "gateway": gateway}))


async def test_a_change_is_recorded_in_the_database_of_the_gateway(tmp_path: Path):
    database = tmp_path / "gateway.db"
    async with open_recorder(config(database)) as recorder:
        assert recorder is not None
        await recorder.write("plugin", {"action": "added"}, None, server="crm", tool="crm:refund")

    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT user, server, tool, body FROM audit WHERE kind = 'plugin'"
        (record,) = connection.execute(query)
    assert record[:3] == ("user:local", "crm", "crm:refund")
    assert msgspec.json.decode(record[3]) == {"surface": "cli", "action": "added"}


async def test_calls_are_not_recorded_if_the_trail_is_off(tmp_path: Path):
    database = tmp_path / "gateway.db"
    async with open_recorder(config(database, mode="off")) as recorder:
        assert recorder is None

    assert not database.exists()
