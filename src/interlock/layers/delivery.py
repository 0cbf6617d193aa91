"""A toolbox's first and last layer: validation of a call, and sending it to its server."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Protocol

from interlock.calls import Around, Call, CallHandler, Entry, Item, Outcome
from interlock.errors import ServerUnavailable
from interlock.layers.results import ResultBudget
from interlock.types import JsonObject

_TRACE = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

_log = logging.getLogger("interlock.toolbox")


class CallReceiver(Protocol):
    """A server to which calls can be sent."""

    def validate(self, call: Call) -> None:
        """Check a call's arguments against the tool's schema, and convert them if necessary.

        Raises:
            InvalidArguments: An argument is not valid; the text names each invalid argument.
        """
        ...

    def send(self, call: Call) -> Awaitable[Outcome]: ...


class Delivery:
    """Validates calls, sends them to their servers, and counts the calls in progress.

    Args:
        results: The limit on results for models.
    """

    def __init__(self, results: ResultBudget) -> None:
        self._results = results
        self._under_way: Counter[CallReceiver] = Counter()  # includes calls that wait for a slot
        self._retiring: dict[CallReceiver, asyncio.Event] = {}  # set once a server has no calls

    async def last_call(self, server: CallReceiver, timeout: float) -> None:
        """Wait, at most `timeout` seconds, until a server without new calls has no more calls."""
        idle = self._retiring[server] = asyncio.Event()
        if self._under_way[server]:
            with suppress(TimeoutError):
                await asyncio.wait_for(idle.wait(), timeout)
        del self._retiring[server], self._under_way[server]

    def validation(self, servers: Mapping[str, CallReceiver]) -> Around:
        """Return the layer that finds a call's server, and validates the arguments.

        The layers inside it see the arguments that are sent.

        Args:
            servers: The servers by name.
        """
        under_way = self._under_way

        def wrap(handle: CallHandler) -> CallHandler:
            async def validated(call: Call) -> Outcome:
                server = servers.get(call.entry.server)
                if server is None:
                    raise ServerUnavailable(call.entry.server, "removed from the configuration")
                started = monotonic()
                ended = "failed"
                under_way[server] += 1
                try:
                    server.validate(call)
                    outcome = await handle(call)
                    ended = "tool error" if outcome.is_error else "ok"
                finally:
                    under_way[server] -= 1
                    if server in self._retiring and not under_way[server]:
                        self._retiring[server].set()
                    if _log.isEnabledFor(logging.INFO):
                        # Log only names and times, because arguments and results may contain
                        # secrets.
                        _log_call(call, ended, monotonic() - started)
                return outcome

            return validated

        return wrap

    def sending(self, servers: Mapping[str, CallReceiver]) -> CallHandler:
        """Return the handler that sends a call, and cuts its result if it exceeds the limit.

        Args:
            servers: The servers by name. A call uses these servers even if a reload replaces them.
        """
        results = self._results

        async def send(call: Call) -> Outcome:
            began = monotonic()
            try:
                outcome = await servers[call.entry.server].send(call)
            finally:
                if call.timing is not None:
                    call.timing.at_server = monotonic() - began
            limit = results.limits.smallest
            if call.result_limit is not None:
                limit = min(limit, call.result_limit)
            return outcome if len(outcome.raw) <= limit else await results.fit(call, outcome)

        return send


def _log_call(call: Call, ended: str, seconds: float) -> None:
    entry, members = call.entry, traced(call.caller.trace)
    members |= {"call_id": call.id, "server": entry.server, "outcome": ended.replace(" ", "_")}
    members["ms"] = round(seconds * 1_000, 3)
    if isinstance(entry, Entry):
        members["tool"] = entry.address
    shown = call.kind, named(entry), ended, seconds
    _log.info("%s %s: %s in %.3f s", *shown, extra=members)


def named(entry: Entry | Item) -> str:
    """Return the address for a log line; only the server of a resource, as its URI is private."""
    is_private = isinstance(entry, Item) and entry.kind == "resources"
    return entry.server if is_private else entry.address


def traced(traceparent: str) -> JsonObject:
    """Return the members of a log line that name a trace; none without a valid trace."""
    found = _TRACE.fullmatch(traceparent)
    return {} if found is None else {"trace_id": found[1], "span_id": found[2]}
