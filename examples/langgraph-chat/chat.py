"""A LangGraph chat over your tools, which waits for an approval and survives a crash."""

import asyncio
from typing import Any

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from interlock import Server, Toolbox
from interlock.agent import ApprovalAsked, Done, ToolFinished
from interlock.langgraph import chat_graph, stream

notes = Server("notes", version="1.0.0")


@notes.tool
def write(name: str, text: str) -> str:
    """Write a note."""
    return f"wrote {name}: {text}"


class Scripted(FakeMessagesListChatModel):
    """A model that follows a script; put your own chat model in its place."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Ignore the tools."""
        return self


CALL = {"name": "notes__write", "args": {"name": "todo", "text": "rest"}, "id": "1"}
MODEL = Scripted(responses=[AIMessage("", tool_calls=[CALL]), AIMessage("It is written.")])


def approve(_: Any, entry: Any, __: Any) -> str | None:
    """Require an approval for the tool that writes."""
    return "it changes a note" if entry.tool.name == "write" else None


async def main() -> None:
    """Ask, approve, and go on."""
    async with Toolbox({"notes": notes}) as toolbox:
        graph = chat_graph(MODEL, toolbox, checkpointer=InMemorySaver(), approve=approve)
        decisions = {}
        async for event in stream(graph, "Note that I rest.", thread="c-1", user="ann"):
            if isinstance(event, ApprovalAsked):
                print("may I?", event.address, event.arguments)
                decisions[event.id] = "allow"
        async for event in stream(graph, Command(resume=decisions), thread="c-1", user="ann"):
            if isinstance(event, ToolFinished):
                print(event.address, "->", event.ending)
            elif isinstance(event, Done):
                print(event.message.content)


if __name__ == "__main__":
    asyncio.run(main())
