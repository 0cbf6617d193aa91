"""One client and one server on stdio."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.harness import (
    BARE,
    US,
    Effort,
    Row,
    Taken,
    asking,
    clients,
    contest,
    server,
    started_anew,
)
from benchmarks.wire import StdioAsker

TITLE = "Stdio"
ALL = [US, "mcp", "fastmcp", BARE]


WIDTHS = (1, 32, 128)


def rows(effort: Effort) -> Iterator[Row]:
    for width, taken in started_anew(partial(_of_clients, effort)).items():
        goals = {BARE: 0.67 if width == 1 else 0.5}
        yield Row(f"client, {width} at once", "calls/s", taken, goals)
    for width, taken in started_anew(partial(_of_servers, effort)).items():
        times = 6 if width == 1 else 15
        yield Row(f"server, {width} at once", "calls/s", taken, {"mcp": times, "fastmcp": times})


def _of_clients(effort: Effort) -> dict[int, Taken]:
    with clients(ALL, {"argv": server(BARE)}) as each:
        return {
            width: contest(asking(each, "rate", width, effort.seconds), effort.rounds)
            for width in WIDTHS
        }


def _of_servers(effort: Effort) -> dict[int, Taken]:
    with ExitStack() as stack:
        askers = {name: stack.enter_context(StdioAsker(name)) for name in ALL}
        return {
            width: contest(
                {name: partial(each.rate, width, effort.seconds) for name, each in askers.items()},
                effort.rounds,
            )
            for width in WIDTHS
        }
