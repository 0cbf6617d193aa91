"""Changes over the API: each is made in the transaction of its record, or not at all."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from interlock.gateway.admin.operations import BASE
from interlock.gateway.admin.routes import ADMIN_ROUTES, USER_ROUTES
from tests.gateway.admin.support import Operator
from tests.gateway.admin.test_approvals import DECIDES, SETTINGS, refund
from tests.gateway.admin.test_credentials import PER_USER
from tests.gateway.admin.test_plugins import DOCUMENT, REFUNDS
from tests.gateway.conftest import offering

SEVERAL = ("admin:read", "admin:write", "admin:approve", "mcp:*")
READS = {"/explain", "/audit/verify", "/servers/{name}/test"}  # POSTs that change nothing
OF_PAGES = "/api/"  # decisions of users about their own calls, as those of /approvals
ALLOWED = {"id": "wiki", "effect": "allow", "who": ["user:admin"], "tools": ["wiki:*"]}
WIKI = "/me/credentials/wiki/TOKEN"
OWN = "/me/credentials/{server}/{name}"
REFUSE_RECORDS = (
    "CREATE TRIGGER refuse BEFORE INSERT ON audit WHEN NEW.kind IN"
    " ('admin', 'pin', 'credential', 'decided') BEGIN SELECT RAISE(ABORT, 'no record'); END"
)


def tables_of(file: Path) -> dict[str, list[object]]:
    """Return what changes can be made of, but for what time alone changes."""
    with sqlite3.connect(file) as database:
        return {
            table: sorted(map(repr, database.execute(f"SELECT * FROM {table}")))
            for table in ("approvals", "credentials", "pins", "plugin_installations")
        } | {
            "keys": sorted(
                map(repr, database.execute("SELECT id, scopes, expires, revoked FROM keys"))
            )
        }


@pytest.mark.slow("fills a database")
async def test_change_whose_record_cannot_be_written_is_not_made(running, tmp_path: Path):
    folder = tmp_path / "plugins" / "refunds"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(REFUNDS))
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    api = {"document": str(tmp_path / "api.json"), "baseUrl": "http://127.0.0.1:9", "tools": {}}
    servers = {"crm": offering("refund"), "wiki": PER_USER, "api": {"openapi": api}}
    policy = {"rules": [*SETTINGS["policy"]["rules"], ALLOWED]}
    plugins = {"folder": str(tmp_path / "plugins"), "server": "api"}
    settings = {**SETTINGS, "policy": policy, "plugins": plugins}
    async with running(settings, **servers) as gateway:
        admin = Operator(gateway, await gateway.key("admin", *SEVERAL))
        berta = Operator(gateway, await gateway.key("berta", *DECIDES))
        await refund(gateway, await gateway.key("anna"))
        (asked,) = await admin.get("/approvals")
        (pin,) = await admin.get("/lock/crm/refund")
        made = await admin.change("POST", "/keys", {"user": "chris", "scopes": ["mcp:*"]})
        await admin.change("POST", "/plugins/refunds/users/anna", {})
        await admin.change("PUT", WIKI, {"value": "v"})
        key, approval = f"/keys/{made['id']}", f"/approvals/{asked['id']}"
        changes = [
            (admin, "POST", "/servers/{name}/restart", "/servers/crm/restart", {}),
            (admin, "POST", "/reload", "/reload", {}),
            (admin, "POST", "/keys", "/keys", {"user": "dora"}),
            (admin, "PATCH", "/keys/{id}", key, {"scopes": ["mcp:read"]}),
            (admin, "POST", "/keys/{id}/rotate", f"{key}/rotate", {}),
            (admin, "DELETE", "/keys/{id}", key, None),
            (berta, "POST", "/approvals/{id}/approve", f"{approval}/approve", asked),
            (berta, "POST", "/approvals/{id}/deny", f"{approval}/deny", asked),
            (admin, "POST", "/lock/{server}/{name*}/accept", "/lock/crm/refund/accept", pin),
            (admin, "POST", "/lock/{server}/{name*}/reject", "/lock/crm/refund/reject", pin),
            (admin, "DELETE", "/credentials", "/credentials", None),
            (admin, "POST", "/plugins/{name}/users/{user*}", "/plugins/refunds/users/berta", {}),
            (admin, "DELETE", "/plugins/{name}/users/{user*}", "/plugins/refunds/users/anna", None),
            (admin, "PUT", OWN, WIKI, None),
            (
                admin,
                "DELETE",
                "/me/credentials/{server}/{name}",
                "/me/credentials/wiki/TOKEN",
                None,
            ),
        ]
        every = {
            (each.method, each.path.removeprefix(BASE))
            for each in (*ADMIN_ROUTES, *USER_ROUTES)
            if each.method != "GET"
            and each.path.removeprefix(BASE) not in READS
            and not each.path.startswith(OF_PAGES)
        }
        assert {(method, route) for _, method, route, *_ in changes} == every
        with sqlite3.connect(tmp_path / "gateway.db") as database:
            database.execute(REFUSE_RECORDS)
        before = tables_of(tmp_path / "gateway.db")
        starts = gateway.assembly.gateway.toolbox.status["crm"].starts
        loaded = gateway.assembly.loaded_at

        for who, method, _, path, body in changes:
            query = "user=admin&server=wiki&name=TOKEN" if path == "/credentials" else ""
            if isinstance(body, dict) and "hash" in body:
                body = {"hash": body["hash"]}
            elif method == "PUT":
                body = {"value": "another"}
            refused = await who.refused(method, path, body, query)
            assert refused == (503, "audit_unavailable"), (method, path)
            assert tables_of(tmp_path / "gateway.db") == before, (method, path)
        assert gateway.assembly.gateway.toolbox.status["crm"].starts == starts
        assert gateway.assembly.loaded_at == loaded


@pytest.mark.slow("fills a database")
async def test_key_that_changes_in_two_places_at_once_is_recorded_as_it_was(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        made = await operator.change("POST", "/keys", {"user": "anna", "scopes": ["mcp:*"]})
        place = f"/keys/{made['id']}"
        await asyncio.gather(
            *(operator.change("PATCH", place, {"name": f"laptop {each}"}) for each in range(5))
        )
        records = [each for each in await operator.recorded() if each["action"] == "key_narrowed"]

    names = [(each["before"]["name"], each["after"]["name"]) for each in records]
    assert len(names) == 5
    assert [before for before, _ in names] == ["", *(after for _, after in names[:-1])]
