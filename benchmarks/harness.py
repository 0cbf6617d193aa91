"""Rounds in which everybody is asked in turn, and the table that comes of them.

A machine's speed drifts, so figures are compared within a round only: the ratios of the rounds
are what is quoted, by their median and their range.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Self

from benchmarks.worker import Target

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "benchmarks" / "peers"
LANGCHAIN_MCP = ROOT / "build" / "langchain-mcp" / "bin" / "python"
LANGCHAIN = ROOT / "build" / "langchain" / "bin" / "python"  # it needs another version of `mcp`
CLAUDE_SDK = ROOT / "build" / "claude-sdk" / "bin" / "python"  # it bundles a program of 380 MB
SLOW = 3.0  # seconds; who takes longer for a sample is asked once only
PATIENCE = 10.0  # seconds for a program to end
STARTS = 3  # of everybody, for figures of a few percent

US, BARE = "interlock", "bare"
PLAIN = "plain"  # a server for clients over HTTP
NAMES = {
    "mcp": "mcp",
    "fastmcp": "FastMCP",
    "langchain": "LangChain",
    "sdk": "claude-agent-sdk",
    "openai": "openai",
    "anthropic": "anthropic",
    "kept": "adapters, session kept",
    "default": "adapters, new process",
    "hand_written": "hand-written graph",
    "own_modes": "messages + custom",
    "langchain_mcp": "langchain.mcp",
    "toolbox": "the toolbox alone",
    "create_agent": "create_agent",
    "single": "one transaction a record",
    "mcp-proxy": "mcp-proxy (PyPI)",
    "mcp-proxy-npm": "mcp-proxy (npm)",
    "fastmcp-proxy": "FastMCP proxy",
    "contextforge": "ContextForge",
    "litellm": "LiteLLM",
    "direct": "the server directly",
    "client": "our client directly",
    "legacy": "us, legacy client",
    "write": "us, risk write",
}

Sample = Callable[[], float]
Taken = dict[str, list[float]]  # what samples came to, by contestant


@dataclass(frozen=True)
class Effort:
    """How much is measured: rounds, and the seconds of one sample of a rate."""

    rounds: int = 5
    seconds: float = 0.2


def contest(samples: Mapping[str, Sample], rounds: int) -> Taken:
    """Take a sample of each for nothing, then one of each in every round."""
    first, slow = {}, set()
    for name, sample in samples.items():
        started = perf_counter()
        first[name] = sample()
        if perf_counter() - started > SLOW:
            slow.add(name)
    taken: Taken = {name: [] for name in samples}
    names = list(samples)
    for _ in range(rounds):
        for name in names:
            taken[name].append(first[name] if name in slow else _again(name, samples[name]))
        names.append(names.pop(0))  # nobody always comes after the same one
    return taken


def started_anew(start: Callable[[], dict[int, Taken]]) -> dict[int, Taken]:
    """Put together what several starts of everybody have taken, by the same keys.

    Where things happen to lie in memory makes a process up to 15 % slower for all its life.
    """
    together = start()
    for _ in range(STARTS - 1):
        for key, taken in start().items():
            for name, samples in taken.items():
                together[key][name] += samples
    return together


def _over(one: float, other: float) -> float:
    return one / other if other else float("inf")


def _again(name: str, sample: Sample) -> float:
    """Take a sample; one in which somebody never answered is said and taken once more."""
    try:
        return sample()
    except TimeoutError as error:
        print(f"\n{name}: {error}; asked again", file=sys.stderr)
        return sample()


# The table


@dataclass(frozen=True)
class Row:
    """One thing that was measured.

    Attributes:
        what: In words.
        unit: "calls/s" and "rounds/s" are the better the more there are; of all others less
            is better.
        taken: What came of the rounds, by contestant.
        goals: How many times better than a contestant we want to be at least; for ourselves
            the most (or, of a rate, the least) that we want.
    """

    what: str
    unit: str
    taken: Taken
    goals: dict[str, float] = field(default_factory=dict)

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    def ratios(self, name: str) -> list[float]:
        """How many times better we were, in each round."""
        pairs = zip(self.taken[US], self.taken[name], strict=True)
        return [_over(*pair) if self.is_rate else _over(*reversed(pair)) for pair in pairs]

    def cells(self) -> Iterator[list[str]]:
        """One line for each peer; at least one."""
        peers = [name for name in self.taken if name not in (US, BARE)]
        ours = _quantity(median(self.taken[US]), self.unit)
        bare = ["", ""]
        if BARE in self.taken:
            bare = [_quantity(median(self.taken[BARE]), self.unit), _ratio(self.ratios(BARE))]
        for place, name in enumerate(peers or [""]):
            first = place == 0
            theirs = _quantity(median(self.taken[name]), self.unit) if name else ""
            yield [
                self.what if first else "",
                ours if first else "",
                f"{NAMES[name]} {theirs}" if name else "",
                _ratio(self.ratios(name)) if name else "",
                *(bare if first else ["", ""]),
                self._spread(name, with_bare=first),
                self._goals(name, first=first),
            ]

    def _spread(self, name: str, *, with_bare: bool) -> str:
        names = [name] if name else []
        if with_bare and BARE in self.taken:
            names.append(BARE)
        ranges = [(min(self.ratios(each)), max(self.ratios(each))) for each in names]
        return "; ".join(f"{_digits(low)}-{_digits(high)}" for low, high in ranges)

    def _goals(self, name: str, *, first: bool) -> str:
        said = []
        for whose in (US, BARE, name) if first else (name,):
            if whose not in self.goals or whose not in self.taken:
                continue
            goal = self.goals[whose]
            if whose == US:
                ours = median(self.taken[US])
                met = ours >= goal if self.is_rate else ours <= goal
                text = f"{'≥' if self.is_rate else '≤'} {_quantity(goal, self.unit)}"
            else:
                met = median(self.ratios(whose)) >= goal
                text = f"≥ {goal:.3g} × {'bare' if whose == BARE else NAMES[whose]}"
            said.append(text if met else f"**missed: {text}**")
        return ", ".join(said)


HEAD = ["what", "us", "peer", "ratio", "bare loop", "ratio to it", "spread", "goal"]


Lines = list[list[str]]  # of a table, each with its cells


def lines_of(groups: Mapping[str, list[Row]]) -> dict[str, Lines]:
    """Return the lines of each group, by its title."""
    return {title: [line for row in rows for line in row.cells()] for title, rows in groups.items()}


def lines_in(text: str) -> dict[str, Lines]:
    """Return the lines of each group in a table that `table` has written."""
    found: dict[str, Lines] = {}
    for row in (each for each in text.splitlines() if each.startswith("| ")):
        cells = [cell.strip() for cell in row[1:-2].split(" | ")]
        if cells[0].startswith("**"):
            found[cells[0].strip("*")] = []
        elif found:
            found[list(found)[-1]].append(cells)
    return found


def table(groups: Mapping[str, Lines]) -> str:
    """Write all lines as one Markdown table that is legible as it is, too."""
    lines: Lines = []
    for title, own in groups.items():
        lines.append([f"**{title}**", *[""] * (len(HEAD) - 1)])
        lines += own
    widths = [max(len(line[place]) for line in [HEAD, *lines]) for place in range(len(HEAD))]
    rule = ["-" * width for width in widths]
    return "".join(
        "| " + " | ".join(map(str.ljust, line, widths)) + " |\n" for line in [HEAD, rule, *lines]
    )


def surroundings() -> str:
    """Say what the table is of."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("mcp", "fastmcp")]
    if LANGCHAIN.exists():
        adapters = next(LANGCHAIN.parents[1].glob("lib/*/*/langchain_mcp_adapters-*.dist-info"))
        versions.append(adapters.name.removesuffix(".dist-info").replace("-", " "))
    python = platform.python_version()
    return f"Python {python}, {os.cpu_count()} cores; {', '.join(versions)}"


def _quantity(value: float, unit: str) -> str:
    if unit != "s":
        return f"{_digits(value)} {unit}"
    if value >= 0.5:
        return f"{_digits(value)} s"
    return f"{_digits(value * 1e3)} ms" if value >= 5e-4 else f"{_digits(value * 1e6)} µs"


def _ratio(ratios: list[float]) -> str:
    return _digits(median(ratios))


def _digits(value: float) -> str:
    if value >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


# Programs


# Programs keep their bytecode, as they do for users: to compile would double the time of a start.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def server(name: str, **told: int) -> list[str]:
    """The command line of one of the servers."""
    isolated = ["-I"] if name == BARE else []  # it starts sooner
    arguments = [f"{key}={value}" for key, value in told.items()]
    return [sys.executable, *isolated, str(PEERS / f"{name}_server.py"), *arguments]


class Program:
    """A process of ours; what it says on stderr is shown if it fails."""

    def __init__(
        self, argv: list[str], stdout: int = subprocess.PIPE, env: dict[str, str] | None = None
    ) -> None:
        self.argv = argv
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self.started = perf_counter()
        self.process = subprocess.Popen(
            argv,
            cwd=ROOT,
            stdin=-1,
            stdout=stdout,
            stderr=self.errors,
            bufsize=0,
            env=ENVIRONMENT | (env or {}),
        )

    def failed(self) -> RuntimeError:
        self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace")[-3000:]
        return RuntimeError(f"{' '.join(self.argv)} failed:\n{said}")

    def memory(self) -> float:
        """Its resident memory, in MB."""
        command = ["ps", "-o", "rss=", "-p", str(self.process.pid)]
        return int(subprocess.check_output(command)) / 1024

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.errors.close()


class Client(Program):
    """One of the clients, in a process of its own. See `worker`."""

    def __init__(self, name: str) -> None:
        python = str(LANGCHAIN) if name == "langchain" else sys.executable
        super().__init__([python, "-m", f"benchmarks.peers.{name}_client"])

    def ask(self, name: str, *arguments: Any) -> Any:
        self.process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        answer = self.process.stdout.readline()
        if not answer:
            raise self.failed()
        return json.loads(answer)


@contextlib.contextmanager
def clients(names: list[str], target: Target) -> Iterator[dict[str, Client]]:
    """Connect clients to a server, each to one of its own if it is a program."""
    with contextlib.ExitStack() as stack:
        each = {name: stack.enter_context(Client(name)) for name in names}
        for client in each.values():
            client.ask("open", target)
        yield each
        for client in each.values():
            client.ask("close")


def asking(clients: Mapping[str, Client], *command: Any) -> dict[str, Sample]:
    """Make samples of a command that tells how long it took, or how fast it was."""
    return {name: partial(client.ask, *command) for name, client in clients.items()}


class HttpServer(Program):
    """One of the servers, on a free port."""

    def __init__(self, name: str, **told: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        # Nobody reads what some log there: a full pipe would stop them.
        super().__init__(server(name, **told, port=self.port), subprocess.DEVNULL)

    def __enter__(self) -> HttpServer:
        while self.process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
        raise self.failed()

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        super().__exit__()
