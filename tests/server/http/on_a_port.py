"""A server on a port, and what clients send to it."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import aiohttp

from interlock import Server
from interlock.server.http import serve

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": 1,
}

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "tests", "version": "1"},
}


_connections: list[asyncio.StreamWriter] = []


@asynccontextmanager
async def served(server: Server, *, proxies=(), json_silence=3_600.0, **options):
    """Serve on a port; at the end, abort what `connect` has opened.

    However busy the machine is, no response that is late becomes a stream.
    """
    app = server.asgi(json_silence=json_silence, **options)
    running = serve.UvicornServer(app, "127.0.0.1", 0, proxies=proxies)
    task = asyncio.create_task(running.serve())
    while not running.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.001)
    try:
        async with aiohttp.ClientSession() as client:
            yield running, client
    finally:
        for writer in _connections:
            writer.transport.abort()
        _connections.clear()
        running.should_exit = True
        await task


async def connect(running, receives=None):
    """Open a connection for which the system keeps about so many received bytes."""
    client = socket.socket()
    if receives is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    client.connect(running.servers[0].sockets[0].getsockname()[:2])
    reader, writer = await asyncio.open_connection(sock=client)
    _connections.append(writer)
    return reader, writer


def legacy(method, params, session=None, id=1):
    """Return the arguments of a POST by a legacy client."""
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if session is not None:
        headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    return {"data": json.dumps(message), "headers": headers}


async def initialize(running, client):
    """Begin a legacy session and return its id."""
    async with client.post(running.url, **legacy("initialize", INITIALIZE)) as reply:
        return reply.headers["mcp-session-id"]


def call(tool, arguments=None, id=1):
    params = {"name": tool, "arguments": arguments or {}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }
    return {"data": json.dumps(message), "headers": headers}


def written(request, *more):
    """Return a request as its bytes on the wire."""
    head = [f"{name}: {value}" for name, value in request["headers"].items()]
    lines = ["POST /mcp HTTP/1.1", "host: 127.0.0.1", *head, *more]
    return "\r\n".join([*lines, f"content-length: {len(request['data'])}", "", request["data"]])
