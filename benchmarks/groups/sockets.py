"""The chat over WebSockets: what a token and an idle connection cost its server."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.harness import US, Effort, Program, Row
from benchmarks.peers.socket_server import RATE, SECONDS, SLOWLY, TOKENS

TITLE = "The chat over WebSockets"
SOCKETS = 1_000
TURNS = 200  # at a time
HELLO = json.dumps({"type": "hello"})


class ChatServer(Program):
    """The server in a process of its own."""

    def __init__(self) -> None:
        super().__init__([sys.executable, "-m", "benchmarks.peers.socket_server"])
        self.port = int(self.process.stdout.readline() or 0)
        if not self.port:
            raise self.failed()

    def ask(self, what: str) -> float:
        self.process.stdin.write(what.encode() + b"\n")
        return float(self.process.stdout.readline())


def rows(effort: Effort) -> Iterator[Row]:
    with ChatServer() as server:
        tokens = [asyncio.run(cost_of_a_token(server)) for _ in range(effort.rounds + 1)][1:]
        alone = [server.ask("model") for _ in range(effort.rounds)]
    beyond = [max(each - min(alone), 0.0) for each in tokens]
    yield Row("processor time of a token, beyond the model's", "s", {US: beyond}, {US: 60e-6})
    with ChatServer() as server:
        busy = [asyncio.run(cost_of_turns(server)) for _ in range(effort.rounds)]
    what = f"processor time of a second of {TURNS} turns, {RATE} tokens/s each"
    yield Row(what, "s", {US: busy}, {US: 1.0})
    with ChatServer() as server:
        used = asyncio.run(idle(server))
    yield Row(f"{SOCKETS:,} idle sockets", "MB", {US: [used]}, {US: 40})


async def opened(port: int) -> ClientConnection:
    connection = await connect(f"ws://127.0.0.1:{port}/ws", compression=None, max_size=None)
    await connection.send(HELLO)
    await until(connection, "ready")
    return connection


async def until(connection: ClientConnection, kind: str) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = json.loads(await connection.recv())
        if event["type"] == "error":
            raise RuntimeError(str(event))
        if event["type"] == kind:
            return event


async def cost_of_a_token(server: ChatServer) -> float:
    async with await opened(server.port) as connection:
        before = server.ask("cpu")
        await connection.send(json.dumps({"type": "message", "content": "Go on."}))
        await until(connection, "complete")
        return (server.ask("cpu") - before) / TOKENS


async def cost_of_turns(server: ChatServer) -> float:
    """Return the processor time of all turns, for each second of their pace."""

    async def turn() -> None:
        async with await opened(server.port) as connection:
            await ready.wait()
            await connection.send(json.dumps({"type": "message", "content": SLOWLY}))
            await until(connection, "complete")

    ready = asyncio.Barrier(TURNS + 1)
    async with asyncio.TaskGroup() as group:
        for _ in range(TURNS):
            group.create_task(turn())
        await ready.wait()
        before = server.ask("cpu")
    return (server.ask("cpu") - before) / SECONDS


async def idle(server: ChatServer) -> float:
    """Return the memory that many connections take, after the first one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 10 * SOCKETS), hard))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(await opened(server.port))
        before = server.ask("rss")
        for _ in range(SOCKETS):
            await stack.enter_async_context(await opened(server.port))
        return server.ask("rss") - before
