"""OpenAI's Responses API, for the models that chat completions refuse.

Rules:

1. Nothing is stored at OpenAI: each request carries the whole conversation.
2. The items of an answer, such as encrypted reasoning, are stored and sent back unchanged to the
   same model. If the API refuses them, the request is repeated without them.
3. If a request has deferred tools, the model's search for tools has items of its own. The item of
   its result has the definitions, which the API places at the end of the context; they are in no
   other part of the request.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.messages import (
    SEARCH_TOOLS,
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from interlock.models.model import ToolDefinition
from interlock.models.openai.responses_answer import CALLS
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
    items = _Items(provider, tools, signed=signed)
    request: dict[str, Any] = {
        "model": model,
        "input": [
            item for each in without_files(messages, IMAGES | DOCUMENTS) for item in items.of(each)
        ],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    system = [m.content for m in messages if isinstance(m, SystemMessage) and m.content.strip()]
    if system:
        request["instructions"] = "\n\n".join(system)
    if tools:
        request["tools"] = [items.tool(each) for each in tools if not each.deferred]
    others: dict[str, Any] = {}
    for name, value in options.items():
        if name in _LIMITS:
            request["max_output_tokens"] = value
        elif name in _EFFORTS:
            request["reasoning"] = {"effort": value}
        else:
            others[name] = value
    return request | others


class _Items:
    """Writes messages as items of the API."""

    def __init__(self, provider: str, tools: Sequence[ToolDefinition], *, signed: bool) -> None:
        self._provider = provider
        self._signed = signed
        self._deferred = {each.name: each for each in tools if each.deferred}
        self._searches: set[str] = set()  # ids of calls that are items of the search

    def tool(self, tool: ToolDefinition) -> dict[str, Any]:
        if tool.name != SEARCH_TOOLS or not self._deferred:
            return _wire_tool(tool)
        return {
            "type": "tool_search",
            "execution": "client",
            "description": tool.description,
            "parameters": msgspec.json.decode(tool.input_schema),
        }

    def of(self, message: Message) -> list[dict[str, Any]]:
        if isinstance(message, SystemMessage):
            return []
        if isinstance(message, AssistantMessage):
            kinds = [self._kind_of(each) for each in message.tool_calls]
            return (self._signed and _stored_items(message, self._provider, kinds)) or [
                *_text_items(message),
                *map(_call_item, message.tool_calls, kinds),
            ]
        if isinstance(message, ToolMessage):
            if message.tool_call_id in self._searches:
                return self._found(message)
            text = stated_result(message)
            output = _parts(text, message.attachments) if message.attachments else text
            id = call_id(message.tool_call_id)
            return [{"type": "function_call_output", "call_id": id, "output": output}]
        text = message.content if message.content.strip() else ""
        if not (text or message.attachments):
            text = "(empty message)"
        return [{"role": "user", "content": _parts(text, message.attachments)}]

    def _kind_of(self, call: ToolCall) -> str:
        if call.name != SEARCH_TOOLS or not self._deferred:
            return "function_call"
        self._searches.add(call.id)
        return "tool_search_call"

    def _found(self, message: ToolMessage) -> list[dict[str, Any]]:
        loaded = [self._deferred[each] for each in message.loads if each in self._deferred]
        found: dict[str, Any] = {
            "type": "tool_search_output",
            "call_id": call_id(message.tool_call_id),
            "execution": "client",
            "status": "completed",
            "tools": [{**_wire_tool(each), "defer_loading": True} for each in loaded],
        }
        if message.loads:
            return [found]
        # The item has no text, in which the model would read why nothing was found.
        return [found, {"role": "developer", "content": stated_result(message)}]


def _parts(text: str, files: Sequence[Attachment]) -> list[dict[str, Any]]:
    return [*map(_file_part, files), *([{"type": "input_text", "text": text}] if text else [])]


def _file_part(file: Attachment) -> dict[str, Any]:
    url = f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"
    if file.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": file.name or "file", "file_data": url}


def _text_items(message: AssistantMessage) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": message.content}] if message.content.strip() else []


def _call_item(call: ToolCall, kind: str) -> dict[str, Any]:
    item: dict[str, Any] = {"type": kind, "call_id": call_id(call.id)}
    if kind == "tool_search_call":
        return {**item, "execution": "client", "status": "completed", "arguments": call.input}
    arguments = encode_lossy(call.input).decode()
    return {**item, "name": call_name(call.name), "arguments": arguments}


def _stored_items(
    message: AssistantMessage, provider: str, kinds: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the stored items of an answer; none if its calls are now written in another way."""
    data = message.provider_data or {}
    items = data.get("items")
    if data.get("provider") != provider or not isinstance(items, list):
        return []
    if not all(isinstance(item, dict) for item in items):
        return []
    stored = [(each["type"], each.get("call_id")) for each in items if each.get("type") in CALLS]
    now = [(kind, call.id) for kind, call in zip(kinds, message.tool_calls, strict=True)]
    return items if stored == now else []


def _wire_tool(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description[:_LONGEST_DESCRIPTION],
        "parameters": msgspec.json.decode(tool.input_schema),
        "strict": False,  # strict schemas must list every property as required
    }
