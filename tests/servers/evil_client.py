"""A client on HTTP that misbehaves. Raw sockets, standard library only.

    python evil_client.py URL [seed=N] [times=N]

runs a script of misbehaviours, the same for the same seed, and prints how often it ran each.
The server must offer the tools `hold`, which never answers, and `flood`, which never stops
sending progress.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
MODERN = "2026-07-28"
KEY = "io.modelcontextprotocol/"


class EvilClient:
    """All connections of one client. It reads only what a test asks for.

    Args:
        url: The URL of the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path
        self._last_id = 0
        self._wires: list[Wire] = []

    async def connect(self, *, buffer: int = 0) -> Wire:
        """Open a connection; `buffer` is the size of its receive buffer, if not 0."""
        loop = asyncio.get_running_loop()
        raw = socket.socket()
        raw.setblocking(False)
        if buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        try:
            await loop.sock_connect(raw, (self.host, self.port))
        except BaseException:
            raw.close()
            raise
        self._wires.append(Wire(raw))
        return self._wires[-1]

    def close(self) -> None:
        """Close all connections."""
        for wire in self._wires:
            wire.close()

    # Messages

    def message(self, method: str, params: Json | None = None, **more: Any) -> bytes:
        """Encode a modern request, with another id each time."""
        self._last_id += 1
        meta = {KEY + "protocolVersion": MODERN, KEY + "clientCapabilities": {}, "progressToken": 1}
        params = {**(params or {}), "_meta": meta}
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        return json.dumps({**message, **more}).encode()

    def call(self, tool: str, **arguments: Any) -> bytes:
        """Return a whole HTTP request that calls a tool."""
        return self.post(self.message("tools/call", {"name": tool, "arguments": arguments}), tool)

    def post(
        self, body: bytes, name: str = "", method: str = "tools/call", **headers: str
    ) -> bytes:
        """Return a whole HTTP request with this body."""
        given = {
            "Host": f"{self.host}:{self.port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
            **({"Mcp-Name": name} if name else {}),
            "Content-Length": str(len(body)),
            **{key.replace("_", "-"): value for key, value in headers.items()},
        }
        lines = [f"POST {self.path} HTTP/1.1", *(f"{key}: {value}" for key, value in given.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and return the status and body of the answer."""
        wire = await self.connect()
        await wire.send(request)
        answer = await wire.answer()
        wire.close()
        return answer


class Wire:
    """One connection."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._loop = asyncio.get_running_loop()
        self._read = b""

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        await self._loop.sock_sendall(self._raw, data)

    async def answer(self) -> tuple[int, bytes]:
        """Read one answer with a Content-Length; return its status and body."""
        while b"\r\n\r\n" not in self._read:
            await self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (each.partition(":") for each in lines)
        }
        length = int(headers.get("content-length", 0))
        while len(self._read) < length:
            await self._more()
        body, self._read = self._read[:length], self._read[length:]
        return int(status.split()[1]), body

    async def _more(self) -> None:
        data = await self._loop.sock_recv(self._raw, 65536)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self._read += data

    async def receive(self) -> bytes:
        """Return the bytes that have arrived; b"" at the end."""
        return await self._loop.sock_recv(self._raw, 65536)

    async def closed(self) -> None:
        """Wait until the server closes the connection; drop what it sends before."""
        with suppress(ConnectionError):
            while await self.receive():
                pass

    def close(self, *, reset: bool = False) -> None:
        """Close the connection, with a TCP reset if `reset`."""
        if reset and self._raw.fileno() >= 0:
            self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._raw.close()


# Misbehaviours: each begins one and returns its connection


async def half_headers(client: EvilClient) -> Wire:
    """Send a part of the headers, and nothing more."""
    wire = await client.connect()
    await wire.send(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow")
    return wire


async def half_body(client: EvilClient) -> Wire:
    """Send a part of the body, and nothing more."""
    wire = await client.connect()
    await wire.send(client.call("hold")[:-10])
    return wire


async def silence(client: EvilClient) -> Wire:
    """Connect, and send nothing."""
    return await client.connect()


async def hang_up(client: EvilClient) -> Wire:
    """Call a slow tool, and close the connection."""
    wire = await client.connect()
    await wire.send(client.call("hold"))
    await asyncio.sleep(0.02)
    wire.close()
    return wire


async def reset(client: EvilClient) -> Wire:
    """Call a slow tool, and reset the connection."""
    wire = await client.connect()
    await wire.send(client.call("hold"))
    await asyncio.sleep(0.02)
    wire.close(reset=True)
    return wire


async def never_read(client: EvilClient) -> Wire:
    """Call a tool that sends much, and read nothing."""
    wire = await client.connect(buffer=4096)
    await wire.send(client.call("flood"))
    return wire


async def huge_body(client: EvilClient) -> Wire:
    """Announce a body over any limit, and send a part of it."""
    wire = await client.connect()
    head, _, _ = client.post(b"", Content_Length=str(10**12)).partition(b"\r\n\r\n")
    await wire.send(head + b"\r\n\r\n" + b"x" * 65536)
    return wire


async def garbage(client: EvilClient) -> Wire:
    """Send what is not HTTP."""
    wire = await client.connect()
    await wire.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
    return wire


async def bad_messages(client: EvilClient) -> Wire:
    """Send bodies that are not messages, one after the other, and read no answer."""
    wire = await client.connect()
    for body in BAD_MESSAGES:
        await wire.send(client.post(body))
    return wire


RESPONSE = b'{"jsonrpc":"2.0","id":1}'
BAD_MESSAGES = (
    b"",
    b"hello",
    b"\xff\xfe",
    b"[]",
    b"null",
    b"[" * 100_000,
    RESPONSE,
    b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":NaN}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":' + b"9" * 5000 + b"}}",
)

Misbehaviour = Callable[[EvilClient], Awaitable[Wire]]
MISBEHAVIOURS: dict[str, Misbehaviour] = {
    each.__name__: each
    for each in (
        *(half_headers, half_body, silence, hang_up, reset),
        *(never_read, huge_body, garbage, bad_messages),
    )
}


async def play(client: EvilClient, *, seed: int, times: int) -> Counter[str]:
    """Run misbehaviours at random; return how often each ran."""
    chance, done = random.Random(seed), Counter[str]()
    for _ in range(times):
        name = chance.choice(sorted(MISBEHAVIOURS))
        with suppress(ConnectionError):
            wire = await MISBEHAVIOURS[name](client)
            if chance.random() < 0.5:
                wire.close(reset=chance.random() < 0.5)
        done[name] += 1
    return done


async def main() -> None:
    """Run as many misbehaviours as the arguments say."""
    options = dict(argument.partition("=")[::2] for argument in sys.argv[2:])
    client = EvilClient(sys.argv[1])
    times = int(options.get("times", 100))
    done = await play(client, seed=int(options.get("seed", 0)), times=times)
    print(json.dumps(done))
    client.close()


if __name__ == "__main__":
    asyncio.run(main())
