"""What a client receives, and when, during a long call: in a loop where waiting takes no time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interlock import Server
from interlock.auth import Principal
from tests.server.http.conftest import Http, Reply, rpc
from tests.support.clock import SteppedLoop
from tests.support.rows import each_row

SECONDS = 25.0  # that the longest call takes
PATIENCE = 10.0  # seconds between two bytes after which many clients and proxies give up

Begin = Callable[[Http], Awaitable[Reply]]


@pytest.fixture
def server() -> Server:
    server = Server("slow")

    @server.tool
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    return server


def received(server: Server, begin: Begin, **options: Any) -> list[tuple[float, Any]]:
    """Return the ASGI messages of the last response, with the seconds that each came after."""
    loop, found = SteppedLoop(), list[tuple[float, Any]]()

    async def run() -> None:
        app = server.asgi(sse=True, **options)

        async def noting(scope: Any, receive: Any, send: Any) -> None:
            began = loop.time()
            found.clear()

            async def noted(message: Any) -> None:
                found.append((loop.time() - began, message))
                await send(message)

            await app(scope, receive, noted)

        http = Http(noting)
        reply = await begin(http)
        await asyncio.wait({reply.task}, timeout=SECONDS + 5)
        reply.disconnect()
        await reply.finished()
        await app.close()

    loop.run_until_complete(run())
    loop.close()
    return found


def call(seconds: float = SECONDS) -> dict[str, Any]:
    return {"name": "wait", "arguments": {"seconds": seconds}}


async def modern(http: Http) -> Reply:
    return http.begin("tools/call", call())


async def legacy(http: Http) -> Reply:
    return (await http.initialize()).begin("tools/call", call())


async def legacy_without_first_event(http: Http) -> Reply:
    return (await http.initialize("2025-06-18")).begin("tools/call", call())


async def batch(http: Http) -> Reply:
    """Return the reply to a batch in which an answer is ready every 0.9 s."""
    parts = [rpc("tools/call", call(0.9 * id), id=id) for id in range(1, 28)]
    return (await http.initialize("2025-03-26")).post(b"[%b]" % b",".join(parts))


@each_row("begin", [modern, legacy, legacy_without_first_event, batch])
def test_long_call_sends_bytes_after_a_second_and_then_every_five(server: Server, begin: Begin):
    messages = received(server, begin)

    (start, head), (first, part) = messages[:2]
    assert (head["status"], dict(head["headers"])[b"content-type"]) == (200, b"text/event-stream")
    assert part["body"]
    assert 1.0 <= start <= first < 1.1
    times = [time for time, message in messages if message.get("body")]
    assert max(later - time for time, later in itertools.pairwise(times)) < 6 < PATIENCE
    assert b'"done"' in b"".join(message.get("body", b"") for _, message in messages)


async def standing(http: Http) -> Reply:
    return (await http.initialize()).listen()


async def oldest(http: Http) -> Reply:
    return http.start("GET", "/sse")


@each_row("begin", [standing, oldest])
def test_standing_stream_is_never_silent_for_long(server: Server, begin: Begin):
    times = [time for time, message in received(server, begin) if message.get("body")]

    assert times[0] < 0.1
    assert max(later - time for time, later in itertools.pairwise(times)) < 6 < PATIENCE


async def json_only(http: Http) -> Reply:
    return http.begin("tools/call", call(), headers={"accept": "application/json"})


async def quick(http: Http) -> Reply:
    return http.begin("tools/call", call(0.9))


@each_row(("begin", "seconds"), [(json_only, SECONDS), (quick, 0.9)])
def test_quick_answer_and_client_that_accepts_only_json_get_json(
    server: Server, begin: Begin, seconds: float
):
    (start, head), (_, part) = received(server, begin)

    assert dict(head["headers"])[b"content-type"] == b"application/json"
    assert b'"done"' in part["body"]
    assert start == pytest.approx(seconds, abs=0.01)


def test_status_that_is_decided_late_but_before_the_call_is_not_lost(server: Server):
    async def verify(token: str) -> Principal | None:
        await asyncio.sleep(5)
        return None

    async def refused(http: Http) -> Reply:
        return http.begin("tools/call", call(), headers={"authorization": "Bearer unknown"})

    options = {"verify_token": verify, "resource": "http://127.0.0.1/mcp"}
    (_, head), _ = received(server, refused, **options)

    assert head["status"] == 401
