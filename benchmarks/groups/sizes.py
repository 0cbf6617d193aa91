"""How long results of some sizes take, from the call to the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.harness import (
    BARE,
    PLAIN,
    US,
    Client,
    Effort,
    HttpServer,
    Row,
    clients,
    contest,
    server,
)
from benchmarks.wire import HttpAsker, StdioAsker

TITLE = "A result of a size, from the call to the text"
ALL = [US, "mcp", "fastmcp", BARE]
SIZES = {
    "100 B": 100,
    "64 KiB": 65_536,
    "1 MiB": 1_048_576,
    "10 MB": 10_000_000,
    "50 MB": 50_000_000,
}
LARGEST_IN_MEMORY = "10 MB"  # its limit of 16 MiB is fixed

Fetch = Callable[[int], float]


def rows(effort: Effort) -> Iterator[Row]:
    with clients(ALL, {"argv": server(BARE)}) as each:
        yield from of_sizes("stdio client", fetching(each), effort)
    with ExitStack() as stack:
        askers = {name: stack.enter_context(StdioAsker(name)) for name in ALL}
        fetches = {name: asker.text for name, asker in askers.items()}
        yield from of_sizes("stdio server", fetches, effort)
    with HttpServer(PLAIN) as plain, clients(ALL, {"url": plain.url}) as each:
        yield from of_sizes("HTTP client", fetching(each), effort)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(HttpServer(name)) for name in ALL}
        fetches = {name: HttpAsker(each).text for name, each in servers.items()}
        yield from of_sizes("HTTP server", fetches, effort)
    with clients(ALL, {"memory": True}) as each:
        yield from of_sizes("in memory", fetching(each), effort, LARGEST_IN_MEMORY)


def fetching(clients: dict[str, Client]) -> dict[str, Fetch]:
    return {name: partial(client.ask, "text") for name, client in clients.items()}


def of_sizes(
    what: str, fetches: dict[str, Fetch], effort: Effort, largest: str = "50 MB"
) -> Iterator[Row]:
    for shown in ("100 B", "64 KiB", "1 MiB", largest):
        size = SIZES[shown]
        times = 20 if size < 100_000 else 1
        samples = {name: partial(average, fetch, size, times) for name, fetch in fetches.items()}
        goals = {US: 1.0} if shown == "50 MB" else {}
        yield Row(f"{what}, {shown}", "s", contest(samples, effort.rounds), goals)


def average(fetch: Fetch, size: int, times: int) -> float:
    return sum(fetch(size) for _ in range(times)) / times
