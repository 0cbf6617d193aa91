"""Values of users for servers: who gets which, and what happens when they change."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from interlock.auth import Principal
from interlock.auth.gateway_key import GatewayKey
from interlock.config import loads
from interlock.gateway.logins.vault import Vault, owner_of, user_of
from interlock.store import AuditReader
from interlock.store.credentials import CredentialStore, Place
from interlock.store.pins import PinStore
from interlock.toolbox.user_credentials import Needs, needs_of
from tests.gateway.conftest import RunningGateway, bearer
from tests.support.rows import each_row

# Returns the token that it was started with, and how often this process was called.
SERVER = """
import os
from interlock import Server
server = Server("crm")
count = 0

@server.tool
def token() -> str:
    global count
    count += 1
    return f"{os.environ['TOKEN']} {count}"

@server.tool
def environment() -> dict[str, str]:
    return dict(os.environ)

@server.tool
def fail() -> str:
    raise RuntimeError(os.environ["TOKEN"])

@server.resource("crm://mine")
def mine() -> str:
    return os.environ["TOKEN"]

@server.prompt
def greet() -> str:
    return os.environ["TOKEN"]

server.run()
"""


@pytest.fixture
def crm(tmp_path: Path) -> dict[str, Any]:
    script = tmp_path / "crm.py"
    script.write_text(SERVER)
    return {
        "command": sys.executable,
        "args": [str(script)],
        "sharing": "per_user",
        "env": {"TOKEN": "${user:TOKEN}"},
    }


async def store(gateway: RunningGateway, user: str, value: str) -> None:
    owner = owner_of(Place(f"user:{user}", "crm", ""))
    await gateway.assembly.services.vault.set(
        owner, "crm", "TOKEN", value, by=Principal(f"user:{user}")
    )


def reason(reply: Any) -> dict[str, Any]:
    found: dict[str, Any] = reply.json["result"]["_meta"]["interlock/reason"]
    return found


@pytest.mark.slow("fills a database")
async def test_each_user_has_an_instance_with_their_own_value(running, crm):
    async with running(crm=crm) as gateway:
        keys = [await gateway.key(name) for name in ("anna", "bert")]
        await store(gateway, "anna", "anna-1")
        await store(gateway, "bert", "bert-1")
        answers = [(await gateway.call("crm__token", key)).text for key in (*keys, *keys)]

    assert answers == ["anna-1 1", "bert-1 1", "anna-1 2", "bert-1 2"]


@pytest.mark.slow("fills a database")
async def test_instance_is_replaced_when_its_value_changes_and_ends_when_it_is_deleted(
    running, crm
):
    async with running(crm=crm) as gateway:
        anna, bert = await gateway.key("anna"), await gateway.key("bert")
        for user in ("anna", "bert"):
            await store(gateway, user, f"{user}-1")
        for key in (anna, bert):
            await gateway.call("crm__token", key)
        await store(gateway, "anna", "anna-2")
        changed = (await gateway.call("crm__token", anna)).text
        vault = gateway.assembly.services.vault
        await vault.delete("/user:anna", "crm", "TOKEN", by=Principal("user:anna"))
        refused = await gateway.call("crm__token", anna)
        other = (await gateway.call("crm__token", bert)).text

    assert (changed, other) == ("anna-2 1", "bert-1 2")
    assert reason(refused)["code"] == "needs_login"
    assert reason(refused)["url"].startswith("http://127.0.0.1:8000/connect/")
    assert "needs TOKEN from the calling user" in refused.text


@pytest.mark.slow("fills a database")
async def test_tools_stay_listed_for_users_who_lack_the_value(running, crm):
    async with running(crm=crm) as gateway:
        anna, bert = await gateway.key("anna"), await gateway.key("bert")
        before = await gateway.http.ask("tools/list", headers=bearer(bert))
        await store(gateway, "anna", "anna-1")
        await gateway.call("crm__token", anna)
        after = await gateway.names(bert)
        resources = [
            [each["uri"] for each in (await listed(gateway, key, "resources"))]
            for key in (anna, bert)
        ]

    missing = before.json["result"]["_meta"]["interlock/missing"][0]
    assert (missing["address"], missing["reason"]) == ("crm", "needs_login")
    assert "/connect/" in missing["url"]
    assert after == ["crm__token", "crm__environment", "crm__fail"]
    assert resources == [["crm://mine"], []]


async def listed(gateway: RunningGateway, key: str, kind: str) -> Any:
    reply = await gateway.http.ask(f"{kind}/list", headers=bearer(key))
    return reply.json["result"][kind]


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("mode", ["first", "off"])
async def test_restarted_gateway_lists_the_same_tools_as_before(running, crm, mode: str):
    """From the pins, without a connection; without pins by the value that was stored last."""
    lock = {"lock": {"mode": mode}}
    async with running(lock, crm=crm) as gateway:
        await store(gateway, "anna", "anna-1")
    async with running(lock, crm=crm) as gateway:
        key = await gateway.key("bert")
        names = await gateway.names(key)
        connections = gateway.assembly.server.toolbox.status["crm"].connections
        refused = await gateway.call("crm__token", key)
        answer = (await gateway.call("crm__token", await gateway.key("anna"))).text

    assert {"crm__token", "crm__environment", "crm__fail"} <= {*names}
    assert connections == (0 if mode == "first" else 1)
    assert reason(refused)["code"] == "needs_login"
    assert answer.startswith("anna-1")


def change(script: Path, old: str, new: str) -> None:
    script.write_text(script.read_text().replace(old, new))


@pytest.mark.slow("fills a database")
async def test_quarantined_tools_stay_quarantined_after_a_restart(running, crm):
    async with running(crm=crm) as gateway:
        await store(gateway, "anna", "anna-1")
    change(Path(crm["args"][0]), "def fail()", "def fail(why: str = '')")
    for _ in range(2):
        async with running(crm=crm) as gateway:
            answer = await gateway.call("crm__token", await gateway.key("anna"))
            refused = await gateway.call("crm__fail", await gateway.key("anna"))

    assert answer.text == "anna-1 1"
    assert reason(refused)["code"] == "tool_quarantined"


@pytest.mark.slow("fills a database")
async def test_resources_and_prompts_use_the_credential_of_the_tools(running, crm):
    async with running(crm=crm) as gateway:
        key = await gateway.key("anna")
        await store(gateway, "anna", "anna-1")
        await gateway.call("crm__token", key)
        read = await gateway.http.ask("resources/read", {"uri": "crm://mine"}, headers=bearer(key))
        got = await gateway.http.ask("prompts/get", {"name": "crm__greet"}, headers=bearer(key))
        await gateway.assembly.services.vault.delete(
            "/user:anna", "crm", "TOKEN", by=Principal("user:anna")
        )
        refused = await gateway.http.ask("prompts/get", {"name": "crm__greet"}, headers=bearer(key))

    assert read.json["result"]["contents"][0]["text"] == "anna-1"
    assert got.json["result"]["messages"][0]["content"]["text"] == "anna-1"
    assert refused.json["error"]["data"]["reason"] == "needs_login"
    assert "/connect/" in refused.json["error"]["data"]["url"]


@pytest.mark.slow("fills a database")
async def test_change_by_another_process_is_used_within_two_seconds(
    running, crm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.store.database.changes.POLL_EVERY", 0.01)
    async with (
        running(crm=crm) as gateway,
        CredentialStore.open(tmp_path / "gateway.db") as elsewhere,
    ):
        key = await gateway.key("anna")
        change = gateway.assembly.services.vault.next_change("/user:anna", "crm")
        await elsewhere.set(Place("user:anna", "crm", "TOKEN"), "anna-1")
        await change.wait()
        await gateway.assembly.services.vault.refresh(patience=10)

        assert (await gateway.call("crm__token", key)).text == "anna-1 1"


@pytest.mark.slow("fills a database")
async def test_nothing_of_the_callers_key_reaches_the_server_and_no_value_leaves_it(
    running, crm, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    async with running(crm=crm) as gateway:
        key = await gateway.key("anna")
        await store(gateway, "anna", "canary-of-anna")
        environment = (await gateway.call("crm__environment", key)).text
        failed = await gateway.call("crm__fail", key)
        await gateway.call("crm__token", key, nonsense=1)
        listed = await gateway.assembly.services.vault.list()
        metrics = gateway.assembly.services.metrics.text()

    secret = key.rpartition("_")[2]
    assert "canary-of-anna" in environment
    assert secret not in environment
    assert not any(secret in value for value in os.environ.values())
    for text in (caplog.text, failed.text, repr(listed), metrics):
        assert "canary-of-anna" not in text
    for content in contents(tmp_path):
        assert b"canary-of-anna" not in content
        assert secret.encode() not in content


def contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.iterdir() if file.is_file()]


@pytest.mark.slow("fills a database")
async def test_states_list_stored_and_missing_credentials_of_a_user(running, crm):
    async with running(crm=crm) as gateway:
        vault = gateway.assembly.services.vault
        needs = {"crm": needs_of(gateway.assembly.parts.config.servers["crm"])}
        (missing,) = await vault.states("/user:anna", needs)
        await store(gateway, "anna", "anna-1")
        (present,) = await vault.states("/user:anna", needs)

    assert (missing["state"], missing["kind"]) == ("needs_login", "value")
    assert "/connect/" in missing["url"]
    assert (present["state"], present.keys() & {"url", "value", "sealed"}) == ("ok", set())


async def test_event_of_a_login_is_dropped_when_no_call_waits_for_it():
    store = cast("Any", None)
    vault = Vault(store, GatewayKey.random())
    waiting = vault.next_change("/user:anna", "crm")
    for number in range(1_000):
        vault.next_change(f"/user:{number}", "crm")

    assert vault.next_change("/user:anna", "crm") is waiting
    assert len(vault._waiting) == 1


def test_documented_configuration_is_valid_and_requires_the_documented_credentials():
    page = (Path(__file__).parents[3] / "docs/operate/credentials.md").read_text()
    example = re.findall(r"```json[^\n]*\n(.*?)```", page, re.DOTALL)[0]
    config = loads(example.encode())
    needs = {name: needs_of(server) for name, server in config.servers.items()}

    assert config.warnings == ()
    assert needs == {
        "crm": Needs(frozenset({"TOKEN"})),
        "wiki": Needs(frozenset({"TOKEN"})),
        "notes": Needs(login=True),
    }


@each_row("place", [Place("user:anna", "s", ""), Place("a/b#c", "s", "", "x/y")])
def test_user_of_is_the_inverse_of_owner_of(place: Place):
    assert user_of(owner_of(place)) == (place.tenant, place.user)


@pytest.mark.slow("fills a database")
async def test_changes_are_in_the_audit_trail_without_values(running, crm, tmp_path: Path):
    async with running(crm=crm) as gateway:
        await store(gateway, "anna", "canary-of-anna")
        await gateway.assembly.services.vault.delete(
            "/user:anna", "crm", "TOKEN", by=Principal("user:root")
        )
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        records = [each async for page in reader.export() for each in page]
    seen = [
        (each["user"], each["server"], each["action"], each["name"], each["of"])
        for each in records
        if each["kind"] == "credential"
    ]
    assert seen == [
        ("user:anna", "crm", "set", "TOKEN", "user:anna"),
        ("user:root", "crm", "deleted", "TOKEN", "user:anna"),
    ]
    assert "canary-of-anna" not in json.dumps(records)


GREETER = """
import os
from interlock import Server
server = Server("crm")

@server.tool(description=f"Greet as {os.environ['TOKEN'].partition('-')[0]}.")
def greet() -> str:
    return os.environ["TOKEN"]

@server.tool
def token() -> str:
    return os.environ["TOKEN"]

server.run()
"""


@pytest.mark.slow("starts programs")
async def test_users_with_other_definitions_of_a_tool_do_not_change_its_pin(
    running, crm, tmp_path: Path
):
    (tmp_path / "crm.py").write_text(GREETER)
    async with running(crm=crm) as gateway:
        anna, bert = await gateway.key("anna"), await gateway.key("bert")
        both = ["crm__greet", "crm__token"]
        pins = PinStore(gateway.assembly.services.database)
        seen = []
        for user in ("anna", "bert", "anna"):
            await store(gateway, user, f"{user}-1")
            states = {
                each.name: each.state for each in await pins.list("crm") if each.kind == "tool"
            }
            seen.append((await gateway.names(anna), await gateway.names(bert), states))
        called = await gateway.call("crm__greet", anna)
        refused = await gateway.call("crm__greet", bert)

    accepted = {"greet": "accepted", "token": "accepted"}
    assert seen[0] == (both, both, accepted)  # nobody has seen a list of Bert yet
    assert seen[1:] == [(both, ["crm__token"], accepted)] * 2
    assert called.text == "anna-1"
    assert "unknown tool" in refused.json["error"]["message"]
