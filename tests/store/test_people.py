"""The erasure of a person's rows, in SQLite and PostgreSQL, with and without an audit record."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit
from interlock.messages import UserMessage
from interlock.store import AuditRecord, AuditWriter, ConversationStore, KeyStore
from interlock.store.audit.names import Pseudonyms
from interlock.store.chat.chat_calls import ChatCall
from interlock.store.database.claims import Claim
from interlock.store.database.database import open_database
from interlock.store.people import PeopleStore
from interlock.store.plugins import PluginStore

KEY = GatewayKey(bytes(range(32)))
ANNA = "user:anna"


async def append(writer: AuditWriter, claim: Claim) -> None:
    await writer.append(AuditRecord("admin"), claim)


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_forget_erases_rows_and_keeps_decisions_under_a_pseudonym(
    place: str, is_recorded: bool, tmp_path: Path
):
    database = await open_database(place)
    store, plugins = ConversationStore(database, ANNA), PluginStore(database)
    keys = KeyStore(database)
    key, _ = await keys.create("anna", scopes=("mcp:*",), created_by=ANNA)
    for user in (ANNA, "user:bert"):
        await plugins.install("refunds", user, by=ANNA)
    id = (await store.create("a")).id
    await store.append(id, UserMessage("hello"))
    await store.files.add("a", "text/plain", b"a")
    await store.calls.add(ChatCall("c_1", id, "t_1", "crm:get", {}, "ok", "", 0.1, 1))
    people, pseudonym = PeopleStore(database), Pseudonyms(KEY)[ANNA]
    found = await people.find(ANNA)

    audit = Audit(copy=str(tmp_path / "copy"))
    async with AuditWriter.open(place, key=KEY, settings=audit) as writer:
        record = partial(append, writer) if is_recorded else None
        await people.forget(ANNA, found, pseudonym, record=record)

    assert {name: n for name, n in found.counts.items() if n} == {
        "conversations": 1,
        "files": 1,
        "keys": 1,
        "plugins": 1,
    }
    assert not any((await people.find(ANNA)).counts.values())
    assert [(each.user, each.by) for each in await plugins.list()] == [("user:bert", pseudonym)]
    kept = await keys.get(key.id)
    assert (kept.user, kept.created_by, kept.revoked is None) == (pseudonym, pseudonym, False)
    assert Pseudonyms(GatewayKey(bytes(range(1, 33))))[ANNA] != pseudonym
    await database.close()
