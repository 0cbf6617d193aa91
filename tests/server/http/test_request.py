"""What a request may bring: media type, encoding, length and headers."""

from __future__ import annotations

import asyncio
from time import process_time

import pytest

from interlock.server.http import request
from tests.support.rows import each_row


@each_row(
    "kind",
    ["-", "", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded",
     "application/jsonx", "text/plain, application/json", "application"],
)  # fmt: skip
async def test_other_media_types_than_json_are_refused(http, kind):
    assert (await http.call("add", {"a": 1}, headers={"content-type": kind})).code == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
async def test_content_type_may_have_parameters(http, kind):
    assert (await http.call("add", {"a": 1}, headers={"content-type": kind})).code == 200


@each_row("coding", ["gzip", "deflate", "br", "GZIP", "identity, gzip"])
async def test_compressed_bodies_are_refused(http, coding):
    assert (await http.call("add", {"a": 1}, headers={"content-encoding": coding})).code == 415


@pytest.mark.parametrize(
    "headers", [{}, {"content-length": "10"}, {"transfer-encoding": "chunked"}]
)
async def test_a_body_over_the_limit_is_refused_while_it_comes(make, headers):
    http = make(max_body_bytes=1000)
    reply = http.start("POST", body=[], headers=headers)
    for _ in range(11):
        reply.send_more(b" " * 100)

    assert await reply.status() == 413
    reply.send_more(b" " * 100, more=False)
    await reply.finished()
    assert http.app.dropped == {"HTTP 413": 1}


async def test_a_refused_body_is_discarded_up_to_a_limit(make, monkeypatch):
    monkeypatch.setattr(request, "MAX_DISCARDED", 1000)
    http = make(max_body_bytes=100)
    reply = http.start("POST", body=[], headers={"transfer-encoding": "chunked"})
    for _ in range(30):
        reply.send_more(b" " * 100)

    assert (await reply.finished()).code == 413
    assert reply._incoming.qsize() == 18


async def test_a_refused_body_is_discarded_until_a_deadline(make, monkeypatch):
    monkeypatch.setattr(request, "DISCARD_DEADLINE", 0.01)
    http = make(max_body_bytes=100)
    reply = http.start("POST", body=[b" " * 101, b""], headers={"transfer-encoding": "chunked"})
    reply._incoming.get_nowait()
    reply._incoming.get_nowait()
    reply.send_more(b" " * 101)

    assert (await reply.finished()).code == 413


@each_row(
    ("headers", "closes"),
    [
        ({"content-length": "1000"}, False),
        ({"content-length": "1001"}, True),
        ({"content-length": "x"}, True),
        ({"transfer-encoding": "chunked"}, True),
        ({}, False),
    ],
)
async def test_a_refusal_does_not_wait_for_a_body_without_a_bound(make, headers, closes):
    http = make(max_body_bytes=1000)
    reply = http.start("POST", body=[], headers=headers | {"content-type": "text/plain"})

    assert await reply.status() == 415
    assert (reply.header("connection") == "close") is closes


async def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(make):
    http = make(max_body_bytes=1000)
    reply = http.start("POST", body=[], headers={"content-length": "1001"})

    assert await reply.status() == 413


@each_row("length", ["-1", "x", "1e3", "", "9" * 40, "9" * 5000, "\xb2"])
async def test_a_malformed_length_is_refused(http, length):
    assert (await http.call("add", {"a": 1}, headers={"content-length": length})).code in (400, 413)


@each_row("name", ["content-length", "content-type", "mcp-session-id"])
async def test_a_duplicate_header_is_refused(http, name):
    again = [(name, value) for value in ("1", "2")]

    assert (await http.call("add", {"a": 1}, headers={name: "-"}, repeated=again)).code == 400


async def test_thousands_of_repeated_headers_are_refused_quickly(http):
    again = [("a", ""), ("host", "127.0.0.1")] * 8_000
    began = process_time()
    reply = await http.call("add", {"a": 1}, repeated=again)

    assert reply.code == 400
    assert process_time() - began < 0.5


async def test_a_body_of_exactly_the_limit_is_taken(make):
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    http = make(max_body_bytes=len(body))

    assert (await http.request("POST", body=body)).code == 400  # no session
    assert (await http.request("POST", body=body + b" ")).code == 413


async def test_a_body_in_one_byte_pieces_is_accepted(http):
    client = await http.initialize()
    body = http.rpc("ping", id=1)
    pieces = [body[at : at + 1] for at in range(len(body))]
    reply = await http.request("POST", body=[*pieces, b""], headers=client.headers)

    assert reply.json["result"] == {}


async def test_body_that_does_not_end_in_time_is_refused(http, monkeypatch):
    monkeypatch.setattr(request, "BODY_DEADLINE", 0.01)
    reply = http.start("POST", body=[b"{", b""])
    reply._incoming.get_nowait()
    reply._incoming.get_nowait()
    reply.send_more(b"{")

    await reply.finished()
    assert (reply.code, reply.task.cancelling()) == (408, 0)
    assert reply.header("connection") == "close"


async def test_a_client_that_leaves_before_the_end_of_its_body_is_not_answered(http):
    reply = http.start("POST", body=[])
    reply.send_more(b"{")
    await asyncio.sleep(0)
    reply.disconnect()

    await reply.finished()
    assert reply.body == b""


async def test_deadline_for_request_bodies_does_not_apply_to_handlers(http, gate, monkeypatch):
    monkeypatch.setattr(request, "BODY_DEADLINE", 0.0)
    reply = http.begin("tools/call", {"name": "hold"})
    await gate.entered.wait()
    for _ in range(3):
        await asyncio.sleep(0.03)
    gate.opened.set()

    assert (await reply.finished()).text == "done"


@pytest.mark.parametrize("late", ["while it comes", "after it"])
async def test_received_body_leaves_no_deadline(monkeypatch, late):
    monkeypatch.setattr(request, "BODY_DEADLINE", 0.0)

    async def receive():
        if late == "while it comes":
            asked.mark_late()
        return {"type": "http.request", "body": b"{}"}

    asked = request.HttpRequest({"headers": []}, receive, receive)
    assert await asked.read_body(2) == b"{}"
    asked.mark_late()
    for _ in range(3):
        await asyncio.sleep(0)  # would be cancelled here


async def test_headers_and_bodies_of_requests_are_not_logged(http, caplog):
    caplog.set_level("DEBUG")
    headers = {"authorization": "Bearer hunter2", "mcp-session-id": "hunter2"}
    await http.call("add", {"a": "hunter2"}, headers=headers)
    await http.request("POST", body=b'{"hunter2', headers=headers)
    await http.call("fail", headers=headers)

    lines = [record.getMessage() for record in caplog.records]
    assert "hunter2" not in "".join(lines)


async def test_long_headers_are_not_cached(make):
    """R-118: of a host that anybody may write, and of what a client accepts."""
    http = make(hosts=["*"])
    accepted = request._accepted.cache_info().currsize
    for number in range(20):
        long = f"{number}." + "x" * 10_000
        headers = {"host": long, "accept": f"application/json, text/event-stream, {long}/a"}
        assert (await http.call("add", {"a": 1}, headers=headers)).code == 200

    assert http.app._guard.allowed == set()
    assert request._accepted.cache_info().currsize == accepted
