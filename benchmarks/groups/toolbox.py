"""Many servers at once: how long until all tools are known, and calls to all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks import harness
from benchmarks.harness import (
    BARE,
    PLAIN,
    US,
    Client,
    Effort,
    HttpServer,
    Row,
    Sample,
    asking,
    clients,
    contest,
)
from benchmarks.worker import Target

TITLE = "Toolbox"
COUNTS = (1, 10, 100)
SLOWEST = 0.2  # seconds


def rows(effort: Effort) -> Iterator[Row]:
    names = [US, "fastmcp", *(["langchain"] if harness.LANGCHAIN.exists() else []), BARE]
    with HttpServer(BARE) as http, ExitStack() as stack:
        each = {name: stack.enter_context(Client(name)) for name in names}
        for count in COUNTS:
            target = many({"argv": harness.server(BARE)} for _ in range(count))
            taken = contest(discovering(each, target), effort.rounds)
            yield Row(f"discovery, stdio, {servers(count)}", "s", taken)
        for count in COUNTS:
            target = of_http(http, count)
            taken = contest(discovering(each, target), effort.rounds)
            yield Row(f"discovery, HTTP, {servers(count)}", "s", taken)
        delays = [SLOWEST * (number + 1) / 100 for number in range(100)]
        target = many({"url": f"{http.url}/{delay}"} for delay in delays)
        slowest = many([{"url": f"{http.url}/{SLOWEST}"}])
        samples = discovering(each, target) | {BARE: partial(discover, each[BARE], slowest)}
        what = (
            f"discovery, HTTP, 100 servers that take up to {SLOWEST:g} s; bare: the slowest alone"
        )
        yield Row(what, "s", contest(samples, effort.rounds), {BARE: 0.67})
    names = [US, "fastmcp", BARE]
    for count in COUNTS:
        target = many({"argv": harness.server(BARE)} for _ in range(count))
        with clients(names, target) as each:
            taken = contest(asking(each, "rate", 32, effort.seconds), effort.rounds)
        yield Row(f"calls on stdio to {servers(count)}, 32 at once", "calls/s", taken)
    with HttpServer(PLAIN) as http:
        for count in COUNTS:
            with clients(names, of_http(http, count)) as each:
                taken = contest(asking(each, "rate", 32, effort.seconds), effort.rounds)
            yield Row(f"calls over HTTP to {servers(count)}, 32 at once", "calls/s", taken)


def many(targets) -> Target:
    return {"servers": {f"s{number}": target for number, target in enumerate(targets)}}


def servers(count: int) -> str:
    return f"{count} server{'s' if count > 1 else ''}"


def of_http(http: HttpServer, count: int) -> Target:
    """Each at a path of its own, so that nothing is found out for all of them at once."""
    return many({"url": f"{http.url}{number}"} for number in range(count))


def discovering(clients: dict[str, Client], target: Target) -> dict[str, Sample]:
    return {name: partial(discover, client, target) for name, client in clients.items()}


def discover(client: Client, target: Target) -> float:
    seconds = client.ask("open", target)
    client.ask("close")
    return seconds
