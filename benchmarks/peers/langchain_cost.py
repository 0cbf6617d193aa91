"""What one way of calling a tool from LangChain costs: processor time of this process.

    python langchain_cost.py WAY SECONDS COMMAND ...

WAY is "toolbox", "tool", "kept" or "default" (langchain-mcp-adapters with a session that is kept,
and as it is by default), or "mcp" (langchain.mcp). COMMAND starts the server. Prints seconds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter, process_time
from typing import Any

Work = Callable[[], Awaitable[Any]]
ARGUMENTS = {"text": "a"}


def a_call(name: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": "1", "name": name, "args": ARGUMENTS}


@asynccontextmanager
async def ours(way: str, command: list[str]) -> AsyncIterator[Work]:
    from interlock import StdioServer, Toolbox

    server = StdioServer(command=command[0], args=tuple(command[1:]))
    async with Toolbox({"echo": server}) as toolbox:
        if way == "toolbox":
            yield lambda: toolbox.call("echo:say", ARGUMENTS)
            return
        from interlock.langchain import tools

        tool = tools(toolbox, "echo:say")[0]
        yield lambda: tool.ainvoke(a_call(tool.name))


@asynccontextmanager
async def adapters(way: str, command: list[str]) -> AsyncIterator[Work]:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    server = {"transport": "stdio", "command": command[0], "args": command[1:]}
    client = MultiServerMCPClient({"echo": server})
    if way == "default":
        tool = next(each for each in await client.get_tools() if each.name == "say")
        yield lambda: tool.ainvoke(a_call("say"))
        return
    async with client.session("echo") as session:
        tool = next(each for each in await load_mcp_tools(session) if each.name == "say")
        yield lambda: tool.ainvoke(a_call("say"))


@asynccontextmanager
async def langchain_mcp(_: str, command: list[str]) -> AsyncIterator[Work]:
    from langchain.mcp import MCPAdapter

    config = {"mcpServers": {"echo": {"command": command[0], "args": command[1:]}}}
    async with MCPAdapter(config) as adapter:
        tool = next(each for each in await adapter.list_tools() if each.name.endswith("say"))
        yield lambda: tool.ainvoke(a_call(tool.name))


OPEN = {
    "toolbox": ours,
    "tool": ours,
    "kept": adapters,
    "default": adapters,
    "mcp": langchain_mcp,
}


async def main() -> None:
    way, seconds, *command = sys.argv[1:]
    async with OPEN[way](way, command) as work:
        for _ in range(3 if way == "default" else 50):
            await work()
        count, ends, started = 0, perf_counter() + float(seconds), process_time()
        while perf_counter() < ends:
            await work()
            count += 1
        print((process_time() - started) / count)


if __name__ == "__main__":
    asyncio.run(main())
