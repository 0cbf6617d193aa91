"""Our messages become those of LangChain, and the same ones again."""

from __future__ import annotations

from typing import Any

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
from tests.support.rows import each_row

CALL = ToolCall("c1", "kb__get", {"x": 1})
FILE = Attachment("image/png", b"png", "cat.png")


@each_row(
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


@each_row(
    ("member", "value", "call"),
    [
        ("id", "c9", ToolCall("c9", "kb__get", {"x": 1})),
        ("name", "kb__find", ToolCall("c1", "kb__find", {"x": 1})),
        ("args", {"x": 2}, ToolCall("c1", "kb__get", {"x": 2})),
    ],
)
def test_call_changed_by_a_graph_node_is_converted_with_the_changes(
    member: str, value: Any, call: ToolCall
):
    changed = to_langchain(AssistantMessage("So:", (CALL,), provider_data={"provider": "x"}))
    assert isinstance(changed, AIMessage)
    changed.tool_calls[0] = {**changed.tool_calls[0], member: value}  # type: ignore[misc]

    ours = from_langchain(changed)
    assert ours == AssistantMessage("So:", (call,), provider_data={"provider": "x"})


def test_result_of_a_tool_gets_the_files_of_its_call():
    about = {"interlock": {"call_id": "i1"}}
    given = LcToolMessage(
        "a picture", name="kb__get", tool_call_id="c1", status="error", additional_kwargs=about
    )

    assert from_langchain(given, {"i1": (FILE,), "i2": ()}) == ToolMessage(
        "c1", "a picture", "kb__get", is_error=True, attachments=(FILE,)
    )
