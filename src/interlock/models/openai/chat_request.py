"""Writes a conversation and its tools in the format of the chat completions API."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from interlock.models.model import (
    ToolDefinition,
)
from interlock.models.vendors import (
    DOCUMENTS,
    IMAGES,
    call_id,
    call_name,
)

_REASONING = ("reasoning_content", "reasoning")  # DeepSeek and llama.cpp; Ollama and vLLM
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
FILES = IMAGES | DOCUMENTS | SOUNDS.keys()
_LONGEST_DESCRIPTION = 1024  # characters; OpenAI refuses the whole request above this


def wire_messages(messages: Sequence[Message], *, provider: str) -> list[dict[str, Any]]:
    """Return a conversation in the format of the chat completions API.

    Args:
        messages: The conversation; assistant messages without text and calls are omitted.
        provider: The provider whose reasoning is included; that of others is omitted.
    """
    wire: list[dict[str, Any]] = []
    files: list[Attachment] = []  # the files of the results so far
    for message in messages:
        if isinstance(message, ToolMessage):
            files += message.attachments
        elif files:
            wire.append(_files_of_results(files))
            files = []
        if written := _wire_message(message, provider):
            wire.append(written)
    return [*wire, _files_of_results(files)] if files else wire


def _files_of_results(files: Sequence[Attachment]) -> dict[str, Any]:
    # Messages with the role "tool" can have only text, so the files follow in a user message.
    text = {"type": "text", "text": "The files of the results above:"}
    return {"role": "user", "content": [text, *map(_file_part, files)]}


def _wire_message(message: Message, provider: str) -> dict[str, Any] | None:
    if isinstance(message, SystemMessage):
        return {"role": "system", "content": message.content}
    if isinstance(message, AssistantMessage):
        return _wire_assistant(message, provider)
    if isinstance(message, ToolMessage):
        # The API has no field for a failure, so the text states it.
        failed = message.is_error and not message.content.lower().startswith("error")
        content = f"Error: {message.content}" if failed else message.content
        return {"role": "tool", "tool_call_id": call_id(message.tool_call_id), "content": content}
    if not message.attachments:
        return {"role": "user", "content": message.content}
    parts = [_file_part(each) for each in message.attachments]
    return {"role": "user", "content": [*parts, {"type": "text", "text": message.content}]}


def _file_part(file: Attachment) -> dict[str, Any]:
    url = f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if sound := SOUNDS.get(file.media_type):
        data = base64.b64encode(file.data).decode()
        return {"type": "input_audio", "input_audio": {"data": data, "format": sound}}
    return {"type": "file", "file": {"filename": file.name or "file", "file_data": url}}


def _wire_assistant(message: AssistantMessage, provider: str) -> dict[str, Any] | None:
    if not (message.content or message.tool_calls):
        return None
    wire: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    if message.tool_calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
    data = message.provider_data or {}
    if data.get("provider") == provider:
        wire |= {field: data[field] for field in _REASONING if isinstance(data.get(field), str)}
    if provider.startswith("deepseek") and not wire.get("reasoning_content"):
        # DeepSeek refuses a conversation with tools if a message lacks reasoning, as messages from
        # other models do. It also refuses it if all messages have the same text as reasoning.
        wire["reasoning_content"] = _made_up_reasoning(message)
    return wire


def _made_up_reasoning(message: AssistantMessage) -> str:
    if message.tool_calls:
        return f"Next: call {', '.join(call_name(call.name) for call in message.tool_calls)}."
    return f"Answer: {message.content[:80]}"


def _wire_call(call: ToolCall) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.input).decode()
    function = {"name": call_name(call.name), "arguments": arguments}
    return {"id": call_id(call.id), "type": "function", "function": function}


def wire_tool(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool in the format of the chat completions API."""
    description = tool.description
    if len(description) > _LONGEST_DESCRIPTION:
        description = f"{description[: _LONGEST_DESCRIPTION - 1]}…"
    function = {
        "name": tool.name,
        "description": description,
        "parameters": msgspec.json.decode(tool.input_schema),
    }
    return {"type": "function", "function": function}
