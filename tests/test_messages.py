from __future__ import annotations

import msgspec

from interlock.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    interrupted,
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
    ],
)
def test_encoded_message_is_decoded_to_an_equal_one(message: Message):
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_interrupted_call_gets_an_error_with_its_own_id_and_name():
    answer = interrupted(ToolCall("7", "fs__write", {"path": "/x"}))

    assert (answer.tool_call_id, answer.name, answer.is_error) == ("7", "fs__write", True)
    assert "may or may not have taken effect" in answer.content
