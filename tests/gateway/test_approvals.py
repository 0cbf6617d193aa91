"""Calls that must be approved, through a gateway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.store.approvals import Approval
from tests.gateway.conftest import RunningGateway, offering
from tests.server.http.conftest import Reply
from tests.support.scripted_server import Json, ScriptedServer

ALLOW = {"id": "allow", "effect": "allow", "who": ["*"], "tools": ["*:*"]}
ASK = {"id": "ask", "effect": "ask", "who": ["*"], "tools": ["s:put"]}
LEADS = {**ASK, "approvers": ["group:leads"]}


def settings(rule: Json = LEADS, **more: Any) -> Json:
    return {"policy": {"rules": [ALLOW, rule]}, "groups": {"leads": ["user:berta"]}, **more}


def reason(reply: Reply) -> str:
    """Return why a call was not made; "" if it was."""
    meta: Json = reply.json["result"].get("_meta", {})
    return str(meta.get("interlock/reason", {}).get("code", ""))


async def pending(gateway: RunningGateway) -> Approval:
    (found,) = await gateway.assembly.approvals.list(["pending"])
    return found


async def approve(gateway: RunningGateway) -> Approval:
    found = await pending(gateway)
    return await gateway.assembly.approvals.approve(found.id, found.hash, None)


def calls(server: ScriptedServer) -> int:
    return len(server.sent("tools/call"))


async def test_call_is_made_once_after_others_approved_it(running: Callable[..., Any]):
    server = offering("put")
    async with running(settings(), s=server) as gateway:
        key = await gateway.key("anna")
        first = await gateway.call("s__put", key, a=1, b=2)
        again = await gateway.call("s__put", key, b=2, a=1)
        await approve(gateway)
        made = await gateway.call("s__put", key, b=2, a=1)
        replayed = await gateway.call("s__put", key, a=1, b=2)

    assert [reason(each) for each in (first, again, made, replayed)] == [
        "approval_pending",
        "approval_pending",
        "",
        "approval_pending",
    ]
    ids = [each.json["result"]["_meta"]["interlock/reason"]["approval"] for each in (first, again)]
    assert ids[0] == ids[1]
    assert calls(server) == 1
