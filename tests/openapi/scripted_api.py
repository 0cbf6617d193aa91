"""An HTTP server on loopback that answers with given bytes, and records what it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple


class Received(NamedTuple):
    """One request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Answer = bytes | None  # None: close the connection without an answer


def http(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    """Return an answer; `_` in a header's name stands for "-"."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class ScriptedApi:
    """Answers each request with the next answer; the last one is repeated.

    Attributes:
        url: Where it listens.
        received: The requests so far.
        answers: What it answers: bytes, None, or a function of the request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.received: list[Received] = []
        self.answers: list[Answer | Callable[[Received], Answer]] = [http()]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").split("\r\n")
                method, target, _ = first.split(" ")
                pairs = [line.partition(": ") for line in lines if line]
                headers = {name.lower(): value for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.received.append(Received(method, target, headers, body))
                answer = self.answers[min(len(self.received), len(self.answers)) - 1]
                if callable(answer):
                    answer = answer(self.received[-1])
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if b"Content-Length" not in answer:
                    break  # the end of the connection is the end of the body
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted_api() -> AsyncIterator[ScriptedApi]:
    """Serve on a free port."""
    api = ScriptedApi()
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
