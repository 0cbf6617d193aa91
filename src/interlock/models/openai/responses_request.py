"""OpenAI's Responses API, for the models that chat completions refuse.

Rules:

1. Nothing is stored at OpenAI: each request carries the whole conversation.
2. The items of an answer, such as encrypted reasoning, are stored and sent back unchanged to the
   same model. If the API refuses them, the request is repeated without them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolMessage,
)
from interlock.models.model import ToolDefinition
from interlock.models.vendors import (
    DOCUMENTS,
    IMAGES,
    call_id,
    call_name,
    stated_result,
    without_files,
)
from interlock.protocol.envelope import encode_lossy

_LONGEST_DESCRIPTION = 1024  # characters
# Names of the limit option in chat completions
_LIMITS = ("max_tokens", "max_completion_tokens")
_EFFORTS = ("effort", "reasoning_effort")


def response_request(
    model: str,
    messages: Sequence[Message],
    tools: Sequence[ToolDefinition],
    options: Mapping[str, Any],
    *,
    provider: str,
    signed: bool = True,
) -> dict[str, Any]:
    """Return a request to the Responses API.

    Args:
        model: The provider's name of the model.
        messages: The conversation.
        tools: The tools that the model may call.
        options: Members of the request, named as for chat completions or for this API.
        provider: The provider whose items are sent back; those of others are omitted.
        signed: Whether to send items of the API, such as encrypted reasoning, back unchanged.
    """
    request: dict[str, Any] = {
        "model": model,
        "input": [
            item
            for each in without_files(messages, IMAGES | DOCUMENTS)
            for item in _items(each, provider, signed)
        ],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    system = [m.content for m in messages if isinstance(m, SystemMessage) and m.content.strip()]
    if system:
        request["instructions"] = "\n\n".join(system)
    if tools:
        request["tools"] = [_wire_tool(tool) for tool in tools]
    others: dict[str, Any] = {}
    for name, value in options.items():
        if name in _LIMITS:
            request["max_output_tokens"] = value
        elif name in _EFFORTS:
            request["reasoning"] = {"effort": value}
        else:
            others[name] = value
    return request | others


def _items(message: Message, provider: str, signed: bool) -> list[dict[str, Any]]:
    if isinstance(message, SystemMessage):
        return []
    if isinstance(message, AssistantMessage):
        return (signed and _stored_items(message, provider)) or _assistant_items(message)
    if isinstance(message, ToolMessage):
        text = stated_result(message)
        output = _parts(text, message.attachments) if message.attachments else text
        id = call_id(message.tool_call_id)
        return [{"type": "function_call_output", "call_id": id, "output": output}]
    text = message.content if message.content.strip() else ""
    if not (text or message.attachments):
        text = "(empty message)"
    return [{"role": "user", "content": _parts(text, message.attachments)}]


def _parts(text: str, files: Sequence[Attachment]) -> list[dict[str, Any]]:
    return [*map(_file_part, files), *([{"type": "input_text", "text": text}] if text else [])]


def _file_part(file: Attachment) -> dict[str, Any]:
    url = f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"
    if file.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": file.name or "file", "file_data": url}


def _assistant_items(message: AssistantMessage) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if message.content.strip():
        items.append({"role": "assistant", "content": message.content})
    items += (
        {
            "type": "function_call",
            "call_id": call_id(call.id),
            "name": call_name(call.name),
            "arguments": encode_lossy(call.input).decode(),
        }
        for call in message.tool_calls
    )
    return items


def _stored_items(message: AssistantMessage, provider: str) -> list[dict[str, Any]]:
    data = message.provider_data or {}
    items = data.get("items")
    if data.get("provider") != provider or not isinstance(items, list):
        return []
    if not all(isinstance(item, dict) for item in items):
        return []
    calls = [item.get("call_id") for item in items if item.get("type") == "function_call"]
    return items if calls == [call.id for call in message.tool_calls] else []


def _wire_tool(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description[:_LONGEST_DESCRIPTION],
        "parameters": msgspec.json.decode(tool.input_schema),
        "strict": False,  # strict schemas must list every property as required
    }
