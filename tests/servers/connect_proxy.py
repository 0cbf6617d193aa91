"""A proxy that opens tunnels (CONNECT), and records requests and the bytes of its tunnels."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Self


class ConnectProxy:
    """The proxy. Use it as an async context manager.

    Args:
        routes: Ports on loopback by the target of a request, such as "a.example:443".
        user, password: Required credentials; "" requires none.

    Attributes:
        heads: The head of each request, from its first line to the blank line.
        passed: All bytes that went through tunnels, in both directions.
        port: The port that it listens on, on loopback.
    """

    def __init__(self, routes: Mapping[str, int], *, user: str = "", password: str = "") -> None:
        self.heads: list[str] = []
        self.passed = bytearray()
        self.port = 0
        self._routes = routes
        self._credentials = ""
        if user:
            encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._credentials = f"Proxy-Authorization: Basic {encoded}"
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1")
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                method, target, _ = head.split(" ", 2)
                if self._credentials and self._credentials not in head.split("\r\n"):
                    await _refuse(writer, 407)
                elif method != "CONNECT" or target not in self._routes:
                    await _refuse(writer, 403)
                else:
                    await self._tunnel(self._routes[target], reader, writer)
        finally:
            writer.close()

    async def _tunnel(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, to_server))
                both.create_task(self._pass(from_server, writer))
        finally:
            to_server.close()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65_536):
                self.passed += data
                target.write(data)
                await target.drain()
        target.close()


async def _refuse(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(f"HTTP/1.1 {code} Refused\r\nContent-Length: 0\r\n\r\n".encode())
    await writer.drain()
