"""Files of logins that are damaged, exposed, or on a full disk."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from interlock.errors import StoreCorrupt, StoreError, StoreTooNew
from interlock.oauth import private_files
from interlock.oauth.storage import TokenStore, UserTokenStore
from tests.oauth.support import (
    ISSUER,
    REGISTRATION,
    SERVER,
    TOKENS,
    listed,
    mode_of,
    only_file,
    opened,
)
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def fails(number: int) -> Callable[..., None]:
    def broken(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return broken


async def replaced(store: TokenStore, folder: Path) -> bool:
    """Return whether a new login replaces the file by a private one."""
    await store.save_tokens(SERVER, TOKENS)
    path = only_file(folder)
    return (
        await store.load_tokens(SERVER) == TOKENS
        and not path.is_symlink()
        and mode_of(path) == 0o600
    )


BROKEN = {
    "empty": b"",
    "blank": b" \n",
    "zeros": bytes(500),
    "not utf-8": b'{"version":1,"server_url":"\xff"}',
    "a list": b"[]",
    "no version": b"{}",
    "version of another type": b'{"version":"1"}',
    "no server": b'{"version":1}',
    "tokens of another type": b'{"version":1,"server_url":"x","tokens":["SECRET"]}',
    "token without token": b'{"version":1,"server_url":"x","tokens":{"a":{"scope":"SECRET"}}}',
    "deep": b'{"version":1,"a":' + 100_000 * b"[",
    "trailing": b'{"version":1,"server_url":"x"}x',
    "too large": b" " * (private_files.MAX_FILE_BYTES + 1),
}


# Files that cannot be used


@each_row("content", BROKEN)
async def test_a_damaged_file_is_an_error_and_a_new_login_replaces_it(
    store: TokenStore, folder: Path, content: str
):
    await store.save_tokens(SERVER, TOKENS)
    path = only_file(folder)
    path.write_bytes(BROKEN[content])

    with pytest.raises(StoreCorrupt, match=r"log in (to mcp\.example )?again") as raised:
        await store.load_tokens(SERVER)
    with pytest.raises(StoreCorrupt):
        await store.load_registration(SERVER, ISSUER)

    assert str(raised.value).startswith(f"{path} ")
    assert "SECRET" not in str(raised.value)
    assert await replaced(store, folder)


async def test_a_file_of_one_mebibyte_is_read(store: TokenStore, folder: Path):
    await store.save_tokens(SERVER, TOKENS)
    path = only_file(folder)
    path.write_bytes(path.read_bytes().ljust(1_048_576))

    assert await store.load_tokens(SERVER) == TOKENS


async def test_a_file_cut_off_anywhere_is_an_error(store: TokenStore, folder: Path):
    await store.save_tokens(SERVER, TOKENS)
    path = only_file(folder)
    whole = path.read_bytes()

    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreCorrupt):
            await store.load_tokens(SERVER)


async def test_a_damaged_file_can_be_deleted(store: TokenStore, folder: Path):
    await store.save_tokens(SERVER, TOKENS)
    only_file(folder).write_bytes(b"{")

    await store.delete(SERVER)

    assert await store.load_tokens(SERVER) is None


async def test_a_file_of_a_newer_version_is_an_error_until_the_next_login(
    store: TokenStore, folder: Path
):
    await store.save_tokens(SERVER, TOKENS)
    path = only_file(folder)
    path.write_bytes(b'{"version":2,"server_url":["in another form"]}')

    with pytest.raises(StoreTooNew) as raised:
        await store.load_tokens(SERVER)

    assert str(raised.value) == (
        f"{path} was written by a newer interlock: update, or log in to mcp.example again "
        "to replace it"
    )
    assert await replaced(store, folder)


async def test_a_file_that_was_copied_to_another_server_is_an_error(
    store: TokenStore, folder: Path
):
    await store.save_tokens("https://evil.example/mcp", TOKENS)
    evil = only_file(folder)
    await store.save_tokens(SERVER, TOKENS)
    (good,) = set(listed(folder, "*.json")) - {evil}
    evil.write_bytes(good.read_bytes())

    with pytest.raises(StoreCorrupt, match="belongs to another server"):
        await store.load_tokens("https://evil.example/mcp")


@each_row("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o777])
async def test_a_file_that_others_can_read_or_write_is_refused(
    store: TokenStore, folder: Path, mode: int
):
    await store.save_tokens(SERVER, TOKENS)
    only_file(folder).chmod(mode)

    with pytest.raises(StoreCorrupt) as raised:
        await store.load_tokens(SERVER)

    assert str(raised.value) == (
        f"other users can open {only_file(folder)} (mode {mode:03o}) and may know its tokens: "
        "log in again to replace it, or chmod 600 it"
    )
    assert await replaced(store, folder)


async def test_a_symbolic_link_is_refused_and_its_target_unchanged(
    store: TokenStore, folder: Path, tmp_path: Path
):
    await store.save_tokens(SERVER, TOKENS)
    path, elsewhere = only_file(folder), tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    before = elsewhere.read_bytes()

    with pytest.raises(StoreCorrupt, match="is a symbolic link"):
        await store.load_tokens(SERVER)
    assert await replaced(store, folder)

    assert elsewhere.read_bytes() == before


async def test_a_named_pipe_is_refused_at_once(store: TokenStore, folder: Path):
    await store.save_tokens(SERVER, TOKENS)
    path = only_file(folder)
    path.unlink()
    os.mkfifo(path, 0o600)

    with pytest.raises(StoreCorrupt, match="is not a regular file"):
        await store.load_tokens(SERVER)

    assert await replaced(store, folder)


async def test_a_folder_in_place_of_the_file_is_refused(store: TokenStore, folder: Path):
    await store.save_tokens(SERVER, TOKENS)
    path = only_file(folder)
    path.unlink()
    path.mkdir()

    with pytest.raises(StoreCorrupt, match="is not a regular file"):
        await store.load_tokens(SERVER)
    with pytest.raises(StoreError, match="cannot be written: Is a directory"):
        await store.save_tokens(SERVER, TOKENS)


async def test_a_file_of_another_user_is_refused(
    store: TokenStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    await store.save_tokens(SERVER, TOKENS)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(StoreCorrupt, match="belongs to another user"):
        await store.load_tokens(SERVER)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777], ids=oct)
async def test_a_folder_that_others_can_write_to_is_refused(
    store: TokenStore, folder: Path, mode: int
):
    await store.save_tokens(SERVER, TOKENS)
    await store.delete(SERVER)
    opened(folder, mode)

    for attempt in (store.save_tokens(SERVER, TOKENS), store.lock(SERVER).__aenter__()):
        with pytest.raises(StoreError, match=f"other users can write to {folder}: .* chmod 700"):
            await attempt

    assert listed(folder) == []


async def test_a_folder_of_another_user_is_refused(
    store: TokenStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(StoreError, match=f"other users can write to {folder}: make it yours"):
        await store.save_tokens(SERVER, TOKENS)

    assert listed(folder) == []


# Disks that are full


@each_row("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
@each_row("call", ["mkstemp", "fsync"])
async def test_a_login_that_cannot_be_written_is_an_error_and_the_old_one_stays(
    store: TokenStore, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
):
    old = msgspec.structs.replace(TOKENS, access_token="old")
    await store.save_tokens(SERVER, old)
    place = tempfile if call == "mkstemp" else os

    with monkeypatch.context() as fault:
        fault.setattr(place, call, fails(number))
        with pytest.raises(StoreError) as raised:
            await store.save_tokens(SERVER, TOKENS)
        with pytest.raises(StoreError):
            await store.save_registration(SERVER, REGISTRATION)

    assert str(raised.value) == (
        f"{only_file(folder)} cannot be written: {os.strerror(number)}; "
        "the login lasts until this program ends"
    )
    assert await store.load_tokens(SERVER) == old
    assert await store.load_registration(SERVER, ISSUER) is None
    assert [path.suffix for path in listed(folder)] == [".json"]


async def test_failed_sync_of_the_folder_is_an_error_and_the_new_login_is_read(
    store: TokenStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    await store.save_tokens(SERVER, msgspec.structs.replace(TOKENS, access_token="old"))
    monkeypatch.setattr(os, "fsync", failing)

    with pytest.raises(StoreError) as raised:
        await store.save_tokens(SERVER, TOKENS)

    assert str(raised.value) == (
        f"{only_file(folder)} is written, but the disk may not keep it (Input/output error): "
        "check the disk"
    )
    for each in (store, UserTokenStore(folder, keyring=False)):
        assert await each.load_tokens(SERVER) == TOKENS


async def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    store = UserTokenStore(tmp_path / "file" / "logins", keyring=False)

    async with store.lock(SERVER):
        with pytest.raises(StoreError, match=r"file/logins/.* cannot be written: "):
            await store.save_tokens(SERVER, TOKENS)
