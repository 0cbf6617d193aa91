"""Responses of an ASGI application on a connection, and what the application is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.server.http.exchange import CountedTransport, ServedExchange
from tests.support.rows import each_row

START = {"type": "http.response.start", "status": 200, "headers": []}
HEAD = b"HTTP/1.1 200 OK\r\ndate: today\r\n"


class Written(list[bytes]):
    """A transport that keeps each write."""

    write = list.append

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.append(b"closed")


class OneConnection:
    """A connection with one exchange."""

    def __init__(self, method: str = "POST", version: str = "1.1", **options: Any) -> None:
        self.written = Written()
        state = SimpleNamespace(default_headers=[(b"date", b"today")])
        self.transport = CountedTransport(self.written, state)
        self.completed = 0
        scope = {"method": method, "http_version": version}
        self.exchange = ServedExchange(self, scope, **{"keeps_alive": True, **options})

    def resume_reading(self) -> None:
        pass

    def on_response_complete(self) -> None:
        self.completed += 1

    async def answer(self, *messages: dict[str, Any]) -> bytes:
        for message in messages:
            await self.exchange.send(message)
        await asyncio.sleep(0)
        return b"".join(self.written)


def with_headers(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": [*headers]}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_head_and_body_of_a_response_are_sent_in_one_write():
    connection = OneConnection()
    await connection.answer(with_headers((b"content-length", b"2")), body(b"{}"))

    assert connection.written == [HEAD + b"content-length: 2\r\n\r\n{}"]
    assert connection.transport.written == len(connection.written[0])
    assert connection.completed == 1


async def test_head_of_a_stream_does_not_wait_for_the_first_event():
    connection = OneConnection()
    await connection.exchange.send(START)
    assert connection.written == []
    await asyncio.sleep(0)
    assert connection.written == [HEAD + b"transfer-encoding: chunked\r\n\r\n"]


async def test_body_without_length_is_chunked():
    sent = await OneConnection().answer(
        START, body(b"one", more=True), body(b"", more=True), body(b"")
    )

    assert sent.endswith(b"\r\n\r\n3\r\none\r\n0\r\n\r\n")


async def test_body_without_length_ends_with_the_connection_for_a_client_of_http_1_0():
    connection = OneConnection(version="1.0", keeps_alive=False)
    written = await connection.answer(START, body(b"one", more=True), body(b"two"))

    assert written == HEAD + b"connection: close\r\n\r\nonetwoclosed"


@each_row(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_response_without_a_body_is_its_head(method: str, status: int):
    connection = OneConnection(method)
    sent = await connection.answer(with_headers(status=status), body(b""))

    assert sent.endswith(b"\r\ndate: today\r\n\r\n")
    assert connection.completed == 1


async def test_body_of_a_response_to_head_is_not_sent():
    sent = await OneConnection("HEAD").answer(with_headers((b"content-length", b"2")), body(b"{}"))

    assert sent == HEAD + b"content-length: 2\r\n\r\n"


@each_row(("options", "headers"), [({"keeps_alive": False}, []), ({}, [(b"connection", b"close")])])
async def test_connection_is_closed_after_the_response(options: Any, headers: Any):
    sent = await OneConnection(**options).answer(
        with_headers((b"content-length", b"0"), *headers), body(b"")
    )

    assert sent == HEAD + b"content-length: 0\r\nconnection: close\r\n\r\nclosed"


@each_row("header", [(b"a", b"b\r\nc: d"), (b"a\r\nb", b"c"), (b"a", b"\x00"), (b"a b", b"")])
async def test_header_with_control_characters_is_refused(header: tuple[bytes, bytes]):
    with pytest.raises(RuntimeError, match="not allowed"):
        await OneConnection().answer(with_headers(header))


@each_row("parts", [[b"123"], [b"1"], [b"1", b"23"]])
async def test_body_of_another_length_than_announced_is_refused(parts: list[bytes]):
    *first, last = parts
    messages = [*[body(each, more=True) for each in first], body(last)]
    with pytest.raises(RuntimeError, match="length that it announced"):
        await OneConnection().answer(with_headers((b"content-length", b"2")), *messages)


@each_row("messages", [[body(b"")], [START, START], [START, body(b""), body(b"")]])
async def test_message_out_of_order_is_refused(messages: list[dict[str, Any]]):
    with pytest.raises(RuntimeError, match="unexpected ASGI message"):
        await OneConnection().answer(*messages)


async def test_application_that_fails_before_its_response_is_answered_500():
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ValueError

    connection = OneConnection()
    await connection.exchange.run(app)

    sent = b"".join(connection.written)
    assert sent.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert sent.endswith(b"\r\nconnection: close\r\n\r\nInternal Server Errorclosed")


@each_row("fails", [False, True])
async def test_connection_of_an_incomplete_response_is_closed(
    fails: bool, caplog: pytest.LogCaptureFixture
):
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"one", more=True))
        if fails:
            raise ValueError

    connection = OneConnection()
    await connection.exchange.run(app)

    assert b"".join(connection.written).endswith(b"3\r\none\r\nclosed")
    assert bool(caplog.messages) == fails  # a stream that is cut, as for a revoked key, is no error


async def test_application_without_a_response_is_answered_500_and_logged(
    caplog: pytest.LogCaptureFixture,
):
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        pass

    connection = OneConnection()
    await connection.exchange.run(app)

    assert b"".join(connection.written).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert caplog.messages == ["the ASGI application has sent no response"]


async def test_client_that_expects_100_continue_receives_it():
    connection = OneConnection(expects=True)
    connection.exchange.add(b"{}")
    connection.exchange.end()

    assert await connection.exchange.receive() == {
        "type": "http.request", "body": b"{}", "more_body": False,
    }  # fmt: skip
    assert connection.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]


async def test_application_receives_the_disconnect_and_its_later_output_is_dropped():
    connection = OneConnection()
    connection.exchange.disconnect()

    assert await connection.exchange.receive() == {"type": "http.disconnect"}
    assert await connection.answer(START, body(b"")) == b""


async def test_response_waits_while_its_client_does_not_read():
    connection = OneConnection()
    connection.transport.pause_writing()
    answering = asyncio.create_task(connection.answer(START, body(b"late")))
    await asyncio.sleep(0)
    assert connection.written == []
    assert not connection.exchange.answer_at_once(b"{}")
    connection.transport.resume_writing()

    assert b"late" in await answering
