"""Calls that must be approved, through a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interlock import Client
from interlock.auth.principal import Principal
from interlock.calls.approvals import Approvals
from interlock.config import Config
from interlock.errors import DecisionRefused
from interlock.gateway.approvals import approvals_in
from interlock.store import AuditReader
from interlock.store.approvals import Approval
from interlock.types import CallToolResult, ElicitParams, ElicitResult
from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.gateway.support import as_principal
from tests.server.http.conftest import Reply
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, tool

ALLOW = {"id": "allow", "effect": "allow", "who": ["*"], "tools": ["*:*"]}
ASK = {"id": "ask", "effect": "ask", "who": ["*"], "tools": ["s:put"]}
LEADS = {**ASK, "approvers": ["group:leads"]}
ANNA = Principal("user:anna", frozenset({"mcp:*"}), key_id="k1")
LEAD = Principal("user:berta", frozenset({"admin:approve"}))
# Bidi override, ANSI, zero-width, tag, soft hyphen, line separator, C1 control, filler.
HIDDEN = "\u202e\x1b[2J\u200b\U000e0041\u00ad\u2028\x9b\u3164\x7f"

Answer = Callable[[ElicitParams], Awaitable[ElicitResult]]


def settings(rule: Json = LEADS, **more: Any) -> Json:
    return {"policy": {"rules": [ALLOW, rule]}, "groups": {"leads": ["user:berta"]}, **more}


def reason(reply: Reply) -> str:
    """Return why a call was not made; "" if it was."""
    assert "result" in reply.json, reply.json
    return why(reply.json["result"])


def why(result: Json) -> str:
    return str(result.get("_meta", {}).get("interlock/reason", {}).get("code", ""))


async def pending(gateway: RunningGateway) -> Approval:
    (found,) = await gateway.assembly.approvals.list(["pending"])
    return found


async def approve(gateway: RunningGateway) -> Approval:
    found = await pending(gateway)
    return await gateway.assembly.approvals.approve(found.id, found.hash, LEAD)


def calls(server: ScriptedServer) -> int:
    return len(server.sent("tools/call"))


def answering(action: str, *, approve: bool | None = None) -> tuple[Answer, list[ElicitParams]]:
    """Return what answers forms, and the forms that it gets."""
    forms: list[ElicitParams] = []

    async def answer(form: ElicitParams) -> ElicitResult:
        forms.append(form)
        content = None if approve is None else {"approve": approve}
        return ElicitResult(action=action, content=content)  # type: ignore[arg-type]

    return answer, forms


async def called(
    gateway: RunningGateway, revision: str, answer: Answer | None, **arguments: Any
) -> CallToolResult:
    """Call the tool as a user who can be asked by `answer`."""
    served = as_principal(gateway.assembly.gateway, ANNA)
    async with Client.memory(served, revision=revision, elicitation=answer) as client:
        return await client.call_tool("s__put", arguments)


def code(result: CallToolResult) -> str:
    return str((result.meta or {}).get("interlock/reason", {}).get("code", ""))


# Others approve


@pytest.mark.slow("fills a database")
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


@pytest.mark.slow("fills a database")
async def test_approval_of_another_call_user_or_key_is_not_used(running: Callable[..., Any]):
    server = offering("put", "other")
    rule = {**LEADS, "tools": ["s:*"]}
    async with running(settings(rule), s=server) as gateway:
        keys = [await gateway.key("anna"), await gateway.key("anna"), await gateway.key("carl")]
        await gateway.call("s__put", keys[0], a=1)
        await approve(gateway)
        others = [
            await gateway.call("s__put", keys[0], a=2),
            await gateway.call("s__put", keys[0], a=1, b=None),
            await gateway.call("s__put", keys[0], a="1"),
            await gateway.call("s__other", keys[0], a=1),
            await gateway.call("s__put", keys[1], a=1),
            await gateway.call("s__put", keys[2], a=1),
        ]

        assert [reason(each) for each in others] == ["approval_pending"] * len(others)
        assert calls(server) == 0


@pytest.mark.slow("fills a database")
async def test_denied_call_stays_denied_and_its_note_is_read(running: Callable[..., Any]):
    server = offering("put")
    async with running(settings(), s=server) as gateway:
        key = await gateway.key("anna")
        await gateway.call("s__put", key, a=1)
        found = await approve(gateway)
        await gateway.assembly.approvals.deny(found.id, found.hash, LEAD, note="too much")
        denied = await gateway.call("s__put", key, a=1)

    assert reason(denied) == "approval_denied"
    assert "too much" in denied.json["result"]["content"][0]["text"]
    assert calls(server) == 0


@pytest.mark.slow("fills a database")
async def test_expired_approval_has_no_effect_and_is_recorded(
    running: Callable[..., Any], tmp_path: Any
):
    server = offering("put")
    async with running(settings({**LEADS, "expires": 1}), s=server) as gateway:
        key = await gateway.key("anna")
        approvals: Approvals = gateway.assembly.approvals
        await gateway.call("s__put", key, a=1)
        found = await approve(gateway)
        approvals._now = lambda: found.expires  # the clock
        late = await gateway.call("s__put", key, a=1)
        await approvals.refresh()
        states = {each.id: each.state for each in await approvals.list()}

    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        records = await reader.records(found.call)
    assert reason(late) == "approval_pending"
    assert states[found.id] == "expired"
    assert calls(server) == 0
    decided = [each for each in records if each["kind"] == "decided"]
    assert [each["verdict"] for each in decided] == ["approve", "expire"]
    assert decided[0]["user"] == "user:berta"


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("change", ["policy", "definition", "key", "restart"])
async def test_approval_is_void_after_a_change_and_survives_a_restart(
    change: str, running: Callable[..., Any]
):
    server = offering("put")
    gateway_settings = settings(lock={"mode": "off"})
    async with running(gateway_settings, s=server) as gateway:
        key = await gateway.key("anna")
        await gateway.call("s__put", key, a=1)
        found = await approve(gateway)
        if change == "policy":
            await gateway.reload({**gateway_settings, "groups": {"leads": []}}, s=server)
        elif change == "definition":
            toolbox = gateway.assembly.gateway.toolbox
            version = toolbox.version
            server.answers["tools/list"] = {"tools": [tool("put", description="new")]}
            server.notify("notifications/tools/list_changed")
            async with asyncio.timeout(5):
                while toolbox.version == version:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        elif change == "key":
            await gateway.keys.revoke(found.key)  # the gateway has not noticed yet
        if change != "restart":
            reply = await gateway.call("s__put", key, a=1)
            assert reason(reply) == ("approval_required" if change == "key" else "approval_pending")
            assert calls(server) == 0
    if change == "restart":
        async with running(gateway_settings, s=server) as gateway:
            assert reason(await gateway.call("s__put", key, a=1)) == ""
            assert reason(await gateway.call("s__put", key, a=1)) == "approval_pending"
            assert calls(server) == 1


@pytest.mark.slow("fills a database")
async def test_of_100_concurrent_pairs_each_approved_call_has_one_effect(
    running: Callable[..., Any],
):
    server = offering("put")
    limits = {"perKey": {"concurrent": 200}}
    served = server, {"limits": {"concurrent": 200}}
    async with running(settings(limits=limits), s=served) as gateway:
        key, approvals = await gateway.key("anna"), gateway.assembly.approvals
        for number in range(100):
            await gateway.call("s__put", key, a=number)
        for found in await approvals.list(["pending"]):
            await approvals.approve(found.id, found.hash, LEAD)
        made = await asyncio.gather(
            *(gateway.call("s__put", key, a=number) for number in [*range(100), *range(100)])
        )

    assert sorted(map(reason, made)) == [""] * 100 + ["approval_pending"] * 100
    effects = [each["arguments"]["a"] for each in server.sent("tools/call")]
    assert sorted(effects) == list(range(100))


@pytest.mark.slow("fills a database")
async def test_call_that_is_not_approved_spends_nothing_of_its_limits(running: Callable[..., Any]):
    server = offering("put")
    async with running(settings(limits={"tools": {"s:put": "1/day"}}), s=server) as gateway:
        key = await gateway.key("anna")
        held = [await gateway.call("s__put", key, a=1) for _ in range(3)]
        await approve(gateway)
        made = await gateway.call("s__put", key, a=1)

    assert [reason(each) for each in held] == ["approval_pending"] * 3
    assert reason(made) == ""


@pytest.mark.slow("fills a database")
async def test_call_waits_for_an_approval_as_long_as_is_configured(
    running: Callable[..., Any], tmp_path: Any
):
    server = offering("put")
    async with running(settings(approvals={"wait": 20}), s=server) as gateway:
        key = await gateway.key("anna")
        waiting = asyncio.create_task(gateway.call("s__put", key, a=1))
        while not (found := await gateway.assembly.approvals.list(["pending"])):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        # Another process decides, as the command line does.
        place = str(tmp_path / "gateway.db")
        async with approvals_in(Config(), place, decides=True) as other:
            await other.approve(found[0].id, found[0].hash, None)
        async with asyncio.timeout(5):
            made = await waiting

    assert reason(made) == ""


# Rights


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize(
    ("who", "refusal"),
    [
        (ANNA, "not_permitted"),
        (Principal("user:anna", frozenset({"mcp:*", "admin:approve"})), "not_permitted"),
        (Principal("user:berta", frozenset({"mcp:*", "admin:read"})), "not_permitted"),
        (Principal("user:carl", frozenset({"admin:approve"})), "not_permitted"),
        (LEAD, ""),
        (None, ""),
    ],
)
async def test_only_approvers_with_the_scope_decide_and_never_about_their_own_call(
    who: Principal | None, refusal: str, running: Callable[..., Any]
):
    async with running(settings(), s=offering("put")) as gateway:
        await gateway.call("s__put", await gateway.key("anna"), a=1)
        found, approvals = await pending(gateway), gateway.assembly.approvals
        with pytest.raises(DecisionRefused) as changed:
            await approvals.approve(found.id, "another hash", LEAD)
        got = ""
        try:
            await approvals.approve(found.id, found.hash, who)
        except DecisionRefused as error:
            got = error.reason

    assert changed.value.reason == "approval_changed"
    assert got == refusal


# The caller approves by a form

ERAS = pytest.mark.parametrize("revision", [MODERN, LEGACY], ids=["modern", "legacy"])


@pytest.mark.slow("fills a database")
@ERAS
@pytest.mark.parametrize(
    ("action", "value", "expected"),
    [
        ("accept", True, ""),
        ("accept", False, "approval_denied"),
        ("decline", None, "approval_denied"),
        ("cancel", None, "approval_pending"),
    ],
)
async def test_client_answers_a_form_about_its_own_call(
    revision: str, action: str, value: bool | None, expected: str, running: Callable[..., Any]
):
    server, (answer, forms) = offering("put"), answering(action, approve=value)
    async with running(settings(ASK), s=server) as gateway:
        result = await called(gateway, revision, answer, a=1)
        again = await called(gateway, revision, answer, a=1)

    assert [code(result), code(again)] == [expected] * 2
    assert len(forms) == 2  # each call needs an answer of its own
    assert calls(server) == (2 if expected == "" else 0)


@pytest.mark.slow("fills a database")
@ERAS
async def test_form_shows_the_whole_call_with_hidden_characters_visible(
    revision: str, running: Callable[..., Any]
):
    answer, forms = answering("decline")
    async with running(settings(ASK), s=offering("put")) as gateway:
        await called(gateway, revision, answer, path=f"/srv/{HIDDEN}", note={HIDDEN: ["a", 1]})

    text = forms[0].message
    for expected in ("s:put", "write", "user:anna", "rule: ask", "until 20", "/srv/", '"note"'):
        assert expected in text
    for char in HIDDEN:
        if not char.isascii() or not char.isprintable():
            assert char not in text
    for escape in ("\\u202e", "\\u001b", "\\u200b", "\\udb40\\udc41", "\\u2028", "\\u009b"):
        assert text.count(escape) == 2


@pytest.mark.slow("fills a database")
@ERAS
@pytest.mark.parametrize(("size", "shown"), [(8_000, True), (8_193, False)])
async def test_arguments_over_8_kib_get_no_form(
    revision: str, size: int, shown: bool, running: Callable[..., Any]
):
    answer, forms = answering("accept", approve=True)
    async with running(settings(ASK), s=offering("put")) as gateway:
        result = await called(gateway, revision, answer, a="x" * size)

    assert bool(forms) is shown
    assert code(result) == ("" if shown else "approval_pending")


@pytest.mark.slow("fills a database")
@ERAS
async def test_client_without_forms_or_of_a_rule_for_others_is_not_asked(
    revision: str, running: Callable[..., Any]
):
    answer, forms = answering("accept", approve=True)
    server = offering("put")
    async with running(settings(ASK), s=server) as gateway:
        unable = await called(gateway, revision, None, a=1)
        await gateway.reload(settings(LEADS), s=server)
        not_asked = await called(gateway, revision, answer, a=1)

    assert [code(unable), code(not_asked)] == ["approval_pending"] * 2
    assert forms == []


@pytest.mark.slow("fills a database")
async def test_state_of_a_form_serves_one_call_of_its_own_user_and_arguments(
    running: Callable[..., Any],
):
    server = offering("put")
    async with running(settings(ASK), s=server) as gateway:
        anna, carl = await gateway.key("anna"), await gateway.key("carl")
        second = await gateway.key("anna")

        async def send(key: str, state: str | None, id: str, **arguments: Any) -> Reply:
            more: Json = {}
            if state is not None:
                accepted = {"action": "accept", "content": {"approve": True}}
                more = {"requestState": state, "inputResponses": {id: accepted}}
            return await gateway.http.ask(
                "tools/call",
                {"name": "s__put", "arguments": arguments, **more},
                headers=bearer(key),
                capabilities={"elicitation": {}},
            )

        asked = (await send(anna, None, "", a=1)).json["result"]
        (id,), state = asked["inputRequests"], asked["requestState"]
        wrong = [
            await send(anna, state, id, a=2),  # other arguments
            await send(carl, state, id, a=1),  # another user
        ]
        other_key = (await send(second, state, id, a=1)).json["result"]
        refused = [await send(anna, None, id, a=1), *wrong]
        before = calls(server)
        made = (await send(anna, state, id, a=1)).json["result"]
        replayed = (await send(anna, state, id, a=1)).json["result"]

    assert before == 0
    assert "inputRequests" in other_key
    assert [each.json.get("error", {}).get("code") for each in wrong] == [-32602] * 2
    assert "inputRequests" in refused[0].json["result"]
    assert made["content"][0]["text"] == "done"
    assert "inputRequests" in replayed  # asked again, for an approval of its own
    assert calls(server) == 1


@pytest.mark.slow("fills a database")
async def test_questions_of_the_server_continue_an_approved_call_once(
    running: Callable[..., Any],
):
    def answer(params: Json) -> Json:
        if "inputResponses" in params:
            return {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
        form = {"mode": "form", "message": "which?", "requestedSchema": {"type": "object"}}
        asked = {"which": {"method": "elicitation/create", "params": form}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}

    server = ScriptedServer(MODERN, {"tools/list": {"tools": [tool("put")]}, "tools/call": answer})
    async with running(settings(), s=server) as gateway:
        key = await gateway.key("anna")

        async def send(**more: Any) -> Json:
            reply = await gateway.http.ask(
                "tools/call",
                {"name": "s__put", "arguments": {"a": 1}, **more},
                headers=bearer(key),
                capabilities={"elicitation": {}},
            )
            found: Json = reply.json["result"]
            return found

        await send()
        await approve(gateway)
        asked = await send()
        responses = {"which": {"action": "accept", "content": {}}}
        more = {"requestState": asked["requestState"], "inputResponses": responses}
        made, replayed = await send(**more), await send(**more)

    assert made["content"][0]["text"] == "done"
    assert why(replayed) == "approval_pending"
    assert calls(server) == 2
