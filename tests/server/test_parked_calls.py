"""Calls that wait where they are while their client answers questions in later requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec import Raw

from interlock.context import elicitation
from interlock.errors import InterlockError, InvalidArguments, LocalProtocolError, RequestTimeout
from interlock.server.parked_calls import ParkedCall, ParkedCalls

NAME = elicitation("Which name?", {"type": "object", "properties": {"name": {"type": "string"}}})
ACCEPTED = Raw(b'{"action":"accept","content":{"name":"a"}}')


def start(call: ParkedCall, work: Callable[[], Awaitable[bytes]]) -> None:
    call.work = asyncio.ensure_future(call.limited(work()))  # type: ignore[assignment]


async def test_parked_call_continues_after_the_answers_without_a_restart():
    call = ParkedCall("ann", ttl=60)
    runs = 0

    async def work() -> bytes:
        nonlocal runs
        runs += 1
        first = await call.ask({"first": NAME})
        second = await call.ask({"second": NAME})
        return bytes(first["first"]) + bytes(second["second"])

    start(call, work)
    for key in ("first", "second"):
        assert await call.asks_or_ends()
        assert call.questions == {key: NAME}
        await call.update({key: ACCEPTED, "other": ACCEPTED})

    assert not await call.asks_or_ends()
    assert (await call.work, runs) == (bytes(ACCEPTED) * 2, 1)


async def test_several_questions_are_answered_one_by_one_and_only_once():
    changes = 0

    async def changed() -> None:
        nonlocal changes
        changes += 1

    call = ParkedCall("ann", 60, changed)
    asking = asyncio.create_task(call.ask({"a": NAME, "b": NAME}))
    await asyncio.sleep(0)
    await call.update({"a": ACCEPTED})
    await call.update({"a": Raw(b'{"action":"cancel"}')})
    assert list(call.questions) == ["b"]
    await call.update({"b": ACCEPTED})

    assert await asking == {"a": ACCEPTED, "b": ACCEPTED}
    assert call.questions == {}
    assert changes == 3


async def test_a_malformed_answer_is_refused_and_the_question_stays_open():
    call = ParkedCall("ann", 60)
    asking = asyncio.create_task(call.ask({"a": NAME, "b": NAME}))
    await asyncio.sleep(0)

    with pytest.raises(InvalidArguments, match=r"inputResponses\.b is not an answer"):
        await call.update({"a": ACCEPTED, "b": Raw(b"5")})

    assert list(call.questions) == ["a", "b"]
    asking.cancel()


async def test_key_of_an_open_question_cannot_be_used_for_another_question():
    call = ParkedCall("ann", 60)
    asking = asyncio.create_task(call.ask({"a": NAME}))
    await asyncio.sleep(0)

    with pytest.raises(LocalProtocolError, match="questions with the keys a are already open"):
        await call.ask({"a": NAME, "b": NAME})
    asking.cancel()


async def test_a_call_ends_with_its_time_to_live():
    call = ParkedCall("ann", ttl=0)

    async def work() -> bytes:
        await call.ask({"a": NAME})
        return b""

    start(call, work)

    with pytest.raises(RequestTimeout, match="the call did not end within 0 s"):
        await call.work
    assert call.questions == {}


async def test_call_is_visible_to_its_owner_only():
    calls: ParkedCalls[ParkedCall] = ParkedCalls("calls", 10, 10)
    call = ParkedCall("ann", 60)
    calls.add(call)

    assert calls.find(call.id, "ann") is call
    assert calls.find(call.id, "bob") is None
    assert calls.find(call.id, "") is None
    assert calls.find("other", "ann") is None
    calls.remove(call)
    assert calls.find(call.id, "ann") is None


async def test_calls_are_bounded_in_all_and_for_each_principal():
    calls: ParkedCalls[ParkedCall] = ParkedCalls("calls", 3, 2)
    for _ in range(2):
        calls.add(ParkedCall("ann", 60))

    with pytest.raises(InterlockError, match=r"too many of your calls run \(2, limit 2\)"):
        calls.add(ParkedCall("ann", 60))
    calls.add(ParkedCall("bob", 60))
    with pytest.raises(InterlockError, match=r"too many calls run \(3, limit 3\); try again"):
        calls.add(ParkedCall("eve", 60))


async def test_close_cancels_waiting_work():
    calls: ParkedCalls[ParkedCall] = ParkedCalls("calls", 10, 10)
    call = ParkedCall("ann", 60)

    async def work() -> bytes:
        await call.ask({"a": NAME})
        return b""

    start(call, work)
    calls.add(call)
    assert await call.asks_or_ends()
    await calls.close()

    assert call.work.cancelled()
