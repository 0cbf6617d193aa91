"""The workshop, served by `mcp` 2 in both eras."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import workshop
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import TypeAdapter
from workshop import Maker, Total

server = MCPServer(workshop.NAME, instructions=workshop.INSTRUCTIONS, log_level="CRITICAL")


def is_modern(context: Context) -> bool:
    """Whether the client is one of 2026-07-28."""
    return context.protocol_version >= "2026"


@server.tool()
def add(a: int, b: int) -> Total:
    """Add two numbers."""
    return Total(total=a + b)


@server.tool()
def show() -> list[types.ContentBlock]:
    """Give content of every kind."""
    return TypeAdapter(list[types.ContentBlock]).validate_python(workshop.SHOWN)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("the shop is closed")


@server.tool()
async def count(to: int, context: Context) -> str:
    """Count, and tell how far it is."""
    for step in range(1, to + 1):
        await context.report_progress(step, to, f"step {step}")
        await context.info(f"at {step}", logger_name="workshop")
    return f"counted to {to}"


@server.tool()
async def ask(context: Context) -> str | types.InputRequiredResult:
    """Ask the person, the model and the client."""
    if not is_modern(context):
        maker = await context.elicit(workshop.WHO, Maker)
        motto = await context.session.create_message(
            TypeAdapter(list[types.SamplingMessage]).validate_python(workshop.MOTTO),
            max_tokens=20,
            related_request_id=context.request_id,
        )
        return workshop.told(maker.data, motto, await context.session.list_roots())
    answers = context.input_responses
    if answers is None:
        asked = {"inputRequests": workshop.QUESTIONS, "requestState": "asked"}
        return types.InputRequiredResult.model_validate(asked)
    assert context.request_state == "asked"
    maker = Maker.model_validate(answers["maker"].content)
    return workshop.told(maker, answers["motto"], answers["folders"])


@server.tool()
async def change(context: Context) -> str:
    """Change everything: a new tool, and news of prompts and resources."""
    server.add_tool(show, name="new")
    if is_modern(context):
        await context.notify_tools_changed()
        await context.notify_prompts_changed()
        await context.notify_resources_changed()
        await context.notify_resource_updated(workshop.LIST)
    else:
        await context.session.send_tool_list_changed()
        await context.session.send_prompt_list_changed()
        await context.session.send_resource_list_changed()
        await context.session.send_resource_updated(workshop.LIST)
    return "changed"


@server.resource(workshop.LIST, mime_type="text/plain")
def stock() -> str:
    """Say what there is."""
    return "saw, hammer"


@server.resource("shop://logo", mime_type="image/png")
def logo() -> bytes:
    """Give a picture."""
    return workshop.LOGO


@server.resource("shop://item/{name}", mime_type="text/plain")
def item(name: str) -> str:
    """Give one thing."""
    return f"a {name}"


async def agree(_context: Any, _params: Any) -> types.EmptyResult:
    """Let everybody follow everything, and tell everything anyway."""
    return types.EmptyResult()


# What `MCPServer` has no way of its own for, and older clients ask.
low = server._lowlevel_server
low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, agree)
low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, agree)
low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, agree)


@server.prompt()
def greet(name: str, tone: str = "kind") -> str:
    """Greet somebody."""
    return f"Greet {name} in a {tone} tone."


@server.completion()
async def complete(_reference: Any, argument: Any, context: Any) -> types.Completion:
    """Propose values."""
    return types.Completion(values=workshop.proposals(argument, context))


if __name__ == "__main__":
    workshop.main(server.run, server.streamable_http_app, server.sse_app)
