"""Where memory runs out between a request and its reply."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from interlock.protocol import envelope
from interlock.server.http import modern
from interlock.server.http.request import HttpRequest
from interlock.server.http.streams import ReplayStream

PROGRESS = {"progressToken": "p"}


def failing(function: Callable[..., Any], nth: int) -> Callable[..., Any]:
    """Let a function run out of memory, the n-th time that it is called."""
    times = 0

    def called(*args: Any, **options: Any) -> Any:
        nonlocal times
        times += 1
        if times == nth:
            raise MemoryError
        return function(*args, **options)

    return called


async def test_request_gets_503_if_memory_is_exhausted(http, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(envelope, "decode", failing(envelope.decode, 1))
    reply = await http.call("add", {"a": 1})
    assert (reply.code, reply.header("retry-after"), reply.error) == (503, "60", -32603)

    assert (await http.call("add", {"a": 1})).code == 200


async def test_body_gets_503_if_memory_is_exhausted(http):
    class Unfit(bytes):
        def __len__(self) -> int:
            raise MemoryError

    reply = http.start("POST", body=[b"{", Unfit()])
    assert (await reply.finished()).code == 503


async def test_answer_is_replaced_by_an_error_if_memory_is_exhausted(
    http, monkeypatch: pytest.MonkeyPatch
):
    class Full:
        def __mod__(self, _: object) -> bytes:
            raise MemoryError

    monkeypatch.setattr(envelope, "RESULT", Full())
    reply = await http.call("add", {"a": 1})

    assert (reply.code, reply.error) == (200, -32603)


async def test_stream_is_cut_off_if_memory_is_exhausted_at_its_end(
    http, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(modern, "event", failing(modern.event, 3))
    reply = http.begin("tools/call", {"name": "count", "arguments": {"to": 2}}, meta=PROGRESS)
    await reply.task

    assert not reply.ended  # so the host ends the connection
    assert b'"result"' not in reply.body


async def test_an_answer_that_a_session_cannot_keep_is_an_error(
    http, monkeypatch: pytest.MonkeyPatch
):
    client = await http.initialize()
    monkeypatch.setattr(ReplayStream, "put", failing(ReplayStream.put, 2))
    reply = await client.call("count", {"to": 1}, **PROGRESS)

    progress, answer = [await reply.message() for _ in range(2)]
    assert progress["method"] == "notifications/progress"
    assert answer["error"]["message"] == "the answer does not fit into memory"


async def test_a_refused_request_is_not_kept_until_the_garbage_is_collected(http):
    def requests() -> set[int]:
        return {id(each) for each in gc.get_objects() if isinstance(each, HttpRequest)}

    gc.collect()
    gc.disable()
    try:
        before = requests()
        reply = await http.request("POST", body=b"{", headers={"content-type": "text/plain"})
        assert reply.code == 415
        del reply
        http.replies.clear()
        await asyncio.sleep(0)
        assert requests() <= before
    finally:
        gc.enable()
