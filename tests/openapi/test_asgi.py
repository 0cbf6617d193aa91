"""An ASGI application instead of the network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.errors import StreamEnded
from interlock.openapi.answers import OperationRequest
from interlock.openapi.asgi import AsgiExchange


def request(
    limit: int = 1_000, seconds: float = 5.0, body: bytes | None = None
) -> OperationRequest:
    deadline = asyncio.get_running_loop().time() + seconds
    url = "http://localhost/a%2Fb/%C3%A9?q=%20"
    return OperationRequest("POST", url, [("X-A", "1"), ("X-A", "2")], body, limit, deadline)


def answering(*pieces: bytes, headers: Any = (), ends: bool = True) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        app.scopes.append(scope)  # type: ignore[attr-defined]  # for the tests
        app.bodies.append((await receive())["body"])  # type: ignore[attr-defined]  # see above
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if ends:
            await send({"type": "http.response.body", "body": b""})
        else:
            await receive()

    app.scopes, app.bodies = [], []  # type: ignore[attr-defined]  # see above
    return app


async def test_an_application_gets_decoded_and_raw_path_query_headers_and_body() -> None:
    app = answering(b"a", b"b", headers=[(b"X-B", b"1"), (b"x-b", b"2")])
    answer = await AsgiExchange(app).fetch(request(body=b"body"))
    (scope,) = app.scopes

    assert (answer.status, answer.body, answer.headers["x-b"]) == (200, b"ab", "1, 2")
    assert (scope["path"], scope["raw_path"]) == ("/a/b/é", b"/a%2Fb/%C3%A9")
    assert scope["query_string"] == b"q=%20"
    assert [value for name, value in scope["headers"] if name == b"x-a"] == [b"1", b"2"]
    assert (b"content-length", b"4") in scope["headers"]
    assert app.bodies == [b"body"]


async def test_a_body_over_the_limit_is_cut_and_the_application_is_stopped() -> None:
    answer = await AsgiExchange(answering(b"a" * 20, ends=False)).fetch(request(limit=10))

    assert (answer.body, answer.is_cut) == (b"a" * 10, True)


async def test_events_up_to_the_deadline_are_an_answer() -> None:
    app = answering(b"data: 1\n\n", headers=[(b"content-type", b"text/event-stream")], ends=False)
    answer = await AsgiExchange(app).fetch(request(seconds=0.05))

    assert (answer.body, answer.is_unfinished) == (b"data: 1\n\n", True)


async def test_an_answer_that_stalls_times_out() -> None:
    with pytest.raises(TimeoutError):
        await AsgiExchange(answering(b"a", ends=False)).fetch(request(seconds=0.05))


async def test_an_application_that_fails_without_an_answer_is_reported() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("canary")

    with pytest.raises(StreamEnded, match=r"the application failed: ValueError$"):
        await AsgiExchange(app).fetch(request())


async def test_a_lifespan_that_fails_is_an_error_with_its_message() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(StreamEnded, match="cannot start: no database"):
        await AsgiExchange(app).open()


async def test_an_application_without_lifespan_can_be_opened_and_closed() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"

    exchange = AsgiExchange(app)
    await exchange.open()
    await exchange.close()
