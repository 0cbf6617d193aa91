"""Tools and graphs of LangChain; processor time of the calling process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from benchmarks.harness import LANGCHAIN, LANGCHAIN_MCP, ROOT, US, Effort, Row, Sample, Taken

TITLE = "LangChain, processor time of the caller"
PROGRAM = Path(__file__).parents[1] / "peers" / "langchain_cost.py"
# All protocol revisions that the peers speak have this one.
SERVER = [sys.executable, "-I", "-S", str(ROOT / "tests/servers/echo.py"), "revision=2025-11-25"]
ROUNDS = 10  # of a turn
TURNS = 10  # of a sample, which is the least of them
WORDS = 200  # of a streamed answer
TOOLS = 1_000
LOADED = (
    "from pathlib import Path; from resource import getpagesize; from time import process_time;"
    "{first}; t = process_time(); import {module}; print(process_time() - t, "
    "int(Path('/proc/self/statm').read_text().split()[1]) * getpagesize() / 2**20)"
)


def rows(effort: Effort) -> Iterator[Row]:
    ways = {US: (sys.executable, "tool"), "toolbox": (sys.executable, "toolbox")}
    modules = {US: (sys.executable, "interlock.langchain")}
    if LANGCHAIN.exists():
        ways["kept"] = str(LANGCHAIN), "kept"
        ways["default"] = str(LANGCHAIN), "default"
        modules["langchain"] = str(LANGCHAIN), "langchain_mcp_adapters.client"
    if LANGCHAIN_MCP.exists():
        ways["langchain_mcp"] = str(LANGCHAIN_MCP), "mcp"
        modules["langchain_mcp"] = str(LANGCHAIN_MCP), "langchain.mcp"
    samples = {
        name: partial(_cost, python, way, effort.seconds) for name, (python, way) in ways.items()
    }
    goals = {"kept": 1 / 0.45, "langchain_mcp": 1 / 0.35}
    calls = in_turn(samples, effort.rounds)
    yield Row("tool.ainvoke(call), stdio", "s", calls, goals)
    beyond = [tool - call for tool, call in zip(calls[US], calls["toolbox"], strict=True)]
    yield Row("beyond the call of the toolbox", "s", {US: beyond}, {US: 400e-6})
    yield from _imports(modules, effort.rounds)
    made = in_turn({each: partial(_making, each) for each in ("tools", "callables")}, effort.rounds)
    yield Row("making a tool of 1,000: tools(toolbox)", "s", {US: made["tools"]}, {US: 60e-6})
    yield Row("callables(toolbox)", "s", {US: made["callables"]}, {US: 300e-6})

    yield _contest(
        "a round of a graph: a model without delay, a tool", effort, {"create_agent": 1 / 1.1}
    )
    stored = {"hand_written": 1 / 1.3}
    yield _contest("each step stored in SQLite before the next", effort, stored, "sqlite")
    yield _contest("each step stored in PostgreSQL", effort, {"hand_written": 0}, "postgres")
    own_modes = {"own_modes": 1 / 1.1}
    yield _contest(f"{WORDS} tokens a round, read by stream()", effort, own_modes, words=WORDS)


def _contest(
    what: str, effort: Effort, goals: dict[str, float], saver: str = "", words: int = 0
) -> Row:
    turns = {US: US, **{name: name for name in goals}}
    samples = {name: partial(_turns, kind, saver, words) for name, kind in turns.items()}
    reached = {name: goal for name, goal in goals.items() if goal}
    return Row(what, "s", in_turn(samples, effort.rounds), reached)


def in_turn(samples: Mapping[str, Sample], rounds: int) -> Taken:
    """Take a sample of each in every round, also of those whose start takes seconds."""
    taken: Taken = {name: [] for name in samples}
    for _ in range(rounds):
        for name, sample in samples.items():
            taken[name].append(sample())
    return taken


# Tools


def _cost(python: str, way: str, seconds: float) -> float:
    command = [python, "-W", "ignore", str(PROGRAM), way, str(seconds), *SERVER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout.split()[-1])


def _imports(modules: Mapping[str, tuple[str, str]], rounds: int) -> Iterator[Row]:
    taken: dict[str, Taken] = {"time": {}, "memory": {}}
    core = "import langchain_core.tools.base"
    for name, (python, module) in modules.items():
        for _ in range(rounds):
            seconds, megabytes = _loaded(python, core, module)
            taken["time"].setdefault(name, []).append(seconds)
            taken["memory"].setdefault(name, []).append(megabytes)
    yield Row("import, beyond langchain_core.tools", "s", taken["time"])
    yield Row("memory after it", "MB", taken["memory"])
    both = f"{core}; from interlock import Toolbox"
    own = [_loaded(sys.executable, both, "interlock.langchain")[0] for _ in range(rounds)]
    yield Row("import, beyond that and the toolbox", "s", {US: own}, {US: 40e-3})


def _loaded(python: str, first: str, module: str) -> tuple[float, float]:
    code = LOADED.format(first=first, module=module)
    seconds, megabytes = subprocess.check_output([python, "-W", "ignore", "-c", code]).split()
    return float(seconds), float(megabytes)


def _making(kind: str) -> float:
    return asyncio.run(_made(kind))


async def _made(kind: str) -> float:
    from interlock.callables import callables
    from interlock.langchain import tools
    from tests.support.toolboxes import box, described, kb

    members = {"q": {"type": "string", "description": "What."}, "n": {"type": "integer"}}
    schema = {"type": "object", "properties": members, "required": ["q"]}
    definitions = [described(f"t{number}", schema) for number in range(TOOLS)]
    make: Callable[[Any], Any] = tools if kind == "tools" else callables
    taken: list[float] = []
    for _ in range(5):  # in the first one, LangChain does things once
        async with box(kb(definitions)) as toolbox:
            started = process_time()
            assert len(list(make(toolbox))) > TOOLS
            taken.append((process_time() - started) / TOOLS)
    return median(taken)


# Graphs

Turn = Callable[[int], Awaitable[None]]


def _turns(kind: str, saver: str, words: int) -> float:
    return asyncio.run(_least(kind, saver, words))


async def _least(kind: str, saver: str, words: int) -> float:
    """Return the processor time of a round, in the fastest of some turns."""
    from tests.support.toolboxes import box, described, kb

    async with box(kb([described("get")])) as toolbox, _opened(saver) as kept:
        turn = _turn(kind, toolbox, kept, words)
        taken: list[float] = []
        for number in range(TURNS):
            started = process_time()
            await turn(number)
            taken.append((process_time() - started) / ROUNDS)
    # The least of turns that wait for a database would be the one that waited least.
    return median(taken) if saver else min(taken)


def _turn(kind: str, toolbox: Any, saver: Any, words: int) -> Turn:
    from langchain.agents import create_agent

    from interlock.langchain import tools
    from interlock.langgraph import chat_graph, stream
    from tests.support.chat_model import ScriptedChatModel, calls

    text = "word " * words
    script = [calls(("kb__get", {"x": 1}), text=text, start=number) for number in range(ROUNDS)]

    async def turn(number: int) -> None:
        model = ScriptedChatModel(*script, "done")
        graph: Any
        if kind == "create_agent":
            graph = create_agent(model, tools(toolbox), checkpointer=saver)
        elif kind == "hand_written":
            graph = _hand_written(model, tools(toolbox), saver)
        else:
            graph = chat_graph(model, toolbox, max_rounds=ROUNDS + 1, checkpointer=saver)
        thread = f"{kind}-{number}"
        if kind == US and (words or saver):
            async for _ in stream(graph, "go", thread=thread):
                pass
            return
        given = {"messages": [("user", "go")]}
        config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 100}
        if words:
            async for _ in graph.astream(given, config, stream_mode=["messages", "custom"]):
                pass
            return
        options = {"durability": "sync"} if saver else {}
        await graph.ainvoke(given, config, **options)

    return turn


def _hand_written(model: Any, found: list[Any], saver: Any) -> Any:
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    bound = model.bind_tools(found)

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(found))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


@asynccontextmanager
async def _opened(saver: str) -> AsyncIterator[Any]:
    if saver == "sqlite":
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        with TemporaryDirectory() as folder:
            async with AsyncSqliteSaver.from_conn_string(f"{folder}/chat.db") as kept:
                yield kept
    elif saver == "postgres":
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        from tests.servers.postgres import Postgres

        server = Postgres()
        server.start()
        try:
            async with AsyncPostgresSaver.from_conn_string(server.url) as kept:
                await kept.setup()
                yield kept
        finally:
            server.close()
    else:
        yield None
