"""One client and one server over HTTP: calls a second, and what slow neighbours cost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from statistics import quantiles

from benchmarks.harness import (
    BARE,
    PLAIN,
    US,
    Effort,
    HttpServer,
    Row,
    Taken,
    asking,
    clients,
    contest,
    started_anew,
)
from benchmarks.wire import HttpAsker

TITLE = "HTTP"
ALL = [US, "mcp", "fastmcp", BARE]
PATHS = {BARE: "/fixed"}  # the same reply, whatever is asked
SLOW_CONNECTIONS = 200


WIDTHS = (1, 32, 128)


def rows(effort: Effort) -> Iterator[Row]:
    for width, taken in started_anew(partial(_of_clients, effort)).items():
        goals = {"mcp": 4, BARE: 0.77} if width < 128 else {}
        yield Row(f"client, {width} at once", "calls/s", taken, goals)
    for width, taken in started_anew(partial(_of_servers, effort)).items():
        goals = {BARE: 0.75} if width == 1 else {"mcp": 6, "fastmcp": 8, BARE: 0.6}
        yield Row(f"server, {width} at once", "calls/s", taken, goals)
    with HttpServer(US) as ours:
        asker = HttpAsker(ours, "/mcp")
        calls = int(effort.seconds * 5_000)
        samples = {US: partial(p99_beside_slow, asker, calls), BARE: partial(p99, asker, calls)}
        what = f"server, p99 beside {SLOW_CONNECTIONS} slow connections; bare: alone"
        yield Row(what, "s", contest(samples, effort.rounds), {BARE: 0.5})


def _of_clients(effort: Effort) -> dict[int, Taken]:
    with HttpServer(PLAIN) as plain, clients(ALL, {"url": plain.url}) as each:
        return {
            width: contest(asking(each, "rate", width, effort.seconds), effort.rounds)
            for width in WIDTHS
        }


def _of_servers(effort: Effort) -> dict[int, Taken]:
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(HttpServer(name)) for name in ALL}
        askers = {name: HttpAsker(each, PATHS.get(name, "/mcp")) for name, each in servers.items()}
        return {
            width: contest(
                {name: partial(each.rate, width, effort.seconds) for name, each in askers.items()},
                effort.rounds,
            )
            for width in WIDTHS
        }


def p99(asker: HttpAsker, calls: int) -> float:
    return quantiles(asker.times(calls), n=100)[98]


def p99_beside_slow(asker: HttpAsker, calls: int) -> float:
    """The 99th percentile while others send a byte a second each, of a head that never ends."""
    stop = threading.Event()
    slow = [asker.connect() for _ in range(SLOW_CONNECTIONS)]

    def drip() -> None:
        for byte in b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 1_000:
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.send(bytes([byte]))
            if stop.wait(1):
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        return p99(asker, calls)
    finally:
        stop.set()
        dripping.join()
        for connection in slow:
            connection.close()
