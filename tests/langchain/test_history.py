"""Histories become valid for every provider: names, order and missing answers."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from interlock.langchain.history import INTERRUPTED, closed, fitted, open_calls
from tests.support.providers import check_for_providers


def calls(*ids: str, name: str = "crm__refund") -> AIMessage:
    made: list[Any] = [{"id": id, "name": name, "args": {}} for id in ids]
    return AIMessage("", tool_calls=made)


def answered(id: str, text: str = "done") -> ToolMessage:
    return ToolMessage(text, tool_call_id=id)


def test_answers_follow_their_call_in_its_order_and_missing_ones_are_added() -> None:
    given: list[AnyMessage] = [
        calls("1", "2", "3"),
        HumanMessage("?"),
        answered("3"),
        answered("1"),
    ]

    found = fitted(given)

    assert [each.type for each in found] == ["ai", "tool", "tool", "tool", "human"]
    assert [each.content for each in found[1:4]] == ["done", INTERRUPTED, "done"]
    assert {each.name for each in found[1:4]} == {"crm__refund"}
    assert [each.type for each in given] == ["ai", "human", "tool", "tool"]


def test_an_answer_without_its_call_is_left_out() -> None:
    assert fitted([answered("1"), HumanMessage("hello")]) == [HumanMessage("hello")]


def test_names_that_providers_refuse_are_replaced_in_every_place() -> None:
    block = {"type": "tool_use", "id": "1", "name": "crm:refund", "input": {}}
    raw = {"tool_calls": [{"function": {"name": "crm:refund"}}], "refusal": None}
    message = calls("1", name="crm:refund").model_copy(
        update={"content": [block], "additional_kwargs": raw}
    )

    found = fitted([message, answered("1")])

    assert isinstance(found[0], AIMessage)
    name = found[0].tool_calls[0]["name"]
    assert name == "crm__refund"
    assert found[0].content[0]["name"] == name  # type: ignore[index] # a list of blocks
    assert found[1].name == name
    assert found[0].additional_kwargs == {"refusal": None}


@pytest.mark.slow("loads the clients of two providers")
def test_fitted_history_is_valid_for_providers() -> None:
    given = [
        *(HumanMessage("go"), answered("9"), calls("1", "2", "3", name="crm:refund")),
        *(answered("3"), answered("1"), AIMessage("So."), calls("4", name="no such tool!")),
    ]

    check_for_providers(fitted(given))
    with pytest.raises(AssertionError):
        check_for_providers(given)


def test_a_complete_history_needs_no_closing_and_an_open_call_keeps_its_name() -> None:
    assert closed([calls("1"), answered("1")]) is None

    found = closed([calls("1", name="crm:refund")])

    assert found is not None
    assert [each.type for each in found] == ["ai", "tool"]
    assert (found[1].content, found[1].name) == (INTERRUPTED, "crm:refund")


def test_calls_are_open_until_they_are_answered_or_another_message_follows() -> None:
    history: list[AnyMessage] = [calls("1", "2"), answered("1")]

    assert [each["id"] for each in open_calls(history)] == ["2"]
    assert open_calls([*history, HumanMessage("?")]) == []
