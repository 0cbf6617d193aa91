"""Calls that must be approved, through a gateway."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from interlock import Client
from interlock.auth.principal import Principal
from interlock.config import Config
from interlock.errors import ConfigError, DecisionRefused
from interlock.gateway.client_approvals import approvals_in
from interlock.store import AuditReader
from interlock.store.approvals import LEEWAY, Approval
from interlock.store.database import changes
from interlock.text.timestamps import now_micros
from interlock.types import CallToolResult, ElicitParams, ElicitResult
from tests.gateway.approval_corpus import APPROVED, CHANGES, FOLLOWS, MADE
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


@pytest.fixture
def script(tmp_path: Any) -> str:
    """A model for the chat of a gateway, which has the pages of calls."""
    path = tmp_path / "script.json"
    path.write_text("[]")
    return f"scripted:{path}"


def settings(rule: Json = LEADS, **more: Any) -> Json:
    return {"policy": {"rules": [ALLOW, rule]}, "groups": {"leads": ["user:berta"]}, **more}


def reason(reply: Reply) -> str:
    """Return why a call was not made; "" if it was."""
    assert "result" in reply.json, reply.json
    return why(reply.json["result"])


def why(result: Json) -> str:
    return str(result.get("_meta", {}).get("interlock/reason", {}).get("code", ""))


async def pending(gateway: RunningGateway) -> Approval:
    (found,) = await gateway.assembly.services.approvals.list(["pending"])
    return found


async def approve(gateway: RunningGateway) -> Approval:
    found = await pending(gateway)
    return await gateway.assembly.services.approvals.approve(found.id, found.hash, LEAD)


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
    served = as_principal(gateway.assembly.server, ANNA)
    async with Client.memory(served, revision=revision, elicitation=answer) as client:
        return await client.call_tool("s__put", arguments)


def code(result: CallToolResult) -> str:
    return str((result.meta or {}).get("interlock/reason", {}).get("code", ""))


@pytest.mark.slow("fills a database")
async def test_rules_people_and_records_have_arguments_as_they_were_meant(
    running: Callable[..., Any], tmp_path: Any
):
    server = offering()
    limited = {"type": "object", "properties": {"n": {"type": "integer"}, "o": {"type": "string"}}}
    server.answers["tools/list"] = {"tools": [tool("put", inputSchema=limited)]}
    few = {**LEADS, "arguments": {"n": {"minimum": 5}}}
    async with running(settings(few), s=server) as gateway:
        key = await gateway.key("anna")
        assert reason(await gateway.call("s__put", key, n="7", o=None)) == "approval_pending"
        asked = await approve(gateway)
        assert reason(await gateway.call("s__put", key, n="7", o=None)) == ""
        assert reason(await gateway.call("s__put", key, n="4")) == ""
        assert reason(await gateway.call("s__put", key, n="4x")) == "arguments_invalid"
        await gateway.settle()
        used = await gateway.assembly.services.approvals.get(asked.id)
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        records = await reader.records(used.used_by_call or "")

    assert asked.arguments == {"n": 7}
    assert [each["arguments"] for each in server.sent("tools/call")] == [{"n": 7}, {"n": 4}]
    assert records[0]["converted"] == {"n": "text", "o": "null"}


# Others approve


Retry = Callable[..., Awaitable[Reply]]


async def ask_others(gateway: RunningGateway, key: str) -> Retry:
    """Have another person approve the call of the corpus; return what makes a call."""
    assert reason(await gateway.call("s__put", key, **APPROVED)) == "approval_pending"
    await approve(gateway)

    return plain


async def plain(gateway: RunningGateway, tool: str, key: str, arguments: Json) -> Reply:
    return await gateway.call(f"s__{tool}", key, **arguments)


async def ask_by_form(gateway: RunningGateway, key: str) -> Retry:
    """Ask the client by a form; what is returned brings its approval with a call."""
    accepted = {"action": "accept", "content": {"approve": True}}
    return await _asked(gateway, key, {"elicitation": {}}, accepted)


async def ask_by_page(gateway: RunningGateway, key: str) -> Retry:
    """Ask the client to open the page of the call, on which its user approves it."""
    retry = await _asked(gateway, key, {"elicitation": {"url": {}}}, {"action": "accept"})
    found = await pending(gateway)
    await gateway.assembly.services.approvals.approve(found.id, found.hash, Principal(found.user))
    return retry


async def _asked(gateway: RunningGateway, key: str, capabilities: Json, accepted: Json) -> Retry:
    async def send(
        gateway: RunningGateway, tool: str, key: str, arguments: Json, **more: Any
    ) -> Reply:
        params = {"name": f"s__{tool}", "arguments": arguments, **more}
        headers = bearer(key)
        return await gateway.http.ask(
            "tools/call", params, headers=headers, capabilities=capabilities
        )

    asked = (await send(gateway, "put", key, APPROVED)).json["result"]
    (id,), state = asked["inputRequests"], asked["requestState"]
    more = {"requestState": state, "inputResponses": {id: accepted}}
    return functools.partial(send, **more)


def answered(reply: Reply) -> str:
    """Return why a call was not made; "asked" if the client is asked about it, "" if it was."""
    if "error" in reply.json:  # the state of a question is for another call
        return str(reply.json["error"]["code"])
    return "asked" if "inputRequests" in reply.json["result"] else reason(reply)


# How a call is approved, the rule for it, and how a call is refused that is another one.
WAYS: dict[str, tuple[Callable[..., Awaitable[Retry]], Json, frozenset[str]]] = {
    "others": (ask_others, LEADS, frozenset({"approval_pending"})),
    "form": (ask_by_form, ASK, frozenset({"-32602", "asked"})),
    "page": (ask_by_page, ASK, frozenset({"-32602", "asked"})),
}


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("way", WAYS)
async def test_approval_is_used_once_by_exactly_its_call(
    way: str, running: Callable[..., Any], script: str
):
    ask, rule, refusals = WAYS[way]
    server = offering("put", "other")
    chat = {"chat": {"models": [script]}}
    async with running(settings({**rule, "tools": ["s:*"]}, **chat), s=server) as gateway:
        users = ("anna", "carl")
        keys = {user: [await gateway.key(user) for _ in range(2)] for user in users}
        retry = await ask(gateway, keys["anna"][0])
        for name, each in FOLLOWS.items():
            before = calls(server)
            reply = await retry(gateway, each.tool, keys[each.user][each.key], each.arguments)

            assert calls(server) - before == (each.reason == MADE), name
            assert answered(reply) in ({MADE} if each.reason == MADE else refusals), name
            assert each.reason in (MADE, "approval_pending")

    assert [each["arguments"] for each in server.sent("tools/call")] == [APPROVED]


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
async def test_approval_is_void_after_a_change_and_survives_a_restart(
    way: str,
    change: str,
    running: Callable[..., Any],
    script: str,
    monkeypatch: pytest.MonkeyPatch,
):
    # A gateway that has noticed a change of its key refuses the call before the approval.
    monkeypatch.setattr(changes, "POLL_EVERY", 3_600)
    (ask, rule, refusals), server = WAYS[way], offering("put")
    gateway_settings = settings(rule, lock={"mode": "off"}, chat={"models": [script]})
    async with running(gateway_settings, s=server) as gateway:
        key = await gateway.key("anna")
        retry = await ask(gateway, key)
        if change != "restart":
            await alter(gateway, server, change, gateway_settings)
            reply = await retry(gateway, "put", key, APPROVED)
    if change == "restart":
        async with running(gateway_settings, s=server) as gateway:
            reply = await retry(gateway, "put", key, APPROVED)

    expected = CHANGES[change]
    allowed = {expected} if expected in (MADE, "approval_denied") else {expected, *refusals}
    assert answered(reply) in allowed
    assert calls(server) == (expected == MADE)


async def alter(
    gateway: RunningGateway, server: ScriptedServer, change: str, gateway_settings: Json
) -> None:
    """Change what an approval depends on."""
    approvals = gateway.assembly.services.approvals
    (found,) = await approvals.list(["pending", "approved"])
    if change == "expiry":
        approvals.changes.now = lambda: found.expires  # the clock
        await approvals.changes.refresh()
    elif change == "clock set back":
        approvals.changes.now = lambda: found.created - LEEWAY - 1
    elif change == "policy":
        await gateway.reload({**gateway_settings, "groups": {"leads": []}}, s=server)
    elif change == "definition":
        toolbox = gateway.assembly.server.toolbox
        version = toolbox.version
        server.answers["tools/list"] = {"tools": [tool("put", description="new")]}
        server.notify("notifications/tools/list_changed")
        while toolbox.version == version:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    elif change == "revoked key":
        await gateway.keys.revoke(found.key)
    elif change == "rotated key":
        await gateway.keys.rotate(found.key, overlap=0)
    elif change == "denial":
        await approvals.deny(found.id, found.hash, None)


@pytest.mark.slow("fills a database")
async def test_approval_of_a_user_without_a_key_is_not_valid_for_other_users(
    running: Callable[..., Any],
):
    server = offering("put")
    users = [Principal(f"https://id.example#{each}", frozenset({"mcp:*"})) for each in (1, 2, 1)]
    async with running(settings(), s=server) as gateway:
        codes = []
        for user in users:
            async with Client.memory(as_principal(gateway.assembly.server, user)) as client:
                codes.append(code(await client.call_tool("s__put", {"a": 1})))
            if len(codes) == 1:
                await approve(gateway)

    assert codes == ["approval_pending", "approval_pending", MADE]
    assert calls(server) == 1


@pytest.mark.slow("fills a database")
async def test_call_needs_another_approval_after_the_clock_was_set_back(
    running: Callable[..., Any],
):
    server = offering("put")
    async with running(settings(), s=server) as gateway:
        key = await gateway.key("anna")
        await ask_others(gateway, key)
        await alter(gateway, server, "clock set back", {})
        await ask_others(gateway, key)
        made = await gateway.call("s__put", key, **APPROVED)

    assert (reason(made), calls(server)) == (MADE, 1)


@pytest.mark.slow("fills a database")
async def test_expiry_of_an_approval_is_recorded(running: Callable[..., Any], tmp_path: Any):
    async with running(settings(), s=offering("put")) as gateway:
        await ask_others(gateway, await gateway.key("anna"))
        await alter(gateway, offering("put"), "expiry", {})
        (found,) = await gateway.assembly.services.approvals.list()

    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        records = await reader.records(found.call)
    decided = [each for each in records if each["kind"] == "decided"]
    assert found.state == "expired"
    assert [each["verdict"] for each in decided] == ["approve", "expire"]
    assert decided[0]["user"] == "user:berta"


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("passes", [3_600, -3_600], ids=["in time", "when the clock is set back"])
async def test_approval_expires_though_nothing_else_changes(
    running: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, passes: int
):
    monkeypatch.setattr(changes, "POLL_EVERY", 0.01)

    async def until(counts: dict[str, int]) -> None:
        while gateway.assembly.services.approvals.changes.counts != counts:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async with running(settings(), s=offering("put")) as gateway:
        await gateway.call("s__put", await gateway.key("anna"), **APPROVED)
        await until({"pending": 1})
        now = now_micros() + passes * 1_000_000
        gateway.assembly.services.approvals.changes.now = lambda: now
        await until({"expired": 1})


@pytest.mark.slow("fills a database")
async def test_denied_call_stays_denied_and_its_note_is_read(running: Callable[..., Any]):
    server = offering("put")
    async with running(settings(), s=server) as gateway:
        key = await gateway.key("anna")
        await gateway.call("s__put", key, a=1)
        found = await approve(gateway)
        await gateway.assembly.services.approvals.deny(found.id, found.hash, LEAD, note="too much")
        denied = await gateway.call("s__put", key, a=1)

    assert reason(denied) == "approval_denied"
    assert "too much" in denied.json["result"]["content"][0]["text"]
    assert calls(server) == 0


@pytest.mark.slow("fills a database")
async def test_of_100_concurrent_pairs_each_approved_call_has_one_effect(
    running: Callable[..., Any],
):
    server = offering("put")
    limits = {"perKey": {"concurrent": 200}}
    served = server, {"limits": {"concurrent": 200}}
    async with running(settings(limits=limits), s=served) as gateway:
        key, approvals = await gateway.key("anna"), gateway.assembly.services.approvals
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
async def test_call_that_is_not_approved_does_not_count_towards_the_limits(
    running: Callable[..., Any],
):
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
        while not (found := await gateway.assembly.services.approvals.list(["pending"])):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        # Another process decides, as the command line does.
        place = str(tmp_path / "gateway.db")
        async with approvals_in(Config(), place, decides=True) as other:
            await other.approve(found[0].id, found[0].hash, None)
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
        found, approvals = await pending(gateway), gateway.assembly.services.approvals
        with pytest.raises(DecisionRefused) as changed:
            await approvals.approve(found.id, "another hash", LEAD)
        got = ""
        try:
            await approvals.approve(found.id, found.hash, who)
        except DecisionRefused as error:
            got = error.reason

    assert changed.value.reason == "approval_changed"
    assert got == refusal


@pytest.mark.slow("fills a database")
async def test_approval_requested_under_an_earlier_policy_is_void(
    running: Callable[..., Any],
):
    server = offering("put")
    async with running(settings(), s=server) as gateway:
        await gateway.call("s__put", await gateway.key("anna"), a=1)
        found, approvals = await pending(gateway), gateway.assembly.services.approvals
        await gateway.reload(settings(groups={"leads": ["user:berta", "user:dora"]}), s=server)
        with pytest.raises(DecisionRefused) as refused:
            await approvals.approve(found.id, found.hash, LEAD)
        denied = await approvals.deny(found.id, found.hash, LEAD)  # which is always safe

    assert refused.value.reason == "approval_void"
    assert denied.state == "denied"


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize(
    "change",
    [
        "arguments = x'00'",
        "tool = 's:get'",  # shown in place of the tool that would run
        "user = 'user:berta'",
        "(hash, binding) = (other.hash, other.binding) FROM approvals AS other"
        " WHERE other.id <> approvals.id",
    ],
)
async def test_call_whose_arguments_cannot_be_shown_is_not_approved(
    running: Callable[..., Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch, change: str
):
    async with running(settings(), s=offering("put")) as gateway:
        key = await gateway.key("anna")
        await gateway.call("s__put", key, a=1)
        found = await pending(gateway)
        await gateway.call("s__put", key, a=2)
        place = str(tmp_path / "gateway.db")
        with closing(sqlite3.connect(place)) as database, database:
            database.execute("DROP INDEX approvals_open")
            database.execute(f"UPDATE approvals SET {change}")
            row = database.execute("SELECT hash FROM approvals WHERE id = ?", (found.id,))
            (hash,) = row.fetchone()
        async with approvals_in(Config(), place, decides=True) as command:
            with pytest.raises(DecisionRefused) as refused:
                await command.approve(found.id, hash, None)
            denied = await command.deny(found.id, hash, None)
        monkeypatch.setenv("INTERLOCK_KEY", bytes(range(32)).hex())  # not that of the gateway
        with pytest.raises(ConfigError, match="this database belongs to gateway key"):
            async with approvals_in(Config(), place):
                pass

    assert refused.value.reason == "approval_unreadable"
    assert denied.state == "denied"


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
@pytest.mark.parametrize("change", ["expiry", "policy", "definition", "denial"])
async def test_form_that_is_answered_after_a_change_has_no_effect(
    change: str, running: Callable[..., Any]
):
    server, gateway_settings = offering("put"), settings(ASK, lock={"mode": "off"})
    async with running(gateway_settings, s=server) as gateway:

        async def answer(_: ElicitParams) -> ElicitResult:
            await alter(gateway, server, change, gateway_settings)
            return ElicitResult(action="accept", content={"approve": True})

        result = await called(gateway, LEGACY, answer, a=1)

    assert code(result).startswith("approval_")
    assert calls(server) == 0


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
async def test_form_is_sent_neither_to_a_client_without_forms_nor_if_others_must_approve(
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
