"""A chat graph that stores each step, asks before a risky call, and goes on after a restart."""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from interlock import StdioServer, Toolbox
from interlock.agent import ApprovalAsked, Done, ToolFinished
from interlock.langgraph import chat_graph, stream

NOTES = StdioServer(command=sys.executable, args=(str(Path(__file__).with_name("demo_server.py")),))


class Scripted(FakeMessagesListChatModel):
    """A model that follows a script."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Ignore the tools."""
        return self


def model() -> Scripted:
    call = {"name": "notes__write", "args": {"name": "todo", "text": "rest"}, "id": "1"}
    return Scripted(responses=[AIMessage("", tool_calls=[call]), AIMessage("It is written.")])


def approve(_: Any, entry: Any, __: Any) -> str | None:
    return "it changes a note" if entry.tool.name == "write" else None


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with (
            Toolbox({"notes": NOTES}) as toolbox,
            AsyncSqliteSaver.from_conn_string(f"{folder}/chat.db") as saver,
        ):
            graph = chat_graph(model(), toolbox, checkpointer=saver, approve=approve)
            decisions = {}
            async for event in stream(graph, "Note that I rest.", thread="c-1", user="ann"):
                if isinstance(event, ApprovalAsked):
                    print("may I?", event.address, event.arguments)
                    decisions[event.id] = "allow"

            # The process may end here, and another one may go on.
            resumed = stream(graph, Command(resume=decisions), thread="c-1", user="ann")
            async for event in resumed:
                if isinstance(event, ToolFinished):
                    print(event.address, "->", event.ending)
                elif isinstance(event, Done):
                    print(event.message.content)


asyncio.run(main())
