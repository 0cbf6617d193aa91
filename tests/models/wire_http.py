"""A loopback HTTP server that plays a script of answers and records the requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from aiohttp import web


class Answer(NamedTuple):
    body: bytes
    status: int = 200
    headers: dict[str, str] = {"content-type": "text/event-stream"}  # noqa: RUF012 - never changed
    cut: bool = False  # end the connection instead of the answer
    hangs: bool = False  # do neither
    slice: int = 41  # bytes per write; an odd number splits events and characters anywhere


class Asked(NamedTuple):
    body: dict[str, Any]
    headers: dict[str, str]
    path: str


class WireServer:
    """Answers POST with the next answer of its script, if the request is valid.

    `problem` returns why a provider would refuse a request, or None. A refused request is answered
    with 400 in the provider's format and listed in `problems`.
    """

    def __init__(
        self, path: str, problem: Callable[[dict[str, Any]], str | None], *more: str
    ) -> None:
        self._problem = problem
        self._runner = web.AppRunner(self._app((path, *more)), handler_cancellation=True)
        self.script: list[Answer] = []
        self.asked: list[Asked] = []
        self.problems: list[str] = []
        self.models: list[str] = []
        self.root = ""

    def _app(self, paths: tuple[str, ...]) -> web.Application:
        app = web.Application()
        for path in paths:
            app.router.add_post(path, self._answer)
        app.router.add_get("/v1/models", self._list)
        return app

    async def start(self, *, tls: ssl.SSLContext | None = None) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.root = f"https://localhost:{port}" if tls else f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        listed = [{"id": name, "object": "model"} for name in self.models]
        return web.json_response({"object": "list", "data": listed})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.asked.append(Asked(body, dict(request.headers), request.path))
        problem = self._problem(body)
        if problem:
            self.problems.append(problem)
            error = {"error": {"type": "invalid_request_error", "message": problem}}
            return web.json_response(error, status=400)
        answer = self.script.pop(0)
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        for start in range(0, len(answer.body), answer.slice):
            await response.write(answer.body[start : start + answer.slice])
        if answer.hangs:
            await asyncio.Event().wait()
        if answer.cut:
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write_eof()
        return response


def failure(status: int, body: object, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    encoded = json.dumps(body).encode()
    return Answer(encoded, status, {"content-type": "application/json", **names})


def page(status: int) -> Answer:
    html = b"<html><body><h1>Welcome to nginx</h1></body></html>"
    return Answer(html, status, {"content-type": "text/html", "retry-after-ms": "1"})
