"""How users write against interlock, as far as types go. mypy checks this file; nothing runs it."""

from pathlib import Path
from typing import Any, assert_type

from interlock import Agent, Client, HttpServer, InterlockError, StdioServer, Toolbox, ToolError
from interlock.agent import Done, ToolFinished, ToolStarted
from interlock.listing import Listing
from interlock.member import Entry, ServerStatus
from interlock.messages import AssistantMessage, Message, UserMessage
from interlock.models import TextDelta
from interlock.types import CallToolResult, Prompt, ReadResourceResult, Resource, Tool


async def one_server() -> None:
    async with Client.stdio("python", "server.py", env={"TZ": "UTC"}, timeout=30) as client:
        assert_type(client, Client)
        assert_type(client.revision, str)
        assert_type(await client.list_tools(), Listing[Tool])
        assert_type(await client.list_resources(), Listing[Resource])
        assert_type(await client.list_prompts(), Listing[Prompt])
        assert_type(await client.read_resource("memo://greeting"), ReadResourceResult)
        result = await client.call_tool("add", {"a": 1, "b": 2}, timeout=30, progress=print)
        assert_type(result, CallToolResult)
        assert_type(result.text, str)
        assert_type(result.is_error, bool)
        assert_type(result.structured, Any)


async def many_servers() -> None:
    async with Toolbox.from_config(Path("mcp.json")) as from_file:
        assert_type(from_file.tools, list[Entry])
        assert_type(from_file.status, dict[str, ServerStatus])
    time = StdioServer(command="mcp-server-time", args=("--local-timezone", "UTC"))
    far = HttpServer(url="https://example.org/mcp")
    async with Toolbox({"time": time, "far": far}) as toolbox:
        result = await toolbox.call("time:get_current_time", {"timezone": "Asia/Tokyo"})
        assert_type(result, CallToolResult)


async def an_agent(toolbox: Toolbox) -> None:
    messages: list[Message] = [UserMessage("What time is it in Asia/Tokyo?")]
    agent = Agent(model="local", tools=toolbox)
    assert_type(await agent.complete(messages), AssistantMessage)
    async for event in agent.stream(messages):
        match event:
            case TextDelta(text=text):
                assert_type(text, str)
            case ToolStarted() | ToolFinished():
                assert_type(event.arguments, dict[str, Any])
            case Done():
                assert_type(event.message, AssistantMessage)


def errors_are_a_tree(error: ToolError) -> InterlockError:
    return error
