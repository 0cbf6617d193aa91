"""The bridge to Claude Code alone: a stand-in program sends tool calls and times the answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.harness import BARE, CLAUDE_SDK, US, Effort, Program, Row, Taken, contest

TITLE = "Claude Code"
SDK = "sdk"
ALL = (US, SDK, BARE)
MEGABYTES = 5
SERVERS = 50
CALLS = 10_000


class Host(Program):
    """One of the hosts, with the stand-in program as its child."""

    def __init__(self, name: str, *more: str) -> None:
        python = str(CLAUDE_SDK) if name == SDK else sys.executable
        super().__init__([python, "-m", f"benchmarks.peers.{name}_claude", *more])

    def ask(self, prompt: str) -> tuple[float, float]:
        """Return the figure that the stand-in measured, and the CPU seconds of the host."""
        self.process.stdin.write(prompt.encode() + b"\n")
        line = self.process.stdout.readline()
        if not line:
            raise self.failed()
        figure, cpu = json.loads(line)
        return figure, cpu

    def figure(self, prompt: str) -> float:
        return self.ask(prompt)[0]

    def cpu_of_a_call(self, prompt: str, seconds: float) -> float:
        rate, cpu = self.ask(prompt)
        return cpu / (rate * seconds)


def rows(effort: Effort) -> Iterator[Row]:
    seconds = max(effort.seconds, 0.5)
    one, many = f"rate 1 {seconds}", f"rate 64 {seconds}"
    taken = measured(
        effort,
        {
            "one": lambda host: partial(host.figure, one),
            "many": lambda host: partial(host.figure, many),
            "cpu": lambda host: partial(host.cpu_of_a_call, one, seconds),
            "text": lambda host: partial(host.figure, f"text {MEGABYTES * 10**6}"),
        },
    )
    yield Row("calls, one after another", "calls/s", taken["one"], {SDK: 4})
    yield Row("calls, 64 at once", "calls/s", taken["many"], {SDK: 10})
    yield Row("CPU of a call", "s", taken["cpu"], {US: 150e-6, SDK: 8, BARE: 0.33})
    yield Row(f"a result of {MEGABYTES} MB", "s", taken["text"], {BARE: 0.5})
    asked = f"asked {seconds}"
    decided = measured(
        effort, {"cpu": lambda host: partial(host.cpu_of_a_call, asked, seconds)}, "decides"
    )
    yield Row("CPU of a call with hook and permission", "s", decided["cpu"], {US: 300e-6, SDK: 4})
    memory = {name: [used(name)] for name in ALL}
    yield Row("memory of the host", "MB", memory)
    made = f"made={SERVERS}"  # their functions are the user's
    of_a_server = (used(US, made, "given") - used(US, made)) / SERVERS
    yield Row("memory of a server of 20 tools", "MB", {US: [of_a_server]}, {US: 0.2})
    yield Row(f"growth over {CALLS:,} calls", "MB", {US: [growth(US)]}, {US: 1})


def measured(effort: Effort, samples: dict, *more: str) -> dict[str, Taken]:
    with ExitStack() as stack:
        hosts = {name: stack.enter_context(Host(name, *more)) for name in ALL}
        return {
            key: contest({name: make(host) for name, host in hosts.items()}, effort.rounds)
            for key, make in samples.items()
        }


def used(name: str, *more: str) -> float:
    with Host(name, *more) as host:
        host.ask("rate 1 0.1")
        return host.memory()


def growth(name: str) -> float:
    """Return how much memory the second half of many calls adds."""
    with Host(name) as host:
        host.ask(f"calls {CALLS}")
        before = host.memory()
        host.ask(f"calls {CALLS}")
        return host.memory() - before
