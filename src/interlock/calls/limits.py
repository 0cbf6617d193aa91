"""Limits on calls: rates, quotas a day, and how many run at once.

1. A refused call spends nothing. A call that is refused further in gives back what it spent.
2. A refusal states when the same call may succeed. No caller is locked out for longer than that.
3. A decision costs the same however many callers there are, and memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from math import ceil
from time import monotonic, time
from typing import TypeAlias

from interlock.auth.principal import Principal
from interlock.calls.call import Call, Outcome
from interlock.calls.stack import CallHandler
from interlock.config.gateway import Limits, Rate
from interlock.config.gateway_reading import parse_rate
from interlock.errors import (
    AuditUnavailable,
    CallRefused,
    InputRequired,
    LimitExceeded,
    ServerUnavailable,
)
from interlock.types import JsonObject

MAX_KEYS = 100_000  # that a counter remembers; beyond it the one unused for longest is forgotten
MAX_TOOLS = 4_096  # whose limits are remembered
DAY = 86_400
RETRY_AFTER = 1.0  # seconds, when too many calls run: one of them may have ended by then
ROUNDING = 1e-6  # seconds; a shorter wait is none, as sums of intervals are not exact
_NOT_SENT = (CallRefused, AuditUnavailable, ServerUnavailable, InputRequired)

Clock = Callable[[], float]


class Buckets:
    """Token buckets of one rate, by key. A bucket is one number: when it will be full.

    Args:
        rate: How fast a bucket is refilled.
        burst: The size of a bucket; None for as many as in `rate`.
        reason: The code of a refusal.
        what: The calls that are limited, for the text of a refusal.
    """

    def __init__(self, rate: Rate, burst: int | None, reason: str, what: str) -> None:
        self.reason = reason
        self.text = f"too many calls {what} (limit {rate}"
        self.text += f", {burst} at once)" if burst is not None else ")"
        self._interval = rate.seconds / rate.calls
        self._room = self._interval * ((burst or rate.calls) - 1)
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until a call may be made; up to `ROUNDING` means now."""
        return self._full_at.get(key, 0.0) - now - self._room

    def spend(self, key: Hashable, now: float) -> None:
        """Take a token."""
        full_at = self._full_at
        full_at[key] = max(full_at.get(key, 0.0), now) + self._interval
        full_at.move_to_end(key)
        if len(full_at) > MAX_KEYS:
            full_at.popitem(last=False)

    def give_back(self, key: Hashable) -> None:
        """Put a token back."""
        if key in self._full_at:
            self._full_at[key] -= self._interval


class DayCounter:
    """Calls by key since midnight, UTC.

    The wall clock is read once a day only, so that setting it does not change a quota.

    Args:
        limit: Calls a day.
        wall: The wall clock, seconds since 1970.

    Attributes:
        spent: Calls by key. See `quotas`, which keeps it.
    """

    def __init__(self, limit: int, wall: Clock) -> None:
        self.reason = "rate_limited"
        self.text = f"too many calls today (limit {limit})"
        self.spent: OrderedDict[Hashable, int] = OrderedDict()
        self._limit = limit
        self._wall = wall
        self._ends: float | None = None  # midnight, by the monotonic clock

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until midnight if the quota is spent, else 0."""
        if self._ends is None or now >= self._ends:
            if self._ends is not None:
                self.spent.clear()
            self._ends = now + DAY - self._wall() % DAY
        return 0.0 if self.spent.get(key, 0) < self._limit else self._ends - now

    def spend(self, key: Hashable, now: float) -> None:
        """Count a call."""
        del now
        self.spent[key] = self.spent.get(key, 0) + 1
        self.spent.move_to_end(key)
        if len(self.spent) > MAX_KEYS:
            self.spent.popitem(last=False)

    def give_back(self, key: Hashable) -> None:
        """Subtract a call."""
        if self.spent.get(key):
            self.spent[key] -= 1


_Spent: TypeAlias = list[tuple[Buckets | DayCounter, Hashable]]


class Limiter:
    """All limits but those of the servers' queues. `Limiter.around` is the layer.

    Args:
        limits: Of keys and tools, and in all.
        servers: The rate of each server that has one, by its name.
        clock: The monotonic clock, in seconds.
        wall: The wall clock, for quotas a day.

    Attributes:
        days: The quotas a day, by key; None without such a limit.
        own: Limits of single keys by id, as `{"rate": "20/s"}`; they replace the common rate.
    """

    def __init__(
        self,
        limits: Limits,
        servers: Mapping[str, Rate] | None = None,
        *,
        clock: Clock = monotonic,
        wall: Clock = time,
    ) -> None:
        key = limits.per_key
        self.days = DayCounter(key.per_day, wall) if key.per_day is not None else None
        self._clock = clock
        self.own: Mapping[str, JsonObject] = {}
        self._own_buckets: dict[str, Buckets] = {}  # by rate
        self._of_key: list[Buckets | DayCounter] = []
        if key.rate is not None:
            self._of_key.append(Buckets(key.rate, key.burst, "rate_limited", "with this key"))
        if self.days is not None:
            self._of_key.append(self.days)
        self._of_tools = [(each, _of_tool(each, rate)) for each, rate in limits.tools.items()]
        self._of_tool = lru_cache(MAX_TOOLS)(self._matching)
        self._of_server = {
            name: Buckets(rate, None, "tool_rate_limited", f"of server {name!r}")
            for name, rate in (servers or {}).items()
        }
        self._most_of_key = key.concurrent
        self._most = limits.concurrent
        self._running: dict[str, int] = {}  # by key
        self._total = 0

    def admit(self, principal: Principal | None) -> None:
        """Check the limits of a caller's key and of all calls, before its call is looked at.

        Raises:
            LimitExceeded: The call must be refused.
        """
        key = _key_of(principal)
        self._check_running(key)
        self._check([(counter, key) for counter in self._counters_of(key)], self._clock())

    def around(self, handle: CallHandler) -> CallHandler:
        """Return a handler that makes the calls that the limits permit."""

        async def call_within_limits(call: Call) -> Outcome:
            key = _key_of(call.caller.principal)
            self._check_running(key)
            spent = self._spend(call, key)
            self._running[key] = self._running.get(key, 0) + 1
            self._total += 1
            end = call.hold(partial(self._end, key))
            try:
                return await handle(call)
            except _NOT_SENT:
                for counter, of in spent:
                    counter.give_back(of)
                raise
            finally:
                end()

        return call_within_limits

    def _end(self, key: str) -> None:
        self._total -= 1
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]

    def _spend(self, call: Call, key: str) -> _Spent:
        """Spend what a call needs of each rate and quota, or nothing.

        Args:
            call: The call.
            key: Of the caller's credential.

        Raises:
            LimitExceeded: The one that takes longest to permit the call.
        """
        spent = self._counters(call, key)
        now = self._clock()
        self._check(spent, now)
        for counter, of in spent:
            counter.spend(of, now)
        return spent

    @staticmethod
    def _check(counters: _Spent, now: float) -> None:
        longest, exceeded = ROUNDING, None
        for counter, of in counters:
            wait = counter.wait(of, now)
            if wait > longest:
                longest, exceeded = wait, counter
        if exceeded is not None:
            text = f"{exceeded.text}; retry in {ceil(longest)} s"
            raise LimitExceeded(text, exceeded.reason, longest)

    def _counters(self, call: Call, key: str) -> _Spent:
        entry = call.entry
        found: _Spent = [(counter, key) for counter in self._counters_of(key)]
        of_tool = self._of_tool(entry.address)
        if of_tool:
            of = call.caller.owner, entry.address
            found += [(counter, of) for counter in of_tool]
        of_server = self._of_server.get(entry.server)
        if of_server is not None:
            found.append((of_server, entry.server))
        return found

    def _counters_of(self, key: str) -> list[Buckets | DayCounter]:
        text = self.own[key].get("rate") if key in self.own else None
        if text is None:
            return self._of_key
        buckets = self._own_buckets.get(text)
        if buckets is None:
            rate = parse_rate(text)
            if rate is None:  # of a newer version of this program
                return self._of_key
            buckets = self._own_buckets[text] = Buckets(rate, None, "rate_limited", "with this key")
        return [buckets, self.days] if self.days is not None else [buckets]

    def _matching(self, address: str) -> list[Buckets]:
        return [buckets for pattern, buckets in self._of_tools if fnmatchcase(address, pattern)]

    def _check_running(self, key: str) -> None:
        running = self._running.get(key, 0)
        if running >= self._most_of_key:
            text = f"too many calls at once with this key (limit {self._most_of_key})"
            raise LimitExceeded(f"{text}; wait until one has ended", "overloaded", RETRY_AFTER)
        if self._total >= self._most:
            text = f"too many calls at once (limit {self._most}); retry later"
            raise LimitExceeded(text, "overloaded", RETRY_AFTER)


def _of_tool(pattern: str, rate: Rate) -> Buckets:
    reason = "quota_exceeded" if rate.seconds >= DAY else "tool_rate_limited"
    return Buckets(rate, None, reason, f"of {pattern}")


def _key_of(principal: Principal | None) -> str:
    """Return the key of the caller's credential: of the API key, or of the user of a token."""
    return "" if principal is None else principal.key_id or principal.owner
