"""One client and one server on stdio."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.harness import BARE, US, Effort, Row, asking, clients, contest, server
from benchmarks.wire import StdioAsker

TITLE = "Stdio"
ALL = [US, "mcp", "fastmcp", BARE]


def rows(effort: Effort) -> Iterator[Row]:
    with clients(ALL, {"argv": server(BARE)}) as each:
        for width in (1, 32, 128):
            taken = contest(asking(each, "rate", width, effort.seconds), effort.rounds)
            goals = {BARE: 0.67 if width == 1 else 0.5}
            yield Row(f"client, {width} at once", "calls/s", taken, goals)
    with ExitStack() as stack:
        askers = {name: stack.enter_context(StdioAsker(name)) for name in ALL}
        for width in (1, 32, 128):
            rates = {
                name: partial(asker.rate, width, effort.seconds) for name, asker in askers.items()
            }
            times = 6 if width == 1 else 15
            goals = {"mcp": times, "fastmcp": times}
            taken = contest(rates, effort.rounds)
            yield Row(f"server, {width} at once", "calls/s", taken, goals)
