"""Answers of people to the questions of servers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from interlock.agent import QuestionAsked
from interlock.calls import LOCAL, Call
from interlock.errors import AskRefused
from interlock.web.chat.errors import TurnError
from interlock.web.chat.questions import TurnQuestions, checked_answer
from interlock.web.chat.turn import Asked, Turn, TurnLimits
from tests.layers.support import call_of
from tests.support.rows import each_row

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def answer(action: str, content: object = None, **params: Any) -> Any:
    params = {"requestedSchema": SCHEMA, **params}
    question = QuestionAsked("q1", "t1", "kb", "elicitation/create", params)
    return checked_answer(question, action, content)


def test_valid_form_answer_is_passed_to_the_server() -> None:
    assert answer("accept", {"n": 1}) == {"action": "accept", "content": {"n": 1}}


@each_row(
    ("action", "content"),
    [
        ("accept", {}),
        ("accept", {"n": "one"}),
        ("accept", [1]),
        ("accept", None),
        ("yes", {"n": 1}),
    ],
)
def test_invalid_form_answer_is_refused(action: str, content: object) -> None:
    with pytest.raises(TurnError) as refused:
        answer(action, content)

    assert refused.value.code == "bad_message"


def test_declined_form_and_visited_page_send_no_content() -> None:
    assert answer("decline", {"n": 1}) == {"action": "decline"}
    assert answer("accept", {"n": 1}, mode="url") == {"action": "accept"}


FORM = msgspec.json.encode({"message": "How many?", "requestedSchema": SCHEMA})


def questions() -> tuple[TurnQuestions, Turn]:
    turn = Turn(cast("Any", None), TurnLimits(), "c1", "", LOCAL, Asked("go"))

    async def approve(_call: Call, _approval: object) -> bool:
        return True

    return TurnQuestions(turn, call_of(server="kb"), approve), turn


async def test_a_server_gets_the_answer_of_the_person_to_its_form() -> None:
    asker, turn = questions()
    asking = asyncio.create_task(asker.ask("elicitation/create", FORM, timeout=60))
    await asyncio.sleep(0)
    (event,) = turn.log.since(0) or ()

    turn.answer(event.fields["question_id"], {"action": "accept", "content": {"n": 2}})

    assert event.fields["server"] == "kb"
    assert msgspec.json.decode(await asking) == {"action": "accept", "content": {"n": 2}}


async def test_unanswered_question_is_cancelled_after_its_timeout() -> None:
    asker, _ = questions()

    answer = await asker.ask("elicitation/create", FORM, timeout=0)

    assert msgspec.json.decode(answer) == {"action": "cancel"}


async def test_questions_that_the_page_cannot_show_are_refused() -> None:
    asker, turn = questions()

    with pytest.raises(AskRefused, match="the chat page does not support sampling/createMessage"):
        await asker.ask("sampling/createMessage", b"{}", timeout=60)

    assert turn.log.seq == 0
