"""A client and a server in one program."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import BARE, US, Effort, Row, asking, clients, contest

TITLE = "In memory"


def rows(effort: Effort) -> Iterator[Row]:
    with clients([US, "mcp", "fastmcp", BARE], {"memory": True}) as each:
        for width in (1, 32, 128):
            taken = contest(asking(each, "rate", width, effort.seconds), effort.rounds)
            yield Row(f"{width} at once", "calls/s", taken)
