"""The public interface as its users type it: checked by mypy, never run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, assert_type

from msgspec import Raw
from pydantic import Field

from interlock import (
    Agent,
    Audio,
    Client,
    File,
    HttpServer,
    Image,
    InterlockError,
    Server,
    StdioServer,
    Toolbox,
    ToolError,
)
from interlock.agent import AgentEvent, Done, ToolFinished, ToolStarted
from interlock.client import Listing
from interlock.errors import RemoteError, RequestTimeout, ServerUnavailable
from interlock.gateway import Gateway
from interlock.messages import AssistantMessage, Message, UserMessage
from interlock.models import ReasoningDelta, ScriptedModel, TextDelta
from interlock.protocol import Progress
from interlock.server import ServedCall, ToolHandler
from interlock.testing import call
from interlock.toolbox import Entry, ServerStatus
from interlock.types import (
    CallToolResult,
    Completion,
    Content,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    GetPromptResult,
    LogMessage,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    Tool,
)


async def sample(question: CreateMessageParams) -> CreateMessageResult:
    text = TextContent(text=question.system_prompt or "")
    return CreateMessageResult(role="assistant", content=text, model="own")


async def elicit(question: ElicitParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": question.message})


def on_log(message: LogMessage) -> None:
    assert_type(message.data, Any)


def on_progress(step: Progress) -> None:
    assert_type(step.progress, float)
    assert_type(step.total, float | None)
    assert_type(step.message, str | None)


async def use_a_client() -> None:
    async with Client.stdio(
        "python",
        "server.py",
        env={"KEY": "value"},
        cwd="/",
        max_frame_bytes=1024,
        revision="auto",
        timeout=30.0,
        roots=["file:///"],
        sampling=sample,
        elicitation=elicit,
        on_log=on_log,
    ) as client:
        assert_type(client, Client)
        assert_type(client.revision, str)
        assert_type(client.server_info.name, str)
        assert_type(client.instructions, str | None)

        assert_type(await client.list_tools(), Listing[Tool])
        assert_type([tool.name for tool in await client.list_tools()], list[str])
        result = await client.call_tool("add", {"a": 1}, timeout=30, progress=on_progress)
        assert_type(result, CallToolResult)
        assert_type(result.text, str)
        assert_type(result.structured, Any)
        assert_type(result.content, list[Content])
        assert_type(result.is_error, bool)
        await client.call_tool("add", Raw(b"{}"), meta={"traceparent": "00"}, progress=print)

        assert_type(await client.list_resources(), Listing[Resource])
        assert_type(await client.list_resource_templates(), Listing[ResourceTemplate])
        assert_type(await client.read_resource("a:b"), ReadResourceResult)
        await client.subscribe("a:b")
        await client.unsubscribe("a:b")
        assert_type(await client.list_prompts(), Listing[Prompt])
        assert_type(await client.get_prompt("p", {"a": "b"}), GetPromptResult)
        assert_type(
            await client.complete(PromptReference(name="p"), "a", "x", context={"b": "c"}),
            Completion,
        )
        await client.ping()
        await client.set_log_level("debug")
        client.set_roots([])
        assert_type(await client.request("x/y", {"a": 1}), Raw)

        await client.set_log_level("loud")  # type: ignore[arg-type]  # is no level
        await client.call_tool("add", ["a"])  # type: ignore[arg-type]  # arguments have names


def fail() -> None:
    try:
        raise ToolError("no")
    except RemoteError as error:
        assert_type(error.code, int)
        assert_type(error.message, str)
    except ServerUnavailable as error:
        assert_type(error.server, str)
    except (RequestTimeout, InterlockError) as error:
        assert_type(error, RequestTimeout | InterlockError)


async def use_a_toolbox() -> None:
    time = StdioServer(command="mcp-server-time", args=("--local-timezone", "UTC"))
    web = HttpServer(url="https://example.org/mcp", headers={"Authorization": "${TOKEN}"})
    own = Server("own", version="1.0.0")
    async with Toolbox({"time": time, "own": own}, environ={}, elicitation=elicit) as toolbox:
        assert_type(toolbox.tools, list[Entry])
        assert_type(toolbox.status, dict[str, ServerStatus])
        assert_type(toolbox.find("time:now"), Entry)
        assert_type(await toolbox.call("time:now", {"timezone": "UTC"}), CallToolResult)
        assert_type(await toolbox.call("time:now", timeout=1.0, progress=print), CallToolResult)
        await toolbox.refresh()
    assert_type(Toolbox({"web": web}), Toolbox)
    async with Toolbox.from_config() as toolbox:
        assert_type(toolbox.warnings, tuple[str, ...])
    async with Toolbox.from_config(Path("mcp.json"), sampling=sample) as toolbox:
        assert_type(toolbox, Toolbox)


async def use_an_agent(toolbox: Toolbox) -> None:
    messages: list[Message] = [UserMessage("Hello")]
    async with Agent(model="anthropic:claude", tools=toolbox, max_rounds=3) as agent:
        assert_type(await agent.complete(messages), AssistantMessage)
    agent = Agent(ScriptedModel(["Good day."]))
    async for event in agent.stream(messages):
        assert_type(event, AgentEvent)
        match event:
            case TextDelta(text) | ReasoningDelta(text):
                assert_type(text, str)
            case ToolStarted():
                assert_type(event.arguments, dict[str, Any])
            case ToolFinished():
                assert_type(event.duration, float)
            case Done():
                assert_type(event.message, AssistantMessage)


server = Server("math", version="1.0.0", strict=False)


@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def noted(handle: ToolHandler) -> ToolHandler:
    async def noting(call: ServedCall) -> Any:
        assert_type(call.name, str)
        assert_type(call.arguments, dict[str, Any])
        return await handle(call)

    return noting


def make_a_server_of_servers() -> None:
    layered = Server("layered", around=[noted])
    assert_type(layered.tool(add, name="plus", read_only=True)(1), int)
    layered.add_tool(add)
    server.mount("y", layered, tools={"plus": {"arguments": {"b": {"value": 1}}}, "add": False})
    Gateway({"math": server, "time": StdioServer(command="mcp-server-time")}).run_http(port=0)


@server.tool(annotations={"readOnlyHint": True}, timeout=5)
def chart(
    title: Annotated[str, Field(max_length=40, description="The title")],
    days: int = Field(7, ge=1),
) -> list[str | Image]:
    """Draw a chart."""
    return [f"{title}, {days} days", Image(path="chart.png")]


@server.tool
def recording(name: Annotated[str, "The name"]) -> Audio | File:
    """Return a recording, or its text."""
    return Audio(path=name) if name.endswith(".wav") else File(data=b"a,b", mime_type="text/csv")


server.tool(add, name="sum")
server.add_tool(chart)


async def use_a_server_in_this_program() -> None:
    assert_type(add(1), int)
    assert_type(call(server, "add", a=1), CallToolResult)
    assert_type(call(server, "add", a=1).structured, Any)
    async with Client(server, elicitation=elicit, timeout=3.0) as client:
        assert_type(client, Client)
        assert_type((await client.call_tool("add", {"a": 1})).structured, Any)
    async with Client("https://example.org/mcp", on_log=on_log) as client:
        await client.ping()

    Client(3)  # type: ignore[arg-type]  # is no server
    call(server, add, a=1)  # type: ignore[arg-type]  # tools have names
