"""The JSON objects of the admin API: their members are fixed, and those of the commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from interlock.gateway.admin.operations import BASE
from interlock.gateway.admin.routes import ADMIN_ROUTES
from tests.cli.conftest import home, interlock
from tests.gateway.admin.support import Operator
from tests.gateway.admin.test_credentials import PER_USER
from tests.gateway.conftest import RunningGateway, offering
from tests.support.scripted_server import Json, ScriptedServer, tool

__all__ = ["home", "interlock"]

# The members of each object: those that it always has, and those that it may have.
OBJECTS: dict[str, tuple[str, str]] = {
    "key": (
        "id user name scopes limits created state",
        "view expires lastUsed replacedBy key",
    ),
    "call": ("at status", "call user key tool risk reason rule ms bytes"),
    "approval": (
        "id call state user tool hash rule approvers created expires",
        "arguments key decidedBy decidedAt note",
    ),
    "pin": ("server kind state since", "tool hash seenHash risk decidedBy decidedAt"),
    "shown pin": (
        "server kind state since accepted seen diff",
        "tool hash seenHash risk decidedBy decidedAt",
    ),
    "decision": ("effect steps", "reason rule uncertain change"),
    "step": ("step verdict detail", ""),
    "explained tool": ("tool effect", "reason state"),
    "seen tool": ("address name risk effect state", "title description"),
    "missing": ("address reason detail", "url"),
    "credential": ("user server name kind state", "updated expires url"),
    "status": ("version uptime configuration servers audit calls gateways", ""),
    "configuration": ("file hash loaded warnings", ""),
    "server": ("name state reason revision tools instances calls queue", ""),
    "audit": ("mode lag head writer records lost", ""),
    "head": ("seq hash", ""),
    "usage": ("running concurrent limits refusals", ""),
    "limit": ("limit left retryAfter", "burst server"),
    "plan": ("servers tools names views rights restart warnings applied", "gateways"),
    "verification": ("whole records writers first last problems copy", ""),
    "series": ("by since until step lines total", "others"),
    "problem": ("type title status detail reason", "reference retryAfter"),
    "me": ("user key scopes role groups view usage features version", "traces"),
}
# What a record of a kind has beside these members; `user` and `key` are those of the caller.
RECORD = "writer seq at tenant kind hash"
OF_CALL = "call user server tool"
RECORDS = {
    "intent": (
        f"{OF_CALL} surface risk bytes revision argumentsHash",
        "key view client address traceparent rule grant arguments origin operation",
    ),
    "outcome": (f"{OF_CALL} status ms bytes", "key reason kept revision messages"),
    "refused": ("user tool surface reason", "call key server address rule count"),
    "asked": (
        f"{OF_CALL} approval surface rule risk approvers expires argumentsHash",
        "key arguments",
    ),
    "decided": (f"{OF_CALL} approval verdict caller rule argumentsHash", "key surface note"),
    "admin": ("user action surface", "key address id before after created"),
    "credential": ("user server action name of surface", "key"),
    "pin": (
        "user server",
        "tool key surface state of accepted seen decision definitions before after",
    ),
    "config": ("user", "before after"),
    "started": ("version", "commit"),
}
# Members that only special cases have, which have tests of their own.
RARE = {
    "credential": {"expires"},
    "me": {"traces"},
    "missing": {"url"},
    "plan": {"gateways"},  # of a shared database
    "problem": {"retryAfter"},
    "series": {"others"},
}
# Those routes of the API that programs rely on; new ones may be added.
ROUTES = """
GET /status, GET /usage, POST /reload, GET /tools, POST /explain, GET /keys, POST /keys,
GET /keys/{id}, PATCH /keys/{id}, DELETE /keys/{id}, POST /keys/{id}/rotate, GET /approvals,
GET /approvals/{id}, POST /approvals/{id}/approve, POST /approvals/{id}/deny, GET /audit,
GET /audit/{call}, GET /audit/export, POST /audit/verify, GET /audit/series, GET /lock,
GET /lock/{server}/{name*}, POST /lock/{server}/{name*}/accept,
POST /lock/{server}/{name*}/reject, GET /credentials, DELETE /credentials,
GET /plugins/{name}/users/{user*}, POST /plugins/{name}/users/{user*},
DELETE /plugins/{name}/users/{user*}, POST /servers/{name}/restart
"""
SETTINGS: Json = {
    "groups": {"leads": ["user:op"]},
    "views": {"v": {}},
    "limits": {"perKey": {"rate": "100/s", "perDay": 100}, "tools": {"crm:get": "1/day"}},
    "policy": {
        "rules": [
            {
                "id": "ask",
                "effect": "ask",
                "who": ["*"],
                "tools": ["crm:refund"],
                "approvers": ["group:leads"],
            },
            {"id": "all", "effect": "allow", "who": ["*"], "tools": ["*:*"]},
            {
                "id": "prod",
                "effect": "deny",
                "who": ["*"],
                "tools": ["crm:*"],
                "arguments": {"env": {"const": "prod"}},
            },
        ]
    },
}
# Each command that prints objects of the API, and the route that answers with the same.
SAME = {
    "keys list": "/keys",
    "approvals list --all": "/approvals",
    "lock status": "/lock",
    "credentials list": "/credentials",
    "audit list": "/audit",
}


seen: dict[str, set[str]] = {}  # the members of the objects that were checked


def check(kind: str, *objects: Json) -> None:
    """Check the members of objects."""
    needed, more = ({*each.split()} for each in OBJECTS[kind])
    for each in objects:
        assert needed <= each.keys() <= needed | more, (kind, each)
        seen.setdefault(kind, set()).update(each)


def check_record(record: Json) -> None:
    needed, more = ({*each.split()} for each in RECORDS[record["kind"]])
    needed |= {*RECORD.split()}
    assert needed <= record.keys() <= needed | more, record


async def answers(gateway: RunningGateway, server: ScriptedServer) -> dict[str, Any]:
    """Make something of every kind, check what the API shows of it, and return some answers."""
    admin = Operator(
        gateway, await gateway.key("op", "admin:read", "admin:write", "admin:approve", "mcp:*")
    )
    wanted = {"user": "anna", "scopes": ["mcp:*"], "view": "v"}
    check("key", made := await admin.change("POST", "/keys", wanted))
    anna = Operator(gateway, made["key"])
    await admin.change("PATCH", f"/keys/{made['id']}", {"rate": "50/s"})
    check("key", await admin.change("POST", f"/keys/{made['id']}/rotate", {}))
    await gateway.call("crm__refund", anna.key, amount=80)
    await gateway.call("crm__get", anna.key)
    await gateway.call("crm__get", anna.key)
    await gateway.call("crm__absent", anna.key)
    await anna.change("PUT", "/me/credentials/wiki/TOKEN", {"value": "v"})
    await gateway.settle()

    (asked,) = await admin.get("/approvals")
    body = {"hash": asked["hash"], "note": "no"}
    decided = await admin.change("POST", f"/approvals/{asked['id']}/deny", body)
    check("approval", asked, decided, await admin.get(f"/approvals/{asked['id']}"))
    check("seen tool", *(await admin.get("/tools", "user=anna"))["tools"])
    check("pin", *await admin.get("/lock"))
    check("shown pin", *await admin.get("/lock/crm/get"), *await admin.get("/lock/crm/-"))
    (pin,) = await admin.get("/lock/crm/get")
    body = {"hash": pin["hash"], "riskFromHints": True}
    check("pin", await admin.change("POST", "/lock/crm/get/accept", body))
    upstream = gateway.assembly.server.toolbox.upstreams["crm"]
    server.answers["tools/list"]["tools"][1]["description"] = "It and more."
    await upstream.restart()
    check("pin", *await admin.get("/lock"))
    check("shown pin", *await admin.get("/lock/crm/get"))

    status = await admin.get("/status")
    check("status", status)
    check("configuration", status["configuration"])
    check("server", *status["servers"])
    check("audit", status["audit"])
    check("head", status["audit"]["head"])
    usage, of_anna = await admin.get("/usage"), await admin.get("/usage", f"key={made['id']}")
    check("usage", usage, of_anna)
    check("limit", *usage["limits"], *of_anna["limits"])
    check("plan", await admin.change("POST", "/reload", {"plan": True}))
    check("missing", *(await admin.get("/tools", "user=anna"))["missing"])
    question = {"user": "anna", "address": "crm:refund"}
    decision = await admin.change("POST", "/explain", question)
    check("decision", decision)
    check("step", *decision["steps"])
    every = await admin.change("POST", "/explain", {"user": "anna"})
    check("explained tool", *every["tools"])
    check("credential", *await admin.get("/credentials"), *await anna.get("/me/credentials"))
    check("call", *await admin.get("/audit"))
    exported = (await admin.send("GET", "/audit/export")).body.splitlines()
    records = [json.loads(line) for line in exported]
    for each in records:
        check_record(each)
    check("verification", await admin.change("POST", "/audit/verify", {}))
    check("series", await admin.get("/audit/series", "by=outcome"))
    check("me", await anna.get("/me"))
    for reply in (await admin.send("GET", "/keys/no"), await admin.send("GET", "/keys", query="x")):
        check("problem", json.loads(reply.body))
    await anna.change("DELETE", "/me/credentials/wiki/TOKEN")
    check("credential", *await anna.get("/me/credentials"))
    await gateway.settle()
    await gateway.assembly.services.keys.write_uses()
    check("key", *await admin.get("/keys"))
    shown = {path: await admin.get(path, "limit=500") for path in SAME.values()}
    (call,) = [each["call"] for each in shown["/audit"] if each["status"] == "ok"]
    shown["call"] = await admin.get(f"/audit/{call}")
    shown["id"] = call
    return shown


@pytest.mark.slow("fills a database")
def test_api_objects_have_fixed_members_and_equal_the_json_of_the_commands(
    running: Callable[..., Any], interlock: Callable[..., Any], tmp_path: Path
):
    async def serve() -> dict[str, Any]:
        crm = offering("refund", "get")
        crm.answers["tools/list"]["tools"][1] = tool("get") | {"title": "Get", "description": "It."}
        served = crm, {"limits": {"rate": "99/s"}}
        async with running(SETTINGS, crm=served, wiki=PER_USER) as gateway:
            return await answers(gateway, crm)

    shown = asyncio.run(serve())
    config = ("--json", "--config", tmp_path / "gateway.json")
    for command, path in SAME.items():
        printed = interlock(*command.split(), *config).json
        assert without_last_record(printed) == without_last_record(shown[path]), command
    assert interlock("audit", "show", shown["id"], *config).json == shown["call"]
    explained = interlock("explain", "--user", "anna", "crm:refund", *config).json
    check("decision", explained)
    check("step", *explained["steps"])
    unseen = {kind: {*" ".join(OBJECTS[kind]).split()} - found for kind, found in seen.items()}
    assert {kind: each for kind, each in unseen.items() if each} == RARE
    assert seen.keys() == OBJECTS.keys()


def without_last_record(rows: Iterable[Json]) -> list[Json]:
    return [{name: value for name, value in each.items() if name != "lastUsed"} for each in rows]


def test_documented_json_routes_exist():
    served = {f"{each.method} {each.path.removeprefix(BASE)}" for each in ADMIN_ROUTES}

    assert {each.strip() for each in ROUTES.replace("\n", " ").split(",")} <= served
