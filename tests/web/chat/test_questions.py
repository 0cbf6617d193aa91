"""Answers of people to the questions of servers."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.agent import QuestionAsked
from interlock.web.chat.errors import TurnError
from interlock.web.chat.questions import checked_answer

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def answer(action: str, content: object = None, **params: Any) -> Any:
    params = {"requestedSchema": SCHEMA, **params}
    question = QuestionAsked("q1", "t1", "kb", "elicitation/create", params)
    return checked_answer(question, action, content)


def test_an_answer_that_fits_the_form_is_passed_on() -> None:
    assert answer("accept", {"n": 1}) == {"action": "accept", "content": {"n": 1}}


@pytest.mark.parametrize(
    ("action", "content"),
    [
        ("accept", {}),
        ("accept", {"n": "one"}),
        ("accept", [1]),
        ("accept", None),
        ("yes", {"n": 1}),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(action: str, content: object) -> None:
    with pytest.raises(TurnError) as refused:
        answer(action, content)

    assert refused.value.code == "bad_message"


def test_a_refusal_and_a_visit_of_a_page_carry_no_content() -> None:
    assert answer("decline", {"n": 1}) == {"action": "decline"}
    assert answer("accept", {"n": 1}, mode="url") == {"action": "accept"}
