"""Logins on disk and in keyrings: access, permissions, locks and failures."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import keyring
import msgspec
import pytest
import rich.pretty
from keyring.backend import KeyringBackend
from keyring.backends import chainer, fail, null
from keyring.errors import KeyringLocked

from interlock.errors import StoreCorrupt, StoreError, StoreLocked, StoreTooNew
from interlock.oauth import private_files, storage
from interlock.oauth.storage import (
    MemoryTokenStore,
    Registration,
    Tokens,
    TokenStore,
    UserTokenStore,
)

SERVER = "https://mcp.example/mcp"
ISSUER = "https://as.example"
TOKENS = Tokens(
    access_token="SECRET-access",
    refresh_token="SECRET-refresh",
    expires_at=1_800_000_000.5,
    received_at=1_799_996_400.0,
    scope="read write",
    issuer=ISSUER,
    resource="https://mcp.example/mcp",
    client_id="client",
    token_endpoint="https://as.example/token",
)
REGISTRATION = Registration(
    issuer=ISSUER,
    client_id="client",
    client_secret="SECRET-client",
    client_secret_expires_at=1_900_000_000.0,
    token_endpoint_auth_method="client_secret_basic",
    redirect_uris=("http://127.0.0.1:1234/callback",),
    scope="read",
)

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "logins"


@pytest.fixture
def store(folder: Path) -> TokenStore:
    return UserTokenStore(folder, keyring=False)


@pytest.fixture(params=["files", "memory", "keyring"])
def any_store(request: pytest.FixtureRequest, folder: Path) -> TokenStore:
    if request.param == "memory":
        return MemoryTokenStore()
    if request.param == "keyring":
        request.getfixturevalue("safe")
    return UserTokenStore(folder, keyring=request.param == "keyring")


class Safe(KeyringBackend):
    """A keyring in memory that can fail."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.broken: Callable[[], None] | None = None

    def get_password(self, service: str, username: str) -> str | None:
        if self.broken:
            self.broken()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.broken:
            self.broken()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


class Good(Safe):
    priority = 1


class Plaintext(Safe):
    priority = 0.5


@pytest.fixture
def use() -> Iterator[Callable[[KeyringBackend], None]]:
    before = keyring.get_keyring()
    yield keyring.set_keyring
    keyring.set_keyring(before)


@pytest.fixture
def safe(use: Callable[[KeyringBackend], None]) -> Safe:
    safe = Safe()
    use(safe)
    return safe


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.glob(pattern))


def opened(path: Path, mode: int) -> None:
    path.chmod(mode)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def only_file(folder: Path) -> Path:
    (path,) = listed(folder, "*.json")
    return path


def fails(number: int) -> Callable[..., None]:
    def broken(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return broken


# Saving and loading


async def test_saved_tokens_and_registrations_are_loaded(any_store: TokenStore):
    assert await any_store.load_tokens(SERVER) is None
    assert await any_store.load_registration(SERVER, ISSUER) is None

    await any_store.save_tokens(SERVER, TOKENS)
    await any_store.save_registration(SERVER, REGISTRATION)

    assert msgspec.structs.asdict(await any_store.load_tokens(SERVER)) == msgspec.structs.asdict(
        TOKENS
    )
    assert await any_store.load_tokens(SERVER, ISSUER) == TOKENS
    assert await any_store.load_registration(SERVER, ISSUER) == REGISTRATION


async def test_saved_tokens_are_loaded_by_another_program(store: TokenStore, folder: Path):
    await store.save_tokens(SERVER, TOKENS)

    assert await UserTokenStore(folder, keyring=False).load_tokens(SERVER) == TOKENS


@pytest.mark.parametrize(
    "other",
    [
        "https://mcp.example/mcp/",
        "https://mcp.example/",
        "https://mcp.example/mcp?tenant=2",
        "https://mcp.example:443/mcp",
        "https://MCP.example/mcp",
        "http://mcp.example/mcp",
        "https://mcp.example/MCP",
        "",
        "https://[broken",
    ],
)
async def test_tokens_of_another_url_are_not_loaded(any_store: TokenStore, other: str):
    await any_store.save_tokens(SERVER, TOKENS)
    await any_store.save_registration(SERVER, REGISTRATION)

    assert await any_store.load_tokens(other) is None
    assert await any_store.load_registration(other, ISSUER) is None


@pytest.mark.parametrize("other", ["https://as.example/", "https://AS.example", "", "as.example"])
async def test_tokens_of_another_issuer_are_not_loaded(any_store: TokenStore, other: str):
    await any_store.save_tokens(SERVER, TOKENS)
    await any_store.save_registration(SERVER, REGISTRATION)

    assert await any_store.load_tokens(SERVER, other) is None
    assert await any_store.load_registration(SERVER, other) is None


async def test_tokens_of_the_last_login_are_loaded_without_an_issuer(
    any_store: TokenStore,
):
    first, second = TOKENS, msgspec.structs.replace(TOKENS, issuer="https://two.example")
    await any_store.save_tokens(SERVER, first)
    await any_store.save_tokens(SERVER, second)
    assert await any_store.load_tokens(SERVER) == second

    await any_store.save_tokens(SERVER, first)

    assert await any_store.load_tokens(SERVER) == first
    assert await any_store.load_tokens(SERVER, "https://two.example") == second


async def test_deleted_tokens_and_registrations_are_gone(any_store: TokenStore):
    await any_store.save_tokens(SERVER, TOKENS)
    await any_store.save_registration(SERVER, REGISTRATION)

    for _ in range(2):
        await any_store.delete(SERVER)

    assert await any_store.load_tokens(SERVER) is None
    assert await any_store.load_registration(SERVER, ISSUER) is None


async def test_issuer_of_a_client_is_kept_when_the_login_is_deleted(any_store: TokenStore):
    await any_store.save_issuer(SERVER, "me", ISSUER)
    await any_store.save_tokens(SERVER, TOKENS)
    await any_store.save_registration(SERVER, REGISTRATION)
    await any_store.delete_login(SERVER)

    assert await any_store.load_tokens(SERVER) is None
    assert await any_store.load_registration(SERVER, ISSUER) is None
    assert await any_store.load_issuer(SERVER, "me") == ISSUER
    assert await any_store.load_issuer(SERVER, "other") == ""
    assert await any_store.load_issuer(f"{SERVER}/", "me") == ""

    await any_store.delete(SERVER)
    assert await any_store.load_issuer(SERVER, "me") == ""


async def test_a_deleted_login_leaves_no_file(store: TokenStore, folder: Path):
    await store.save_tokens(SERVER, TOKENS)
    await store.delete_login(SERVER)

    assert listed(folder, "*.json") == []


async def test_the_number_of_issuers_of_a_server_is_limited(store: TokenStore, folder: Path):
    for number in range(storage.MAX_ISSUERS + 3):
        issuer = f"https://{number}.example"
        await store.save_tokens(SERVER, msgspec.structs.replace(TOKENS, issuer=issuer))
        await store.save_registration(SERVER, msgspec.structs.replace(REGISTRATION, issuer=issuer))

    kept = json.loads(only_file(folder).read_bytes())
    assert len(kept["tokens"]) == len(kept["registrations"]) == storage.MAX_ISSUERS
    assert await store.load_tokens(SERVER) == msgspec.structs.replace(TOKENS, issuer=issuer)


# Owners


async def test_two_owners_of_one_url_have_different_tokens(any_store: TokenStore):
    ada, bob = any_store.for_owner("ada"), any_store.for_owner("bob")
    tokens = {
        store: msgspec.structs.replace(TOKENS, access_token=name)
        for store, name in ((any_store, "own"), (ada, "ada"), (bob, "bob"))
    }
    for store, saved in tokens.items():
        assert await store.load_tokens(SERVER) is None
        async with store.lock(SERVER):
            await store.save_tokens(SERVER, saved)

    for store, saved in tokens.items():
        assert await store.load_tokens(SERVER) == saved
    assert await any_store.for_owner("ada").load_tokens(SERVER) == tokens[ada]


async def test_deleting_the_login_of_one_owner_keeps_that_of_another(any_store: TokenStore):
    ada, bob = any_store.for_owner("ada"), any_store.for_owner("bob")
    for store in (ada, bob):
        await store.save_tokens(SERVER, TOKENS)
        await store.save_registration(SERVER, REGISTRATION)

    await ada.delete_login(SERVER)

    assert await ada.load_tokens(SERVER) is None
    assert await ada.load_registration(SERVER, ISSUER) is None
    assert await bob.load_tokens(SERVER) == TOKENS
    assert await bob.load_registration(SERVER, ISSUER) == REGISTRATION


async def test_a_lock_of_one_owner_does_not_block_another(any_store: TokenStore):
    ada, bob = any_store.for_owner("ada"), any_store.for_owner("bob")

    async with asyncio.timeout(10), ada.lock(SERVER), bob.lock(SERVER), any_store.lock(SERVER):
        pass


async def test_each_pair_of_owner_and_url_has_its_own_entry(store: TokenStore):
    pairs = [("", SERVER), ("a", SERVER), ("ab", SERVER), ("", f"a{SERVER}"), (SERVER, "a")]
    for number, (owner, url) in enumerate(pairs):
        saved = msgspec.structs.replace(TOKENS, access_token=str(number))
        await store.for_owner(owner).save_tokens(url, saved)

    for number, (owner, url) in enumerate(pairs):
        found = await store.for_owner(owner).load_tokens(url)
        assert found is not None
        assert found.access_token == str(number)


async def test_a_file_that_was_copied_to_another_owner_is_an_error(store: TokenStore, folder: Path):
    await store.save_tokens(SERVER, TOKENS)
    own = only_file(folder)
    ada = store.for_owner("ada")
    await ada.save_tokens(SERVER, TOKENS)
    (other,) = set(listed(folder, "*.json")) - {own}
    other.write_bytes(own.read_bytes())

    with pytest.raises(StoreCorrupt, match="belongs to another server or owner"):
        await ada.load_tokens(SERVER)


async def test_the_name_of_a_file_does_not_show_its_owner(store: TokenStore, folder: Path):
    await store.for_owner("ada@example.com").save_tokens(SERVER, TOKENS)

    assert "ada" not in only_file(folder).name


async def test_a_login_that_an_older_version_stored_is_read_without_unknown_members(
    store: TokenStore, folder: Path
):
    await store.save_tokens(SERVER, TOKENS)
    path = only_file(folder)
    entry = json.loads(path.read_bytes())
    del entry["owner"]
    entry["tokens"][ISSUER]["lacks"] = "b"
    path.write_bytes(json.dumps(entry).encode())

    assert await store.load_tokens(SERVER) == TOKENS


# Secrets


@pytest.mark.parametrize("struct", [TOKENS, REGISTRATION], ids=["tokens", "registration"])
def test_the_repr_of_tokens_and_registrations_has_no_secret(struct: Tokens | Registration):
    shown = f"{struct!r} {struct} {[struct]} {rich.pretty.pretty_repr(struct)}"

    assert "SECRET" not in shown
    assert ISSUER in shown


async def test_files_and_folders_are_private(folder: Path, store: TokenStore):
    before = os.umask(0)
    try:
        async with store.lock(SERVER):
            await store.save_tokens(SERVER, TOKENS)
    finally:
        os.umask(before)

    modes = {path.suffix: mode_of(path) for path in listed(folder)}
    assert modes == {".json": 0o600, ".lock": 0o600}
    assert mode_of(folder) == mode_of(folder.parent) == 0o700


async def test_the_name_of_a_file_contains_only_the_host_of_the_url(
    folder: Path, store: TokenStore
):
    await store.save_tokens("https://user:SECRET@mcp.example/SECRET?key=SECRET", TOKENS)
    await store.save_tokens("https://[::1]:8000/../../etc/passwd", TOKENS)
    await store.save_tokens(f"https://{'a.' * 200}example/", TOKENS)

    names = [path.name for path in listed(folder)]
    assert len(names) == 3
    assert not any("SECRET" in name or "/" in name or len(name) > 120 for name in names)
    assert any(name.startswith("mcp.example-") for name in names)


# Time


@pytest.mark.parametrize(
    ("received_at", "expires_at", "now", "expired"),
    [
        (0.0, None, 1e12, False),
        (0.0, 0.0, 1e12, True),
        (1000.0, 4600.0, 1000.0, False),
        (1000.0, 4600.0, 4539.0, False),
        (1000.0, 4600.0, 4540.0, True),
        (1000.0, 4600.0, 9999.0, True),
        (1000.0, 1030.0, 1014.0, False),  # used for half of its 30 seconds
        (1000.0, 1030.0, 1015.0, True),
        (0.0, 4600.0, 4539.0, False),
        (0.0, 4600.0, 4540.0, True),
        (1000.0, 500.0, 400.0, False),  # the clock was set back meanwhile
        (1000.0, 500.0, 500.0, True),
    ],
)
def test_tokens_expire_by_a_leeway_early(
    received_at: float, expires_at: float | None, now: float, expired: bool
):
    tokens = Tokens(access_token="a", received_at=received_at, expires_at=expires_at)

    assert tokens.expired(now) is expired


def test_a_client_secret_expires_by_a_leeway_early_or_never():
    assert not Registration(issuer=ISSUER, client_id="c").expired()
    assert REGISTRATION.expired(REGISTRATION.client_secret_expires_at - storage.LEEWAY)
    assert not REGISTRATION.expired(REGISTRATION.client_secret_expires_at - storage.LEEWAY - 1)


# Files that cannot be used


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


@pytest.mark.parametrize("content", BROKEN)
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


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o777], ids=oct)
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", ["mkstemp", "fsync"])
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


# Keyrings


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

    assert asked.wait(10)  # it may start after the timeout
    left = [each for each in threading.enumerate() if each.name == "interlock-blocking"]
    unlocked.set()
    for each in left:
        each.join()


async def test_the_default_folder_is_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert UserTokenStore().folder == tmp_path / "interlock" / "logins"


# Locks

HOLD = """
import asyncio, sys
from pathlib import Path
from interlock.oauth.storage import UserTokenStore

async def hold():
    store = UserTokenStore(Path(sys.argv[1]), keyring=False)
    async with store.lock(sys.argv[2]):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(hold())
"""

COUNT = """
import asyncio, sys
from pathlib import Path
from interlock.oauth.storage import Tokens, UserTokenStore

async def count():
    store = UserTokenStore(Path(sys.argv[1]), keyring=False)
    for _ in range(int(sys.argv[3])):
        async with store.lock(sys.argv[2]):
            tokens = await store.load_tokens(sys.argv[2])
            number = int(tokens.access_token) if tokens else 0
            await store.save_tokens(sys.argv[2], Tokens(access_token=str(number + 1)))

asyncio.run(count())
"""


async def run(code: str, *arguments: object) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    texts = [str(each) for each in arguments]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *texts, stdin=pipe, stdout=pipe
    )


async def ended(process: asyncio.subprocess.Process) -> int:
    await process.communicate()
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio-waitpid-"):  # the thread is about to end
            thread.join()
    assert process.returncode is not None
    return process.returncode


@pytest.fixture
async def holder(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that holds the lock."""
    process = await run(HOLD, folder, SERVER)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"
    yield process
    if process.returncode is None:
        process.kill()
    await ended(process)


async def test_a_lock_of_another_process_times_out(
    holder: asyncio.subprocess.Process, store: TokenStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(storage, "LOCK_SECONDS", 0.05)

    with pytest.raises(StoreLocked) as raised:
        async with store.lock(SERVER):
            pass

    assert str(raised.value) == (
        "another login to mcp.example has not ended in 0.05 s: end that program, or try again"
    )
    async with store.lock("https://other.example/"):
        pass


async def test_a_lock_is_released_when_its_process_is_killed(
    holder: asyncio.subprocess.Process, store: TokenStore
):
    waiting = asyncio.create_task(store.lock(SERVER).__aenter__())
    await asyncio.sleep(0)
    assert not waiting.done()

    holder.send_signal(signal.SIGKILL)
    await waiting

    assert await ended(holder) == -signal.SIGKILL


@pytest.mark.slow("starts processes that load much")
async def test_locked_changes_of_processes_and_tasks_are_not_lost(folder: Path, store: TokenStore):
    async def count() -> None:
        own = UserTokenStore(folder, keyring=False)
        for _ in range(10):
            async with own.lock(SERVER):
                tokens = await own.load_tokens(SERVER)
                number = int(tokens.access_token) if tokens else 0
                await own.save_tokens(SERVER, Tokens(access_token=str(number + 1)))

    processes = [await run(COUNT, folder, SERVER, 20) for _ in range(2)]
    await asyncio.gather(count(), count())
    assert [await ended(process) for process in processes] == [0, 0]

    counted = await store.load_tokens(SERVER)
    assert counted is not None
    assert counted.access_token == "60"


async def test_a_lock_is_held_by_one_task_at_a_time(any_store: TokenStore):
    inside = most = 0

    async def enter() -> None:
        nonlocal inside, most
        async with any_store.lock(SERVER):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(10)))

    assert (inside, most) == (0, 1)


async def test_a_lock_is_released_after_an_error_and_a_cancellation(
    any_store: TokenStore,
):
    with pytest.raises(RuntimeError):
        async with any_store.lock(SERVER):
            raise RuntimeError

    async with any_store.lock(SERVER):
        waiting = asyncio.create_task(any_store.lock(SERVER).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async with any_store.lock(SERVER):
        pass


async def test_a_lock_is_polled_with_growing_pauses(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
):
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            await held.aclose()

    async with AsyncExitStack() as held:
        await held.enter_async_context(store.lock(SERVER))
        monkeypatch.setattr(asyncio, "sleep", sleep)
        async with store.lock(SERVER):
            pass

    assert (pauses[0], pauses[-1], max(pauses)) == (0.002, 0.05, 0.05)


async def test_a_lock_that_failed_is_not_held(
    store: TokenStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(storage, "LOCK_SECONDS", 0.0)
    await store.save_tokens(SERVER, TOKENS)
    opened(folder, 0o777)
    for _ in range(2):
        with pytest.raises(StoreError, match="other users can write to"):
            async with store.lock(SERVER):
                raise AssertionError("not locked")
    opened(folder, 0o700)
    async with store.lock(SERVER):
        pass


def test_a_released_lock_is_free_though_a_copy_of_its_descriptor_is_open(folder: Path):
    held = private_files.lock(folder / "a.lock")
    copy = os.dup(held)  # as a forked process has it
    private_files.unlock(held)

    private_files.unlock(private_files.lock(folder / "a.lock"))
    os.close(copy)


async def test_a_lock_file_that_is_a_link_is_not_followed(
    store: TokenStore, folder: Path, tmp_path: Path
):
    async with store.lock(SERVER):
        pass
    (path,) = listed(folder)
    path.unlink()
    path.symlink_to(tmp_path / "made")

    async with store.lock(SERVER):
        pass

    assert not (tmp_path / "made").exists()
