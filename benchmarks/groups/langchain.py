"""Calls of tools from LangChain, and rounds of a graph; processor time of the calling process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.harness import LANGCHAIN, LANGCHAIN_MCP, ROOT, US, Effort, Row, Sample, Taken

TITLE = "LangChain, processor time of the caller"
PROGRAM = Path(__file__).parents[1] / "peers" / "langchain_cost.py"
# All protocol revisions that the peers speak have this one.
SERVER = [sys.executable, "-I", "-S", str(ROOT / "tests/servers/echo.py"), "revision=2025-11-25"]
ROUNDS = 10  # of a turn


def rows(effort: Effort) -> Iterator[Row]:
    ways = {US: (sys.executable, "tool"), "toolbox": (sys.executable, "toolbox")}
    if LANGCHAIN.exists():
        ways["kept"] = str(LANGCHAIN), "kept"
    if LANGCHAIN_MCP.exists():
        ways["langchain_mcp"] = str(LANGCHAIN_MCP), "mcp"
    samples = {
        name: partial(_cost, python, way, effort.seconds) for name, (python, way) in ways.items()
    }
    goals = {"kept": 1 / 0.45, "langchain_mcp": 1 / 0.35}
    yield Row("tool.ainvoke(call), stdio", "s", in_turn(samples, effort.rounds), goals)
    graphs = {US: partial(_round, "chat_graph"), "create_agent": partial(_round, "create_agent")}
    taken = in_turn(graphs, effort.rounds)
    yield Row(
        "a round of a graph: a model without delay, a tool", "s", taken, {"create_agent": 1 / 1.1}
    )


def in_turn(samples: Mapping[str, Sample], rounds: int) -> Taken:
    """Take a sample of each in every round, also of those whose start takes seconds."""
    taken: Taken = {name: [] for name in samples}
    for _ in range(rounds):
        for name, sample in samples.items():
            taken[name].append(sample())
    return taken


def _cost(python: str, way: str, seconds: float) -> float:
    command = [python, "-W", "ignore", str(PROGRAM), way, str(seconds), *SERVER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout.split()[-1])


def _round(kind: str) -> float:
    return asyncio.run(_turn(kind))


async def _turn(kind: str) -> float:
    from langchain.agents import create_agent

    from interlock.langchain import tools
    from interlock.langgraph import chat_graph
    from tests.support.chat_model import ScriptedChatModel, calls
    from tests.support.toolboxes import box, described, kb

    script = [calls(("kb__get", {"x": 1}), start=number) for number in range(ROUNDS)]
    async with box(kb([described("get")])) as toolbox:
        taken: list[float] = []
        for _ in range(10):
            model = ScriptedChatModel(*script, "done")
            graph: Any = (
                chat_graph(model, toolbox, max_rounds=ROUNDS + 1)
                if kind == "chat_graph"
                else create_agent(model, tools(toolbox))
            )
            started = process_time()
            await graph.ainvoke({"messages": [("user", "go")]})
            taken.append((process_time() - started) / ROUNDS)
    return min(taken)
