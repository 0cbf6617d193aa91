"""Stored messages as the page shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from interlock.messages import (
    INTERRUPTED,
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.store.chat.chat_calls import ChatCall
from interlock.store.chat.conversations import StoredMessage
from interlock.web.chat.history import Cards, shown_page

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SINCE = int(BEGIN.timestamp() * 1_000_000)
ASKED = AssistantMessage("", (ToolCall("t1", "kb__get", {"x": 1}),))


def page(*messages: Message, calls: tuple[ChatCall, ...] = ()) -> list[dict[str, Any]]:
    stored = [
        StoredMessage(position=number, message=each, created=BEGIN, model="m")
        for number, each in enumerate(messages)
    ]
    return shown_page(stored, Cards(calls, None))


def test_the_result_of_a_call_is_in_its_card_and_not_a_message() -> None:
    shown = page(UserMessage("go"), ASKED, ToolMessage("t1", "done"), AssistantMessage("ready"))

    assert [each["role"] for each in shown] == ["user", "assistant", "assistant"]
    (card,) = shown[1]["calls"]
    assert (card["tool"], card["arguments"], card["result"]) == ("kb:get", {"x": 1}, "done")
    assert (card["outcome"], card["call_id"]) == ("ran", None)


def test_a_recorded_call_gives_the_card_its_outcome_and_link() -> None:
    kept = ChatCall("c1", "v", "t1", "kb:get", {"x": 1}, "refused", "no_rule", 0.5, SINCE + 1)

    (card,) = page(ASKED, ToolMessage("t1", "no", is_error=True), calls=(kept,))[0]["calls"]

    assert (card["call_id"], card["outcome"], card["reason"]) == ("c1", "refused", "no_rule")
    assert card["hasResult"]


def test_an_id_that_a_model_repeats_belongs_to_the_later_call() -> None:
    old = ChatCall("old", "v", "t1", "kb:get", {}, "ran", "", 0.5, SINCE - 1)
    new = ChatCall("new", "v", "t1", "kb:get", {}, "ran", "", 0.5, SINCE + 1)

    (card,) = page(ASKED, ToolMessage("t1", "done"), calls=(old, new))[0]["calls"]

    assert card["call_id"] == "new"


def test_a_call_that_was_interrupted_is_unfinished() -> None:
    for messages in ((ASKED,), (ASKED, ToolMessage("t1", INTERRUPTED, is_error=True))):
        (card,) = page(*messages)[0]["calls"]
        assert (card["outcome"], card["reason"]) == ("failed", "unfinished")
