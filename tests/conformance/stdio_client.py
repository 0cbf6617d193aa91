"""interlock's client on stdio against the specification's schemas, in all five revisions.

    python stdio_client.py SCHEMAS

For each revision a scripted server is called in every way the client has, and asks everything it
may ask. Then each message of that exchange, in both directions, is held against the schema of its
revision. The check is checked too: the client's messages, spoilt one by one, must be refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from legs import Line, judge
from wire import REVISIONS, Schema, load

from interlock import Client
from interlock.errors import RemoteError
from interlock.types import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
)

HERE = Path(__file__).parent


def main() -> int:
    """Run the leg of every revision; return the exit code."""
    parser = argparse.ArgumentParser(description="Check every message of the stdio client.")
    parser.add_argument("schemas", type=Path, help="the folder that extract_schemas.mjs filled")
    schemas = load(parser.parse_args().schemas)
    return max(
        leg(schemas, revision, wanted) for revision in REVISIONS for wanted in ("auto", revision)
    )


def leg(schemas: dict[str, Schema], revision: str, wanted: str) -> int:
    """Exercise the client and print the result.

    Args:
        schemas: Those of all revisions.
        revision: What the server speaks.
        wanted: What the client asks for: "auto" to find it out, or that revision.

    Returns:
        1 for any fault, else 0.
    """
    lines = asyncio.run(asyncio.wait_for(exchange(revision, wanted), timeout=60))
    way = "found" if wanted == "auto" else "asked for"
    return judge(f"stdio client {revision} {way}", schemas, revision, lines, "client")


async def exchange(revision: str, wanted: str) -> list[Line]:
    """Call a server of `revision` in every way; return all messages in their order."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        server = [str(HERE / "scripted_server.py"), "--revision", revision, "--record", str(record)]
        updated = asyncio.Event()
        client = Client.stdio(
            sys.executable,
            *server,
            revision=wanted,
            roots=[folder],
            sampling=sample,
            elicitation=elicit,
            on_log=lambda _: None,
            on_list_changed=lambda _: None,
            on_resource_updated=lambda _: updated.set(),
        )
        async with client:
            assert client.revision == revision
            await use_tools(client)
            await use_the_rest(client)
            await be_told(client, updated)
        entries = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    return [Line(entry["from"], entry["line"]) for entry in entries]


async def use_tools(client: Client) -> None:
    """List and call tools: with progress, with requests, one that fails, one that is cancelled."""
    tools = await client.list_tools()
    assert [tool.name for tool in tools] == ["count", "ask", "wait", "change", "fail"]
    steps: list[float] = []
    await client.set_log_level("debug")
    await client.call_tool("count", {"to": 3}, progress=lambda step: steps.append(step.progress))
    assert steps == [1, 2, 3]
    asked = await client.call_tool("ask")
    assert "roots, sample" in asked.text
    assert (await client.call_tool("fail")).is_error
    (refused,) = await asyncio.gather(client.call_tool("none"), return_exceptions=True)
    assert isinstance(refused, RemoteError)

    waiting = asyncio.create_task(client.call_tool("wait"))
    await client.ping()  # the call is on its way before this is answered
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def use_the_rest(client: Client) -> None:
    """Use resources, prompts and completion."""
    (resource,) = await client.list_resources()
    (template,) = await client.list_resource_templates()
    await client.read_resource(resource.uri)
    (prompt,) = await client.list_prompts()
    await client.get_prompt(prompt.name, {"language": "de"})
    for ref in (
        PromptReference(name=prompt.name),
        ResourceTemplateReference(template.uri_template),
    ):
        await client.complete(ref, "language", "d", context={"region": "at"})


async def be_told(client: Client, updated: asyncio.Event) -> None:
    """Subscribe, receive changes, unsubscribe; notify the server of new roots."""
    await client.subscribe("memo://greeting")
    await client.call_tool("change")
    await updated.wait()
    await client.unsubscribe("memo://greeting")
    client.set_roots([])
    await client.ping()  # what was queued before this has been sent


async def sample(_: CreateMessageParams) -> CreateMessageResult:
    """Answer as the client's model."""
    text = TextContent(text="Well, thanks.")
    return CreateMessageResult(role="assistant", content=text, model="scripted")


async def elicit(_: ElicitParams) -> ElicitResult:
    """Answer as the user who fills in the form."""
    return ElicitResult(action="accept", content={"name": "Ada"})


if __name__ == "__main__":
    sys.exit(main())
