"""Calls by way of an executor: the same checks, limits and records as direct calls."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from interlock import Client, Server
from interlock.auth.principal import Principal
from interlock.calls import Caller, Entry, Item
from interlock.client import tasks
from interlock.config import loads
from interlock.config.gateway import Audit, KeyLimits, Limits, ViewSearch
from interlock.config.servers import ToolRisk
from interlock.errors import RemoteError
from interlock.gateway import ForwardingServer
from interlock.gateway.observer import GatewayObserver
from interlock.gateway.recorder import GatewayRecorder
from interlock.layers import Layers
from interlock.layers.audit import AuditTrail
from interlock.layers.limits import Limiter
from interlock.policy import Policy
from interlock.protocol import Request
from interlock.server.catalogue import Kind
from interlock.store import AuditReader, AuditWriter
from interlock.types import (
    ElicitParams,
    ElicitResult,
    ToolAnnotations,
)
from tests.client.test_tasks import LegacyTasks
from tests.gateway.conftest import offering
from tests.gateway.golden import ARGUMENTS, FILE, NAMES, SERVERS, TABLE, answer, context_of
from tests.gateway.support import as_principal
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool

ANYBODY = frozenset({"mcp:*"})
READ, WRITE = "interlock__call_read_tool", "interlock__call_write_tool"
SEARCHES = ViewSearch(is_on=True)
ASKED = ["s:put", "j:*"]  # tools whose calls need an approval


class Written:
    """A writer of audit records that keeps them in memory, without their ids and times."""

    is_failing = False

    def __init__(self, records: list[object]) -> None:
        self.group = self
        self.records = records

    def queue(self, added: Any) -> asyncio.Future[None]:
        bodies = (re.sub(rb'"ms":[0-9.]+', b'"ms":0', each.body) for each in added.records)
        self.records += (
            replace(each, call="", body=body)
            for each, body in zip(added.records, bodies, strict=True)
        )
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def add_soon(self, added: Any) -> None:
        self.queue(added)


class Trail(AuditTrail):
    """A trail that does not combine equal refusals."""

    def refused(self, caller: Caller, reason: str, **of: Any) -> None:
        entry: Entry | Item | None = of.get("entry")
        address = entry.address if entry is not None else of.get("name")
        self._writer.records.append(  # type: ignore[attr-defined]
            (caller.principal, reason, address, of.get("rule", ""))
        )


def echoing() -> ScriptedServer:
    """Return a server whose tools answer with their name and arguments."""

    def call(params: Json) -> Json:
        shown = json.dumps([params["name"], params.get("arguments")])
        return text(shown) | {"structuredContent": {"length": len(shown)}}

    tools = {"tools": [tool(each) for each in NAMES]}
    return ScriptedServer(MODERN, {"tools/list": tools, "tools/call": call})


class Gate:
    """A gateway with the rules of the golden table, whose clients search, and with its records."""

    def __init__(self) -> None:
        file = msgspec.json.decode(msgspec.json.encode(FILE))
        file["gateway"]["toolSearch"] = "on"
        for view in file["gateway"]["views"].values():
            view["toolSearch"] = "on"
        self.policy = Policy.from_config(loads(msgspec.json.encode(file)))
        self.records: list[object] = []
        self.limiter = Limiter(
            Limits(per_key=KeyLimits(per_day=150)), clock=lambda: 0.0, wall=lambda: 0.0
        )
        written = cast("AuditWriter", Written(self.records))
        trail = Trail(written, b"k" * 32, Audit())
        recorder = GatewayRecorder(trail, lambda: self.policy, dict)
        self.server = ForwardingServer(
            {name: echoing() for name in SERVERS},
            self.policy,
            environ={},
            observer=recorder,
            layers=Layers(
                counting=recorder.metrics.calls, limits=self.limiter.around, trail=trail.calls
            ),
        )

    async def call(self, principal: Principal, revision: str, **params: Any) -> tuple[Json, object]:
        """Return the result of a call without its reference, and its records."""
        self.records.clear()
        result = await answer(self.server, context_of(principal, revision), "tools/call", **params)
        result.get("_meta", {}).get("interlock/reason", {}).pop("reference", None)
        return result, [*self.records]


@pytest.mark.slow("makes 20,000 calls")
async def test_calls_by_an_executor_have_the_result_limits_and_records_of_direct_calls() -> None:
    direct, aliased, chance = Gate(), Gate(), random.Random(36)
    addresses = [(server, name) for server in SERVERS for name in (*NAMES, "invented")]
    pairs = made = 0
    reasons: set[str] = set()
    async with direct.server.running(), aliased.server.running():
        while pairs < 10_000:
            principal, _ = chance.choice(TABLE)
            principal = replace(principal, key_id=f"key of {principal.id}")
            revision = chance.choice([LEGACY, MODERN])
            listing = await answer(aliased.server, context_of(principal, revision), "tools/list")
            executors = [each["name"] for each in listing["tools"] if each["name"] in (READ, WRITE)]
            for _ in range(50 if executors else 0):
                server, tool_name = chance.choice(addresses)
                given = chance.choice(ARGUMENTS.get(f"{server}:{tool_name}", [{}, {"a": [1]}, []]))
                name = tool_name if principal.view == "plain" else f"{server}__{tool_name}"
                risk = READ if tool_name[:4] in ("get_", "list") else WRITE
                executor = risk if risk in executors else executors[-1]
                expected, records = await direct.call(
                    principal, revision, name=name, arguments=given
                )
                inner = chance.choice([given, json.dumps(given)])
                found, of_executor = await aliased.call(
                    principal, revision, name=executor, arguments={"name": name, "arguments": inner}
                )
                if "error" in expected:  # an executor suggests similar names as well
                    found["error"] = found["error"].partition("; did you mean")[0]
                assert (found, of_executor) == (expected, records), (principal, name, given)
                assert len(records) == (2 if "structuredContent" in expected else 1)
                made += "structuredContent" in expected
                reason = expected.get("_meta", {}).get("interlock/reason", {})
                reasons.add(reason.get("code") or expected.get("error", "")[:9])
                pairs += 1
    assert aliased.limiter.days.spent == direct.limiter.days.spent
    assert made > 800
    assert reasons >= {"approval_required", "arguments_invalid", "too many ", "unknown t"}


# Which tool an executor calls


class Noted(GatewayObserver):
    """Keeps what is reported as refused."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def unavailable(
        self, caller: Caller, reason: str, entry: Entry | Item | None, name: str, call: str
    ) -> None:
        self.seen.append((reason, entry.address if entry is not None else name))

    def unknown(self, caller: Caller, kind: Kind, name: str, entry: Entry | Item | None) -> None:
        self.seen.append(("unknown", name))


def lying() -> ScriptedServer:
    """Return a server that calls its tools read-only."""
    tools = [tool(each, annotations={"readOnlyHint": True}) for each in ("get_a", "drop")]
    return ScriptedServer(MODERN, {"tools/list": {"tools": tools}, "tools/call": text("done")})


def searching(risk: ToolRisk | None = None) -> Policy:
    risks = {"s": risk or ToolRisk(read=("get_*",))}
    return Policy.compile(None, risks=risks, search=SEARCHES)


@each_row(
    "executor, given, code, record",
    [
        (READ, {"name": "s__get_a"}, "", []),
        (WRITE, {"name": "s__get_a"}, "", []),
        (WRITE, {"name": "s__drop"}, "", []),
        (READ, {"name": "s__drop"}, "wrong_executor", [("wrong_executor", "s:drop")]),
        (READ, {"name": "s:drop"}, "unknown", [("unknown", "s:drop")]),
        (READ, {"name": "drop"}, "unknown", [("unknown", "drop")]),
        (READ, {"name": " s__drop "}, "unknown", [("unknown", " s__drop ")]),
        (READ, {"name": "interlock__read_result"}, "wrong_executor",
         [("wrong_executor", "interlock:read_result")]),
        (READ, {"name": WRITE, "arguments": {"name": "s__drop"}}, "wrong_executor",
         [("wrong_executor", "interlock:call_read_tool")]),
        (READ, {}, "arguments_invalid", [("arguments_invalid", "interlock:call_read_tool")]),
        (READ, {"name": ["s__get_a"]}, "arguments_invalid", None),
        (READ, {"name": "s__get_a", "id": 1}, "arguments_invalid", None),
        (READ, {"name": "s__get_a", "arguments": [1]}, "arguments_invalid",
         [("arguments_invalid", "s:get_a")]),
        (READ, {"name": "s__get_a", "arguments": "{"}, "arguments_invalid",
         [("arguments_invalid", "s:get_a")]),
        (READ, {"name": "s__get_a", "arguments": "{}"}, "", []),
        (READ, {"name": "s__get_a", "arguments": None}, "", []),
    ],
)  # fmt: skip
async def test_an_executor_calls_tools_of_its_risk_only_and_refusals_have_the_real_name(
    executor: str, given: Json, code: str, record: list[tuple[str, str]] | None
) -> None:
    server, noted = lying(), Noted()
    gateway = ForwardingServer({"s": server}, searching(), environ={}, observer=noted)
    async with gateway.running():
        context = context_of(Principal("user:anna", ANYBODY), MODERN)
        result = await answer(gateway, context, "tools/call", name=executor, arguments=given)
    found = result.get("_meta", {}).get("interlock/reason", {}).get("code", "")

    assert found == code or (code == "unknown" and "unknown tool" in result["error"])
    assert record is None or noted.seen == record
    assert code == "unknown" or context.error_type == code
    assert not record or code == "unknown" or context.called == record[0][1]
    assert len(server.sent("tools/call")) == (not code)


async def test_a_tool_whose_risk_was_raised_after_the_search_is_not_called() -> None:
    server = lying()
    gateway = ForwardingServer({"s": server}, searching(), environ={})
    async with gateway.running():
        context = context_of(Principal("user:anna", ANYBODY), MODERN)
        call = {"name": READ, "arguments": {"name": "s__get_a"}}
        before = await answer(gateway, context, "tools/call", **call)
        await gateway.replace({"s": server}, searching(ToolRisk(read=("other",))))
        context = context_of(Principal("user:anna", ANYBODY), MODERN)
        after = await answer(gateway, context, "tools/call", **call)

    assert before["content"][0]["text"] == "done"
    assert "unknown tool" in after["error"]  # no tool of risk read is left, so no executor either
    assert len(server.sent("tools/call")) == 1


async def test_of_duplicate_arguments_the_last_is_checked_and_sent() -> None:
    server = lying()
    gateway = ForwardingServer({"s": server}, searching(), environ={})
    call = b'{"name":"s__drop","name":"s__get_a","arguments":{"a":1,"a":2}}'
    raw = b'{"name":"%b","arguments":%b}' % (READ.encode(), call)
    async with gateway.running():
        context = context_of(Principal("user:anna", ANYBODY), MODERN)
        await gateway.answer(Request(1, "tools/call", msgspec.Raw(raw)), context)

    (sent,) = server.sent("tools/call")
    assert (sent["name"], sent["arguments"]) == ("get_a", {"a": 2})


# What happens during a call


@each_row("ours", [LEGACY, MODERN])
@each_row("theirs", [LEGACY, MODERN])
async def test_progress_questions_and_cancelling_pass_through_an_executor(
    ours: str, theirs: str
) -> None:
    server = ScriptedServer(theirs, {"tools/list": {"tools": [tool("who"), tool("wait")]}})
    form = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
    waits = asyncio.Event()

    async def call(params: Json) -> Json | None:
        if params["name"] == "wait":
            waits.set()
            return None
        token = params["_meta"]["progressToken"]
        server.notify("notifications/progress", progressToken=token, progress=1, total=2)
        if theirs == LEGACY:
            found = (await server.ask("elicitation/create", form))["result"]
        elif "inputResponses" in params:
            found = params["inputResponses"]["q"]
        else:
            question = {"method": "elicitation/create", "params": form}
            return {"resultType": "input_required", "inputRequests": {"q": question}}
        return text(found["content"]["name"])

    async def anna(_: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "anna"})

    server.answers["tools/call"] = call
    gateway = ForwardingServer({"s": server}, searching(), environ={})
    seen: list[float] = []
    async with Client.memory(gateway, revision=ours, elicitation=anna) as client:
        result = await client.call_tool(
            WRITE, {"name": "s__who"}, progress=lambda each: seen.append(each.progress)
        )
        waiting = asyncio.create_task(client.call_tool(WRITE, {"name": "s__wait"}))
        await waits.wait()
        waiting.cancel()
        await server.heard("notifications/cancelled")

    assert (result.text, set(seen)) == ("anna", {1})


@pytest.mark.parametrize("ours", [LEGACY, MODERN])
async def test_a_tool_that_runs_only_as_a_task_is_waited_for_and_cancelled_by_an_executor(
    ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(tasks, "SHORTEST_POLL", 0.0)
    working = {"status": "working", "statusMessage": "half"}
    server = LegacyTasks(working, working, {"status": "completed"})
    gateway = ForwardingServer({"s": server}, searching(), environ={})
    told: list[str | None] = []
    async with Client.memory(gateway, revision=ours) as client:
        result = await client.call_tool(
            WRITE, {"name": "s__slow"}, progress=lambda each: told.append(each.message)
        )
        server.states = [working]
        polls = len(server.sent("tasks/get"))
        waiting = asyncio.create_task(client.call_tool(WRITE, {"name": "s__slow"}))
        await server.heard("tasks/get", times=polls + 1)
        waiting.cancel()
        await server.heard("tasks/cancel")

    assert (result.text, told) == ("done", ["half"])


async def test_a_structured_result_has_the_form_of_a_direct_call() -> None:
    listed = tool("get_a", outputSchema={"type": "array", "items": {"type": "integer"}})
    answers: Json = {
        "tools/list": {"tools": [listed]},
        "tools/call": text("[1]") | {"structuredContent": [1]},
    }
    gateway = ForwardingServer({"s": ScriptedServer(MODERN, answers)}, searching(), environ={})
    async with Client.memory(gateway, revision=LEGACY) as client:
        direct = await client.request("tools/call", {"name": "s__get_a"})
        aliased = await client.request(
            "tools/call", {"name": READ, "arguments": {"name": "s__get_a"}}
        )
    assert aliased == direct


async def test_a_server_that_is_still_starting_is_waited_for_and_its_risk_checked() -> None:
    ready = asyncio.Event()

    async def late(_: Json) -> Json:
        await ready.wait()
        return {"tools": [tool("get_a"), tool("drop")]}

    slow = ScriptedServer(LEGACY, {"tools/list": late, "tools/call": text("done")})
    risks = {"s": ToolRisk(read=("get_*",)), "slow": ToolRisk(read=("get_*",))}
    policy = Policy.compile(None, risks=risks, search=SEARCHES)
    gateway = ForwardingServer({"s": lying(), "slow": slow}, policy, environ={}, idle_timeout=0.0)
    async with Client.memory(gateway, revision=MODERN) as client:
        while not gateway.toolbox.tools:  # until the other server has started
            await client.ping()
        calls = [
            asyncio.create_task(client.call_tool(READ, {"name": f"slow__{name}"}))
            for name in ("get_a", "drop")
        ]
        while not slow.sent("tools/list"):
            await client.ping()
        ready.set()
        read, drop = await asyncio.gather(*calls)

    assert read.text == "done"
    assert (drop.meta or {})["interlock/reason"]["code"] == "wrong_executor"
    assert len(slow.sent("tools/call")) == 1


@pytest.mark.slow("fills a database")
async def test_approvals_and_large_results_pass_through_an_executor(
    running: Callable[..., Any], tmp_path: Path
) -> None:
    server, jobs = offering("put", "big"), Server("jobs")

    @jobs.tool(task=True, annotations=ToolAnnotations(read_only_hint=True))
    async def work() -> str:
        """Work for a long time."""
        return "worked"

    server.answers["tools/call"] = lambda params: text(
        "x" * 200_000 if params["name"] == "big" else "done"
    )
    rules = [
        {"id": "all", "effect": "allow", "who": ["*"], "tools": ["*:*"]},
        {
            "id": "ask",
            "effect": "ask",
            "who": ["*"],
            "tools": ["s:put", "j:*"],
            "approvers": ["caller"],
        },
    ]
    gateway_settings = {
        "policy": {"rules": rules},
        "toolSearch": "on",
        "limits": {"perKey": {"perDay": 6}},
    }
    async with running(gateway_settings, s=server, j=jobs) as gateway:
        principal = Principal("user:anna", ANYBODY, key_id="k")
        served = as_principal(gateway.assembly.server, principal)

        async def approve(_: ElicitParams) -> ElicitResult:
            return ElicitResult(action="accept", content={"approve": True})

        for revision in (LEGACY, MODERN):
            async with Client.memory(served, revision=revision, elicitation=approve) as client:
                put = await client.call_tool(WRITE, {"name": "s__put", "arguments": {}})
                big = await client.call_tool(WRITE, {"name": "s__big"})
                worked = await client.call_tool(WRITE, {"name": "j__work"})
            assert worked.text == "worked"
            assert put.text == "done"
            assert "interlock__read_result" in big.text
        async with Client.memory(served, elicitation=approve) as client:
            with pytest.raises(RemoteError, match="too many calls today"):
                await client.call_tool(WRITE, {"name": "j__work"})
        await gateway.settle()
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        records = [each async for piece in reader.export() for each in piece]
    tools = [each["tool"] for each in records if each["kind"] == "intent"]
    assert tools == ["s:put", "s:big", "j:work"] * 2
