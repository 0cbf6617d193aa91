"""Thousands of turns over WebSockets, with either engine; nothing may be left or grow.

    python -m tests.soak.turns [--turns N] [--engine agent|graph]

Each turn calls two tools of a real server. Some are stopped, some go on after their client has
left. Conversations are kept on the disk. Ends with exit code 1 when something grew or was left.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import uvicorn
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from websockets.asyncio.client import ClientConnection, connect

from interlock import StdioServer, Toolbox
from interlock.langgraph import chat_graph
from interlock.messages import AssistantMessage, Message, ToolCall, UserMessage
from interlock.models import ModelEvent, Reply, TextDelta
from interlock.store import ConversationStore
from interlock.web.chat.app import ChatApp
from interlock.web.chat.engines import AgentEngine
from interlock.web.chat.graph_engine import GraphEngine
from interlock.web.chat.turn import TurnLimits
from tests.soak import gauges
from tests.soak.ground import belongings

ECHO = Path(__file__).parents[1] / "servers" / "echo.py"
M_ARENA_MAX = -8  # of malloc.h
CLIENTS = 4  # at once
ROUNDS = 20  # in a run; after each, nothing is connected
CONVERSATION = 5  # turns of one
# Python's allocator keeps arenas of which a little is in use, so its blocks say more.
MB_PER_10K_TURNS = 5.0
BLOCKS_PER_10K_TURNS = 5_000.0  # half a block a turn
KEPT = 0.2  # seconds that the events of a turn are kept
STOPPED, LEFT = 7, 11  # each so many turns, one is stopped, or its client leaves


def wanted(content: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that the models make for a message."""
    second = {"stop": ("echo__wait", {}), "fail": ("echo__fail", {"text": "no"})}
    return [("echo__say", {"text": content}), second.get(content, ("echo__picture", {}))]


class OurModel:
    """Calls two tools, then answers. It keeps nothing."""

    name = "endless"

    async def stream(
        self, messages: Sequence[Message], _: object = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        last = messages[-1]
        for word in ("It ", "is ", "so."):
            yield TextDelta(word)
        calls: tuple[ToolCall, ...] = ()
        if isinstance(last, UserMessage):
            named = enumerate(wanted(last.content))
            calls = tuple(
                ToolCall(f"c{len(messages)}_{at}", name, arguments)
                for at, (name, arguments) in named
            )
        yield Reply(AssistantMessage("It is so.", calls))

    async def close(self) -> None: ...


class TheirModel(BaseChatModel):
    """The same for LangChain."""

    @property
    def _llm_type(self) -> str:
        return "endless"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        last = messages[-1]
        for word in ("It ", "is ", "so."):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        if isinstance(last, HumanMessage):
            named = enumerate(wanted(str(last.content)))
            chunks = [
                tool_call_chunk(
                    name=name, args=json.dumps(arguments), id=f"c{len(messages)}_{at}", index=at
                )
                for at, (name, arguments) in named
            ]
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=chunks))


@asynccontextmanager
async def engine_of(kind: str, folder: str, toolbox: Toolbox) -> AsyncIterator[Any]:
    """Open an engine whose conversations are on the disk."""
    async with ConversationStore.open(Path(folder) / "chat.db") as store:
        if kind == "agent":
            yield AgentEngine(OurModel(), toolbox, store)
            return
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/graph.db") as saver:
            yield GraphEngine(chat_graph(TheirModel(), toolbox, checkpointer=saver), store)


@asynccontextmanager
async def served(kind: str, folder: str) -> AsyncIterator[int]:
    """Serve the chat; the value is its port."""
    server = StdioServer(command=sys.executable, args=("-I", "-S", str(ECHO)))
    limits = TurnLimits(messages=10**9, turns=10**6, period=KEPT, kept=KEPT)
    async with (
        Toolbox({"echo": server}, environ={}) as toolbox,
        engine_of(kind, folder, toolbox) as engine,
    ):
        app = ChatApp(engine, limits=limits)
        config = uvicorn.Config(
            app, log_level="error", ws="websockets-sansio", ws_per_message_deflate=False
        )
        uvicorn_server = uvicorn.Server(config)
        uvicorn_server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        with socket.create_server(("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(uvicorn_server.serve([listening]))
            try:
                yield listening.getsockname()[1]
            finally:
                await app.close()
                uvicorn_server.should_exit = True
                await serving


class Client:
    """A client that makes turns, and counts how they end."""

    def __init__(self, port: int, ends: Counter[str]) -> None:
        self._url = f"ws://127.0.0.1:{port}/ws"
        self._ends = ends
        self._conversation: str | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[ClientConnection]:
        async with connect(self._url, compression=None) as connection:
            await send(connection, type="hello")
            await until(connection, "ready")
            yield connection

    async def work(self, turns: int) -> None:
        """Make so many turns, over a few connections."""
        made = 0
        while made < turns:
            async with self.connected() as connection:
                leaves = False
                while made < turns and not leaves:
                    made += 1
                    leaves = made % LEFT == 0
                    await self._turn(connection, made, leaves)
            if leaves:
                async with self.connected() as connection:
                    await send(
                        connection, type="resume", conversation_id=self._conversation, after=2
                    )
                    self._end(await until(connection, "complete", "error"), "after it left")

    async def _turn(self, connection: ClientConnection, number: int, leaves: bool) -> None:
        if number % CONVERSATION == 1:
            self._conversation = None
        content = "stop" if number % STOPPED == 0 and not leaves else ("go", "fail")[number % 2]
        message: dict[str, Any] = {"type": "message", "content": content}
        if self._conversation is not None:
            message["conversation_id"] = self._conversation
        await send(connection, **message)
        self._conversation = (await until(connection, "started"))["conversation_id"]
        if leaves:
            return
        if content == "stop":
            await until(connection, "tool_progress")
            await send(connection, type="stop", conversation_id=self._conversation)
        self._end(await until(connection, "complete", "error"))

    def _end(self, event: dict[str, Any], when: str = "") -> None:
        end = event.get("stop_reason") or event["code"]
        self._ends[f"{end} {when}".strip()] += 1


async def send(connection: ClientConnection, **fields: Any) -> None:
    await connection.send(json.dumps(fields))


async def until(connection: ClientConnection, *kinds: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            event: dict[str, Any] = json.loads(await connection.recv())
            if event["type"] in kinds:
                return event


def memory() -> float:
    """Return our resident memory in MB, without what SQLite has cached of a growing file."""
    used = 0
    with suppress(AttributeError, OSError):  # SQLite is a part of Python here
        count = ctypes.CDLL("libsqlite3.so.0").sqlite3_memory_used
        count.restype = ctypes.c_int64
        used = count()
    return gauges.memory_of_ours() - used / 2**20


async def soak(kind: str, turns: int) -> bool:
    """Make the turns; True when all is well."""
    before = belongings()
    looked_at = gauges.of_this_process()
    looked_at[0] = gauges.Gauge("memory, MB", memory, 10_000, MB_PER_10K_TURNS)
    looked_at.append(
        gauges.Gauge("blocks of Python", sys.getallocatedblocks, 10_000, BLOCKS_PER_10K_TURNS)
    )
    ends: Counter[str] = Counter()
    began, used = monotonic(), process_time()
    with tempfile.TemporaryDirectory() as folder:
        async with served(kind, folder) as port:
            each = turns // ROUNDS // CLIENTS
            for _ in range(ROUNDS):
                async with asyncio.TaskGroup() as group:
                    for _ in range(CLIENTS):
                        group.create_task(Client(port, ends).work(each))
                await asyncio.sleep(5 * KEPT)
                gc.collect()
                for gauge in looked_at:
                    gauge.add(ends.total(), at_rest=True)
    gc.collect()
    after = belongings()
    left = {key: each for key, each in after.items() if each != before[key]}
    told = ", ".join(f"{count:,} {end}" for end, count in ends.most_common())
    print(
        f"{kind}: {ends.total():,} turns in {monotonic() - began:.0f} s, "
        f"{(process_time() - used) / ends.total() * 1e3:.1f} ms of processor time each: {told}"
    )
    for gauge in looked_at:
        print(gauge.line())
    if left:
        print(f"left behind: {left}; there was {before}")
    known = {"end", "stopped", "end after it left"}
    return not left and ends.keys() == known and all(g.growth < g.limit for g in looked_at)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.turns", description=__doc__)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--engine", choices=("agent", "graph"), action="append")
    options = parser.parse_args()
    with suppress(AttributeError, OSError):
        # Otherwise glibc keeps memory for each thread of SQLite that nothing uses.
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, 1)
    # Each engine in an event loop of its own: the first one's remains are not the second one's.
    well = [asyncio.run(soak(kind, options.turns)) for kind in options.engine or ("agent", "graph")]
    print("all is well" if all(well) else "NOT well")
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    main()
