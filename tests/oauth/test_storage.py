"""Logins on disk and in keyrings: access, permissions, locks and failures."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import rich.pretty

from interlock.errors import StoreCorrupt, StoreError, StoreLocked
from interlock.oauth import private_files, storage
from interlock.oauth.storage import (
    MemoryTokenStore,
    Registration,
    Tokens,
    TokenStore,
    UserTokenStore,
)
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


@pytest.fixture(params=["files", "memory", "keyring"])
def any_store(request: pytest.FixtureRequest, folder: Path) -> TokenStore:
    if request.param == "memory":
        return MemoryTokenStore()
    if request.param == "keyring":
        request.getfixturevalue("safe")
    return UserTokenStore(folder, keyring=request.param == "keyring")


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


@each_row(
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


@each_row("other", ["https://as.example/", "https://AS.example", "", "as.example"])
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


async def test_deleted_tokens_and_registrations_cannot_be_loaded(any_store: TokenStore):
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


async def test_deleting_the_login_of_one_owner_keeps_the_logins_of_others(any_store: TokenStore):
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

    async with ada.lock(SERVER), bob.lock(SERVER), any_store.lock(SERVER):
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


@each_row("struct", [TOKENS, REGISTRATION], ids=["tokens", "registration"])
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


@each_row(
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


@pytest.mark.slow("starts a program")
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


@pytest.mark.slow("starts a program")
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


@pytest.mark.slow("waits for a timeout")
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


async def test_a_lock_that_failed_can_be_acquired_later(
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
