"""A new key for everything that the old one encrypted; the old audit records stay verifiable."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from interlock.auth.gateway_key import FILE_NAME, NEXT, VARIABLE, GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import ConfigError, StoreError, StoreLocked
from interlock.store import AuditRecord, AuditWriter
from interlock.store.audit.forgetting import forget_in_trail
from interlock.store.audit.heads import chain_hash, chain_key
from interlock.store.audit.names import Pseudonyms
from interlock.store.audit.writer import open_tables
from interlock.store.authorizations import AuthorizationStore
from interlock.store.backup import key_rotation
from interlock.store.backup.key_rotation import NEW_VARIABLE, ReplacedKey, rotate_key
from interlock.store.backup.restoring import restore
from interlock.store.backup.saving import back_up
from interlock.store.database.database import open_database
from interlock.store.database.key_owner import open_owned
from interlock.store.database.location import folder_beside
from interlock.types import JsonObject
from tests.store.audit.test_upkeep import kill
from tests.store.audit_chains import Rows
from tests.store.backup.conftest import (
    ANNA,
    Filled,
    check_content,
    hash_of,
    install_key,
    key_of,
    problems,
)

Change = Callable[..., Awaitable[None]]


def key_files(folder: Path) -> list[Path]:
    return [*folder.glob(f"{FILE_NAME}*")]


async def rotate(location: str) -> ReplacedKey:
    return await rotate_key(location, Audit(), hash_of)


async def test_everything_opens_with_the_new_key_and_the_trail_stays_whole(ended: Filled):
    location = ended.location
    before = GatewayKey.load(folder_beside(location))
    launch = before.derive("launch")
    for _ in range(2):
        rotation = await rotate(location)

    assert rotation.resealed is not None
    counts = rotation.resealed
    assert (counts.credentials, counts.approvals, counts.results) == (1, 1, 1)
    assert (counts.people, counts.ended, counts.unreadable) == (1, 0, 0)
    assert await problems(location) == []
    await check_content(ended, location)
    database = await open_database(location)
    (authorization,) = await AuthorizationStore(database).list()
    await database.close()
    assert authorization.reason == "key_replaced"  # its tokens and its client are of the old key
    async with key_of(location) as key:
        assert (key.id, len(key.retired)) == (rotation.new, 2)
        assert key.derive("launch") == launch  # so that no server has to be accepted again
        assert key.derive("audit chain") != before.derive("audit chain")
        async with AuditWriter.open(location, key=key, settings=Audit()) as writer:
            await writer.append(AuditRecord("intent", "c9", ANNA))
            await forget_in_trail(writer.tables, ANNA, key)
    assert await problems(location, copied=False) == []
    with pytest.raises(ConfigError, match="belongs to gateway key"):
        await open_owned(location, before)


async def test_old_records_cannot_be_changed_even_with_the_old_key(ended: Filled, rows: Rows):
    location = ended.location
    old = GatewayKey.load(folder_beside(location))
    async with AuditWriter.open(location, key=old, settings=Audit()) as writer:
        for number in range(3):
            await writer.append(AuditRecord("intent", f"d{number}", ANNA))
    await rotate(location)
    chain = [each for each in await rows(location) if each["writer"] == writer.id]
    *columns, body, _ = [*chain[2].values()][2:]
    columns[7] = "crm:other"
    covered = Pseudonyms(old).covered(columns, body)
    hash = chain_hash(chain[1]["hash"], 3, *covered, chain_key(old))
    added = chain_hash(hash, 4, *covered, chain_key(old))
    tables = open_tables(location)
    change = "UPDATE audit SET tool = 'crm:other', hash = ? WHERE writer = ? AND seq = 3"
    add = (
        'INSERT INTO audit SELECT writer, 4, at, tenant, kind, call, "user", key, server, tool,'
        " status, reason, body, ? FROM audit WHERE writer = ? AND seq = 3"
    )
    await tables.write((change, [(hash, writer.id)]), (add, [(added, writer.id)]))
    await tables.close()

    assert await problems(location, copied=False) == [
        f"writer {writer.id}, record 3: is not the record that the head states",
        f"writer {writer.id}, record 4: was added after the writer had ended",
    ]


@pytest.mark.parametrize("moment", ["before the commit", "after it"])
async def test_interrupted_replacement_leaves_a_working_key_and_is_completed(
    moment: str, ended: Filled, monkeypatch: pytest.MonkeyPatch
):
    location = ended.location
    folder = folder_beside(location)
    old = GatewayKey.load(folder)

    class Killed(Exception):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if moment == "after it":
            patch.setattr(key_rotation.KeyFile, "replace", killed)
        else:
            patch.setattr(key_rotation._Replacement, "_retire", killed)
        with pytest.raises(Killed):
            await rotate(location)
    if moment == "after it":
        with pytest.raises(ConfigError, match="or run `interlock db rotate-key` again"):
            await open_owned(location, GatewayKey.load(folder))
    else:
        await check_content(ended, location)
        assert await problems(location) == []
    rotation = await rotate(location)

    assert (rotation.old, rotation.resealed is None) == (old.id, moment == "after it")
    assert GatewayKey.load(folder).id == rotation.new
    assert GatewayKey.read(folder / f"{FILE_NAME}.{old.id}").id == old.id
    assert not (folder / NEXT).exists()
    await check_content(ended, location)
    assert await problems(location) == []


async def test_writer_that_begins_while_the_key_is_replaced_is_refused(
    ended: Filled, monkeypatch: pytest.MonkeyPatch
):
    old = GatewayKey.load(folder_beside(ended.location))
    check, checks = AuditWriter._check_owner, list[str]()

    async def check_again(writer: AuditWriter, name: str) -> None:
        checks.append(name)
        if len(checks) == 1:  # the key is replaced just after the first check
            return
        await check(writer, name)

    await rotate(ended.location)
    with monkeypatch.context() as patch:
        patch.setattr(AuditWriter, "_check_owner", check_again)
        with pytest.raises(ConfigError, match="belongs to gateway key"):
            async with AuditWriter.open(ended.location, key=old):
                pass
    assert len(checks) == 2
    assert await problems(ended.location) == []


async def test_chain_of_a_killed_gateway_is_closed_before_the_key_is_replaced(
    place: str, rows: Rows
):
    GatewayKey(bytes(range(32))).write(folder_beside(place) / FILE_NAME)
    killed = kill(place)
    await rotate(place)

    unfinished = [each for each in await rows(place) if each["kind"] == "unfinished"]
    assert [each["call"] for each in unfinished] == ["c2"]
    assert killed not in {each["writer"] for each in unfinished}
    assert await problems(place) == []


async def test_key_is_not_replaced_while_a_gateway_runs(filled: Filled):
    with pytest.raises(StoreLocked, match=r"end it first|end all gateways"):
        await rotate(filled.location)
    await check_content(filled, filled.location)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_key_file_of_two_databases_is_not_replaced(ended: Filled, tmp_path: Path):
    async with AuditWriter.open(tmp_path / "other.db", key=GatewayKey.load(tmp_path)):
        pass
    with pytest.raises(StoreError, match=r"other\.db has the same key: move it to another folder"):
        await rotate(ended.location)
    await check_content(ended, ended.location)


# Byte 128 is what each process locks that uses the file: https://sqlite.org/walformat.html
TAKE = """
import sys
from fcntl import *
lockf(open(sys.argv[1], "r+b"), LOCK_EX | LOCK_NB, 1, 128)
"""


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_locks_of_the_file_are_held_while_the_key_is_replaced(ended: Filled):
    codes = []

    def take_lock(key: GatewayKey, arguments: JsonObject) -> str:
        command = [sys.executable, "-c", TAKE, f"{ended.location}-shm"]
        codes.append(subprocess.run(command, stderr=subprocess.DEVNULL).returncode)
        return hash_of(key, arguments)

    await rotate_key(ended.location, Audit(), take_lock)

    assert codes
    assert set(codes) == {1}


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_key_of_a_variable_is_replaced_by_that_of_another(
    ended: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old, new = (tmp_path / FILE_NAME).read_text(), GatewayKey.random()
    with monkeypatch.context() as context:
        context.setenv(NEW_VARIABLE, new._secret.hex())
        with pytest.raises(ConfigError, match=rf"random: unset {NEW_VARIABLE}"):
            await rotate(ended.location)
    assert key_files(tmp_path) == [tmp_path / FILE_NAME]
    (tmp_path / FILE_NAME).unlink()
    monkeypatch.setenv(VARIABLE, old)
    with pytest.raises(ConfigError, match=f"set {NEW_VARIABLE} to the new one"):
        await rotate(ended.location)
    monkeypatch.setenv(NEW_VARIABLE, old)
    with pytest.raises(ConfigError, match="is the same key"):
        await rotate(ended.location)
    monkeypatch.setenv(NEW_VARIABLE, new._secret.hex())
    for is_done in (False, True):
        rotation = await rotate(ended.location)
        assert (rotation.new, rotation.resealed is None) == (new.id, is_done)

    monkeypatch.setenv(VARIABLE, new._secret.hex())
    await check_content(ended, ended.location)
    assert key_files(tmp_path) == []


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_backup_of_before_is_restored_with_the_old_key(ended: Filled, tmp_path: Path):
    await back_up(ended.location, tmp_path / "backup")
    rotation = await rotate(ended.location)
    location = str(tmp_path / "other" / "interlock.db")
    install_key(location, tmp_path / FILE_NAME)
    with pytest.raises(ConfigError, match=f"belongs to gateway key {rotation.old}"):
        await restore(location, tmp_path / "backup")
    (tmp_path / "other" / FILE_NAME).unlink()
    install_key(location, tmp_path / f"{FILE_NAME}.{rotation.old}")
    await restore(location, tmp_path / "backup")
    assert await problems(location) == []


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_damage_of_before_stays_visible(ended: Filled, change: Change, rows: Rows):
    first = (await rows(ended.location))[0]["writer"]
    await change(ended.location, f"UPDATE audit SET tool = 'x' WHERE writer = '{first}'")
    before = await problems(ended.location)
    await change(ended.location, "UPDATE audit_register SET heads = heads + 1")
    await rotate(ended.location)

    found = await problems(ended.location)
    assert len(before) == 1
    assert before[0] in found
    assert "the register of writers: was changed, or is not signed by this key" in found


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_damaged_chain_of_a_killed_gateway_stays_open_and_is_reported(
    place: str, change: Change
):
    GatewayKey(bytes(range(32))).write(folder_beside(place) / FILE_NAME)
    killed = kill(place)
    await change(place, f"UPDATE audit SET hash = 'x' WHERE writer = '{killed}'")
    await rotate(place)
    assert any(
        each.startswith(f"writer {killed}")
        and each.endswith("is not closed, though its key was replaced")
        for each in await problems(place)
    )


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_what_is_remembered_of_a_key_cannot_be_changed(ended: Filled, change: Change):
    await rotate(ended.location)
    await change(ended.location, "UPDATE retired_keys SET sealed = x'00' || substr(sealed, 2)")
    with pytest.raises(ConfigError, match=r"what is remembered of gateway key .* was changed"):
        await problems(ended.location)
    await change(ended.location, "DELETE FROM retired_keys")
    found = await problems(ended.location, copied=False)
    assert "was changed, or does not follow the record before it" in found[0]
