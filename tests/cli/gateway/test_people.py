"""`interlock people forget`: nothing of the person stays but a pseudonym."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.page_session import PageSessions
from interlock.auth.principal import Principal
from interlock.auth.stored_authorization import StoredPerson
from interlock.config.gateway import Results
from interlock.gateway.front_door.tokens import Decided
from interlock.messages import UserMessage
from interlock.store import ConversationStore
from interlock.store.authorizations import AuthorizationStore
from interlock.store.credentials import CredentialStore, Place
from interlock.store.database.database import open_database
from interlock.store.kept_results import KeptResultStore
from interlock.store.page_sessions import PageSessionStore
from interlock.store.plugins import PluginStore
from tests.support.authorizations import authorization

ANNA, BERT = "user:anna", "user:bert"
CANARY = "canary-5f0c2b7a9d3e1f44"


@pytest.fixture(autouse=True)
def configured(home: Path) -> None:
    folder = home / "config" / "interlock"
    folder.mkdir(parents=True)
    config = {"mcpServers": {}, "gateway": {"database": str(home / "g.db")}}
    (folder / "mcp.json").write_text(json.dumps(config))


async def fill(home: Path, user: str) -> None:
    secret, location = GatewayKey.load(home), home / "g.db"
    database = await open_database(location)
    store = ConversationStore(database, user)
    conversation = await store.create(CANARY)
    await store.append(conversation.id, UserMessage(CANARY))
    await store.files.add("a.txt", "text/plain", CANARY.encode())
    await CredentialStore(database, secret).set(Place(user, "crm", "TOKEN"), CANARY)
    await PageSessions(PageSessionStore(database)).open(Principal(user))
    await PluginStore(database).install("refunds", user, by=ANNA)
    allowed, made = AuthorizationStore(database), authorization(f"{user}-1", user=user)
    await allowed.add(made)
    person = StoredPerson(user=user)
    body = msgspec.json.encode(Decided("https://c.example/cb", "", made)).decode()
    await allowed.add_code(user.encode(), body, made.expires, person, made.created)
    async with KeptResultStore.beside(location, secret, Results, database) as kept:
        await kept.keep(("default", user), "c_1", CANARY.encode())
    await database.close()


def rows_naming(home: Path, user: str) -> set[str]:
    """Return the names of the tables with a value that contains a user's name."""
    with closing(sqlite3.connect(home / "g.db")) as file:
        names = [name for (name,) in file.execute("SELECT name FROM pragma_table_list")]
        tables = [each for each in names if not each.startswith(("message_index", "sqlite_"))]
        found = {}
        for table in tables:
            rows = file.execute(f"SELECT * FROM {table}").fetchall()
            found[table] = any(user in str(value) for row in rows for value in row)
    return {table for table, names_user in found.items() if names_user}


def test_forget_erases_one_person_and_keeps_the_others(interlock, home: Path):
    for name in ("anna", "bert"):
        assert interlock("keys", "create", name).code == 0
    for user in (ANNA, BERT):
        asyncio.run(fill(home, user))
    bert = rows_naming(home, "bert")

    asked = interlock("people", "forget", "anna")
    assert (asked.code, "add --yes" in asked.err) == (2, True)
    before = rows_naming(home, "anna")
    ran = interlock("people", "forget", "anna", "--yes")

    assert ran.code == 0
    shown = dict(line.rsplit(maxsplit=1) for line in ran.out.splitlines())
    assert shown == dict.fromkeys(
        ("conversations", "files", "credentials", "kept results", "sessions", "plugins", "keys",
         "authorizations", "logins"),
        "1",
    )  # fmt: skip
    assert CANARY not in asked.out + ran.out + ran.err
    assert before > {"conversations", "credentials", "keys", "page_sessions"}
    assert rows_naming(home, "anna") == {"changes"}
    assert rows_naming(home, "bert") == bert
    assert len([*(home / "results").iterdir()]) == 1
    assert {each["state"] for each in interlock("keys", "list", "--json").json} == {
        "active",
        "revoked",
    }

    with closing(sqlite3.connect(home / "g.db")) as file:
        query = "SELECT user || body FROM audit WHERE kind = 'admin' ORDER BY at DESC LIMIT 1"
        ((record,),) = file.execute(query).fetchall()
    assert '"action":"person_forgotten","person":"forgotten:' in record
    assert "anna" not in record
    assert interlock("audit", "verify").code == 0
    assert "contains nothing of user:anna" in interlock("people", "forget", "anna", "--yes").err
