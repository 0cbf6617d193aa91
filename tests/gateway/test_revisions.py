"""Clients and servers of every revision behind one gateway get the same results."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import Client
from interlock.config import StdioServer
from interlock.errors import RemoteError
from interlock.gateway import Gateway
from interlock.policy import Policy
from interlock.revisions import ALL
from interlock.server.http.serve import UvicornServer
from tests.gateway.support import OWN_TOOLS
from tests.support.scripted_server import Json, ScriptedServer, tool

PNG = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = [
    tool("text", description="Says hello."),
    tool("structured", outputSchema=SCHEMA),
    tool("image"),
    tool("error"),
    tool("refused"),
]
RESULTS: dict[str, Json] = {
    "text": {"content": [{"type": "text", "text": "hello ä 😀"}]},
    "structured": {
        "content": [{"type": "text", "text": '{"n":1}'}],
        "structuredContent": {"n": 1},
    },
    "image": {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]},
    "error": {"content": [{"type": "text", "text": "no such file"}], "isError": True},
}


def server(revision: str) -> ScriptedServer:
    def call(params: Json) -> Json:
        if params["name"] == "refused":
            raise RemoteError(-32000, "not today")
        return RESULTS[params["name"]]

    return ScriptedServer(revision, {"tools/list": {"tools": TOOLS}, "tools/call": call})


@pytest.mark.parametrize("ours", ALL)
async def test_every_revision_of_server_looks_the_same_to_a_client(ours: str):
    servers = {f"s{number}": server(theirs) for number, theirs in enumerate(ALL)}
    gateway = Gateway(servers, Policy.compile(None), environ={})
    seen: dict[str, Any] = {}
    async with Client.memory(gateway, revision=ours) as client:
        listed = await client.list_tools()
        for name in servers:
            definitions = [each for each in listed.definitions if each["name"].startswith(name)]
            results = [await client.call_tool(f"{name}__{each}") for each in (*RESULTS, "refused")]
            seen[name] = (
                [each | {"name": each["name"].partition("__")[2]} for each in definitions],
                [_comparable(each) for each in results],
            )

    first = seen.pop("s0")
    for name, each in seen.items():
        assert each == first, name
    definitions, results = first
    assert [each["name"] for each in definitions] == [each["name"] for each in TOOLS]
    text, structured, image, error, refused = results
    assert text["content"][0]["text"] == "hello ä 😀"
    assert image["content"][0]["data"] == PNG
    assert (error["is_error"], refused["is_error"]) == (True, True)
    assert refused["reason"] == "upstream_error"
    has_structure = ours >= "2025-06-18"
    assert (structured["structured_content"] == {"n": 1}) is has_structure
    assert ("outputSchema" in definitions[1]) is has_structure


def _comparable(result: Any) -> Json:
    fields: Json = msgspec.to_builtins(result)
    reason = ((result.meta or {}).get("interlock/reason") or {}).get("code")
    return {
        "content": fields["content"],
        "is_error": result.is_error,
        "structured_content": result.structured,
        "reason": reason or ("upstream_error" if _is_refusal(result) else None),
    }


def _is_refusal(result: Any) -> bool:
    """Older revisions have no `_meta` in results, so only the text is left of the reason."""
    return bool(result.is_error) and "not today" in result.text


SERVER = """
import sys
from interlock import Server
server = Server("s")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

@server.tool
def fail() -> str:
    raise ValueError("hidden")

server.run()
"""


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[str]:
    """A gateway over HTTP in front of a program; yields its URL."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    gateway = Gateway(
        {"s": StdioServer(command=sys.executable, args=(str(script),))}, Policy.compile(None)
    )
    serving = UvicornServer(gateway.asgi(sse=True), "127.0.0.1", 0, handles_signals=False)
    task = asyncio.create_task(serving.serve())
    while not serving.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield serving.url.removesuffix("/mcp")
    serving.should_exit = True
    await task


@pytest.mark.slow("starts a program")
async def test_every_transport_and_revision_of_client_gets_the_same_over_http(endpoint: str):
    seen = []
    urls = [(f"{endpoint}/mcp", "streamable", each) for each in ALL[1:]]
    for url, transport, revision in [*urls, (f"{endpoint}/sse", "sse", ALL[0])]:
        async with Client.http(url, transport=transport, revision=revision) as client:  # type: ignore[arg-type]
            names = [each.name for each in await client.list_tools()]
            added = await client.call_tool("s__add", {"a": 1, "b": 2})
            failed = await client.call_tool("s__fail")
            invalid = await client.call_tool("s__add", {"a": "x", "b": 2})
            seen.append((names, added.text, failed.is_error, invalid.is_error, invalid.text))

    assert all(each == seen[0] for each in seen)
    assert seen[0][:4] == (["s__add", "s__fail", *OWN_TOOLS], "3", True, True)
    assert "'x'" not in seen[0][4]
