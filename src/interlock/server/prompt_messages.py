"""Conversion of the return value of a prompt's function to the messages of the prompt."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from interlock.errors import LocalProtocolError
from interlock.messages import AssistantMessage, Attachment, SystemMessage, ToolMessage, UserMessage
from interlock.server.values import block_of
from interlock.types import (
    AudioContent,
    Content,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    ResourceContents,
    Role,
)

_ROLES = ("user", "assistant")


def prompt_result(value: Any, description: str | None) -> GetPromptResult:
    """Return the result of a prompt.

    Args:
        value: A `GetPromptResult`; or a message, or a list of messages, as `_messages` reads them.
        description: The prompt's description.

    Raises:
        LocalProtocolError: A message cannot be part of a prompt.
    """
    if isinstance(value, GetPromptResult):
        return value
    values = value if isinstance(value, list | tuple) else [value]
    messages = [message for each in values for message in _messages(each)]
    return GetPromptResult(messages=messages, description=description)


def _messages(value: Any) -> list[PromptMessage]:
    """Return the messages for a value: one for each part, because a message of MCP has one part.

    A value that is not a message becomes a message of the user: text and content as they are, any
    other value as JSON.
    """
    if isinstance(value, PromptMessage):
        return [value]
    if isinstance(value, UserMessage):
        text = [_part(value.content)] if value.content or not value.attachments else []
        return _of("user", [*text, *map(_attached, value.attachments)])
    if isinstance(value, AssistantMessage):
        if value.tool_calls:
            raise LocalProtocolError("a prompt cannot have tool calls; describe them in text")
        return _of("assistant", [_part(value.content)])
    if isinstance(value, SystemMessage | ToolMessage):
        kind = type(value).__name__
        raise LocalProtocolError(f"a prompt has no {kind}, only UserMessage and AssistantMessage")
    if isinstance(value, dict) and value.keys() == {"role", "content"}:
        if value["role"] not in _ROLES:
            raise LocalProtocolError(f"the role {value['role']!r} is not 'user' or 'assistant'")
        content = value["content"]
        parts = content if isinstance(content, list | tuple) else [content]
        return _of(value["role"], [_part(each) for each in parts])
    return _of("user", [_part(value)])


def _of(role: Role, parts: list[Content]) -> list[PromptMessage]:
    return [PromptMessage(role=role, content=each) for each in parts]


def _part(value: Any) -> Content:
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        try:
            read: Content = msgspec.convert(value, Content)
            return read
        except msgspec.ValidationError:  # an object that only looks like a block
            pass
    return block_of(value)


def _attached(file: Attachment) -> Content:
    data, kind = base64.b64encode(file.data).decode(), file.media_type
    if kind.startswith("image/"):
        return ImageContent(data=data, mime_type=kind)
    if kind.startswith("audio/"):
        return AudioContent(data=data, mime_type=kind)
    uri = f"attachment:{file.name or 'file'}"
    return EmbeddedResource(resource=ResourceContents(uri=uri, mime_type=kind, blob=data))
