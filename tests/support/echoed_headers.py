"""A server with a URL whose tool returns the headers of the request that called it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from interlock import Server
from interlock.server.http.serve import UvicornServer

SHOWN = ("X-User", "X-Tenant", "X-Trace")
_received: ContextVar[dict[bytes, bytes]] = ContextVar("received")


class EchoedHeaders:
    """An application whose tool `who` returns the headers of the request that called it."""

    def __init__(self) -> None:
        server = Server("echo")

        @server.tool
        async def who() -> str:
            given = _received.get()
            return "|".join(given.get(name.lower().encode(), b"").decode() for name in SHOWN)

        self._app = server.asgi(sse=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            _received.set(dict(scope["headers"]))
        await self._app(scope, receive, send)


@asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    running = UvicornServer(EchoedHeaders(), "127.0.0.1", 0, handles_signals=False)
    task = asyncio.create_task(running.serve())
    while not running.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.001)
    try:
        yield running.url
    finally:
        running.end()
        await task
