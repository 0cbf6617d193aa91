"""Calls by way of an executor: the same checks, limits and records as direct calls."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from interlock.auth.principal import Principal
from interlock.calls import Caller, Entry, Item
from interlock.config import loads
from interlock.config.gateway import Audit, KeyLimits, Limits, ViewSearch
from interlock.gateway import ForwardingServer
from interlock.gateway.recorder import GatewayRecorder
from interlock.layers import Layers
from interlock.layers.audit import AuditTrail
from interlock.layers.limits import Limiter
from interlock.policy import Policy
from interlock.store import AuditWriter
from tests.gateway.golden import (
    ARGUMENTS,
    FILE,
    NAMES,
    SERVERS,
    TABLE,
    answer,
    context_of,
)
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool

ANYBODY = frozenset({"mcp:*"})
READ, WRITE = "interlock__call_read_tool", "interlock__call_write_tool"
SEARCHES = ViewSearch(is_on=True)


class Written:
    """A writer of audit records that keeps them in memory, without their ids and times."""

    is_failing = False

    def __init__(self, records: list[object]) -> None:
        self.group = self
        self.records = records

    def queue(self, added: Any) -> asyncio.Future[None]:
        self.records += (replace(each, call="") for each in added.records)
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
        trail = Trail(written, b"k" * 32, Audit(), clock=lambda: 0.0)
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
