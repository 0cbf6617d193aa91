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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wire import REVISIONS, Exchange, Schema, load

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


class Line(NamedTuple):
    """One message as it was on the wire."""

    sender: str
    text: str


def main() -> int:
    """Run the leg of every revision; return the exit code."""
    parser = argparse.ArgumentParser(description="Check every message of the stdio client.")
    parser.add_argument("schemas", type=Path, help="the folder that extract_schemas.mjs filled")
    schemas = load(parser.parse_args().schemas)
    return max(
        leg(schemas, revision, wanted) for revision in REVISIONS for wanted in ("auto", revision)
    )


def leg(schemas: dict[str, Schema], revision: str, wanted: str) -> int:
    """Exercise the client and print what came of it.

    Args:
        schemas: Those of all revisions.
        revision: What the server speaks.
        wanted: What the client asks for: "auto" to find it out, or that revision.

    Returns:
        1 for any fault, else 0.
    """
    lines = asyncio.run(asyncio.wait_for(exchange(revision, wanted), timeout=60))
    checked = Exchange(schemas, revision)
    faults = [(line, found) for line in lines if (found := checked.faults(*line))]
    problems = [f"{line.sender}: {line.text}\n    {'; '.join(found)}" for line, found in faults]
    problems += [f"no answer to {request}" for request in checked.unanswered]
    problems += [f"never sent: {method}" for method in missing(checked)]
    spoilt, passed = spoil_each(schemas, revision, lines)
    problems += [f"the check lets pass: {text}" for text in passed]
    way = "found" if wanted == "auto" else "asked for"
    print(
        f"stdio client {revision} {way}: {len(lines) - len(faults)} messages valid, "
        f"{len(faults)} invalid, {len(checked.sent['client'])} methods, "
        f"{spoilt - len(passed)} of {spoilt} spoilt messages refused"
    )
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


def missing(checked: Exchange) -> list[str]:
    """List what a client or server of this revision may send and did not."""
    return [
        f"{method} ({side})"
        for side in ("client", "server")
        for kind in (checked.schema.requests, checked.schema.notifications)
        for method in kind[side]
        if method not in checked.sent[side] and not left_out(side, method)
    ]


def left_out(side: str, method: str) -> bool:
    """Tell what the client does without.

    Tasks were an experiment of one revision; a client that reports no progress of its own and a
    server that never cancels are complete.
    """
    return "tasks/" in method or (side, method) in {
        ("client", "notifications/progress"),
        ("server", "notifications/cancelled"),
        ("server", "notifications/elicitation/complete"),
    }


def spoil_each(
    schemas: dict[str, Schema], revision: str, lines: list[Line]
) -> tuple[int, list[str]]:
    """Spoil each of the client's messages in several ways.

    Returns:
        How many spoilt messages there were, and those that passed as valid.
    """
    passed = []
    count = 0
    for index, line in enumerate(lines):
        if line.sender == "client":
            for text in spoil(line.text):
                checked = Exchange(schemas, revision)
                for before in lines[:index]:
                    checked.faults(*before)
                count += 1
                if not checked.faults("client", text):
                    passed.append(text)
    return count, passed


def spoil(text: str) -> Iterator[str]:
    """Yield copies of a message, each with one fault."""
    yield text[:-1]
    message = json.loads(text)
    yield json.dumps({**message, "jsonrpc": "1.0"})
    if "id" in message:
        yield json.dumps({**message, "id": None})
    if "method" in message:
        yield json.dumps({**message, "method": "tools/fetch"})
    if message.get("result"):
        yield json.dumps({**message, "result": {**message["result"], "hint": 1}})
    if message.get("params"):  # those of `ping` and the like are anything, up to 2025-06-18
        yield json.dumps({**message, "params": {**message["params"], "hint": 1}})


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
    """List and call tools: with progress, with questions, one that fails, one that is stopped."""
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
    """Resources, prompts and completion."""
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
    """Subscribe, hear of changes, unsubscribe; tell the server of new roots."""
    await client.subscribe("memo://greeting")
    await client.call_tool("change")
    await updated.wait()
    await client.unsubscribe("memo://greeting")
    client.set_roots([])
    await client.ping()  # what was queued before this has been sent


async def sample(_: CreateMessageParams) -> CreateMessageResult:
    """Be the client's model."""
    text = TextContent(text="Well, thanks.")
    return CreateMessageResult(role="assistant", content=text, model="scripted")


async def elicit(_: ElicitParams) -> ElicitResult:
    """Be the person who fills in the form."""
    return ElicitResult(action="accept", content={"name": "Ada"})


if __name__ == "__main__":
    sys.exit(main())
