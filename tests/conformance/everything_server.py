"""A server that uses every member of every message, so that encoders have something to drop.

Written with nothing but the public interface. Serves stdio.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta

from interlock import Context, Server, ToolError
from interlock.context import elicitation, roots_list, sampling, url_elicitation
from interlock.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    Icon,
    ImageContent,
    JsonObject,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
    ToolAnnotations,
)

ICONS = [Icon(src="https://example.com/icon.png", mime_type="image/png", sizes=["48x48"])]
META: JsonObject = {"example.com/note": "kept"}
HINTS = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")
FORM: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 1, "default": "Ada"},
        "age": {"type": "integer", "minimum": 0, "default": 36},
        "agreed": {"type": "boolean", "default": False},
        "color": {"type": "string", "enum": ["red", "blue"]},
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
        },
    },
    "required": ["name"],
}

server = Server(
    "everything",
    version="1.0.0",
    instructions="Use everything.",
    title="Everything",
    description="All that a server can say",
    website_url="https://example.com",
    icons=ICONS,
)


def contents() -> list[Content]:
    """Return a block of every type, with every member."""
    return [
        TextContent(text="text", annotations=HINTS, meta=META),
        ImageContent(data="aW1hZ2U=", mime_type="image/png"),
        AudioContent(data="YXVkaW8=", mime_type="audio/wav"),
        EmbeddedResource(
            resource=ResourceContents(uri="memo://one", mime_type="text/plain", text="one"),
            annotations=HINTS,
            meta=META,
        ),
        ResourceLink(
            uri="memo://one",
            name="one",
            title="One",
            description="The first",
            mime_type="text/plain",
            size=3,
            icons=ICONS,
            annotations=HINTS,
            meta=META,
        ),
    ]


@server.tool(
    title="Shapes",
    annotations=ToolAnnotations(title="Shapes", read_only_hint=True),
    icons=ICONS,
    meta=META,
)
async def shapes() -> list[Content]:
    """Return a block of every type."""
    return contents()


@server.tool
async def whole() -> CallToolResult:
    """Return a result with every member."""
    return CallToolResult(content=contents(), structured_content={"one": 1}, meta=META)


@server.tool
async def number(value: Annotated[int, Meta(ge=0, description="Any")] = 1) -> int:
    """Return a number, which only one revision allows as structured content."""
    return value


@server.tool
async def table() -> dict[str, int]:
    """Return an object."""
    return {"one": 1}


@server.tool
async def nothing() -> None:
    """Return nothing."""


@server.tool
async def steps(context: Context) -> str:
    """Report progress and log."""
    for done in (1, 2):
        context.progress(done, total=2, message=f"step {done}")
        context.log("warning", {"step": done}, logger="steps")
    return "done"


@server.tool
async def ask(context: Context) -> str:
    """Send every request that the client supports."""
    questions = {}
    if context.can("roots"):
        questions["roots"] = roots_list()
    if context.can("sampling"):
        questions["sample"] = sampling("How are you?", 10, temperature=0.5, stop_sequences=["."])
    if context.can("elicitation.form"):
        questions["form"] = elicitation("Who are you?", FORM)
    if context.can("elicitation.url"):
        questions["page"] = url_elicitation("Sign in", "https://example.com/sign-in")
    return ", ".join(sorted(await context.ask(questions)))


@server.tool
async def wait() -> None:
    """Run longer than the client waits."""
    await asyncio.Event().wait()


@server.tool
async def fail() -> str:
    """Fail."""
    raise ToolError("no")


@server.tool
async def change() -> str:
    """Change every list, and a resource."""

    async def passing() -> str:
        return "passing"

    server.tool(passing)
    server.remove_tool("passing")
    server.prompt(passing)
    server.remove_prompt("passing")
    server.resource("memo://passing")(passing)
    server.remove_resource("memo://passing")
    server.resource_updated("memo://one")
    return "changed"


@server.resource(
    "memo://one",
    title="One",
    mime_type="text/plain",
    icons=ICONS,
    annotations=HINTS,
    meta=META,
    ttl_ms=1000,
    cache_scope="public",
)
async def one() -> list[ResourceContents]:
    """The first."""
    return [ResourceContents(uri="memo://one", mime_type="text/plain", text="one", meta=META)]


@server.resource("memo://{name}", title="Any", icons=ICONS, annotations=HINTS, meta=META)
async def memo(name: str) -> bytes:
    """Any of them."""
    return name.encode()


@server.completion("memo://{name}", "name")
async def complete_name(typed: str) -> list[str]:
    """Propose names."""
    return [typed + "a", typed + "b"]


@server.prompt(title="Talk", icons=ICONS, meta=META)
async def talk(topic: str, tone: str = "kind") -> list[PromptMessage]:
    """Start a conversation.

    Args:
        topic: About what.
        tone: How.
    """
    blocks = [*contents(), TextContent(text=f"{topic} in a {tone} tone")]
    return [PromptMessage(role="user", content=each) for each in blocks]


@server.completion("talk", "topic")
async def complete_topic(typed: str, arguments: dict[str, str]) -> list[str]:
    """Propose topics."""
    return [typed + "x", *arguments]


if __name__ == "__main__":
    server.run()
