"""interlock's server on stdio against the specification's schemas, in all five revisions.

    python stdio_server.py SCHEMAS

For each revision our client calls a server that uses everything, and is asked everything. Each
message of that exchange, in both directions, is held against the schema of its revision; the
server must not name a field that its client's revision does not know. The check is checked too:
the server's messages, spoilt one by one, must be refused.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from legs import Line, judge
from wire import REVISIONS, Schema, load

from interlock import Client
from interlock.errors import RemoteError
from interlock.text.redaction import Redactor
from interlock.transports.trace import Note
from interlock.types import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
)

SERVER = [sys.executable, str(Path(__file__).with_name("everything_server.py"))]


def main() -> int:
    """Run the leg of every revision; return the exit code."""
    parser = argparse.ArgumentParser(description="Check every message of the server on stdio.")
    parser.add_argument("schemas", type=Path, help="the folder that extract_schemas.mjs filled")
    schemas = load(parser.parse_args().schemas)
    return max([leg(schemas, revision) for revision in REVISIONS])


def leg(schemas: dict[str, Schema], revision: str) -> int:
    """Exercise the server and print the result; return 1 for any fault."""
    lines = asyncio.run(asyncio.wait_for(exchange(revision), timeout=60))
    return judge(f"stdio server {revision}", schemas, revision, lines, "server")


class Tap:
    """Records all messages of a connection; a `Trace`."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self.redactor = Redactor()

    def sent(self, frame: bytes) -> None:
        """Record a message of the client."""
        self._lines.append(Line("client", frame.decode()))

    def received(self, frame: bytes) -> None:
        """Record a message of the server."""
        self._lines.append(Line("server", frame.decode()))

    def noted(self, kind: Note, text: str) -> None:
        """Ignore what is not a message."""


async def exchange(revision: str) -> list[Line]:
    """Call the server in every way; return all messages in their order."""
    lines: list[Line] = []
    changed: set[str] = set()
    told = asyncio.Event()

    def note(change: str) -> None:
        changed.add(change)
        if {"tools", "prompts", "resources", "memo://one"} <= changed:
            told.set()

    client = Client.stdio(
        *SERVER,
        trace=Tap(lines),
        revision=revision,
        roots=["/"],
        sampling=sample,
        elicitation=elicit,
        on_log=lambda _: None,
        on_list_changed=note,
        on_resource_updated=note,
    )
    async with client:
        assert client.revision == revision
        await use_tools(client)
        await use_the_rest(client)
        await client.subscribe("memo://one")
        await client.call_tool("change")
        await told.wait()
        await client.unsubscribe("memo://one")
        client.set_roots([])
        await client.ping()  # what was queued before this has been sent
    return lines


async def use_tools(client: Client) -> None:
    """Call every tool; one fails, one does not exist, one is cancelled."""
    await client.set_log_level("debug")
    for tool in await client.list_tools():
        if tool.name not in ("wait", "change"):
            result = await client.call_tool(tool.name, progress=lambda _: None)
            assert result.is_error == (tool.name == "fail"), result
    await refused(client.call_tool("none"))
    assert (await client.call_tool("number", {"value": -1})).is_error

    waiting = asyncio.create_task(client.call_tool("wait"))
    await client.ping()  # the call is on its way before this is answered
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def use_the_rest(client: Client) -> None:
    """Resources, prompts and completion, and missing ones."""
    (resource,) = await client.list_resources()
    (template,) = await client.list_resource_templates()
    await client.read_resource(resource.uri)
    await client.read_resource("memo://two")
    await refused(client.read_resource("nothing://here"))
    (prompt,) = await client.list_prompts()
    await client.get_prompt(prompt.name, {"topic": "rain"})
    await refused(client.get_prompt(prompt.name, {}))
    by_prompt = PromptReference(name=prompt.name)
    by_template = ResourceTemplateReference(template.uri_template)
    await client.complete(by_prompt, "topic", "r", context={"tone": "curt"})
    await client.complete(by_template, "name", "t")


async def refused(request: object) -> None:
    """Await a request that must end with an error."""
    (error,) = await asyncio.gather(request, return_exceptions=True)  # type: ignore[call-overload]  # any awaitable
    assert isinstance(error, RemoteError), error


async def sample(_: CreateMessageParams) -> CreateMessageResult:
    """Answer as the client's model."""
    text = TextContent(text="Well, thanks.")
    return CreateMessageResult(role="assistant", content=text, model="scripted")


async def elicit(question: ElicitParams) -> ElicitResult:
    """Answer as the user who fills in the form or opens the page."""
    content = {"name": "Ada"} if question.mode == "form" else None
    return ElicitResult(action="accept", content=content)


if __name__ == "__main__":
    sys.exit(main())
