"""One call at an address of its own: who sees it, and who decides about it there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from interlock import Client
from interlock.gateway import client_approvals as approvals
from interlock.types import ElicitParams, ElicitResult
from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.gateway.support import as_principal
from tests.gateway.test_client_approvals import ANNA, code
from tests.support.scripted_server import LEGACY, MODERN, Json

URLS = {"elicitation": {"url": {}}}
ACCEPT = {"action": "accept"}
LARGE = "x" * 9_000  # a form would not show it


def settings(folder: Path, *approvers: str) -> Json:
    """Return the member `gateway` with pages and a rule that asks."""
    script = folder / "script.json"
    script.write_text("[]")
    rule = {"id": "ask", "effect": "ask", "who": ["*"], "tools": ["crm:put"]}
    if approvers:
        rule["approvers"] = list(approvers)
    return {"chat": {"models": [f"scripted:{script}"]}, "policy": {"rules": [rule]}}


async def sent(
    gateway: RunningGateway, method: str, path: str, key: str, body: Any = None
) -> tuple[int, Any]:
    """Return the status and the body of the answer to a page's request."""
    headers = bearer(key) | {"content-type": "application/json"}
    content = b"" if body is None else json.dumps(body).encode()
    reply = await gateway.http.request(method, path.partition("8000")[2] or path, content, headers)
    return reply.code, json.loads(reply.body) if reply.body else None


async def decide(gateway: RunningGateway, url: str, key: str, decision: str = "approve") -> int:
    """Decide on the page of a call, as its user."""
    path = "/api" + url.partition("8000")[2]
    _, call = await sent(gateway, "GET", path, key)
    body = {"hash": call["asked"]["hash"]}
    return (await sent(gateway, "POST", f"{path}/{decision}", key, body))[0]


@pytest.mark.slow("fills a database")
async def test_modern_client_without_forms_gets_the_page_and_its_call_waits_for_the_decision(
    running, tmp_path: Path
):
    crm = offering("put")
    async with running(settings(tmp_path), crm=crm) as gateway:
        key = await gateway.key("anna")
        params: Json = {"name": "crm__put", "arguments": {"amount": 8}}
        call = {"capabilities": URLS, "headers": bearer(key)}
        asked = (await gateway.http.ask("tools/call", params, **call)).json["result"]
        ((id, question),) = asked["inputRequests"].items()
        url = question["params"]["url"]
        params |= {"requestState": asked["requestState"], "inputResponses": {id: ACCEPT}}
        waiting = gateway.http.begin("tools/call", params, **call)
        page = await gateway.http.request("GET", url.partition("8000")[2])
        status = await decide(gateway, url, key)
        answer = await waiting.finished()
        await gateway.settle()
        _, shown = await sent(gateway, "GET", "/api" + url.partition("8000")[2], key)

    assert (question["method"], question["params"]["mode"]) == ("elicitation/create", "url")
    assert url.startswith("http://127.0.0.1:8000/calls/c_")
    assert (page.code, status) == (200, 200)
    assert answer.text == "done"
    assert len(crm.sent("tools/call")) == 1
    assert (shown["outcome"], shown["asked"]["state"]) == ("ran", "used")


@pytest.mark.slow("fills a database")
async def test_legacy_client_is_asked_to_open_the_page_by_a_request(running, tmp_path: Path):
    async with running(settings(tmp_path), crm=offering("put")) as gateway:
        key = await gateway.key("anna")
        session = await gateway.http.initialize(capabilities=URLS, headers=bearer(key))
        reply = session.begin_call("crm__put")
        question = await reply.message()
        await session.answer(question["id"], ACCEPT)
        assert await decide(gateway, question["params"]["url"], key, "deny") == 200
        answer = await reply.message()

    assert question["params"]["mode"] == "url"
    reason = answer["result"]["_meta"]["interlock/reason"]["code"]
    assert reason == "approval_denied"


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_arguments_too_long_for_a_form_are_approved_on_the_page(
    running, tmp_path: Path, revision: str
):
    async with running(settings(tmp_path), crm=offering("put")) as gateway:
        key = await gateway.key("anna")
        opened: list[str] = []
        deciding: list[asyncio.Task[int]] = []

        async def answer(form: ElicitParams) -> ElicitResult:
            assert form.mode == "url"
            opened.append(str(form.url))
            deciding.append(asyncio.ensure_future(decide(gateway, opened[-1], key)))
            return ElicitResult(action="accept")

        served = as_principal(gateway.assembly.server, ANNA)
        async with Client.memory(served, revision=revision, elicitation=answer) as client:
            result = await client.call_tool("crm__put", {"text": LARGE})

        assert [await each for each in deciding] == [200]
        assert code(result) == ""
        assert len(opened) == 1


@pytest.mark.slow("fills a database")
async def test_call_whose_page_was_opened_and_left_is_pending(
    running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(approvals, "PAGE_TIMEOUT", 0.01)
    async with running(settings(tmp_path), crm=offering("put")) as gateway:
        key = await gateway.key("anna")
        session = await gateway.http.initialize(capabilities=URLS, headers=bearer(key))
        reply = session.begin_call("crm__put")
        await session.answer((await reply.message())["id"], ACCEPT)
        answer = await reply.message()

    assert answer["result"]["_meta"]["interlock/reason"]["code"] == "approval_pending"


@pytest.mark.slow("fills a database")
async def test_call_of_another_user_is_absent_and_an_operator_sees_it(running, tmp_path: Path):
    async with running(settings(tmp_path), crm=offering("put", "get")) as gateway:
        anna, bert = await gateway.key("anna"), await gateway.key("bert")
        operator = await gateway.key("olga", "admin:read")
        await gateway.call("crm__put", anna, amount=8)
        (pending,) = await gateway.assembly.services.approvals.list()
        path = f"/api/calls/{pending.call}"
        body = {"hash": pending.hash}

        foreign = await sent(gateway, "GET", path, bert)
        absent = await sent(gateway, "GET", "/api/calls/c_0", bert)
        decided = await sent(gateway, "POST", f"{path}/approve", bert, body)
        _, seen = await sent(gateway, "GET", path, operator)
        refused = await sent(gateway, "POST", f"{path}/approve", operator, body)
        changed = await sent(gateway, "POST", f"{path}/approve", anna, {"hash": "of another"})
        _, own = await sent(gateway, "GET", path, anna)

    assert foreign == absent
    assert (foreign[0], decided[0], refused[0]) == (404, 404, 403)
    assert (changed[0], changed[1]["reason"]) == (409, "approval_changed")
    assert (seen["tool"], seen["user"], seen["arguments"]) == (
        "crm:put",
        "user:anna",
        {"amount": 8},
    )
    assert (seen["asked"]["mayDecide"], own["asked"]["mayDecide"]) == (False, True)
