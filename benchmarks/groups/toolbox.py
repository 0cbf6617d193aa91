"""Many servers at once: how long until all tools are known, and calls to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks import harness
from benchmarks.harness import BARE, US, Client, Effort, HttpServer, Row, asking, clients, contest
from benchmarks.worker import Target

TITLE = "Toolbox"
COUNTS = (1, 10, 100)
SLOWEST = 0.2  # seconds


def rows(effort: Effort) -> Iterator[Row]:
    peers = ["fastmcp", "langchain"] if harness.LANGCHAIN.exists() else ["fastmcp"]
    for count in COUNTS:
        target = many({"argv": harness.server(BARE)} for _ in range(count))
        taken = contest(discovering([US, *peers, BARE], target), effort.rounds)
        yield Row(f"discovery, stdio, {servers(count)}", "s", taken)
    with HttpServer(BARE) as http:
        for count in COUNTS:
            # Each at a path of its own, so that nothing is found out for all of them at once.
            target = many({"url": f"{http.url}{number}"} for number in range(count))
            taken = contest(discovering([US, *peers, BARE], target), effort.rounds)
            yield Row(f"discovery, HTTP, {servers(count)}", "s", taken)
        delays = [SLOWEST * (number + 1) / 100 for number in range(100)]
        target = many({"url": f"{http.url}/{delay}"} for delay in delays)
        slowest = many([{"url": f"{http.url}/{SLOWEST}"}])
        samples = discovering([US, "fastmcp"], target) | discovering([BARE], slowest)
        what = f"discovery, HTTP, 100 servers that need up to {SLOWEST:g} s; bare: the slowest"
        yield Row(what, "s", contest(samples, effort.rounds), {BARE: 0.67})
    for count in COUNTS:
        target = many({"argv": harness.server(BARE)} for _ in range(count))
        with clients([US, "fastmcp", BARE], target) as each:
            taken = contest(asking(each, "rate", 32, effort.seconds), effort.rounds)
        yield Row(f"calls to {servers(count)} on stdio, 32 at once", "calls/s", taken)
    with HttpServer(BARE) as http:
        for count in COUNTS:
            target = many({"url": f"{http.url}{number}"} for number in range(count))
            with clients([US, "fastmcp", BARE], target) as each:
                taken = contest(asking(each, "rate", 32, effort.seconds), effort.rounds)
            yield Row(f"calls to {servers(count)} over HTTP, 32 at once", "calls/s", taken)


def many(targets) -> Target:
    return {"servers": {f"s{number}": target for number, target in enumerate(targets)}}


def servers(count: int) -> str:
    return f"{count} server{'s' if count > 1 else ''}"


def discovering(names: list[str], target: Target) -> dict:
    return {name: partial(discover, name, target) for name in names}


def discover(name: str, target: Target) -> float:
    with Client(name) as client:
        seconds = client.ask("open", target)
        client.ask("close")
        return seconds
