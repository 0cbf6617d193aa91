"""Connections to a server on a port, and the short path for heads that they repeat."""

from __future__ import annotations

import asyncio
import json
import re
from random import Random

import pytest

from interlock.server.http import app, connections
from interlock.server.http.request import HttpRequest
from interlock.server.http.serve import UvicornServer
from tests.server.http.on_a_port import call, connect, served, written


class Repeating:
    """A connection whose client sends the same head again and again.

    Attributes:
        parsed: How many heads the server has parsed.
        requests: Those that it has begun.
    """

    def __init__(self, monkeypatch):
        self.parsed = 0
        self.requests = []
        begin = connections.BoundedConnection.on_message_begin
        monkeypatch.setattr(connections.BoundedConnection, "on_message_begin", self._noted(begin))
        monkeypatch.setattr(app, "HttpRequest", self._request)

    def _request(self, *arguments):
        self.requests.append(HttpRequest(*arguments))
        return self.requests[-1]

    def _noted(self, begin):
        def noted(connection):
            self.parsed += 1
            begin(connection)

        return noted

    async def open(self, running):
        self.reader, self.writer = await connect(running)
        while not running.server_state.connections:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.001)
        (self.connection,) = running.server_state.connections

    def send(self, *parts):
        """Let the server receive parts of requests, one after the other."""
        for part in parts:
            self.connection.data_received(part.encode())

    async def answer(self):
        """Return the status line and the body of the next answer."""
        head = b"100 Continue"
        while b"100 Continue" in head:
            head = await self.reader.readuntil(b"\r\n\r\n")
        self.head = head
        size = int(re.findall(rb"content-length: (\d+)", head)[0])
        body = await self.reader.readexactly(size)
        return head.partition(b"\r\n")[0].decode(), body.decode()

    async def ask(self, *parts):
        self.send(*parts)
        self.kept = {**self.connection.heads}
        return await self.answer()


@pytest.fixture
async def repeating(monkeypatch):
    repeating = Repeating(monkeypatch)
    yield repeating
    repeating.writer.transport.abort()


async def test_heads_that_a_connection_repeats_are_parsed_once(server, repeating):
    async with served(server) as (running, _):
        await repeating.open(running)
        for number in (1, 22, 333, 4):  # also with bodies of other lengths
            status, body = await repeating.ask(written(call("add", {"a": number}, id=number)))
            assert status == "HTTP/1.1 200 OK"
            assert json.loads(body)["id"] == number
            assert json.loads(body)["result"]["structuredContent"] == number + 1
        await repeating.ask(written(call("add", {"a": 5}), "x-other: header"))

    assert repeating.parsed == 2
    lengths = [b"%d" % len(call("add", {"a": n}, id=n)["data"]) for n in (1, 22, 333, 4, 5)]
    assert [each.headers[b"content-length"] for each in repeating.requests] == lengths
    first, second = (each.scope for each in repeating.requests[:2])
    assert second["headers"] == [*first["headers"][:-1], (b"content-length", lengths[1])]
    apart = {"headers": None, "interlock.headers": None}
    assert {**first, **apart} == {**second, **apart}


async def test_few_heads_of_a_connection_are_kept(server, repeating):
    async with served(server) as (running, _):
        await repeating.open(running)
        for number in range(3 * connections.KEPT_HEADS):
            await repeating.ask(written(call("add", {"a": 1}), f"x-number: {number}"))

    assert repeating.parsed == len(repeating.requests) == 3 * connections.KEPT_HEADS
    assert len(repeating.kept) == connections.KEPT_HEADS


@pytest.mark.parametrize(
    "more",
    [
        ("transfer-encoding: identity",),
        ("expect: 100-continue",),
        ("connection: close",),
        ("connection: upgrade", "upgrade: h2c"),
        ("x-length: 1\r\n content-length: 9",),
        ("accept: application/json",),
        ("x-long: " + "x" * connections.MAX_KEPT_HEAD,),
    ],
)
async def test_heads_with_unusual_headers_are_parsed_for_each_request(server, repeating, more):
    async with served(server) as (running, _):
        await repeating.open(running)
        await repeating.ask(written(call("add", {"a": 1}), *more))

    assert repeating.kept == {}


async def test_length_in_the_body_of_a_request_with_a_long_head_is_ignored(server, repeating):
    head, _, _ = written(call("add"), "x-long: " + "x" * connections.MAX_KEPT_HEAD).rpartition(
        "content-length"
    )
    size = 4_000
    whole = len(head) + len(f"CONTENT-LENGTH: {size}\r\n\r\n") + size
    body = f"\r\nContent-Length: {whole - 3}\r\n".ljust(size)
    async with served(server) as (running, _):
        await repeating.open(running)
        status, _ = await repeating.ask(f"{head}CONTENT-LENGTH: {size}\r\n\r\n{body}")

    assert status == "HTTP/1.1 400 Bad Request"
    assert repeating.kept == {}


async def test_responses_have_the_current_date(server, repeating):
    async with served(server) as (running, _):
        await repeating.open(running)
        for day in (b"Monday", b"Tuesday"):
            running.server_state.default_headers = [(b"date", day)]
            await repeating.ask(written(call("add", {"a": 1})))
            assert b"\r\ndate: %b\r\n" % day in repeating.head


@pytest.mark.parametrize("cut", [3, 200, -1])
async def test_repeated_head_that_comes_in_parts_is_answered(server, repeating, cut):
    request = written(call("add", {"a": 1}))
    async with served(server) as (running, _):
        await repeating.open(running)
        answers = [await repeating.ask(request) for _ in range(2)]
        answers.append(await repeating.ask(request[:cut], request[cut:]))
        answers.append(await repeating.ask(request))

    assert answers == answers[:1] * 4
    assert repeating.parsed == 2


async def test_repeated_heads_sent_together_are_answered_in_order(server, repeating, gate):
    slow, quick = written(call("hold", id=1)), written(call("add", {"a": 1}, id=2))
    gate.opened.set()
    async with served(server) as (running, _):
        await repeating.open(running)
        await repeating.ask(slow)
        await repeating.ask(quick)
        gate.opened.clear()
        gate.entered.clear()
        repeating.send(slow, quick)
        await gate.entered.wait()
        gate.opened.set()
        answers = [await repeating.answer() for _ in range(2)]

    assert [json.loads(body)["id"] for _, body in answers] == [1, 2]


async def test_body_that_looks_like_a_repeated_request_is_a_body(server, repeating):
    inner = written(call("add", {"a": 1}))
    outer = written({**call("add"), "data": inner}).replace("application/json", "text/plain", 1)
    async with served(server) as (running, _):
        await repeating.open(running)
        await repeating.ask(inner)
        status, _ = await repeating.ask(outer.removesuffix(inner))  # answered before its body
        assert status == "HTTP/1.1 415 Unsupported Media Type"
        repeating.send(inner)
        _, body = await repeating.ask(written(call("add", {"a": 1}, id=9)))

    assert json.loads(body)["id"] == 9


async def test_digits_elsewhere_in_a_repeated_head_are_ignored(server, repeating):
    decoy = "x-decoy: content-length: {}"
    async with served(server) as (running, _):
        await repeating.open(running)
        request = written(call("add", {"a": 1}), decoy.format(10))
        await repeating.ask(request)
        status, _ = await repeating.ask(request.replace(decoy.format(10), decoy.format(11)))

    assert status == "HTTP/1.1 200 OK"
    assert repeating.parsed == 2


def random_request(random: Random) -> str:
    """Return a request of an ordinary client, or one that is to confuse the server."""
    if random.random() < 0.8:
        return written(call("add", {"a": random.choice([1, 10, 100])}))
    body = call("add", {"a": random.choice([1, 10, 100])}, id=random.choice([1, 22]))["data"]
    body = random.choice([body, body, body, written(call("add", {"a": 7})), ""])
    name = random.choice(["content-length", "Content-Length", "Content-Length", "CONTENT-LENGTH"])
    size = len(body) + random.choice([0, 0, 0, 0, 0, 1, -1, 30])
    more = random.choice(
        [
            *[""] * 12,
            "Transfer-Encoding: chunked\r\n",
            f"{name}: {size + 3}\r\n",
            f"X-Other: {name}: 5\r\n",
            f"X-Other: 1\r\n {name}: 5\r\n",
            "Connection: close\r\n",
            "Upgrade: h2c\r\nConnection: upgrade\r\n",
            "Expect: 100-continue\r\n",
            "Mcp-Name: other\r\n",
        ]
    )
    headers = call("add")["headers"].items()
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
    target = random.choice([*["/mcp HTTP/1.1"] * 9, "http://a/mcp HTTP/1.1", "/mcp HTTP/1.0"])
    begin = random.choice([*[""] * 9, "\r\n"])
    return (
        f"{begin}POST {target}\r\nHost: 127.0.0.1\r\n{fields}{more}"
        f"{name}: {max(size, 0)}\r\n\r\n{body}"
    )


async def answers_to(running: UvicornServer, repeating: Repeating, random: Random) -> bytes:
    """Send random requests in random pieces; return all answers without their dates."""
    await repeating.open(running)
    for _ in range(20):
        left = random_request(random)
        while left and not repeating.connection.transport.is_closing():
            size = random.choice([*[len(left)] * 4, random.randint(1, len(left))])
            piece, left = left[:size], left[size:]
            repeating.send(piece)
            for _ in range(random.choice([0, 100, 100])):
                await asyncio.sleep(0)
    if not repeating.connection.transport.is_closing():
        repeating.writer.write_eof()
        while running.server_state.connections:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.001)
    answers = await repeating.reader.read()
    repeating.writer.close()
    return re.sub(rb"date: [^\r]*\r\n", b"", answers)


@pytest.mark.slow("makes up many requests")
async def test_random_requests_get_the_same_answers_with_and_without_cached_heads(
    server, repeating, monkeypatch
):
    seeds = range(60)
    async with served(server) as (running, _):
        found = [await answers_to(running, repeating, Random(seed)) for seed in seeds]
        parsed = repeating.parsed
        monkeypatch.setattr(connections, "_split", lambda _: (b"", b""))
        expected = [await answers_to(running, repeating, Random(seed)) for seed in seeds]

    assert found == expected
    assert parsed < repeating.parsed - parsed - 50  # so many heads were not parsed again
