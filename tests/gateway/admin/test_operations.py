"""Changes over the API: each is made in the transaction of its record, or not at all."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interlock.errors import StoreLocked
from interlock.gateway.admin.operations import BASE
from interlock.gateway.admin.routes import ADMIN_ROUTES, USER_ROUTES
from interlock.store import AuditWriter
from interlock.store.database.database import Database
from tests.gateway.admin.support import Operator
from tests.gateway.admin.test_approvals import DECIDES, SETTINGS, refund
from tests.gateway.admin.test_credentials import PER_USER
from tests.gateway.admin.test_plugins import DOCUMENT, REFUNDS
from tests.gateway.conftest import RunningGateway, offering
from tests.support.authorizations import authorization

SEVERAL = ("admin:read", "admin:write", "admin:approve", "mcp:*")
READS = {"/explain", "/audit/verify", "/servers/{name}/test"}  # POSTs that change nothing
ALLOWED = {"id": "wiki", "effect": "allow", "who": ["user:admin"], "tools": ["wiki:*"]}
WIKI = "/me/credentials/wiki/TOKEN"
APPROVAL, CALL, PIN = "/approvals/{id}", "/api/calls/{id}", "/lock/{server}/{name*}"
RECORDED_BEFORE = {"/servers/{name}/restart", "/reload"}  # changes of no table
OWN = "/me/credentials/{server}/{name}"
REFUSE_RECORDS = (
    "CREATE TRIGGER refuse BEFORE INSERT ON audit WHEN"
    " NEW.kind IN ('admin', 'pin', 'credential', 'decided', 'client')"
    " BEGIN SELECT RAISE(ABORT, 'no record'); END"
)


def tables_of(file: Path) -> dict[str, list[object]]:
    """Return what changes can be made of, but for what time alone changes."""
    with closing(sqlite3.connect(file)) as database, database:
        return {
            table: sorted(map(repr, database.execute(f"SELECT * FROM {table}")))
            for table in (
                *("approvals", "credentials", "pins", "plugin_installations", "authorizations"),
                "oauth_clients",
            )
        } | {
            "keys": sorted(
                map(repr, database.execute("SELECT id, scopes, expires, revoked FROM keys"))
            )
        }


class Change(NamedTuple):
    """A request that changes something, and the path of its route."""

    by: Operator
    method: str
    route: str
    path: str
    body: object = None
    query: str = ""


@pytest.fixture
def prepared(running, tmp_path: Path) -> Callable[[], Any]:
    """Run a gateway in which each change of the API can be made, in the order of the list."""
    folder = tmp_path / "plugins" / "refunds"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(REFUNDS))
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    api = {"document": str(tmp_path / "api.json"), "baseUrl": "http://127.0.0.1:9", "tools": {}}
    servers = {"crm": offering("refund"), "wiki": PER_USER, "api": {"openapi": api}}
    policy = {"rules": [*SETTINGS["policy"]["rules"], ALLOWED]}
    plugins = {"folder": str(tmp_path / "plugins"), "server": "api"}
    settings = {**SETTINGS, "policy": policy, "plugins": plugins, "auth": {"oauth": {}}}

    @asynccontextmanager
    async def prepare() -> AsyncIterator[tuple[RunningGateway, list[Change]]]:
        async with running(settings, **servers) as gateway:
            admin = Operator(gateway, await gateway.key("admin", *SEVERAL))
            berta = Operator(gateway, await gateway.key("berta", *DECIDES))
            anna = await gateway.key("anna")
            for amount in (80, 81):
                await refund(gateway, anna, amount)
            asked, page = await admin.get("/approvals")
            (pin,) = await admin.get("/lock/crm/refund")
            of_call, of_page, of_pin = ({"hash": each["hash"]} for each in (asked, page, pin))
            made = await admin.change("POST", "/keys", {"user": "chris", "scopes": ["mcp:*"]})
            await admin.change("POST", "/plugins/refunds/users/anna", {})
            await admin.change("PUT", WIKI, {"value": "v"})
            access = "AAAAAAAAAAAA"
            await gateway.assembly.services.front_door.store.add(authorization(access))
            key, approval, lock = f"/keys/{made['id']}", f"/approvals/{asked['id']}", "/lock/crm"
            user, plugin = "/plugins/{name}/users/{user*}", "/plugins/refunds/users"
            of_wiki = "user=admin&server=wiki&name=TOKEN"
            changes = [
                Change(admin, "POST", "/servers/{name}/restart", "/servers/crm/restart", {}),
                Change(admin, "POST", "/reload", "/reload", {}),
                Change(admin, "POST", "/keys", "/keys", {"user": "dora"}),
                Change(admin, "PATCH", "/keys/{id}", key, {"scopes": ["mcp:read"]}),
                Change(admin, "DELETE", "/keys/{id}", key),
                Change(admin, "POST", "/keys/{id}/rotate", f"/keys/{key_id(berta)}/rotate", {}),
                Change(berta, "POST", f"{APPROVAL}/approve", f"{approval}/approve", of_call),
                Change(berta, "POST", f"{APPROVAL}/deny", f"{approval}/deny", of_call),
                Change(
                    berta, "POST", f"{CALL}/approve", f"/api/calls/{page['call']}/approve", of_page
                ),
                Change(berta, "POST", f"{CALL}/deny", f"/api/calls/{page['call']}/deny", of_page),
                Change(admin, "POST", f"{PIN}/accept", f"{lock}/refund/accept", of_pin),
                Change(admin, "POST", f"{PIN}/reject", f"{lock}/refund/reject", of_pin),
                Change(admin, "DELETE", "/credentials", "/credentials", query=of_wiki),
                Change(admin, "POST", user, f"{plugin}/berta", {}),
                Change(admin, "DELETE", user, f"{plugin}/anna"),
                Change(admin, "PUT", OWN, WIKI, {"value": "another"}),
                Change(admin, "DELETE", OWN, WIKI),
                Change(admin, "DELETE", "/authorizations/{id}", f"/authorizations/{access}"),
                Change(admin, "POST", "/clients/block", "/clients/block", {"client": "a.example"}),
                Change(admin, "POST", "/clients/allow", "/clients/allow", {"client": "b.example"}),
            ]
            yield gateway, changes

    return prepare


def key_id(owner: Operator) -> str:
    return owner.key.split("_")[1]


@pytest.mark.slow("fills a database")
async def test_change_whose_record_cannot_be_written_is_not_made(prepared, tmp_path: Path):
    async with prepared() as (gateway, changes):
        every = {
            (each.method, each.path.removeprefix(BASE))
            for each in (*ADMIN_ROUTES, *USER_ROUTES)
            if each.method != "GET" and each.path.removeprefix(BASE) not in READS
        }
        assert {(each.method, each.route) for each in changes} == every
        with closing(sqlite3.connect(tmp_path / "gateway.db")) as database, database:
            database.execute(REFUSE_RECORDS)
        before = tables_of(tmp_path / "gateway.db")
        starts = gateway.assembly.server.toolbox.status["crm"].starts
        loaded = gateway.assembly.loaded_at

        for by, method, _, path, body, query in changes:
            refused = await by.refused(method, path, body, query)
            assert refused == (503, "audit_unavailable"), (method, path)
            assert tables_of(tmp_path / "gateway.db") == before, (method, path)
        assert gateway.assembly.server.toolbox.status["crm"].starts == starts
        assert gateway.assembly.loaded_at == loaded


@pytest.mark.slow("fills a database")
async def test_recorded_change_is_answered_as_made_although_later_reads_fail(
    prepared, monkeypatch: pytest.MonkeyPatch
):
    is_down = False
    append, run = AuditWriter.append, Database._run

    async def append_and_fail(*args: Any) -> None:
        nonlocal is_down
        await append(*args)
        is_down = True

    async def run_unless_down(*args: Any) -> Any:
        if is_down:
            raise StoreLocked("locked")
        return await run(*args)

    async with prepared() as (gateway, changes):
        keys = gateway.assembly.services.keys
        monkeypatch.setattr(AuditWriter, "append", append_and_fail)
        monkeypatch.setattr(Database, "_run", run_unless_down)
        for by, method, route, path, body, query in changes:
            if route in RECORDED_BEFORE:
                continue
            is_down = False
            reply = await by.send(method, path, body, query)
            assert reply.code < 300, (method, path, reply.body)
            if (method, route) == ("DELETE", "/keys/{id}"):
                revoked = path.removeprefix("/keys/")
                assert revoked not in [each.stored.id for each in keys.active()]
                is_down = False
                await keys.refresh()  # loads all keys, as changes may have been missed
                assert revoked not in [each.stored.id for each in keys.active()]
            elif path == "/lock/crm/refund/reject":
                assert gateway.assembly.server.toolbox.upstreams["crm"].entries == ()


@pytest.mark.slow("fills a database")
async def test_simultaneous_changes_of_a_key_are_recorded_with_the_right_previous_state(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        made = await operator.change("POST", "/keys", {"user": "anna", "scopes": ["mcp:*"]})
        place = f"/keys/{made['id']}"
        changes = {"rate": "9/s", "concurrent": 3, "perDay": 500, "expires": "9d"}
        await asyncio.gather(
            *(operator.change("PATCH", place, {name: value}) for name, value in changes.items())
        )
        records = [each for each in await operator.recorded() if each["action"] == "key_narrowed"]

    assert len(records) == 4
    assert all(each["before"] != each["after"] for each in records)
    assert [each["before"] for each in records[1:]] == [each["after"] for each in records[:-1]]
