"""What it costs to begin, and to be there: imports, first answers, memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.harness import BARE, US, Client, Effort, HttpServer, Row, contest, server
from benchmarks.wire import HttpAsker, StdioAsker

TITLE = "Starting, and memory"
ALL = [US, "mcp", "fastmcp", BARE]
BIN = Path(sys.executable).parent


def rows(effort: Effort) -> Iterator[Row]:
    def row(what: str, samples: dict, goals: dict[str, float], unit: str = "s") -> Row:
        return Row(what, unit, contest(samples, effort.rounds), goals)

    modules = {US: "interlock", "mcp": "mcp", "fastmcp": "fastmcp"}
    samples = {name: partial(importing, f"import {module}") for name, module in modules.items()}
    yield row("import", samples, {US: 0.1})
    parts = {
        "client, toolbox and agent": "from interlock import Client, Toolbox, Agent",
        "HTTP client": "from interlock import Client; Client.http('http://127.0.0.1')",
    }
    for what, statement in parts.items():
        yield row(f"import, with {what}", {US: partial(importing, statement)}, {})
    commands = {US: [BIN / "interlock", "--version"], "fastmcp": [BIN / "fastmcp", "version"]}
    samples = {name: partial(running, command) for name, command in commands.items()}
    yield row("command line, version", samples, {US: 0.15})

    samples = {name: partial(first_answer_of_server, name) for name in ALL}
    yield row("stdio server, start to first answer", samples, {US: 0.15})
    samples = {name: partial(first_answer_over_http, name) for name in ALL}
    yield row("HTTP server, start to first answer", samples, {})
    samples = {name: partial(first_answer_of_client, name) for name in ALL}
    yield row("program with a stdio client, start to first answer", samples, {})

    samples = {name: partial(memory_of_server, name) for name in ALL}
    yield row("memory of a stdio server", samples, {US: 35}, "MB")
    samples = {name: partial(memory_over_http, name) for name in ALL}
    yield row("memory of an HTTP server", samples, {}, "MB")
    samples = {name: partial(memory_of_client, name) for name in ALL}
    yield row("memory of a program with a stdio client", samples, {}, "MB")


def importing(statement: str) -> float:
    code = f"from time import perf_counter as now; t = now(); {statement}; print(now() - t)"
    return float(subprocess.check_output([sys.executable, "-c", code]))


def running(command: list[Path | str]) -> float:
    started = perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return perf_counter() - started


def first_answer_of_server(name: str) -> float:
    with StdioAsker(name) as asker:
        return asker.first_answer


def first_answer_over_http(name: str) -> float:
    with HttpServer(name) as started:
        HttpAsker(started).times(1)
        return perf_counter() - started.started


def first_answer_of_client(name: str) -> float:
    with Client(name) as client:
        client.ask("open", {"argv": server(BARE)})
        seconds = perf_counter() - client.started
        client.ask("close")
        return seconds


def memory_of_server(name: str) -> float:
    with StdioAsker(name) as asker:
        asker.rate(32, 0.2)
        return asker.memory()


def memory_over_http(name: str) -> float:
    with HttpServer(name) as started:
        HttpAsker(started).rate(32, 0.2)
        return started.memory()


def memory_of_client(name: str) -> float:
    with Client(name) as client:
        client.ask("open", {"argv": server(BARE)})
        client.ask("rate", 32, 0.2)
        memory = client.memory()
        client.ask("close")
        return memory
