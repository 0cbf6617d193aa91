"""An agent of LangChain uses the tools of a toolbox. The model is scripted, so no key is needed."""

import asyncio
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from msgspec.structs import replace

from interlock import StdioServer, Toolbox
from interlock.callables import callables
from interlock.calls import Call, CallHandler, Outcome
from interlock.langchain import ToolboxMiddleware, tools

NOTES = StdioServer(command=sys.executable, args=(str(Path(__file__).with_name("demo_server.py")),))


class Scripted(FakeMessagesListChatModel):
    """A model that follows a script."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Ignore the tools."""
        return self


def model() -> Scripted:
    call = {"name": "notes__search", "args": {"query": "apples"}, "id": "1"}
    return Scripted(responses=[AIMessage("", tool_calls=[call]), AIMessage("You need apples.")])


def timed(handle: CallHandler) -> CallHandler:
    """Return a layer around every call, as an interceptor is."""

    async def measure(call: Call) -> Outcome:
        started = monotonic()
        outcome = await handle(call)
        print(f"{call.entry.address} took less than {monotonic() - started + 1:.0f} s")
        return outcome

    return measure


def limited(handle: CallHandler) -> CallHandler:
    """Return a layer that changes arguments, as `request.override(args=...)` does."""

    async def limit(call: Call) -> Outcome:
        if call.entry.address == "notes:search":  # prompts and resources pass here, too
            call = replace(call, arguments={**call.arguments, "limit": 1})
        return await handle(call)

    return limit


async def moved() -> None:
    """Do what a program with langchain-mcp-adapters does."""
    async with Toolbox({"notes": NOTES}, around=[timed, limited], on_log=print) as toolbox:
        (search,) = tools(toolbox, "notes:search", reader=False)
        answer = await search.ainvoke({"query": "e"})
        prompt = await toolbox.get_prompt("notes", "review", {"name": "welcome"})
        messages = [(each.role, each.content.text) for each in prompt.messages]
        resource = await toolbox.read_resource("notes", "notes://all")
        every = await toolbox.upstream("notes").list_resources()
        about = toolbox.status["notes"].server_info
    reply = await model().ainvoke(messages)
    print(answer, reply.tool_calls, resource.contents[0].mime_type, len(every), about)


async def main() -> None:
    question = {"messages": [("user", "What do I need to buy?")]}
    async with Toolbox({"notes": NOTES}) as toolbox:
        # The tools as they are now.
        agent = create_agent(model(), tools(toolbox, "notes:*"))
        print((await agent.ainvoke(question))["messages"][-1].text)

        # Or looked up before each request, for tools that come and go.
        agent = create_agent(model(), [], middleware=[ToolboxMiddleware(toolbox)])
        print((await agent.ainvoke(question))["messages"][-1].text)

        # Or as plain async functions with types and docstrings.
        search = callables(toolbox)["notes:search"]
        print(await search("apples", limit=1))


asyncio.run(main())
asyncio.run(moved())
