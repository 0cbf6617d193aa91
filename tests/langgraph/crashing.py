"""Turns that end by SIGKILL, each at a named point, and the graph that continues them.

    python -m tests.langgraph.crashing PLACE FOLDER [PLACE FOLDER]

PLACE is the path of an SQLite file, or the URL of a PostgreSQL server. There is a conversation for
each point and each way to continue. FOLDER has a file for each, with the calls that were made.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from interlock.agent import ApprovalAsked
from interlock.langgraph import chat_graph, stream
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.scripted_server import Json, text
from tests.support.toolboxes import box, described, kb

POINTS = (
    "before the model",
    "after the model",
    "after the approval",
    "during the first call",
    "after two of three calls",
    "before the last answer",
)
WAYS = ("resume", "message")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def opened(place: str) -> AsyncIterator[Any]:
    kind: Any = AsyncPostgresSaver if "://" in place else AsyncSqliteSaver
    async with kind.from_conn_string(place) as saver:
        await saver.setup()
        yield saver


def three_calls() -> AIMessage:
    return calls(*[("kb__get", {"x": number}) for number in (1, 2, 3)])


class Conversation:
    """A conversation of a model with a tool that keeps a list of its calls in a file."""

    def __init__(self, saver: Any, folder: Path, thread: str) -> None:
        self._saver = saver
        self._file = folder / thread
        self.thread = thread
        self.config = {"configurable": {"thread_id": thread}}

    @property
    def made(self) -> list[int]:
        """The arguments of the calls that were made, in all processes."""
        return [int(line) for line in self._file.read_text().split()] if self._file.exists() else []

    @asynccontextmanager
    async def graph(self, model: ScriptedChatModel, point: str = "") -> AsyncIterator[Any]:
        """Open a graph that dies at a point."""

        async def get(params: Json) -> Json:
            number = params["arguments"]["x"]
            if point in ("after the model", "after the approval"):
                die()
            if point == "after two of three calls" and number == 3:
                await self._until_two_are_stored()
                die()
            with self._file.open("a") as file:
                file.write(f"{number}\n")
                file.flush()
                os.fsync(file.fileno())
            if point == "during the first call":
                die()
            return text(f"result {number}")

        asks = (lambda *_: "it matters") if point == "after the approval" else None
        async with box(kb([described("get")], get)) as toolbox:
            yield chat_graph(model, toolbox, checkpointer=self._saver, approve=asks)

    async def _until_two_are_stored(self) -> None:
        while True:
            found = await self._saver.aget_tuple(self.config)
            tasks = {write[0] for write in found.pending_writes if write[1] == "messages"}
            if len(tasks) == 2:
                return
            await asyncio.sleep(0.005)


async def crash(place: str, folder: Path, point: str, way: str) -> None:
    async with opened(place) as saver:
        conversation = Conversation(saver, folder, f"{point}-{way}")

        def answer(_: Any) -> AIMessage:
            if point == "before the model":
                die()
            return three_calls()

        model = ScriptedChatModel(answer, lambda _: die())
        async with conversation.graph(model, point) as graph:
            thread = conversation.thread
            events = [event async for event in stream(graph, "go", thread=thread)]
            decisions = {each.id: "allow" for each in events if isinstance(each, ApprovalAsked)}
            async for _ in stream(graph, Command(resume=decisions), thread=thread):
                pass


async def prepare(place: str) -> None:
    async with opened(place):
        pass


def main() -> None:
    for place, folder in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        crash_everywhere(place, Path(folder))


def crash_everywhere(place: str, folder: Path) -> None:
    asyncio.run(prepare(place))
    for point in POINTS:
        for way in WAYS:
            child = os.fork()
            if child == 0:
                asyncio.run(crash(place, folder, point, way))
                os._exit(1)
            _, status = os.waitpid(child, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL, f"{point}: {status}"


if __name__ == "__main__":
    main()
