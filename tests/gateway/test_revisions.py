"""Clients and servers of every revision, on stdio and over HTTP, get the same results."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from interlock import Client
from interlock.config import HttpServer
from interlock.errors import RemoteError
from interlock.gateway import ForwardingServer
from interlock.policy import Policy
from interlock.revisions import ALL, MODERN
from interlock.server.http.serve import UvicornServer
from interlock.server.server_connection import ServerConnection
from interlock.transports.pipes import PipeTransport
from tests.servers.evil_http import Asked, EvilHttp
from tests.support.scripted_server import Json, ScriptedServer, _Link, tool

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
REFUSAL = {"code": -32000, "message": "not today"}


class Pipes:
    """Pairs of pipes, framed as stdin and stdout of a program."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Pipes:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def ends(self) -> tuple[PipeTransport, PipeTransport]:
        """Return the client's and the server's end of a new connection."""
        (source, to_server), (from_server, target) = os.pipe(), os.pipe()
        for each in (source, to_server, from_server, target):
            self._stack.callback(os.close, each)
        return PipeTransport(from_server, to_server), PipeTransport(source, target)


class OnStdio(ScriptedServer):
    """A server of one revision behind pipes."""

    def __init__(self, revision: str, pipes: Pipes) -> None:
        def call(params: Json) -> Json:
            if params["name"] == "refused":
                raise RemoteError(**REFUSAL)
            return RESULTS[params["name"]]

        super().__init__(revision, {"tools/list": {"tools": TOOLS}, "tools/call": call})
        self._pipes = pipes

    def connect(self) -> Any:
        theirs, ours = self._pipes.ends()
        self._link = _Link(self, ours)  # type: ignore[arg-type]
        return theirs


class OnHttp(EvilHttp):
    """A server of one revision at a URL; that of 2024-11-05 speaks HTTP+SSE."""

    def __init__(self, revision: str) -> None:
        super().__init__(revision)
        self.tools = TOOLS

    def _misbehaviour(self, asked: Asked) -> tuple[str, Json]:
        if asked.method != "tools/call" or self._lacks_session(asked):
            return "", {}
        name = asked.message["params"]["name"]
        if name == "refused":
            line = '{"jsonrpc":"2.0","id":$ID,"error":' + json.dumps(REFUSAL) + "}"
            return "say", {"lines": [line]}
        more = {"resultType": "complete"} if self.revision in MODERN else {}
        return "result", {**RESULTS[name], **more}


@asynccontextmanager
async def endpoint_of(gateway: ForwardingServer) -> AsyncIterator[str]:
    """Serve a gateway over HTTP; yield the URL of its root."""
    serving = UvicornServer(gateway.asgi(sse=True), "127.0.0.1", 0, handles_signals=False)
    task = asyncio.create_task(serving.serve())
    while not serving.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield serving.url.removesuffix("/mcp")
    serving.should_exit = True
    await task


@pytest.mark.slow("serves every revision on every transport")
async def test_every_pair_of_revisions_and_transports_gets_the_same_results():
    async with AsyncExitStack() as stack:
        pipes = await stack.enter_async_context(Pipes())
        servers: dict[str, Any] = {}
        for number, revision in enumerate(ALL):
            url = (await stack.enter_async_context(OnHttp(revision))).url
            servers[f"http{number}"] = HttpServer(
                url=url, type="sse" if revision == ALL[0] else "http", auth="none"
            )
            servers[f"stdio{number}"] = OnStdio(revision, pipes)
        gateway = ForwardingServer(servers, Policy.compile(None), environ={})
        await stack.enter_async_context(gateway.running())
        url = await stack.enter_async_context(endpoint_of(gateway))
        upstreams = gateway.toolbox.upstreams
        spoken = {name: each.status.revision for name, each in upstreams.items()}
        assert spoken == {f"{way}{n}": ALL[n] for n in range(5) for way in ("http", "stdio")}

        for ours in ALL:
            over_stdio, served = pipes.ends()
            serving = asyncio.create_task(ServerConnection(gateway, served).serve())
            way, path = ("sse", "/sse") if ours == ALL[0] else ("streamable", "/mcp")
            clients = [
                Client(lambda: over_stdio, revision=ours),  # noqa: B023
                Client.http(f"{url}{path}", transport=way, revision=ours),  # type: ignore[arg-type]
            ]
            seen = []
            for each in clients:
                async with each as client:
                    seen += [await everything_of(name, client) for name in servers]
            serving.cancel()  # it waits for the end of its input
            await asyncio.wait({serving})
            assert len(seen) == 20
            for each in seen[1:]:
                assert each == seen[0], ours
            check(ours, *seen[0])


async def everything_of(server: str, client: Client) -> tuple[list[Json], list[Json]]:
    """Return the definitions of a server's tools, and what each call of them returned."""
    definitions = [
        each | {"name": each["name"].removeprefix(f"{server}__")}
        for each in (await client.list_tools()).definitions
        if each["name"].startswith(f"{server}__")
    ]
    results = [await client.call_tool(f"{server}__{each['name']}") for each in TOOLS]
    return definitions, [_comparable(each) for each in results]


def check(ours: str, definitions: list[Json], results: list[Json]) -> None:
    """Check what a client of this revision has got."""
    assert [each["name"] for each in definitions] == [each["name"] for each in TOOLS]
    assert definitions[0]["description"] == "Says hello."
    text, structured, image, error, refused = results
    assert text["content"][0]["text"] == "hello ä 😀"
    assert image["content"][0]["data"] == PNG
    assert error["content"][0]["text"] == "no such file"
    assert [each["is_error"] for each in results] == [False, False, False, True, True]
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
