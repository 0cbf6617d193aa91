"""Events for one reader: joined while they wait, and bounded."""

from __future__ import annotations

import asyncio

from interlock.agent import ToolStarted
from interlock.claude.events import MAX_EVENTS, ClaudeNotice, EventQueue
from interlock.models import ReasoningDelta, TextDelta


def everything(queue: EventQueue) -> list[object]:
    found = []
    while (event := queue.pop()) is not None:
        found.append(event)
    return found


def test_neighbouring_pieces_of_one_text_are_joined() -> None:
    queue = EventQueue()
    for event in (TextDelta("a"), TextDelta("b"), ReasoningDelta("c"), TextDelta("d")):
        queue.put(event)
    queue.put(TextDelta("e", agent="sub"))

    assert everything(queue) == [
        TextDelta("ab"),
        ReasoningDelta("c"),
        TextDelta("d"),
        TextDelta("e", agent="sub"),
    ]


def test_a_full_queue_drops_notices_and_keeps_calls() -> None:
    queue = EventQueue()
    for number in range(MAX_EVENTS):
        queue.put(ClaudeNotice("status", str(number)))
    queue.put(ClaudeNotice("status", "late"))
    queue.put(ToolStarted("t1", "kb:get", {}))

    found = everything(queue)

    assert len(found) == MAX_EVENTS + 1
    assert found[-1] == ToolStarted("t1", "kb:get", {})


def test_a_queue_that_may_lose_calls_drops_the_oldest_event() -> None:
    queue = EventQueue(keeps_calls=False)
    for number in range(MAX_EVENTS + 1):
        queue.put(ToolStarted(str(number), "kb:get", {}))

    assert len(found := everything(queue)) == MAX_EVENTS
    assert found[0] == ToolStarted("1", "kb:get", {})


async def test_a_waiting_reader_is_woken_by_an_event() -> None:
    queue = EventQueue()
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()

    queue.put(TextDelta("a"))

    await waiting
