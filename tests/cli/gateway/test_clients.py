"""`interlock clients`: what an operator sees of OAuth clients, and ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from interlock.auth.stored_authorization import StoredAuthorization
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.database import open_database
from tests.support.authorizations import authorization

CURSOR = ("cursor:", "localhost", "www.cursor.com")
ALLOWED = (
    authorization("AAAAAAAAAAAA"),
    authorization("BBBBBBBBBBBB", user="user:bert"),
    authorization("CCCCCCCCCCCC", client="ilc_x", name="Cursor", verified="", places=CURSOR),
)


@pytest.fixture(autouse=True)
def configured(home: Path) -> None:
    folder = home / "config" / "interlock"
    folder.mkdir(parents=True)
    config = {"mcpServers": {}, "gateway": {"database": str(home / "g.db")}}
    (folder / "mcp.json").write_text(json.dumps(config))
    asyncio.run(_stored(home, add=True))


async def _stored(home: Path, *, add: bool = False) -> dict[str, StoredAuthorization]:
    database = await open_database(home / "g.db")
    store = AuthorizationStore(database)
    for each in ALLOWED if add else ():
        await store.add(each)
    found = await store.list()
    await database.close()
    return {each.id[0]: each for each in found}


def reasons(home: Path) -> dict[str, str]:
    return {id: each.reason for id, each in asyncio.run(_stored(home)).items() if each.reason}


def test_list_and_show_name_the_clients_and_their_people(interlock):
    shown = {each["client"]: each for each in interlock("clients", "list", "--json").json}
    assert shown["https://a.example/client"]["people"] == 2
    assert shown["https://a.example/client"]["verified"] == "a.example"
    assert (shown["ilc_x"]["name"], shown["ilc_x"]["verified"]) == ("Cursor", None)
    lines = interlock("clients", "list").out.splitlines()
    assert any("a.example" in line and "2 people" in line for line in lines)
    assert any('"Cursor"' in line for line in lines)
    of_client = interlock("clients", "show", "https://a.example/client", "--json").json
    assert {each["user"] for each in of_client} == {"user:anna", "user:bert"}
    assert "no user has authorized the client other" in interlock("clients", "show", "other").err


def test_block_ends_the_access_of_all_clients_of_a_place(interlock, home: Path):
    assert "2 accesses have ended" in interlock("clients", "block", "a.example").err
    assert "1 access has ended" in interlock("clients", "block", "cursor:").err
    assert reasons(home) == dict.fromkeys("ABC", "blocked")
    states = {each["client"]: each["state"] for each in interlock("clients", "list", "--json").json}
    assert states["https://a.example/client"] == states["ilc_x"] == "blocked"
    assert interlock("clients", "allow", "a.example").code == 0
    states = {each["client"]: each["state"] for each in interlock("clients", "list", "--json").json}
    assert states["https://a.example/client"] == "allowed"


def test_a_name_stands_for_the_client_that_has_it_but_never_allows_one(interlock, home: Path):
    assert "user:anna" in interlock("clients", "show", "Cursor").out
    assert interlock("clients", "block", "Cursor").err == "blocked ilc_x; 1 access has ended\n"
    assert reasons(home) == {"C": "blocked"}
    interlock("clients", "allow", "Cursor")
    states = {each["client"]: each["state"] for each in interlock("clients", "list", "--json").json}
    assert (states["ilc_x"], states["Cursor"]) == ("blocked", "allowed")
    twins = ("clients", "create", "Twin", "--redirect", "https://twin.example.com/back")
    assert interlock(*twins).code == interlock(*twins).code == 0
    assert "2 clients are named 'Twin'; use an id" in interlock("clients", "block", "Twin").err


def test_revoke_ends_what_it_names_and_nothing_else(interlock, home: Path):
    for options, ended in (
        (("AAAAAAAAAAAA",), {"A"}),
        (("--user", "bert"), {"A", "B"}),
        (("--client", "ilc_x"), {"A", "B", "C"}),
    ):
        assert "1 access has ended" in interlock("clients", "revoke", *options).err
        assert reasons(home) == dict.fromkeys(ended, "revoked")
    for wrong in ((), ("AAAAAAAAAAAA", "--user", "anna"), ("unknown",)):
        assert interlock("clients", "revoke", *wrong).code == 2


def test_create_prints_the_id_and_a_secret_once(interlock):
    redirect = ("--redirect", "https://reports.example.com/callback")
    made = interlock("clients", "create", "Reports", *redirect, "--secret")
    id, secret = made.out.splitlines()
    assert id.startswith("client-")
    assert secret not in interlock("clients", "list", "--json").out
    for wrong in (
        ("--redirect", "http://reports.example.com/callback"),
        (*redirect, "--secret", "--jwks", "https://reports.example.com/jwks"),
    ):
        assert interlock("clients", "create", "Reports", *wrong).code == 2
