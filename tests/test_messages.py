from __future__ import annotations

import msgspec

from interlock.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Unfinished,
    UserMessage,
    interrupted,
    told_to_model,
)
from tests.support.rows import each_row


@each_row(
    "message",
    [
        SystemMessage("Be brief."),
        UserMessage("time?"),
        AssistantMessage("", (ToolCall("1", "clock__now", {"zone": "UTC"}),)),
        AssistantMessage("Noon.", provider_data={"provider": "x", "signature": "s"}),
        ToolMessage("1", "12:00", "clock__now", is_error=True),
        AssistantMessage("No", unfinished=Unfinished("failed", "out of credit")),
    ],
)
def test_encoded_message_is_decoded_to_an_equal_one(message: Message):
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_interrupted_call_gets_an_error_with_its_own_id_and_name():
    answer = interrupted(ToolCall("7", "fs__write", {"path": "/x"}))

    assert (answer.tool_call_id, answer.name, answer.is_error) == ("7", "fs__write", True)
    assert "may or may not have taken effect" in answer.content


def unfinished(text: str, reason: str) -> AssistantMessage:
    return AssistantMessage(text, unfinished=Unfinished(reason))


ASKED, NEXT = UserMessage("Count."), UserMessage("Go on.")


@each_row(
    ("messages", "told"),
    [
        ([ASKED, AssistantMessage("1")], ["Count.", "1"]),
        (
            [ASKED, unfinished("1 2", "stopped"), NEXT],
            ["Count.", "1 2", "[The user stopped this answer before it was complete.]", "Go on."],
        ),
        (
            [ASKED, unfinished("1 2", "")],
            [
                *("Count.", "1 2"),
                "[This answer was cut off before it was complete."
                " Continue it where it ends, without repeating it.]",
            ],
        ),
        ([ASKED, unfinished(" ", "failed"), NEXT], ["Count.", "Go on."]),
    ],
)
def test_model_gets_an_unfinished_answer_with_a_note_from_the_user(
    messages: list[Message], told: list[str]
):
    found = told_to_model(messages)

    assert [each.content for each in found] == told
    assert all(getattr(each, "unfinished", None) is None for each in found)
    notes = [each for each in found if each.content.startswith("[")]
    assert all(isinstance(each, UserMessage) for each in notes)
