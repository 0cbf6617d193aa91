"""The benchmark's client of many servers, with `langchain-mcp-adapters`, and its agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from benchmarks.worker import Session, Target, work


class ToolsSession:
    """Its tools connect anew for each call."""

    def __init__(self, tools: list) -> None:
        self.tools = tools
        self.adders = [each for each in tools if each.name == "add"]
        self.last = 0

    async def call(self, number: int) -> object:
        self.last += 1
        adder = self.adders[self.last % len(self.adders)]
        return await adder.ainvoke({"a": number, "b": 1})

    async def list(self) -> int:
        return len(self.tools)


class AgentSession:
    """A call of it is a conversation, as that of our agent, but with a tool that is no MCP."""

    def __init__(self, rounds: int) -> None:
        @tool
        async def add(a: int, b: int = 1) -> str:
            """Add two numbers."""
            return str(a + b)

        def model(state: MessagesState) -> dict:
            asked = sum(isinstance(message, AIMessage) for message in state["messages"])
            if asked == rounds - 1:
                return {"messages": [AIMessage("done")]}
            call = {"id": str(asked), "name": "add", "args": {"a": 1, "b": 1}}
            return {"messages": [AIMessage("", tool_calls=[call])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", model)
        graph.add_node("tools", ToolNode([add]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        self.graph = graph.compile()

    async def call(self, number: int) -> object:
        return await self.graph.ainvoke({"messages": [("user", str(number))]})


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    if "agent" in target:
        yield AgentSession(target["agent"])
        return
    servers = {name: _configured(each) for name, each in target["servers"].items()}
    yield ToolsSession(await MultiServerMCPClient(servers).get_tools())


def _configured(target: Target) -> dict:
    if "url" in target:
        return {"transport": "streamable_http", "url": target["url"]}
    return {"transport": "stdio", "command": target["argv"][0], "args": target["argv"][1:]}


if __name__ == "__main__":
    work(connect, "langchain_mcp_adapters", "langchain_core", "langgraph", "mcp")
