"""An `Exchange` that calls an ASGI application in this process, such as a FastAPI application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from interlock.errors import StreamEnded
from interlock.openapi.answers import EVENTS, ApiAnswer, OperationRequest
from interlock.openapi.exchange import joined
from interlock.protocol.content_encoding import Inflater

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class AsgiExchange:
    """Sends requests to an application by calling it, and runs its lifespan.

    Args:
        app: The application.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._lifespan: _Lifespan | None = None

    async def open(self) -> None:
        """Start the application.

        Raises:
            StreamEnded: The application's startup failed.
        """
        self._lifespan = _Lifespan(self._app)
        await self._lifespan.start()

    async def close(self) -> None:
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.stop()

    async def fetch(self, request: OperationRequest) -> ApiAnswer:
        answer = _Answer(request)
        running = asyncio.ensure_future(self._app(_scope(request), answer.receive, answer.send))
        try:
            async with asyncio.timeout_at(request.deadline):
                await asyncio.wait({running, answer.enough}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            if not answer.is_stream:
                raise
            answer.is_unfinished = True
        finally:
            answer.enough.cancel()
            running.cancel()
            await asyncio.wait({running})  # raises an error only if the caller is cancelled
            error = None if running.cancelled() else running.exception()
        if answer.status is None and error is not None:
            raise StreamEnded(f"the application failed: {type(error).__name__}")
        return answer.result()


class _Answer:
    """The answer to one request, collected from the application's ASGI messages."""

    def __init__(self, request: OperationRequest) -> None:
        self._request = request
        self._body_sent = False
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._inflater: Inflater | None = None
        self._is_cut = False
        self._is_whole = False
        self.status: int | None = None
        self.is_unfinished = False
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_stream(self) -> bool:
        return self._headers.get("content-type", "").startswith(EVENTS)

    async def receive(self) -> Message:
        """Return the request's body; on later calls, wait until the application may stop."""
        if not self._body_sent:
            self._body_sent = True
            body = self._request.body or b""
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.shield(self.enough)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Store the head of the answer, or a piece of its body."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = joined(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message.get("headers", ())
            )
            encoding = self._headers.get("content-encoding", "")
            self._inflater = Inflater(encoding, None, "the application")
        elif message["type"] == "http.response.body" and self._inflater is not None:
            for piece in self._inflater.feed(message.get("body", b"")):
                self._body += piece
                if len(self._body) > self._request.limit:
                    del self._body[self._request.limit :]
                    self._is_cut = True
                    break
            self._is_whole = not message.get("more_body", False)
            if (self._is_cut or self._is_whole) and not self.enough.done():
                self.enough.set_result(None)

    def result(self) -> ApiAnswer:
        """Return the answer.

        Raises:
            StreamEnded: The answer is missing or incomplete.
        """
        if self.status is None:
            raise StreamEnded("the application ended without an answer")
        if not (self._is_whole or self._is_cut or self.is_unfinished):
            raise StreamEnded("the application ended within its answer")
        return ApiAnswer(
            self.status,
            self._headers,
            bytes(self._body),
            self._request.url,
            self._is_cut,
            self.is_unfinished,
        )


class _Lifespan:
    """Runs the startup and shutdown of an application, if it supports the lifespan protocol."""

    def __init__(self, app: AsgiApp) -> None:
        loop = asyncio.get_running_loop()
        self._app = app
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._started: asyncio.Future[str] = loop.create_future()
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        await self._messages.put({"type": "lifespan.startup"})
        if problem := await self._started:
            raise StreamEnded(f"the application cannot start: {problem}")

    async def stop(self) -> None:
        if self._task is None or self._task.done():
            return
        await self._messages.put({"type": "lifespan.shutdown"})
        await asyncio.wait({self._stopped, self._task}, return_when=asyncio.FIRST_COMPLETED)
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        # An application that does not support lifespan raises, or returns without a message.
        with suppress(Exception):
            await self._app(scope, self._messages.get, self._send)
        self._settle("")

    async def _send(self, message: Message) -> None:
        match message["type"]:
            case "lifespan.startup.complete":
                self._settle("")
            case "lifespan.startup.failed":
                self._settle(message.get("message", "") or "its lifespan failed")
            case _:
                if not self._stopped.done():
                    self._stopped.set_result(None)

    def _settle(self, problem: str) -> None:
        if not self._started.done():
            self._started.set_result(problem)


def _scope(request: OperationRequest) -> dict[str, Any]:
    parts = urlsplit(request.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = (parts.netloc or "localhost").encode("latin-1")
    raw = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers
    ]
    if request.body is not None:
        raw.append((b"content-length", str(len(request.body)).encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": parts.scheme,
        "path": unquote_to_bytes(parts.path).decode("utf-8", "replace"),
        "raw_path": parts.path.encode("ascii"),
        "query_string": parts.query.encode("ascii"),
        "root_path": "",
        "headers": [(b"host", host), *raw],
        "client": ("127.0.0.1", 0),
        "server": (parts.hostname or "localhost", port),
        "state": {},
    }
