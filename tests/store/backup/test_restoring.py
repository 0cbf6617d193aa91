"""A backup that is made while a gateway serves, and its restoration elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from interlock.auth.gateway_key import FILE_NAME, GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import ConfigError, StoreError
from interlock.store import AuditReader, AuditRecord, AuditWriter
from interlock.store.audit.reading import CallFilter
from interlock.store.audit.upkeep import open_trail
from interlock.store.backup import restoring
from interlock.store.backup.manifest import NAME
from interlock.store.backup.restoring import restore
from interlock.store.backup.saving import back_up
from interlock.store.database.database import open_database
from interlock.store.database.location import folder_beside
from interlock.text.timestamps import now_micros
from tests.store.backup.conftest import Filled, check_content, install_key, problems
from tests.support.rows import each_row

ANNA = "user:anna"


def tree(folder: Path) -> dict[str, int]:
    """Return the mode of every path in a folder."""
    return {
        str(each.relative_to(folder)): each.stat().st_mode & 0o777 for each in folder.rglob("*")
    }


async def test_backup_restored_elsewhere_is_whole_and_its_running_call_unfinished(
    filled: Filled,
    elsewhere: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    folder, key = tmp_path / "backups" / "first", tmp_path / "safe.key"
    await back_up(filled.location, folder, key_file=key)

    assert set(tree(folder.parent).values()) == {0o700, 0o600}
    assert GatewayKey.read(key).id == GatewayKey.load(folder_beside(filled.location)).id
    assert not any(GatewayKey.read(key)._secret.hex().encode() in each.read_bytes()
                   for each in folder.rglob("*") if each.is_file())  # fmt: skip

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other machine"))
    location = elsewhere()
    with pytest.raises(ConfigError, match=r"there is none: put that key into .*gateway\.key, or"):
        await restore(location, folder)
    GatewayKey.random().write(folder_beside(location) / FILE_NAME)
    with pytest.raises(ConfigError, match="but the key here is"):
        await restore(location, folder)
    (folder_beside(location) / FILE_NAME).unlink()
    install_key(location, key)
    await restore(location, folder)

    assert await problems(location) == []
    async with AuditReader.open(location) as reader:
        (call,) = await reader.calls(CallFilter())
        assert call["status"] == "unfinished"
    async with open_trail(location, GatewayKey.read(key), Audit()) as writer:
        await writer.append(AuditRecord("intent", "c2", ANNA))
    assert await problems(location) == []
    assert (await check_content(filled, location)).state_at(now_micros()) == "expired"
    with pytest.raises(StoreError, match=r"exists|has tables of interlock"):
        await restore(location, folder)


async def test_backup_contains_every_record_that_was_durable_before_it(
    place: str, elsewhere: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = GatewayKey.load(folder_beside(place))
    async with AuditWriter.open(place, key=key) as writer:

        async def write(*, until: float = inf) -> None:
            while writer.rows < until:
                await writer.append(AuditRecord("intent", f"c{writer.rows}", ANNA))

        await write(until=20)
        writing = asyncio.create_task(write())
        before = writer.head.seq
        await back_up(place, tmp_path / "backup", key_file=tmp_path / "key")
        writing.cancel()
        await asyncio.wait([writing])
        assert writer.head.seq > before

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other machine"))
    location = elsewhere()
    install_key(location, tmp_path / "key")
    await restore(location, tmp_path / "backup")
    assert await problems(location) == []
    async with AuditReader.open(location) as reader:
        calls = {each["call"] for each in await reader.calls(CallFilter(), limit=100_000)}
    assert calls >= {f"c{number}" for number in range(before)}


@pytest.fixture
async def backup(sqlite_place: str, tmp_path: Path) -> Path:
    """A backup of a SQLite database, whose key is beside it."""
    async with AuditWriter.open(sqlite_place, key=GatewayKey.load(tmp_path), settings=Audit()):
        pass
    await back_up(sqlite_place, tmp_path / "backup")
    return tmp_path / "backup"


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"version", b"Version"))


def link(path: Path) -> None:
    shutil.copy(path, path.parent.parent / "other")
    path.unlink()
    path.symlink_to(path.parent.parent / "other")


def unsign(path: Path) -> None:
    """Change the list as somebody without the key would."""
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"key": "", "mac": ""}))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@each_row(
    "name, damage, words",
    [
        ("database.db", cut, "was cut or changed after the backup: use another backup"),
        ("database.db", change, "was cut or changed"),
        ("database.db", Path.unlink, "is missing: use another backup"),
        ("database.db", link, "is a symbolic link"),
        ("database.db", pipe, "is not a file"),
        ("backup.json", cut, "is damaged: use another backup"),
        ("backup.json", change, "is damaged|was changed after the backup"),
        ("backup.json", unsign, "is not signed, but there is a gateway key in"),
        ("backup.json", Path.unlink, "is not a backup: it has no backup.json"),
        ("backup.json", link, "is a symbolic link"),
    ],
)
async def test_damaged_backup_is_refused_and_nothing_is_restored(
    name: str, damage: Callable[[Path], None], words: str, backup: Path, tmp_path: Path
):
    damaged = tmp_path / "damaged"
    shutil.copytree(backup, damaged)
    damage(damaged / name)
    location = str(tmp_path / "target" / "interlock.db")
    install_key(location, tmp_path / FILE_NAME)
    try:
        with pytest.raises(StoreError, match=words):
            await restore(location, damaged)
        assert {*tree(tmp_path / "target")} == {FILE_NAME}
    finally:
        shutil.rmtree(tmp_path / "target")
        shutil.rmtree(damaged)
        (tmp_path / "other").unlink(missing_ok=True)


async def test_restoration_of_a_path_that_is_not_a_folder_says_so(backup: Path, tmp_path: Path):
    for path, words in [(tmp_path / "none", "does not exist"), (backup / NAME, "is not a folder")]:
        with pytest.raises(StoreError, match=f"{words}: give the folder of a backup"):
            await restore(str(tmp_path / "target" / "interlock.db"), path)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_restoration_that_was_killed_is_begun_again(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await back_up(filled.location, tmp_path / "backup")
    location = str(tmp_path / "target" / "interlock.db")
    install_key(location, tmp_path / FILE_NAME)

    def killed(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(restoring.os, "link", killed)  # when all but the database is in its place
        with pytest.raises(StoreError, match="killed"):
            await restore(location, tmp_path / "backup")
    assert (tmp_path / "target" / "results" / ".restoring").exists()
    await restore(location, tmp_path / "backup")

    assert ".restoring" not in {path.rpartition("/")[2] for path in tree(tmp_path / "target")}
    await check_content(filled, location)


@pytest.mark.program("PostgreSQL")
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_database_that_pg_restore_has_filled_for_a_killed_process_cannot_be_used(
    filled: Filled, elsewhere: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await back_up(filled.location, tmp_path / "backup")
    shutil.rmtree(tmp_path / "data" / "interlock" / "audit-copy")
    location = elsewhere()

    def killed(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "_put_folders", killed)
        with pytest.raises(StoreError, match="killed"):
            await restore(location, tmp_path / "backup")
    with pytest.raises(StoreError, match="is not wholly restored: run `interlock db restore`"):
        await open_database(location)
    await restore(location, tmp_path / "backup")

    approval = await check_content(filled, location)
    assert approval.expires < now_micros()


async def test_restoration_beside_data_is_refused(backup: Path, tmp_path: Path):
    for name in ("interlock.db", "interlock.db-wal", "results/r_1", "audit-copy/x.jsonl"):
        location = tmp_path / name.partition("/")[0].replace(".", "") / "interlock.db"
        install_key(str(location), tmp_path / FILE_NAME)
        taken = location.parent / name
        taken.parent.mkdir(exist_ok=True)
        taken.touch()
        with pytest.raises(StoreError, match="exists, and a backup is never restored over data"):
            await restore(str(location), backup)
