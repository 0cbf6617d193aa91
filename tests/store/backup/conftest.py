"""A gateway's database with some of everything, and the place of another one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from interlock.auth.gateway_key import FILE_NAME, VARIABLE, GatewayKey
from interlock.config.gateway import Audit, Results
from interlock.layers.audit import ARGUMENTS_KEY, arguments_hash, canonical
from interlock.messages import UserMessage
from interlock.store import AuditReader, AuditRecord, AuditWriter, ConversationStore
from interlock.store.approvals import Approval, ApprovalStore
from interlock.store.audit.copies import copy_folder
from interlock.store.audit.copy_reading import read_copy
from interlock.store.authorizations import AuthorizationStore
from interlock.store.credentials import CredentialStore, Place
from interlock.store.database.key_owner import open_owned
from interlock.store.database.location import folder_beside
from interlock.store.database.recorded import make_change
from interlock.store.kept_results import KeptResultStore
from interlock.store.signed_in import SignedInStore
from interlock.text.timestamps import now_micros
from interlock.types import JsonObject
from tests.servers.postgres import client_programs
from tests.store.conftest import _database, _execute
from tests.store.releases.contents import AUTHORIZATION, PERSON

ANNA = "user:anna"
OWNER = ("default", ANNA)
CONTENT = b"kept" * 100_000
ARGUMENTS: JsonObject = {"amount": 80}
INTENT = AuditRecord("intent", "c1", ANNA, "k1", "crm", "crm:refund")
_numbers = count()


class Filled(NamedTuple):
    """A database with content, and what is needed to find it."""

    location: str
    kept: str  # the id of a kept result
    conversation: str


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this machine's data; other machines have others."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("PATH", f"{client_programs()}:{os.environ['PATH']}")
    return tmp_path / "data"


@pytest.fixture
async def elsewhere(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[], str]:
    """Return the location of a database of the same kind that does not exist yet."""
    if "://" not in place:
        return lambda: str(tmp_path / f"elsewhere{next(_numbers)}" / "interlock.db")
    server, name = request.getfixturevalue("postgres_server"), f"elsewhere{next(_numbers)}"
    await _execute(server, f"CREATE DATABASE {name}")
    return lambda: _database(server, name)


def hash_of(key: GatewayKey, arguments: JsonObject) -> str:
    return arguments_hash(key.derive(ARGUMENTS_KEY), canonical(arguments))


def approval_of(key: GatewayKey) -> Approval:
    now = now_micros()
    return Approval(
        *(), id="a_1", call="c1", state="pending", tenant="default", user=ANNA, key="k1",
        server="crm", tool="crm:refund", arguments=ARGUMENTS, hash=hash_of(key, ARGUMENTS),
        rule="refunds", policy="p", pin="d", approvers=("group:leads",), created=now,
        expires=now + 3_600_000_000,
    )  # fmt: skip


@asynccontextmanager
async def _filling(place: str) -> AsyncIterator[Filled]:
    """Fill a database, in which a gateway runs a call until the end of the block."""
    key = GatewayKey.load(folder_beside(place))
    async with AuditWriter.open(place, key=key, settings=Audit()) as writer:
        database = await open_owned(place, key)
        await SignedInStore(database, key).put(PERSON, "issuer's token")
        await AuthorizationStore(database).add(AUTHORIZATION)
        conversations = ConversationStore(database)
        made = await conversations.create("kept")
        await conversations.append(made.id, UserMessage("Grüße \0 \U0001f600"))
        await CredentialStore(database, key).set(Place(ANNA, "crm", "TOKEN"), "secret")
        store = ApprovalStore(database, key)
        await make_change(database, store.insertion(approval_of(key)), None)
        async with KeptResultStore.beside(place, key, Results, database) as results:
            kept = await results.keep(OWNER, "c_1", CONTENT)
        await database.close()
        await writer.append(INTENT)
        yield Filled(place, kept.id, made.id)


@pytest.fixture
async def filled(place: str) -> AsyncIterator[Filled]:
    """A database with content, while a gateway runs a call in it."""
    async with _filling(place) as made:
        yield made


@pytest.fixture
async def ended(place: str) -> Filled:
    """The same, after the gateway has ended."""
    async with _filling(place) as made:
        pass
    return made


@asynccontextmanager
async def key_of(location: str) -> AsyncIterator[GatewayKey]:
    key = GatewayKey.load(folder_beside(location))
    async with AuditReader.open(location) as reader:
        yield await reader.complete(key)


def install_key(location: str, source: Path) -> None:
    """Copy a key to where a database expects it."""
    folder = folder_beside(location)
    folder.mkdir(parents=True, exist_ok=True)
    GatewayKey.read(source).write(folder / FILE_NAME)


async def check_content(filled: Filled, location: str) -> Approval:
    """Check that a database has the content, and that its key opens it; return its approval."""
    async with key_of(location) as key:
        database = await open_owned(location, key)
        try:
            person = await SignedInStore(database, key).get(PERSON.user)
            assert person == (PERSON, "issuer's token")
            assert (await CredentialStore(database, key).values(ANNA, "crm")) == {"TOKEN": "secret"}
            store = ApprovalStore(database, key)
            approval = await store.get("a_1")
            assert approval.arguments == ARGUMENTS
            assert approval.hash == hash_of(key, ARGUMENTS)
            found = await store.latest(approval.binding, now_micros())
            assert found is not None
            async with KeptResultStore.beside(location, key, Results, database) as results:
                assert await results.load(OWNER, filled.kept) == CONTENT
            messages = await ConversationStore(database).resume(filled.conversation)
            assert [each.content for each in messages] == ["Grüße \0 \U0001f600"]
            return approval
        finally:
            await database.close()


async def problems(location: str, *, copied: bool = True) -> list[str]:
    """Verify a trail, against its copy as well; return what is wrong."""
    async with AuditReader.open(location) as reader:
        key = await reader.complete(GatewayKey.load(folder_beside(location)))
        folder = copy_folder(Audit(), location)
        copy = read_copy([folder], key) if copied and folder.is_dir() else None
        return [str(each) for each in (await reader.verify(key, copy)).problems]
