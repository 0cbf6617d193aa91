"""What strangers make up costs no memory, no metric of its own, and one record a second."""

from __future__ import annotations

import gc
import json
from collections.abc import Awaitable, Callable
from time import monotonic

import pytest

from interlock.auth import Principal
from interlock.calls import Caller, Entry
from interlock.layers.metrics import OPERATION_BOUNDS
from interlock.policy import Policy
from interlock.policy.policy import MAX_CALLERS
from interlock.types import Tool
from tests.gateway.admin.support import Operator
from tests.gateway.conftest import RunningGateway, bearer, offering

WARM_UP = 400  # until caches are full
FLAT = 1_000  # objects: less than any cache keeps, and independent of how often something is done

many_times = pytest.mark.parametrize(
    "times", [3 * FLAT, pytest.param(100_000, marks=pytest.mark.product)]
)


def count_of_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


async def growth(act: Callable[[int], Awaitable[object]], times: int) -> int:
    """Return how many more objects there are after doing something many times."""
    for number in range(WARM_UP):
        await act(number)
    before = count_of_objects()
    for number in range(WARM_UP, WARM_UP + times):
        await act(number)
    return count_of_objects() - before


async def metrics(gateway: RunningGateway) -> str:
    return (await gateway.http.request("GET", "/metrics")).body.decode()


async def refusals(operator: Operator) -> list[dict[str, object]]:
    await operator.gateway.settle()
    return await operator.records("refused")


@pytest.mark.slow("fills a database")
@many_times
async def test_bad_keys_are_counted_and_recorded_once_a_second(running, times: int):
    async with running({}, crm=offering("x")) as gateway:
        operator, began = await Operator.of(gateway), monotonic()

        async def guess(number: int) -> None:
            reply = await gateway.http.request("POST", headers=bearer(f"canary{number:06}"))
            assert reply.code == 401
            gateway.http.replies.clear()

        assert await growth(guess, times) < FLAT
        text = await metrics(gateway)
        assert f'interlock_refusals_total{{reason="bad_credential"}} {WARM_UP + times}' in text
        assert "canary" not in text
        found = await refusals(operator)
        assert 1 <= len(found) <= monotonic() - began + 1
        assert "canary" not in json.dumps(found)


@pytest.mark.slow("fills a database")
@many_times
async def test_unknown_names_get_no_label_and_one_record_a_second(running, times: int):
    async with running({}, crm=offering("x")) as gateway:
        operator, key = await Operator.of(gateway), await gateway.key()
        lines = len((await metrics(gateway)).splitlines())
        began = monotonic()

        async def call(number: int) -> None:
            reply = await gateway.call(f"crm__canary{number:06}", key)
            assert reply.json["error"]["code"] == -32602
            gateway.http.replies.clear()

        assert await growth(call, times) < FLAT
        text = await metrics(gateway)
        assert "canary" not in text
        # One set of labels, without the name, of the histogram; and the reason of the refusals.
        assert len(text.splitlines()) <= lines + len(OPERATION_BOUNDS) + 4
        found = await refusals(operator)
        assert len(found) <= monotonic() - began + 1


@pytest.mark.slow("fills a database")
async def test_refused_calls_of_changed_tools_and_of_servers_that_are_down_are_recorded(running):
    crm = offering("x")
    nobody = {"command": "/absent/server"}
    async with running({}, crm=crm, down=nobody) as gateway:
        operator, key = await Operator.of(gateway), await gateway.key()
        crm.answers["tools/list"]["tools"][0]["description"] = "another"
        await gateway.assembly.server.toolbox.upstreams["crm"].restart()
        reasons = []
        for name in ("crm__x", *(f"down__canary{number}" for number in range(50))):
            result = (await gateway.call(name, key)).json["result"]
            reasons.append(result["_meta"]["interlock/reason"])
        await gateway.settle()
        told = [
            await operator.get(f"/audit/{each['reference']}", "")
            for each in (reasons[0], reasons[1])
        ]
        count = len(await refusals(operator))
        page = await metrics(gateway)

    assert [(each["reason"], each["tool"]) for (each,) in told] == [
        ("tool_quarantined", "crm:x"),
        ("server_down", "down:canary0"),
    ]
    assert count == 2  # names that a caller makes up are one refusal
    assert 'interlock_refusals_total{reason="server_down"} 50' in page


@pytest.mark.slow("fills a database")
async def test_metrics_of_many_callers_are_combined(running):
    async with running({}, crm=offering("x")) as gateway:
        lines = []
        for number in range(200):
            key = gateway.assembly.services.keys.issue(f"canary{number}", ["mcp:*"])
            assert (await gateway.call("crm__x", key)).text == "done"
            if number in (0, 199):
                lines.append((await metrics(gateway)).splitlines())
        assert len(lines[0]) == len(lines[1])
        assert "canary" not in "\n".join(lines[1])


@pytest.mark.slow("works through much data")
@many_times
def test_policy_remembers_a_bounded_number_of_principals(times: int):
    policy, tool = (
        Policy.compile(None),
        Entry("crm", Tool(name="x", input_schema={}), "crm:x", "crm__x", b"{}"),
    )

    def decide(number: int) -> None:
        caller = Caller(Principal(f"user:{number}", frozenset({"mcp:*"})))
        assert policy.decide(caller, tool).effect == "allow"

    for number in range(2 * MAX_CALLERS):
        decide(number)
    before = count_of_objects()
    for number in range(2 * MAX_CALLERS, times):
        decide(number)
    assert count_of_objects() - before < FLAT
