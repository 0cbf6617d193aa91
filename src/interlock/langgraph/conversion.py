"""Converts our messages to LangChain's messages and back.

A LangChain message that is made here also keeps our message in memory, so that converting back
loses nothing, such as attachments or usage. Do not store such messages with a checkpointer.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages import SystemMessage as LcSystemMessage
from langchain_core.messages import ToolMessage as LcToolMessage
from msgspec.structs import replace

from interlock.langchain.messages import MAX_IMAGE
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
            about = {"interlock": {"loads": list(message.loads)}} if message.loads else {}
            return LcToolMessage(
                message.content,
                name=message.name,
                tool_call_id=message.tool_call_id,
                status="error" if message.is_error else "success",
                additional_kwargs={**kept, **about},
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
            tuple(about_call(message).get("loads", ())),
        )
    text = str(message.text)
    if isinstance(message, LcSystemMessage):
        return SystemMessage(text)
    return UserMessage(text, tuple(_attachments(message.content)))


def blocks_of(message: UserMessage) -> str | list[dict[str, Any]]:
    """Return a message as the content of a LangChain message.

    A checkpointer stores the content again with each step, so a line replaces a large file.
    """
    text, blocks = message.content, []
    for file in message.attachments:
        if len(file.data) > MAX_IMAGE:
            text += f"\n[{file.name or file.media_type}: not sent, too large (limit 1 MiB)]"
            continue
        kind = "image" if file.media_type.startswith("image/") else "file"
        data = b64encode(file.data).decode()
        block = {"type": kind, "base64": data, "mime_type": file.media_type}
        # OpenAI requires a name for a file.
        blocks.append(block | ({"filename": file.name or "file"} if kind == "file" else {}))
    return [*blocks, {"type": "text", "text": text}] if blocks else text


def _attachments(content: str | list[Any]) -> Iterator[Attachment]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(data := block.get("base64"), str):
            name = block.get("filename")
            with suppress(ValueError):  # not base64
                yield Attachment(str(block.get("mime_type")), b64decode(data), str(name or ""))
