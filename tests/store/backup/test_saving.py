"""A backup is complete or absent, belongs to its owner alone, and never contains the key."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from interlock.auth.gateway_key import FILE_NAME, GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import ConfigError, StoreCorrupt, StoreError, StoreFull, StoreLocked
from interlock.store.backup import saving
from interlock.store.backup.key_rotation import rotate_key
from interlock.store.backup.manifest import read_manifest
from interlock.store.backup.restoring import restore
from interlock.store.backup.saving import back_up
from interlock.store.backup.staging import new_folder
from interlock.store.database.disk_reserve import RESERVE
from interlock.store.kept_results import FOLDER as RESULTS
from tests.store.backup.conftest import Filled, hash_of, install_key
from tests.support.rows import each_row


def remains(folder: Path) -> list[Path]:
    """Return what there is of a backup."""
    return [*folder.glob("*backup*")]


only_sqlite = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


def folder_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").touch()


def link_to_a_file(path: Path) -> None:
    path.with_name("target").touch(exist_ok=True)
    path.symlink_to(path.with_name("target"))


@only_sqlite
async def test_backup_goes_into_a_new_folder_only(filled: Filled, tmp_path: Path):
    for number, (make, words) in enumerate(
        [
            (folder_with_a_file, "is not empty: choose a new folder"),
            (Path.touch, "is not a folder: choose another one"),
            (link_to_a_file, "is not a folder"),
        ]
    ):
        path = tmp_path / f"taken{number}"
        make(path)
        with pytest.raises(StoreError, match=words):
            await back_up(filled.location, path)

    (tmp_path / "empty").mkdir()
    await back_up(filled.location, tmp_path / "empty")
    assert read_manifest(tmp_path / "empty").key == GatewayKey.load(tmp_path).fingerprint


@only_sqlite
@each_row(
    "key_file, words",
    [
        ("backup/gateway.key", "is in the folder of the backup"),
        ("backup/deep/gateway.key", "is in the folder of the backup"),
        ("link/gateway.key", "is in the folder of the backup"),
        ("backup", "is in the folder of the backup"),
        (FILE_NAME, "exists: choose a new file for the key"),
    ],
)
async def test_key_is_never_written_into_the_backup_or_over_a_file(
    key_file: str, words: str, filled: Filled, tmp_path: Path
):
    if not (tmp_path / "link").is_symlink():
        (tmp_path / "link").symlink_to(tmp_path / "backup")
    with pytest.raises(StoreError, match=words):
        await back_up(filled.location, tmp_path / "backup", key_file=tmp_path / key_file)
    assert not (tmp_path / "backup").exists()


@only_sqlite
async def test_backup_needs_the_key_of_the_database(filled: Filled, tmp_path: Path):
    (tmp_path / FILE_NAME).rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match=r"which is neither in .* nor in INTERLOCK_KEY"):
        await back_up(filled.location, tmp_path / "backup")
    GatewayKey.random().write(tmp_path / FILE_NAME)
    with pytest.raises(ConfigError, match="belongs to gateway key"):
        await back_up(filled.location, tmp_path / "backup")
    assert remains(tmp_path) == []


@only_sqlite
async def test_second_backup_into_the_same_folder_is_refused(filled: Filled, tmp_path: Path):
    with (
        new_folder(tmp_path / "backup", ""),
        pytest.raises(StoreLocked, match=r"another backup into .* is running"),
    ):
        await back_up(filled.location, tmp_path / "backup")


@only_sqlite
async def test_backup_that_fails_or_is_stopped_leaves_nothing(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("open_file", "copy_file"):
        with monkeypatch.context() as patch:
            patch.setattr(saving, name, full)
            with pytest.raises(StoreError, match="cannot be written: No space left on device"):
                await back_up(filled.location, tmp_path / "backup")
    with monkeypatch.context() as patch:
        patch.setattr(saving, "free_bytes", lambda _: RESERVE)
        with pytest.raises(StoreFull, match="has no room for a backup: 67,108,864 bytes are free"):
            await back_up(filled.location, tmp_path / "backup")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(StoreError, match=rf"{tmp_path} cannot be read or written"):
            await back_up(filled.location, tmp_path / "backup")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    task = asyncio.create_task(back_up(filled.location, tmp_path / "backup"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert remains(tmp_path) == []


@only_sqlite
async def test_remains_of_a_killed_backup_are_no_backup_and_are_replaced(
    filled: Filled, tmp_path: Path
):
    half = tmp_path / ".backup.partial"
    (half / "results").mkdir(parents=True)
    (half / "database.db").write_bytes(b"half")
    with pytest.raises(StoreError, match="is not a backup"):
        read_manifest(half)

    await back_up(filled.location, tmp_path / "backup")
    assert remains(tmp_path) == [tmp_path / "backup"]
    assert (tmp_path / "backup" / "database.db").stat().st_size > 4


@only_sqlite
async def test_link_among_the_kept_results_is_not_followed(filled: Filled, tmp_path: Path):
    kept = tmp_path / RESULTS / filled.kept
    kept.rename(tmp_path / "secret")
    kept.symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match="is a symbolic link"):
        await back_up(filled.location, tmp_path / "backup")


@only_sqlite
@each_row("name", ["../gateway.key", "/etc/passwd", ".."])
async def test_row_that_names_a_file_elsewhere_is_refused(
    name: str, ended: Filled, tmp_path: Path, change: Callable[..., Awaitable[None]]
):
    await change(ended.location, f"UPDATE kept_results SET file = '{name}'")
    with pytest.raises(StoreCorrupt, match="it was tampered with"):
        await back_up(ended.location, tmp_path / "backup")
    with pytest.raises(StoreCorrupt, match="it was tampered with"):
        await rotate_key(ended.location, Audit(), hash_of)
    assert remains(tmp_path) == []


@only_sqlite
async def test_database_of_another_user_is_not_changed(
    ended: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await back_up(ended.location, tmp_path / "backup")
    install_key(str(tmp_path / "other" / "interlock.db"), tmp_path / FILE_NAME)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(StoreError, match=r"belongs to the user .*: run the command as that user"):
        await rotate_key(ended.location, Audit(), hash_of)
    with pytest.raises(StoreError, match=r"belongs to the user .*: run the command as that user"):
        await restore(tmp_path / "other" / "interlock.db", tmp_path / "backup")


async def test_missing_database_is_refused(tmp_path: Path):
    for path in (tmp_path / "none.db", tmp_path):
        with pytest.raises(StoreError, match="does not exist"):
            await back_up(path, tmp_path / "backup")
    assert remains(tmp_path) == []


@pytest.mark.program("PostgreSQL")
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_without_pg_dump_the_line_to_type_has_no_password(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    url = filled.location.replace("interlock@", "interlock:p%40ss%20w@")
    with pytest.raises(StoreError, match="pg_dump is not installed here") as raised:
        await back_up(url, tmp_path / "backup")

    (line,) = raised.value.__notes__
    assert "PGUSER=interlock" in line
    assert "pg_dump --format=custom" in line
    assert "p@ss" not in line
    assert "p%40ss" not in line
    assert not (tmp_path / "backup").exists()
