"""Converts our messages to LangChain's messages and back.

A LangChain message that is made here also keeps our message in memory, so that converting back
loses nothing, such as attachments or usage. Do not store such messages with a checkpointer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages import SystemMessage as LcSystemMessage
from langchain_core.messages import ToolMessage as LcToolMessage
from msgspec.structs import replace

from interlock.langgraph.nodes import about_call
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

OURS = "interlock_message"  # key in additional_kwargs
Files: TypeAlias = Mapping[str, tuple[Attachment, ...]]  # images and sounds, by id of the call
NO_FILES: Files = {}


def to_langchain(message: Message) -> AnyMessage:
    """Convert one of our messages to a LangChain message."""
    kept = {OURS: message}
    match message:
        case SystemMessage():
            return LcSystemMessage(message.content)
        case UserMessage():
            return HumanMessage(message.content, additional_kwargs=kept)
        case AssistantMessage():
            calls = [
                {"id": each.id, "name": each.name, "args": each.input, "type": "tool_call"}
                for each in message.tool_calls
            ]
            return AIMessage(message.content, tool_calls=calls, additional_kwargs=kept)
        case ToolMessage():
            return LcToolMessage(
                message.content,
                name=message.name,
                tool_call_id=message.tool_call_id,
                status="error" if message.is_error else "success",
                additional_kwargs=kept,
            )


def from_langchain(message: AnyMessage, files: Files = NO_FILES) -> Message:
    """Convert a LangChain message to one of our messages.

    Args:
        message: The LangChain message.
        files: Images and sounds of tool results, by call id; `message` has only their text.
    """
    ours = message.additional_kwargs.get(OURS)
    if isinstance(message, AIMessage):
        malformed = about_call(message).get("malformed", {})
        calls = tuple(
            ToolCall(str(each["id"]), each["name"], each["args"], malformed.get(each["id"]))
            for each in message.tool_calls
        )
        if isinstance(ours, AssistantMessage):
            shown = [(each.id, each.name, each.input) for each in calls]
            kept = [(each.id, each.name, each.input) for each in ours.tool_calls]
            return ours if shown == kept else replace(ours, tool_calls=calls)
        return AssistantMessage(str(message.text), calls)
    if isinstance(ours, UserMessage | ToolMessage):
        return ours
    if isinstance(message, LcToolMessage):
        return ToolMessage(
            message.tool_call_id,
            str(message.text),
            message.name or "",
            message.status == "error",
            files.get(about_call(message).get("call_id", ""), ()),
        )
    text = str(message.text)
    return SystemMessage(text) if isinstance(message, LcSystemMessage) else UserMessage(text)
