"""The stack of layers that a toolbox's calls pass, and the count of running calls."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic

from interlock import calls
from interlock.calls import Around, Call, CallHandler, Outcome
from interlock.errors import ServerUnavailable
from interlock.layers.results import ResultBudget
from interlock.toolbox.own_tools import OwnServer
from interlock.toolbox.server_calls import ServerCalls

Receiver = ServerCalls | OwnServer

_log = logging.getLogger("interlock.toolbox")


class CallStack:
    """Builds the stack of calls, and counts the calls in it by server.

    Args:
        results: The budget of results for models.
    """

    def __init__(self, results: ResultBudget) -> None:
        self._results = results
        self._under_way: Counter[Receiver] = Counter()  # running calls, including waiting ones
        self._retiring: dict[Receiver, asyncio.Event] = {}  # set after the server's last call

    async def last_call(self, server: Receiver, timeout: float) -> None:
        """Wait up to `timeout` seconds for the last call of a server that gets no new ones."""
        idle = self._retiring[server] = asyncio.Event()
        if self._under_way[server]:
            with suppress(TimeoutError):
                await asyncio.wait_for(idle.wait(), timeout)
        del self._retiring[server], self._under_way[server]

    def stack(
        self, servers: Mapping[str, Receiver], around: Sequence[Around], outside: Sequence[Around]
    ) -> CallHandler:
        """Return the stack that calls pass. A call stays with the servers of its stack.

        Args:
            servers: The servers that calls are sent to, by name.
            around: Layers after the validation of the arguments, the outermost first.
            outside: Layers before the validation.
        """
        under_way, results = self._under_way, self._results

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

        handle = calls.build(send, around)

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
                    # Log names and times only: arguments and results may hold secrets.
                    kind, address = call.kind, call.entry.address
                    _log.info("%s %s: %s in %.3f s", kind, address, ended, monotonic() - started)
            return outcome

        return calls.build(validated, outside)
