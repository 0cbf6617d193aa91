"""The workshop, served by `mcp` 1, which knows the handshake only."""

from __future__ import annotations

from typing import Any

import workshop
from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from pydantic import AnyUrl, TypeAdapter
from workshop import Maker, Total

server = FastMCP(workshop.NAME, instructions=workshop.INSTRUCTIONS, log_level="CRITICAL")
low = server._mcp_server  # for what `FastMCP` has no way of its own


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
    raise ValueError("the shop is closed")


@server.tool()
async def count(to: int, context: Context) -> str:
    """Count, and tell how far it is."""
    for step in range(1, to + 1):
        await context.report_progress(step, to, f"step {step}")
        await context.info(f"at {step}", logger_name="workshop")
    return f"counted to {to}"


@server.tool()
async def ask(context: Context) -> str:
    """Ask the person, the model and the client."""
    maker = await context.elicit(workshop.WHO, Maker)
    motto = await context.session.create_message(
        TypeAdapter(list[types.SamplingMessage]).validate_python(workshop.MOTTO),
        max_tokens=20,
        related_request_id=context.request_id,
    )
    return workshop.told(maker.data, motto, await context.session.list_roots())


@server.tool()
async def change(context: Context) -> str:
    """Change everything: a new tool, and news of prompts and resources."""
    server.add_tool(show, name="new")
    await context.session.send_tool_list_changed()
    await context.session.send_prompt_list_changed()
    await context.session.send_resource_list_changed()
    await context.session.send_resource_updated(AnyUrl(workshop.LIST))
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


@low.subscribe_resource()
async def subscribe(_uri: AnyUrl) -> None:
    """Let everybody follow everything."""


@low.unsubscribe_resource()
async def unsubscribe(_uri: AnyUrl) -> None:
    """Let them go."""


@low.set_logging_level()
async def set_level(_level: str) -> None:
    """Tell everything anyway."""


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
