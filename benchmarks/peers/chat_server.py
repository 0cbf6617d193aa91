"""A chat whose answers have a token every 50 ms; prints its port.

python -m benchmarks.peers.chat_server COUNT    starts COUNT answers that nobody watches
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from time import perf_counter

import uvicorn
import uvloop

from interlock.agent import AgentEvent
from interlock.calls import Caller
from interlock.models import TextDelta
from interlock.types import JsonObject
from interlock.web.chat.app import ChatApp
from interlock.web.chat.turn import Turn, TurnLimits

PAUSE = 0.05  # seconds
SPACING = 0.003  # between the starts of two answers
MANY = 1_000_000
LIMITS = TurnLimits(turns=MANY, messages=MANY, all_turns=MANY, sockets=MANY)


class Ticking:
    """An engine whose answers tell the time."""

    def __init__(self) -> None:
        self._count = 0

    async def open(self, owner: str, conversation: str | None, title: str) -> str:  # noqa: ARG002
        self._count += 1
        return conversation or f"c{self._count}"

    async def messages(self, owner: str, conversation: str) -> list[JsonObject]:  # noqa: ARG002
        return []

    async def branch(self, owner: str, conversation: str, count: int) -> str:  # noqa: ARG002
        return conversation

    async def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:  # noqa: ARG002
        while True:
            await asyncio.sleep(PAUSE)
            yield TextDelta(f" {perf_counter()}")

    async def resume(
        self,
        turn: Turn,  # noqa: ARG002
        decisions: dict[str, JsonObject],  # noqa: ARG002
    ) -> AsyncGenerator[AgentEvent, None]:
        return
        yield

    async def stopped(self, turn: Turn) -> None:
        pass


async def main() -> None:
    app = ChatApp(Ticking(), limits=LIMITS)
    for _ in range(int(sys.argv[1])):
        await app.turns.start(Caller(surface="web"), "go")
        await asyncio.sleep(SPACING)  # turns in step would cost less than those of sockets
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1_024)
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(
            app, log_level="error", lifespan="off", ws="websockets-sansio",
            ws_per_message_deflate=False,
        )  # fmt: skip
        await uvicorn.Server(config).serve([listener])


with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as in `interlock serve`
    runner.run(main())
