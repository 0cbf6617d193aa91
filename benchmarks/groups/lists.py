"""Lists of many tools, on stdio."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.harness import BARE, US, Effort, Row, asking, clients, contest, server
from benchmarks.wire import StdioAsker

TITLE = "Lists of tools, on stdio"
ALL = [US, "mcp", "fastmcp", BARE]
COUNTS = (1_000, 10_000)
OWN = 2  # tools that each server has anyway


def rows(effort: Effort) -> Iterator[Row]:
    for count in COUNTS:
        with clients(ALL, {"argv": server(BARE, tools=count - OWN)}) as each:
            taken = contest(asking(each, "list", count), effort.rounds)
        yield Row(f"client, {count:,} tools", "s", taken)
    for count in COUNTS:
        with ExitStack() as stack:
            askers = {
                name: stack.enter_context(StdioAsker(name, tools=count - OWN)) for name in ALL
            }
            taken = contest({name: asker.list for name, asker in askers.items()}, effort.rounds)
        yield Row(f"server, {count:,} tools", "s", taken)
