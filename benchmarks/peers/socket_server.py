"""The chat of a model that streams, over WebSockets. Prints its port; each line on stdin asks.

"rss" prints the resident memory in MB, "cpu" the processor time in seconds, "model" the
processor time of one token of the model alone. The answer to `SLOWLY` comes at the pace of a
provider's model, others as fast as they can.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from time import process_time

import uvicorn

from interlock.messages import AssistantMessage, Message, UserMessage
from interlock.models import ModelEvent, Reply, TextDelta, ToolDefinition, Usage
from interlock.store import ConversationStore
from interlock.web.chat.app import ChatApp
from interlock.web.chat.engines import AgentEngine
from interlock.web.chat.turn import TurnLimits

TOKENS = 5_000
SLOWLY = "Go on slowly."
RATE, SECONDS = 50, 5  # tokens a second, and how long
MANY = 10_000


class Streaming:
    """A model that yields to the event loop after each token."""

    name = "streaming"

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition] = (),  # noqa: ARG002 - as in `Model`
    ) -> AsyncGenerator[ModelEvent, None]:
        if messages and messages[-1] == UserMessage(SLOWLY):
            for _ in range(RATE * SECONDS):
                yield TextDelta("word ")
                await asyncio.sleep(1 / RATE)
            yield Reply(AssistantMessage("word " * RATE * SECONDS), Usage(), "end")
            return
        for _ in range(TOKENS):
            yield TextDelta("word ")
            await asyncio.sleep(0)
        yield Reply(AssistantMessage("word " * TOKENS), Usage(), "end")

    async def close(self) -> None: ...


async def model_alone() -> float:
    started = process_time()
    async for _ in Streaming().stream(()):
        pass
    return (process_time() - started) / TOKENS


def memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, MANY), hard))
    with tempfile.TemporaryDirectory() as folder:
        async with ConversationStore.open(Path(folder) / "chat.db") as store:
            limits = TurnLimits(sockets=MANY, messages=MANY, turns=MANY)
            app = ChatApp(AgentEngine(Streaming(), None, store), limits=limits)
            config = uvicorn.Config(
                app,
                port=0,
                log_level="error",
                ws="websockets-sansio",
                ws_per_message_deflate=False,
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
            print(server.servers[0].sockets[0].getsockname()[1], flush=True)
            while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
                asked = {"rss": memory, "cpu": process_time}.get(line)
                print(asked() if asked else await model_alone(), flush=True)
            server.should_exit = True
            await serving


if __name__ == "__main__":
    asyncio.run(main())
