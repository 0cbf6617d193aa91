"""How many own functions a call passes through, and how many turns of the event loop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.harness import BARE, PLAIN, ROOT, US, Client, Effort, HttpServer, Row, server
from benchmarks.wire import ADD, REQUEST
from benchmarks.worker import Target

TITLE = "The path of a call"
CALLS = 100
# FastMCP is built on `mcp`, so both are its own.
PACKAGES = {US: "interlock", "mcp": "mcp,mcp_types", "fastmcp": "fastmcp,mcp,mcp_types"}


def rows(effort: Effort) -> Iterator[Row]:
    """Counts do not vary, so there is one round."""
    del effort
    with HttpServer(PLAIN) as http:
        targets: dict[str, Target] = {
            "stdio client": {"argv": server(BARE)},
            "HTTP client": {"url": http.url},
            "client and server in memory": {"memory": True},
        }
        for what, target in targets.items():
            yield from two_rows(what, {name: of_client(name, target) for name in PACKAGES}, {})
    counts = {name: of_server(name) for name in PACKAGES}
    yield from two_rows("stdio server", counts, {"turns": {US: 5}})


def two_rows(
    what: str, counts: dict[str, tuple[float, float]], goals: dict[str, dict[str, float]]
) -> Iterator[Row]:
    for place, unit in enumerate(("functions", "turns")):
        taken = {name: [count[place]] for name, count in counts.items()}
        yield Row(f"{what}, {unit} a call", unit, taken, goals.get(unit, {}))


def of_client(name: str, target: Target) -> tuple[float, float]:
    with Client(name) as client:
        client.ask("open", target)
        client.ask("path", CALLS)  # what is done once
        functions, turns = client.ask("path", CALLS)
        client.ask("close")
        return functions, turns


def of_server(name: str) -> tuple[float, float]:
    """What some more calls cost, in a server's whole life."""
    few, many = served(name, 10), served(name, 10 + CALLS)
    return (many[0] - few[0]) / CALLS, (many[1] - few[1]) / CALLS


def served(name: str, calls: int) -> tuple[int, int]:
    _, program, *arguments = server(name)
    command = [sys.executable, "-m", "benchmarks.counting", PACKAGES[name], program, *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    for id in range(calls):
        process.stdin.write(REQUEST % (id, b"tools/call", ADD) + b"\n")
        process.stdin.flush()
        process.stdout.readline()
    _, said = process.communicate()
    functions, turns = said.split(b"\n")[-2].split()
    return int(functions), int(turns)
