"""The workshop, served by FastMCP 4 in both eras. It has no subscriptions to resources."""

from __future__ import annotations

from functools import partial
from typing import Any

import mcp_types as types
import workshop
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from pydantic import TypeAdapter
from workshop import Maker, Total

server = FastMCP(workshop.NAME, instructions=workshop.INSTRUCTIONS)


@server.tool
def add(a: int, b: int) -> Total:
    """Add two numbers."""
    return Total(total=a + b)


@server.tool
def show() -> list[types.ContentBlock]:
    """Give content of every kind."""
    return TypeAdapter(list[types.ContentBlock]).validate_python(workshop.SHOWN)


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("the shop is closed")


@server.tool
async def count(to: int, context: Context) -> str:
    """Count, and tell how far it is."""
    for step in range(1, to + 1):
        await context.report_progress(step, to, f"step {step}")
        await context.info(f"at {step}", logger_name="workshop")
    return f"counted to {to}"


@server.tool
async def ask(context: Context) -> str | types.InputRequiredResult:
    """Ask the person, the model and the client."""
    if context.request_context.protocol_version < "2026":
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


@server.tool
async def change(context: Context) -> str:
    """Change everything: a new tool, and news of prompts and resources."""
    server.tool(show, name="new")
    await context.send_notification(types.ToolListChangedNotification())
    await context.send_notification(types.PromptListChangedNotification())
    await context.send_notification(types.ResourceListChangedNotification())
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


@server.prompt
def greet(name: str, tone: str = "kind") -> str:
    """Greet somebody."""
    return f"Greet {name} in a {tone} tone."


@server.completion
async def complete(_reference: Any, argument: Any, context: Any) -> list[str]:
    """Propose values."""
    return workshop.proposals(argument, context)


if __name__ == "__main__":
    workshop.main(
        partial(server.run, show_banner=False),
        server.http_app,
        partial(server.http_app, transport="sse", path="/sse"),
    )
