"""The text of an answer is stored while it streams."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from interlock.errors import StoreError
from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, Unfinished
from interlock.streamed_answer import StreamedAnswer, ended
from tests.support.clock import run_stepped

CALLING = AssistantMessage("I look.", (ToolCall("1", "kb__get"),))


class Stored:
    """The messages of a conversation, each with its time; fails while `failing` is set."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.texts: list[tuple[float, str]] = []
        self.failing = False

    async def append(self, messages: Sequence[Message], draft: int | None) -> int:
        if self.failing:
            raise StoreError("the disk is full")
        if draft is not None:
            self.messages[draft] = messages[0]
        else:
            self.messages.append(messages[0])
        self.messages += messages[1:]
        self.texts.append((asyncio.get_running_loop().time(), messages[0].content))
        return len(self.messages) - 1 if draft is None else draft


def test_every_text_is_stored_within_a_second_and_replaced_by_the_message():
    async def work() -> None:
        stored = Stored()
        answer = StreamedAnswer(stored.append)
        said: list[tuple[float, str]] = []
        clock = asyncio.get_running_loop().time
        for n in range(30):
            answer.add(f"{n} ")
            said.append((clock(), f"{n} "))
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)  # the model thinks
        for at, word in said:
            assert any(time - at < 1 and word in text for time, text in stored.texts)
        assert len(stored.texts) <= 8
        assert stored.messages == [AssistantMessage(stored.texts[-1][1], unfinished=Unfinished())]

        answer.add("last")
        await answer.record([CALLING])
        await answer.record([ToolMessage("1", "found")])
        answer.add("It is")
        await asyncio.sleep(1)
        end = await answer.end(Unfinished("stopped"))

        assert end == AssistantMessage("It is", unfinished=Unfinished("stopped"))
        assert stored.messages == [CALLING, ToolMessage("1", "found"), end]

    run_stepped(work())


def test_draft_that_cannot_be_stored_does_not_end_the_answer():
    async def work() -> None:
        stored = Stored()
        answer = StreamedAnswer(stored.append)
        stored.failing = True
        answer.add("It is ")
        await asyncio.sleep(1)
        stored.failing = False
        answer.add("noon.")
        await answer.record([AssistantMessage("It is noon.")])
        await asyncio.sleep(1)

        assert stored.messages == [AssistantMessage("It is noon.")]

    run_stepped(work())


def test_draft_that_an_agent_records_itself_gets_the_reason_of_its_end():
    async def work() -> None:
        stored = Stored()
        answer = StreamedAnswer(stored.append)
        draft = AssistantMessage("I th", unfinished=Unfinished())
        answer.add("I th")
        await answer.record([draft])
        messages: list[Message] = [draft]
        ended(messages, await answer.end(Unfinished("stopped")))

        assert stored.messages == messages
        assert messages == [AssistantMessage("I th", unfinished=Unfinished("stopped"))]

    run_stepped(work())
