"""Limits on calls: rates, daily quotas, and the number of calls at once.

1. A refused call does not count towards any limit, even if an inner layer refuses it.
2. A refusal states when the same call may succeed. A caller is never blocked for longer.
3. A check takes the same time for any number of callers, and memory is bounded.
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
from interlock.calls.call import Call, Caller, Outcome
from interlock.calls.entry import Entry, Item
from interlock.calls.handlers import CallHandler
from interlock.config.gateway import KeyLimits, Limits, Rate
from interlock.config.limits_reading import key_limits
from interlock.errors import (
    AuditUnavailable,
    CallRefused,
    InputRequired,
    LimitExceeded,
    ServerUnavailable,
)
from interlock.types import JsonObject

MAX_KEYS = 100_000  # keys for each limit; the least recently used key is dropped first
MAX_PLANNED = 100_000  # pairs of caller and tool whose buckets are cached
MAX_TOOLS = 4_096  # tools whose limits are cached
DAY = 86_400
RETRY_AFTER = 1.0  # seconds to wait if too many calls run; one of them may have ended by then
ROUNDING = 1e-6  # seconds; a shorter wait is treated as 0, because sums of floats are inexact
_NOT_SENT = (CallRefused, AuditUnavailable, ServerUnavailable, InputRequired)

Clock = Callable[[], float]


class Buckets:
    """The token buckets of one rate, by key. A bucket is stored as the time when it will be full.

    Args:
        rate: How fast a bucket refills.
        burst: The capacity of a bucket; None for the number of calls in `rate`.
        reason: The code of a refusal.
        what: Which calls are limited, for the text of a refusal, such as "with this key".

    Attributes:
        full_at: The time at which each key's bucket will be full.
        interval: Seconds until one token is refilled.
        room: Seconds until a bucket with one token is full.
        days: None, because these buckets refill continuously; `DayQuota` sets it.
    """

    days: DayCounter | None = None

    def __init__(self, rate: Rate, burst: int | None, reason: str, what: str) -> None:
        self.reason = reason
        limit = str(rate) if burst is None else f"{rate}, {burst} at once"
        self.text = f"too many calls {what} (limit {limit})"
        self.what = f"{limit} {what}"
        self.interval = rate.seconds / rate.calls
        self.room = self.interval * ((burst or rate.calls) - 1)
        self._rate, self._burst = rate, burst or rate.calls
        self.full_at: OrderedDict[Hashable, float] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until a call may be made; at most `ROUNDING` if it may be made now."""
        return self.full_at.get(key, 0.0) - now - self.room

    def give_back(self, key: Hashable) -> None:
        if key in self.full_at:
            self.full_at[key] -= self.interval

    def usage(self, key: Hashable, now: float) -> JsonObject:
        """Return the limit and how many calls may be made right now."""
        missing = max(0.0, self.full_at.get(key, 0.0) - now)
        left = int(self._burst - missing / self.interval + ROUNDING)
        wait = max(0.0, self.wait(key, now))
        return {"limit": str(self._rate), "burst": self._burst, "left": left, "retryAfter": wait}


class DayCounter:
    """Counts each key's calls since midnight UTC.

    It reads the wall clock only once a day, so setting the clock does not change a quota.

    Args:
        wall: Returns the wall clock's time in seconds since 1970.

    Attributes:
        spent: The number of calls of each key; the module `quotas` stores them.
        ends: The next midnight by the monotonic clock; None until `end` is called.
    """

    def __init__(self, wall: Clock) -> None:
        self.spent: OrderedDict[Hashable, float] = OrderedDict()
        self.ends: float | None = None
        self._wall = wall

    def end(self, now: float) -> float:
        """Return the next midnight; reset the counts if the last one has passed."""
        if self.ends is None or now >= self.ends:
            if self.ends is not None:
                self.spent.clear()
            self.ends = now + DAY - self._wall() % DAY
        return self.ends


class DayQuota(Buckets):
    """A daily quota, with the interface of `Buckets`: `full_at` counts calls until midnight.

    Args:
        days: Counts the calls of each key.
        limit: Calls a day.
    """

    def __init__(self, days: DayCounter, limit: int) -> None:
        self.reason = "rate_limited"
        self.text = f"too many calls today (limit {limit})"
        self.what = f"{limit} calls a day"
        self.days: DayCounter = days
        self.interval, self.room = 1, limit - 1
        self._limit = limit

    @property
    def full_at(self) -> OrderedDict[Hashable, float]:  # type: ignore[override]
        """The calls of each key today."""
        return self.days.spent

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until midnight if the quota is spent, else 0."""
        ends = self.days.end(now)
        return 0.0 if self.days.spent.get(key, 0) < self._limit else ends - now

    def usage(self, key: Hashable, now: float) -> JsonObject:
        """Return the daily limit and the number of calls that are left today."""
        wait = self.wait(key, now)  # also resets the counts after midnight
        left = max(0, self._limit - int(self.days.spent.get(key, 0)))
        return {"limit": f"{self._limit}/day", "left": left, "retryAfter": wait}


_Spent: TypeAlias = list[tuple[Buckets, Hashable]]


def spend(needed: _Spent, now: float) -> bool:
    """Take a token from every bucket, or from none of them if one is empty; return success."""
    for index, (buckets, key) in enumerate(needed):
        at = now
        if (days := buckets.days) is None:
            full_at = buckets.full_at
        else:
            if days.ends is None or now >= days.ends:
                days.end(now)
            full_at, at = days.spent, 0
        full = full_at.get(key, at)
        if full < at:
            full = at
        elif full - at - buckets.room > ROUNDING:
            for before, of in needed[:index]:
                before.give_back(of)
            return False
        full_at[key] = full + buckets.interval
        full_at.move_to_end(key)
        if len(full_at) > MAX_KEYS:
            full_at.popitem(last=False)
    return True


class Limiter:
    """Checks all limits except the servers' queues. `Limiter.around` is the layer.

    Args:
        limits: The limits of each key, of tools, and of all calls together.
        servers: Rates by the server's name, for servers that have a rate.
        own: The limits of individual keys by key id, as in `limits.perKey` of the configuration.
            Each member replaces the common limit. The mapping may change between calls.
        days: Today's counts so far; None to start at zero.
        clock: The monotonic clock, in seconds.
        wall: The wall clock, for daily quotas.

    Attributes:
        days: Today's number of calls of each key that has a quota.
        own: The limits of individual keys by key id.
    """

    def __init__(
        self,
        limits: Limits,
        servers: Mapping[str, Rate] | None = None,
        *,
        own: Mapping[str, JsonObject] | None = None,
        days: DayCounter | None = None,
        clock: Clock = monotonic,
        wall: Clock = time,
    ) -> None:
        self.days = days or DayCounter(wall)
        self._clock = clock
        self.own: Mapping[str, JsonObject] = {} if own is None else own
        self._per_key = limits.per_key
        self._of_key = self._counters_for(limits.per_key)
        self._of_own: dict[str, tuple[JsonObject, KeyLimits, list[Buckets]]] = {}
        self._of_tools = [(each, _of_tool(each, rate)) for each, rate in limits.tools.items()]
        self._of_tool = lru_cache(MAX_TOOLS)(self._matching)
        self._planned: dict[tuple[str, str, str], _Spent] = {}  # by key, owner and address
        self._of_server = {
            name: Buckets(rate, None, "tool_rate_limited", f"of server {name!r}")
            for name, rate in (servers or {}).items()
        }
        self._most_of_key = limits.per_key.concurrent
        self._most = limits.concurrent
        self._running: dict[str, int] = {}  # by key
        self._total = 0

    def usage(self, key: str = "") -> JsonObject:
        """Return how much of a key's limits is used; without a key, of the limit on all calls."""
        if key:
            now = self._clock()
            limits, counters = self._per_key, self._of_key
            if key in self.own:
                limits, counters = self._own_limits(key)
            return {
                "running": self._running.get(key, 0),
                "concurrent": limits.concurrent,
                "limits": [each.usage(key, now) for each in counters],
            }
        now = self._clock()
        return {
            "running": self._total,
            "concurrent": self._most,
            "limits": [
                {"server": name} | each.usage(name, now) for name, each in self._of_server.items()
            ],
        }

    def admit(self, principal: Principal | None) -> None:
        """Check the caller's key and the limit on all calls, before the request is read.

        Raises:
            LimitExceeded: The call exceeds a limit.
        """
        key = "" if principal is None else principal.counted
        most, counters = self._most_of_key, self._of_key
        if key in self.own:
            limits, counters = self._own_limits(key)
            most = limits.concurrent
        if self._running.get(key, 0) >= most or self._total >= self._most:
            raise self._overloaded(key)
        now = self._clock()
        for each in counters:
            if (days := each.days) is None:
                left = each.full_at.get(key, 0.0) - now - each.room
            else:
                if days.ends is None or now >= days.ends:
                    days.end(now)
                left = days.spent.get(key, 0) - each.room
            if left > ROUNDING:
                raise _exceeded([(each, key) for each in counters], now)

    def check(self, caller: Caller, entry: Entry | Item) -> None:
        """Check all limits of a call without using up any limit.

        Raises:
            LimitExceeded: The call would be refused.
        """
        self.admit(caller.principal)
        counters = self._counters(caller, entry, _key_of(caller.principal))
        now = self._clock()
        if any(counter.wait(of, now) > ROUNDING for counter, of in counters):
            raise _exceeded(counters, now)

    def describe(self, caller: Caller, entry: Entry | Item) -> list[str]:
        """Return each rate and quota of a call in words, such as "20/s with this key"."""
        return [
            counter.what for counter, _ in self._counters(caller, entry, _key_of(caller.principal))
        ]

    def around(self, handle: CallHandler) -> CallHandler:
        """Return a layer that refuses the calls which exceed a limit."""

        async def call_within_limits(call: Call) -> Outcome:
            principal, entry = call.caller.principal, call.entry
            key = owner = ""
            if principal is not None:
                owner = principal.owner
                key = principal.counted
            is_own = key in self.own
            most = self._own_limits(key)[0].concurrent if is_own else self._most_of_key
            running = self._running.get(key, 0)
            if running >= most or self._total >= self._most:
                raise self._overloaded(key)
            needed = None if is_own else self._planned.get((key, owner, entry.address))
            if needed is None:
                needed = self._plan(call.caller, entry, key)
            now = self._clock()
            if not spend(needed, now):
                raise _exceeded(needed, now)
            self._running[key] = running + 1
            self._total += 1
            end = None
            if call.slots is not None:
                end = call.slots.hold(partial(self._end, key))
            try:
                return await handle(call)
            except _NOT_SENT:
                for counter, of in needed:
                    counter.give_back(of)
                raise
            finally:
                if end is not None:
                    end()
                else:  # `_end` inlined, for speed
                    self._total -= 1
                    if self._running[key] > 1:
                        self._running[key] -= 1
                    else:
                        del self._running[key]

        return call_within_limits

    def _end(self, key: str) -> None:
        self._total -= 1
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]

    def _plan(self, caller: Caller, entry: Entry | Item, key: str) -> _Spent:
        """Return a call's buckets, and cache them unless they may change."""
        needed = self._counters(caller, entry, key)
        if key not in self.own and isinstance(entry, Entry):
            if len(self._planned) >= MAX_PLANNED:
                self._planned.clear()
            self._planned[key, caller.owner, entry.address] = needed
        return needed

    def _counters(self, caller: Caller, entry: Entry | Item, key: str) -> _Spent:
        found: _Spent = []
        for counter in self._own_limits(key)[1] if key in self.own else self._of_key:
            found.append((counter, key))
        of_tool = self._of_tool(entry.address)
        if of_tool:
            of = caller.owner, entry.address
            for buckets in of_tool:
                found.append((buckets, of))
        of_server = self._of_server.get(entry.server)
        if of_server is not None:
            found.append((of_server, entry.server))
        return found

    def _counters_for(self, limits: KeyLimits) -> list[Buckets]:
        found: list[Buckets] = []
        if limits.rate is not None:
            found.append(Buckets(limits.rate, limits.burst, "rate_limited", "with this key"))
        if limits.per_day is not None:
            found.append(DayQuota(self.days, limits.per_day))
        return found

    def _own_limits(self, key: str) -> tuple[KeyLimits, list[Buckets]]:
        """Return a key's own limits and their buckets; the buckets change only with the limits."""
        own = self.own[key]
        known = self._of_own.get(key)
        if known is None or known[0] != own:
            if len(self._of_own) >= MAX_KEYS:
                self._of_own.clear()
            limits = key_limits(own, self._per_key)
            known = self._of_own[key] = own, limits, self._counters_for(limits)
        return known[1:]

    def _matching(self, address: str) -> list[Buckets]:
        return [buckets for pattern, buckets in self._of_tools if fnmatchcase(address, pattern)]

    def _overloaded(self, key: str) -> LimitExceeded:
        most = self._own_limits(key)[0].concurrent if key in self.own else self._most_of_key
        if self._running.get(key, 0) >= most:
            text = f"too many calls at once with this key (limit {most})"
            return LimitExceeded(f"{text}; wait until one has ended", "overloaded", RETRY_AFTER)
        text = f"too many calls at once (limit {self._most}); retry later"
        return LimitExceeded(text, "overloaded", RETRY_AFTER)


def _exceeded(counters: _Spent, now: float) -> LimitExceeded:
    """Return the refusal for the limit that takes longest to permit the call."""
    longest, exceeded = max(
        ((counter.wait(of, now), counter) for counter, of in counters), key=lambda each: each[0]
    )
    return LimitExceeded(f"{exceeded.text}; retry in {ceil(longest)} s", exceeded.reason, longest)


def _of_tool(pattern: str, rate: Rate) -> Buckets:
    reason = "quota_exceeded" if rate.seconds >= DAY else "tool_rate_limited"
    return Buckets(rate, None, reason, f"of {pattern}")


def _key_of(principal: Principal | None) -> str:
    """Return the id of the caller's API key; for a token, its owner; "" without a principal."""
    return "" if principal is None else principal.counted
