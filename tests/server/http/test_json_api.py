"""A table of JSON routes: what reaches a handler, and what its errors look like."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import Struct

from interlock.auth import ApiKeyAuth, Principal, static_tokens
from interlock.errors import StoreError
from interlock.server.http import json_api
from interlock.server.http.json_api import (
    ApiRequest,
    JsonApi,
    JsonReply,
    LineStream,
    Problem,
    Route,
)
from interlock.server.http.page_guard import PageGuard
from tests.server.http.conftest import Http
from tests.support.rows import each_row

KEY = "key-of-anna-0123456789"
CANARY = "canary-71b2"


class Query(Struct, forbid_unknown_fields=True):
    limit: int = 5


class Body(Struct, forbid_unknown_fields=True):
    name: str = ""


async def show(_: Any, request: ApiRequest) -> object:
    return {"path": dict(request.path), "user": request.principal.id}


async def echo(context: list[str], request: ApiRequest) -> JsonReply:
    context.append(request.body.name)
    return JsonReply({"name": request.body.name}, 201)


async def fail(context: Any, _: ApiRequest) -> object:
    raise context


async def nothing(_: Any, request: ApiRequest) -> None:
    assert request.query.limit == 7


def api(context: Any = None, *more: Route) -> Http:
    routes = (
        Route("GET", "/things/{id}", "any", show, ""),
        Route("GET", "/files/{path*}", "any", show, ""),
        Route("POST", "/things", "things:write", echo, "", body=Body),
        Route("GET", "/nothing", "any", nothing, "", query=Query),
        Route("GET", "/fail", "", fail, ""),
        *more,
    )
    anna = Principal("user:anna", frozenset({"things:write"}))
    auth = ApiKeyAuth(verify=static_tokens({KEY: anna}))
    return Http(JsonApi([(context, routes)], PageGuard(), auth))


async def test_parameters_of_a_path_are_decoded_after_it_is_matched():
    for path, found in (
        ("/things/a%2Fb", {"id": "a/b"}),
        ("/things/%C3%A4", {"id": "ä"}),
        ("/files/a/b%20c", {"path": "a/b c"}),
    ):
        reply = await api().request("GET", path, headers={"x-api-key": KEY})
        assert reply.json == {"path": found, "user": "user:anna"}
    for path in (
        "/things/a/b",
        "/things/",
        "/things/%ff",
        "/Things/a",
        "/things%2Fa",
        "//things/a",
    ):
        reply = await api().request("GET", path, headers={"x-api-key": KEY})
        assert reply.code == 404, path


async def test_body_is_decoded_within_bounds():
    names: list[str] = []
    http = api(names)
    for body, code in (
        (b'{"name": "x"}', 201),
        (b"", 201),
        (rb'{"name": "\ud83d"}', 201),  # as a page sends it
        (b'{"name": 1}', 400),
        (b'{"other": 1}', 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"name": ' + b"[" * 1000 + b"]" * 1000 + b"}", 400),
        (b" " * (json_api.MAX_BODY + 1), 413),
    ):
        reply = await http.request("POST", "/things", body, {"x-api-key": KEY})
        assert reply.code == code, body[:20]
    assert names == ["x", "", "\ufffd"]


async def test_handler_result_none_is_sent_as_204():
    reply = await api().request("GET", "/nothing", headers={"x-api-key": KEY}, query="limit=7")
    assert (reply.code, reply.body) == (204, b"")


@each_row(
    ("error", "status", "reason"),
    [
        (Problem(409, "taken", "the name is taken", retry_after=2.2), 409, "taken"),
        (StoreError(f"cannot open /{CANARY}"), 503, "store_unavailable"),
        (RuntimeError(CANARY), 500, "internal_error"),
        (MemoryError(CANARY), 500, "internal_error"),
    ],
)
async def test_error_is_problem_json_without_internal_details(error, status, reason, caplog):
    caplog.set_level(logging.INFO, "interlock.server")
    reply = await api(error).request("GET", "/fail")
    problem = json.loads(reply.body)

    assert reply.header("content-type") == "application/problem+json"
    assert (reply.code, problem["status"], problem["reason"]) == (status, status, reason)
    assert CANARY not in reply.body.decode()
    assert problem["reference"] in caplog.text
    if reason == "taken":
        assert (reply.header("retry-after"), problem["retryAfter"]) == ("3", 3)


class Endless:
    """A stream of lines that ends only when it is closed."""

    def __init__(self) -> None:
        self.sent = 0
        self.has_ended = False

    async def export(self, _: Any, __: ApiRequest) -> LineStream:
        return LineStream(self._lines())

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                self.sent += 1
                yield b"{}\n"
                await asyncio.sleep(0)
        finally:
            self.has_ended = True


async def test_stream_ends_when_its_client_is_gone():
    lines = Endless()
    reply = api(None, Route("GET", "/export", "", lines.export, "")).start("GET", "/export")
    assert await reply.status() == 200
    reply.disconnect()
    await reply.finished()

    assert lines.has_ended
    assert lines.sent < 100


async def test_stream_ends_when_its_client_does_not_read(monkeypatch, caplog):
    monkeypatch.setattr(json_api, "SEND_DEADLINE", 0.01)
    lines = Endless()
    reply = api(None, Route("GET", "/export", "", lines.export, "")).start("GET", "/export")
    assert await reply.status() == 200
    reply.stop_reading()
    await reply.finished()

    assert lines.has_ended
    assert "the client read nothing" in caplog.text


async def test_websocket_is_refused():
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await api().app({"type": "websocket", "path": "/things/a", "headers": []}, receive, send)

    assert sent == [{"type": "websocket.close", "code": 4404}]
