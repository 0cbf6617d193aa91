"""Our messages become those of LangChain, and the same ones again."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage
from langchain_core.messages import ToolMessage as LcToolMessage

from interlock.langgraph.conversion import from_langchain, to_langchain
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

CALL = ToolCall("c1", "kb__get", {"x": 1})
FILE = Attachment("image/png", b"png", "cat.png")


@pytest.mark.parametrize(
    "message",
    [
        UserMessage("Look", (FILE,)),
        AssistantMessage("So:", (CALL, ToolCall("c2", "kb__get", malformed="{"))),
        AssistantMessage("Hi.", provider_data={"provider": "x"}, usage=Usage(1, 2)),
        ToolMessage("c1", "broken", "kb__get", is_error=True, attachments=(FILE,)),
    ],
)
def test_message_survives_the_way_to_langchain_and_back(message: Message):
    assert from_langchain(to_langchain(message)) == message


def test_call_with_a_new_id_or_name_is_the_one_that_langchain_has():
    changed = to_langchain(AssistantMessage("So:", (CALL,), provider_data={"provider": "x"}))
    assert isinstance(changed, AIMessage)
    changed.tool_calls[0]["id"] = "c9"

    ours = from_langchain(changed)
    assert ours == AssistantMessage(
        "So:", (ToolCall("c9", "kb__get", {"x": 1}),), provider_data={"provider": "x"}
    )


def test_blocks_of_a_tool_become_text_and_attachments():
    blocks = [
        {"type": "text", "text": "a picture:"},
        {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
    ]
    message = LcToolMessage(blocks, name="kb__get", tool_call_id="c1", status="error")
    files = (Attachment("image/png", b"\0\0\0"),)

    assert from_langchain(message) == ToolMessage(
        "c1", "a picture:\n[image/png]", "kb__get", is_error=True, attachments=files
    )
