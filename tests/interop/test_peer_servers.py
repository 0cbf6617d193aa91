"""Our client uses servers of `mcp` 1, `mcp` 2 and FastMCP 4: all they offer, in every way.

The servers are the same workshop, see `peers/workshop.py`. What there is to use is asked of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import Client
from interlock.errors import RemoteError
from interlock.types import (
    CallToolResult,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
)
from tests.interop.heard import LIMIT, Heard
from tests.support.served import serving

PEERS = Path(__file__).with_name("peers")
LEGACY, MODERN = "2025-11-25", "2026-07-28"

# Peer, transport, the revision that is asked for, and the one that is spoken then
WAYS = [
    *(("mcp1", over, "auto", LEGACY) for over in ("stdio", "http", "sse")),
    *(
        (peer, over, *revisions)
        for peer in ("mcp2", "fastmcp4")
        for over in ("stdio", "http")
        for revisions in (("auto", MODERN), ("legacy", LEGACY))
    ),
    *((peer, "sse", "auto", LEGACY) for peer in ("mcp2", "fastmcp4")),
]


@contextmanager
def offered(peer: str, python: str, over: str, log: Path) -> Iterator[Callable[..., Client]]:
    """Offer a peer's server; gives what makes clients of it."""
    command = [python, "-W", "ignore", str(PEERS / f"{peer}_server.py"), over]
    if over == "stdio":
        yield partial(Client.stdio, *command)
        return
    with serving(command, log) as url:
        yield partial(Client.http, url)
    assert "Traceback" not in log.read_text()


@pytest.fixture
def connect(
    peer: str, over: str, installed: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Client]]:
    python = installed("build/mcp1/bin/python") if peer == "mcp1" else sys.executable
    with offered(peer, python, over, tmp_path / "log") as connect:
        yield connect


@pytest.mark.parametrize(("peer", "over", "wanted", "spoken"), WAYS)
async def test_client_can_use_every_feature_of_a_peer_server(
    connect: Callable[..., Client],
    nothing_is_left: list[Any],
    peer: str,
    wanted: str,
    spoken: str,
) -> None:
    heard = Heard()
    async with connect(
        revision=wanted,
        roots=["file:///work"],
        sampling=sample,
        elicitation=elicit,
        on_log=heard.add,
        on_list_changed=heard.add,
        on_resource_updated=heard.add,
        timeout=LIMIT,
        connect_timeout=LIMIT,
    ) as client:
        assert client.revision == spoken
        assert client.server_info.name == "workshop"
        assert client.instructions == "Count twice, cut once."
        await client.ping()
        await client.set_log_level("info")
        await use_tools(client, heard)
        await use_resources(client)
        await use_prompts(client)
        await follow_changes(client, heard, follows=peer != "fastmcp4")


async def sample(params: CreateMessageParams) -> CreateMessageResult:
    """Answer for the model."""
    words = f"short, within {params.max_tokens}"
    return CreateMessageResult(role="assistant", content=TextContent(text=words), model="scripted")


async def elicit(question: ElicitParams) -> ElicitResult:
    """Answer for the person, who leaves the default as it is."""
    assert question.message == "Who makes it?"
    return ElicitResult(action="accept", content={"name": "Ada"})


async def use_tools(client: Client, heard: Heard) -> None:
    """Call every tool, at the same time."""
    steps: list[tuple[float, float | None, str | None]] = []
    calls = {
        "add": client.call_tool("add", {"a": 1, "b": 2}),
        "show": client.call_tool("show"),
        "fail": client.call_tool("fail"),
        "count": client.call_tool(
            "count",
            {"to": 3},
            progress=lambda told: steps.append((told.progress, told.total, told.message)),
        ),
        "ask": client.call_tool("ask"),
    }
    tools = await client.list_tools()
    assert not tools.skipped
    assert {tool.name for tool in tools} == {*calls, "change"}  # which has its turn at the end
    added, shown, failed, counted, asked = await asyncio.gather(*calls.values())
    wrong = await client.call_tool("add", {"a": "one", "b": 2})

    assert added.structured == {"total": 3}
    check_shown(shown)
    assert (failed.is_error, failed.text.endswith("the shop is closed")) == (True, True)
    assert counted.text == "counted to 3"
    assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert (await heard.wait("at 3")).startswith("info: ")
    assert json.loads(asked.text) == {
        "maker": {"name": "Ada", "tries": 3},
        "motto": "short, within 20",
        "folders": ["file:///work"],
    }
    assert wrong.is_error


def check_shown(shown: CallToolResult) -> None:
    """Check content of every kind."""
    text, image, audio, embedded, link = msgspec.to_builtins(shown.content)
    assert text == {"type": "text", "text": "here"}
    assert (image["mimeType"], base64.b64decode(image["data"])) == ("image/png", b"a picture")
    assert (audio["mimeType"], base64.b64decode(audio["data"])) == ("audio/wav", b"a picture")
    assert embedded["resource"]["text"] == "saw, hammer"
    assert (link["type"], link["uri"]) == ("resource_link", "shop://logo")


async def use_resources(client: Client) -> None:
    """Read every resource, and one of every template."""
    resources = {each.uri: each for each in await client.list_resources()}
    (template,) = await client.list_resource_templates()
    (stock,) = (await client.read_resource("shop://list")).contents
    (logo,) = (await client.read_resource("shop://logo")).contents
    (saw,) = (await client.read_resource("shop://item/saw")).contents
    reference = ResourceTemplateReference(uri=template.uri_template)
    completed = await client.complete(reference, "name", "s")
    with pytest.raises(RemoteError, match="shop://nothing"):
        await client.read_resource("shop://nothing")

    assert set(resources) == {"shop://list", "shop://logo"}
    assert template.uri_template == "shop://item/{name}"
    assert (stock.text, stock.mime_type) == ("saw, hammer", "text/plain")
    assert (base64.b64decode(logo.blob or ""), logo.mime_type) == (b"a picture", "image/png")
    assert saw.text == "a saw"
    assert completed.values == ["saw", "screw"]


async def use_prompts(client: Client) -> None:
    """Get every prompt, with completed arguments."""
    (prompt,) = await client.list_prompts()
    got = await client.get_prompt("greet", {"name": "Ada"})
    reference = PromptReference(name="greet")
    tones = await client.complete(reference, "tone", "k", context={"name": "Ada"})
    others = await client.complete(reference, "tone", "k")

    needed = {each.name: bool(each.required) for each in prompt.arguments or []}
    (message,) = got.messages
    assert (prompt.name, needed) == ("greet", {"name": True, "tone": False})
    assert message.content == TextContent(text="Greet Ada in a kind tone.")
    assert (tones.values, others.values) == (["kinder"], ["kind"])


async def follow_changes(client: Client, heard: Heard, *, follows: bool) -> None:
    """Hear that everything has changed; of a resource, if the server lets it be followed."""
    if follows:
        await client.subscribe("shop://list")
    changed = await client.call_tool("change")
    for kind in ("tools", "prompts", "resources"):
        await heard.wait(kind)
    if follows:
        await heard.wait("shop://list")
        await client.unsubscribe("shop://list")

    assert changed.text == "changed"
    assert "new" in {tool.name for tool in await client.list_tools()}
    assert not (await client.call_tool("new")).is_error
