"""Limits on calls, with a clock that only the tests move."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given as examples

from interlock.calls import Call
from interlock.calls.call import Slots
from interlock.config.gateway import KeyLimits, Limits, Rate
from interlock.errors import (
    AuditUnavailable,
    CallRefused,
    InputRequired,
    InterlockError,
    LimitExceeded,
    RemoteError,
    RequestTimeout,
    ServerUnavailable,
)
from interlock.layers import limits
from interlock.layers.limits import Limiter
from interlock.types import JsonObject
from tests.layers.support import Upstream, call_of, settle
from tests.support.rows import each_row

NOON = 1_800_014_400.0  # 2027-01-15 12:00 UTC
PER_SECOND = Rate(20, 1)


class Clock:
    """A monotonic clock, and a wall clock that can be set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.set_by = 0.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return NOON + self.now - 1_000_000.0 + self.set_by


class Limited:
    """Calls through the layer, and what became of them."""

    def __init__(
        self,
        given: Limits,
        servers: dict[str, Rate] | None = None,
        *,
        own: dict[str, JsonObject] | None = None,
    ) -> None:
        self.clock = Clock()
        self.limiter = Limiter(given, servers, own=own, clock=self.clock, wall=self.clock.wall)
        self.upstream = Upstream()
        self.handle = self.limiter.around(self.upstream.handle)

    async def refusal(self, call: Call | None = None) -> LimitExceeded | None:
        """Make a call; return its refusal, or None."""
        try:
            await self.handle(call or call_of())
        except LimitExceeded as error:
            return error
        return None

    async def admitted(self, times: int, call: Call | None = None) -> int:
        """Make calls one after another; return how many were admitted."""
        return sum([await self.refusal(call) is None for _ in range(times)])


def per_key(**members: Any) -> Limits:
    return Limits(per_key=KeyLimits(**members))


# Rates


@each_row(
    ("given", "servers", "reason", "most", "refill"),
    [
        (per_key(rate=PER_SECOND), {}, "rate_limited", 20, 0.05),
        (per_key(rate=PER_SECOND, burst=60), {}, "rate_limited", 60, 0.05),
        (per_key(rate=PER_SECOND, burst=1), {}, "rate_limited", 1, 0.05),
        (per_key(rate=Rate(600, 60)), {}, "rate_limited", 600, 0.1),
        (per_key(per_day=50), {}, "rate_limited", 50, 43_200),
        (Limits(tools={"crm:refund": Rate(5, 60)}), {}, "tool_rate_limited", 5, 12),
        (Limits(tools={"crm:*": Rate(5, 60)}), {}, "tool_rate_limited", 5, 12),
        (Limits(tools={"*:*": Rate(100, 86_400)}), {}, "quota_exceeded", 100, 864),
        (Limits(), {"crm": Rate(50, 1)}, "tool_rate_limited", 50, 0.02),
    ],
)
async def test_limit_permits_its_burst_and_then_one_call_per_refill(
    given: Limits, servers: dict[str, Rate], reason: str, most: int, refill: float
):
    limited = Limited(given, servers)

    assert await limited.admitted(most + 10) == limited.upstream.calls == most
    for _ in range(3):
        refused = await limited.refusal()
        assert refused is not None
        assert (refused.reason, refused.retry_after) == (reason, pytest.approx(refill, abs=0.001))
        limited.clock.now += refused.retry_after - 0.001
        assert await limited.refusal() is not None
        limited.clock.now += 0.001
        assert await limited.refusal() is None
        if given.per_key.per_day:
            break


@pytest.mark.slow("works through much data")
@each_row("demand", [15, 25, 400])
async def test_rate_over_a_long_time_is_exact_within_a_percent(demand: int):
    limited = Limited(per_key(rate=PER_SECOND, burst=10))
    admitted = 0
    for _ in range(demand * 100):
        limited.clock.now += 1 / demand
        admitted += await limited.admitted(1)

    assert admitted == pytest.approx(min(demand, 20) * 100, rel=0.01)


async def test_refusal_states_the_limit_and_when_to_retry():
    limited = Limited(per_key(rate=Rate(600, 60), burst=2))
    await limited.admitted(2)

    refused = await limited.refusal()

    assert str(refused) == ("too many calls with this key (limit 600/min, 2 at once); retry in 1 s")


@each_row(
    ("other", "shares"),
    [
        (call_of("anna", key="k1"), {"key", "tool", "server"}),
        (call_of("anna", key="k2"), {"tool", "server"}),
        (call_of("berta", key="k3"), {"server"}),
        (call_of("anna", "list", key="k1"), {"key", "server"}),
        (call_of("anna", server="web", key="k1"), {"key"}),
        (call_of(None), {"server"}),
    ],
)
async def test_key_tool_and_server_have_separate_rate_buckets(other: Call, shares: set[str]):
    once = Rate(1, 60)
    for what, given, servers in (
        ("key", per_key(rate=once), {}),
        ("tool", Limits(tools={"crm:*": once}), {}),
        ("server", Limits(), {"crm": once}),
    ):
        limited = Limited(given, servers)
        assert await limited.refusal(call_of("anna", key="k1")) is None
        assert (await limited.refusal(other) is not None) == (what in shares), what


async def test_refusal_of_two_limits_states_the_longer_wait():
    limited = Limited(
        Limits(per_key=KeyLimits(rate=PER_SECOND, burst=1), tools={"crm:refund": Rate(1, 60)})
    )
    await limited.refusal()

    refused = await limited.refusal()

    assert refused is not None
    assert (refused.reason, round(refused.retry_after or 0)) == ("tool_rate_limited", 60)


# Quotas a day


@each_row("jump", [-3_600, 3_600])
async def test_quota_a_day_ends_at_midnight_even_if_the_wall_clock_is_set(jump: float):
    limited = Limited(per_key(per_day=3))
    assert await limited.admitted(5) == 3

    limited.clock.set_by = jump
    limited.clock.now += 43_199
    assert await limited.admitted(5) == 0
    limited.clock.now += 1
    assert await limited.admitted(5) == 3


async def test_restored_quota_counts_the_calls_before_a_restart():
    limited = Limited(per_key(per_day=3))
    limited.limiter.days.spent["acme/anna"] = 2

    assert await limited.admitted(5) == 1
    assert limited.limiter.days.spent == {"acme/anna": 3}


# Giving back


async def test_refused_call_does_not_count_towards_the_limits():
    limited = Limited(
        Limits(per_key=KeyLimits(rate=Rate(10, 60), per_day=10), tools={"crm:refund": Rate(1, 60)})
    )
    assert await limited.admitted(50) == 1

    assert await limited.admitted(50, call_of(tool="list")) == 9


@each_row(
    ("error", "is_spent"),
    [
        (CallRefused("not approved", "approval_denied"), False),
        (LimitExceeded("no slot", "queue_timeout", 1.0), False),
        (AuditUnavailable("disk full"), False),
        (ServerUnavailable("crm", "down"), False),
        (InputRequired({"approve": ("elicitation/create", b"{}")}), False),
        (RemoteError(-32000, "no"), True),
        (RequestTimeout("no answer"), True),
    ],
)
async def test_call_counts_towards_its_limits_only_if_it_is_sent(
    error: InterlockError, is_spent: bool
):
    limited = Limited(
        Limits(per_key=KeyLimits(rate=Rate(2, 60), per_day=2), tools={"*:*": Rate(2, 60)}),
        {"crm": Rate(2, 60)},
    )
    limited.upstream.answers = [error]
    for _ in range(2):
        with pytest.raises(type(error)):
            await limited.handle(call_of())
    limited.upstream.answers = [b"{}"]

    assert await limited.admitted(5) == (0 if is_spent else 2)


# Calls at once


@each_row(("users", "admitted"), [(["anna"] * 9, 3), (["anna", "berta", "carla"] * 3, 5)])
async def test_calls_at_once_are_limited_for_each_key_and_in_all(users: list[str], admitted: int):
    limited = Limited(Limits(per_key=KeyLimits(concurrent=3), concurrent=5))
    limited.upstream.gate.clear()

    tasks = [asyncio.create_task(limited.refusal(call_of(user))) for user in users]
    await settle()
    assert limited.upstream.running == admitted
    limited.upstream.gate.set()
    refused = [each for each in await asyncio.gather(*tasks) if each is not None]

    assert len(refused) == len(users) - admitted
    assert {(each.reason, each.retry_after) for each in refused} == {("overloaded", 1.0)}
    assert await limited.admitted(10) == 10


async def test_failed_and_cancelled_calls_free_their_place():
    limited = Limited(per_key(concurrent=2))
    limited.upstream.gate.clear()
    tasks = [asyncio.create_task(limited.handle(call_of())) for _ in range(2)]
    await settle()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    limited.upstream.gate.set()
    limited.upstream.answers = [RemoteError(1, "no")]
    for _ in range(5):
        with pytest.raises(RemoteError):
            await limited.handle(call_of())


# Memory


async def test_counters_forget_the_callers_that_are_unused_for_longest(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "MAX_KEYS", 3)
    limited = Limited(per_key(rate=Rate(1, 60), per_day=1))
    for user in ("anna", "berta", "carla", "dora"):  # which forgets anna
        assert await limited.refusal(call_of(user)) is None

    assert await limited.refusal(call_of("dora")) is not None
    assert await limited.refusal(call_of("carla")) is not None
    assert await limited.refusal(call_of("anna")) is None


# Against a model


@examples(
    steps=st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=80),
    calls=st.integers(1, 5),
    burst=st.none() | st.integers(1, 8),
)
def test_rate_limit_equals_a_plain_token_bucket(
    steps: list[tuple[int, bool]], calls: int, burst: int | None
):
    buckets = limits.Buckets(Rate(calls, 60), burst, "", "")
    size = burst or calls
    tokens, last, now = float(size), 0.0, 1_000_000.0
    for pause, is_refused_later in steps:
        now += pause
        tokens = min(size, tokens + (now - (last or now)) * calls / 60)
        last = now
        wait = buckets.wait("k", now)
        assert (wait <= limits.ROUNDING) == (tokens >= 1 - 1e-6)
        if wait > limits.ROUNDING:
            assert wait == pytest.approx((1 - tokens) * 60 / calls, abs=0.001)
            continue
        limits.spend([(buckets, "k")], now)
        if is_refused_later:
            buckets.give_back("k")
        else:
            tokens -= 1


# Limits of single keys


async def test_rate_of_a_single_key_replaces_the_common_one():
    now = [0.0]
    own: dict[str, JsonObject] = {"k_fast": {"rate": "3/s"}, "k_odd": {"rate": "3/fortnight"}}
    limiter = Limiter(Limits(per_key=KeyLimits(rate=Rate(1, 1))), own=own, clock=lambda: now[0])
    handle = limiter.around(Upstream().handle)

    async def made(key: str) -> int:
        for count in range(10):
            try:
                limiter.admit(call_of(key=key).caller.principal)
                await handle(call_of(key=key))
            except LimitExceeded:
                return count
        return 10

    assert [await made(key) for key in ("k_fast", "k_slow", "k_odd")] == [3, 1, 1]
    now[0] += 1
    assert [await made(key) for key in ("k_fast", "k_slow")] == [3, 1]


@each_row(
    ("own", "admitted", "reason"),
    [
        ({"perDay": 2}, 2, "rate_limited"),
        ({"perDay": 9}, 5, "rate_limited"),  # the common rate holds, too
        ({"burst": 3}, 3, "rate_limited"),
        ({"rate": "4/min"}, 4, "rate_limited"),
        ({"rate": "4/min", "burst": 1}, 1, "rate_limited"),
        ({}, 5, "rate_limited"),
    ],
)
async def test_each_limit_of_a_single_key_replaces_its_common_one(
    own: dict[str, Any], admitted: int, reason: str
):
    limited = Limited(per_key(rate=Rate(60, 60), burst=5), own={"k": own})

    assert await limited.admitted(20, call_of(key="k")) == admitted
    refusal = await limited.refusal(call_of(key="k"))
    assert refusal is not None
    assert refusal.reason == reason
    assert await limited.admitted(20, call_of(key="other")) == 5


async def test_calls_at_once_of_a_single_key_have_their_own_limit():
    limited = Limited(per_key(concurrent=1), own={"k": {"concurrent": 3}})
    limited.upstream.gate.clear()

    running = [asyncio.create_task(limited.refusal(call_of(key="k"))) for _ in range(4)]
    await settle()
    assert [each.done() for each in running] == [False, False, False, True]
    limited.upstream.gate.set()
    refusals = await asyncio.gather(*running)
    assert [each.reason for each in refusals if each is not None] == ["overloaded"]


async def test_daily_count_of_a_key_survives_a_change_of_its_limits():
    own: dict[str, JsonObject] = {"k": {"perDay": 5}}
    limited = Limited(per_key(), own=own)
    assert await limited.admitted(3, call_of(key="k")) == 3

    own["k"] = {"perDay": 4, "rate": "100/s"}

    assert await limited.admitted(3, call_of(key="k")) == 1


# What operators and callers see


async def test_usage_of_a_key_states_the_remaining_calls_and_the_retry_time():
    limited = Limited(per_key(rate=Rate(2, 60), per_day=50, concurrent=4))
    assert await limited.admitted(2, call_of(key="k")) == 2

    usage = limited.limiter.usage("k")

    rate, day = usage["limits"]
    assert (usage["running"], usage["concurrent"]) == (0, 4)
    assert (rate["limit"], rate["left"]) == ("2/min", 0)
    assert rate["retryAfter"] == pytest.approx(30)
    assert (day["left"], day["retryAfter"]) == (48, 0)
    assert limited.limiter.usage("other")["limits"][0]["left"] == 2


async def test_total_usage_has_running_calls_and_the_rate_of_each_server():
    limited = Limited(Limits(concurrent=7), {"crm": Rate(5, 60)})
    limited.upstream.gate.clear()
    running = asyncio.create_task(limited.refusal())
    await settle()

    usage = limited.limiter.usage()
    limited.upstream.gate.set()
    await running

    assert (usage["running"], usage["concurrent"]) == (1, 7)
    (server,) = usage["limits"]
    assert (server["server"], server["limit"], server["left"]) == ("crm", "5/min", 4)
    assert limited.limiter.usage()["running"] == 0


async def test_limit_check_states_the_refusal_and_does_not_count_the_call():
    limited = Limited(Limits(tools={"crm:refund": Rate(1, 60)}))
    call = call_of()

    for _ in range(3):
        limited.limiter.check(call.caller, call.entry)
    assert await limited.refusal(call) is None
    with pytest.raises(LimitExceeded, match=r"of crm:refund \(limit 1/min\); retry in 60 s"):
        limited.limiter.check(call.caller, call.entry)


async def test_limit_check_states_that_too_many_calls_run():
    limited = Limited(per_key(concurrent=1))
    limited.upstream.gate.clear()
    call = call_of()
    running = asyncio.create_task(limited.refusal(call))
    await settle()

    with pytest.raises(LimitExceeded, match="too many calls at once with this key"):
        limited.limiter.check(call.caller, call.entry)
    limited.upstream.gate.set()
    await running
    limited.limiter.check(call.caller, call.entry)


def test_each_limit_of_a_call_is_described_in_words():
    given = Limits(per_key=KeyLimits(rate=PER_SECOND, per_day=50), tools={"crm:*": Rate(5, 60)})
    call = call_of()

    described = Limiter(given, {"crm": Rate(50, 1)}).describe(call.caller, call.entry)

    assert described == [
        "20/s with this key",
        "50 calls a day",
        "5/min of crm:*",
        "50/s of server 'crm'",
    ]


async def test_call_that_waits_for_its_client_frees_its_place_once():
    limited = Limited(per_key(concurrent=1))
    limited.upstream.gate.clear()
    waiting = call_of()
    waiting.slots = Slots()
    tasks = [asyncio.create_task(limited.refusal(waiting))]
    await settle()
    assert await limited.refusal() is not None

    waiting.slots.give_back()
    tasks.append(asyncio.create_task(limited.refusal()))
    await settle()
    assert limited.upstream.running == 2
    limited.upstream.gate.set()

    assert await asyncio.gather(*tasks) == [None, None]
    assert limited.limiter.usage()["running"] == 0
