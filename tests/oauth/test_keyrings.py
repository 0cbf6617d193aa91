"""Logins in the keyring of the user."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from keyring.backend import KeyringBackend
from keyring.backends import chainer, fail, null
from keyring.errors import KeyringLocked

from interlock.errors import StoreCorrupt, StoreError, StoreLocked
from interlock.oauth import storage
from interlock.oauth.storage import UserTokenStore
from tests.oauth.support import SERVER, TOKENS, Safe, listed, only_file

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Good(Safe):
    priority = 1


class Plaintext(Safe):
    priority = 0.5


async def test_a_keyring_is_used_instead_of_files(safe: Safe, folder: Path):
    store = UserTokenStore(folder)

    await store.save_tokens(SERVER, TOKENS)

    ((service, key),) = safe.kept
    assert service == "interlock"
    assert key.startswith("mcp.example-")
    assert listed(folder) == []
    assert await UserTokenStore(folder).load_tokens(SERVER) == TOKENS
    await store.delete(SERVER)
    assert safe.kept == {}


async def test_keyring_with_the_lowest_accepted_priority_is_used(
    use: Callable[[KeyringBackend], None], folder: Path
):
    use(Good())

    await UserTokenStore(folder).save_tokens(SERVER, TOKENS)

    assert listed(folder) == []


async def test_the_keyring_found_first_stays_in_use(
    use: Callable[[KeyringBackend], None], safe: Safe, folder: Path
):
    store = UserTokenStore(folder)
    await store.save_tokens(SERVER, TOKENS)
    use(Safe())

    assert await store.load_tokens(SERVER) == TOKENS


async def test_without_the_keyring_option_files_are_used(safe: Safe, folder: Path):
    await UserTokenStore(folder, keyring=False).save_tokens(SERVER, TOKENS)

    assert safe.kept == {}
    assert only_file(folder)


@pytest.mark.parametrize("kind", [fail.Keyring, null.Keyring, Plaintext], ids=str)
async def test_a_keyring_that_does_not_encrypt_is_not_used(
    use: Callable[[KeyringBackend], None], folder: Path, kind: type[KeyringBackend]
):
    found = kind()
    use(found)

    await UserTokenStore(folder).save_tokens(SERVER, TOKENS)

    assert only_file(folder)
    assert not getattr(found, "kept", None)


@pytest.mark.parametrize("members", [[Safe(), Plaintext()], [Plaintext(), Plaintext()]], ids=len)
async def test_chained_keyring_uses_only_its_best_backend(
    use: Callable[[KeyringBackend], None],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    members: list[Safe],
):
    monkeypatch.setattr(chainer.ChainerBackend, "backends", members)
    use(chainer.ChainerBackend())

    await UserTokenStore(folder).save_tokens(SERVER, TOKENS)

    safe = type(members[0]) is Safe
    assert bool(members[0].kept) is safe
    assert members[1].kept == {}
    assert (listed(folder) == []) is safe


async def test_files_are_used_if_keyring_is_not_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "keyring", None)

    await UserTokenStore(folder).save_tokens(SERVER, TOKENS)

    assert only_file(folder)


async def test_the_next_login_deletes_the_file_from_before_the_keyring(
    use: Callable[[KeyringBackend], None], folder: Path
):
    await UserTokenStore(folder, keyring=False).save_tokens(SERVER, TOKENS)
    use(Safe())

    await UserTokenStore(folder).save_tokens(SERVER, TOKENS)

    assert listed(folder) == []


async def test_a_locked_keyring_is_an_error_until_it_is_unlocked(safe: Safe, folder: Path):
    store = UserTokenStore(folder)

    def locked() -> None:
        raise KeyringLocked("the collection\nis locked")

    safe.broken = locked
    with pytest.raises(StoreError) as raised:
        await store.load_tokens(SERVER)
    with pytest.raises(StoreError):
        await store.save_tokens(SERVER, TOKENS)

    assert str(raised.value) == (
        "the keyring cannot be used: the collection is locked; set "
        "PYTHON_KEYRING_BACKEND=keyring.backends.fail.Keyring to keep logins in files"
    )
    assert listed(folder) == []

    safe.broken = None
    await store.save_tokens(SERVER, TOKENS)
    assert await store.load_tokens(SERVER) == TOKENS


async def test_the_text_of_an_unknown_keyring_error_is_not_shown(safe: Safe, folder: Path):
    def quoting() -> None:
        raise ValueError("cannot encode 'SECRET-access'")

    safe.broken = quoting

    with pytest.raises(StoreError, match="cannot be used: ValueError; set") as raised:
        await UserTokenStore(folder).save_tokens(SERVER, TOKENS)

    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("content", ['{"version":1', ""], ids=["cut off", "empty"])
async def test_a_damaged_entry_is_an_error_that_names_it(safe: Safe, folder: Path, content: str):
    store = UserTokenStore(folder)
    await store.save_tokens(SERVER, TOKENS)
    ((service, key),) = safe.kept
    safe.kept[service, key] = content

    with pytest.raises(StoreCorrupt) as raised:
        await store.load_tokens(SERVER)

    assert str(raised.value) == (
        f"the entry {key} of 'interlock' in the keyring is damaged: "
        "log in to mcp.example again to replace it"
    )


async def test_a_keyring_that_blocks_times_out_without_blocking_the_event_loop(
    safe: Safe, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(storage, "KEYRING_SECONDS", 0.05)
    asked, unlocked = threading.Event(), threading.Event()

    def wait() -> None:
        asked.set()
        unlocked.wait()

    safe.broken = wait

    with pytest.raises(StoreLocked, match=r"has not answered in 0\.05 s: unlock it, or set "):
        await UserTokenStore(folder).load_tokens(SERVER)

    asked.wait()  # it may start after the timeout
    left = [each for each in threading.enumerate() if each.name == "interlock-blocking"]
    unlocked.set()
    for each in left:
        each.join()


async def test_the_default_folder_is_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert UserTokenStore().folder == tmp_path / "interlock" / "logins"
