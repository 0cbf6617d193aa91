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
from msgspec import Struct

from interlock.errors import ModelInterrupted, ModelOverloaded
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
)
from interlock.models.answer_size import AnswerSize
from interlock.models.model import ModelEvent, ReasoningDelta, Reply, TextDelta, ToolDefinition
from interlock.models.vendors import (
    DOCUMENTS,
    IMAGES,
    call_id,
    call_name,
    object_schema,
    tool_call,
    unique_ids,
    without_files,
)

_LONGEST_DESCRIPTION = 1024  # characters
_STOP_REASONS = {"max_output_tokens": "length", "content_filter": "refusal"}
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_REASONING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
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
    """Return the arguments of `responses.create`.

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
    system = [each.content for each in messages if isinstance(each, SystemMessage)]
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
    return request | ({"extra_body": others} if others else {})


def _items(message: Message, provider: str, signed: bool) -> list[dict[str, Any]]:
    if isinstance(message, SystemMessage):
        return []
    if isinstance(message, AssistantMessage):
        return (signed and _stored_items(message, provider)) or _assistant_items(message)
    if isinstance(message, ToolMessage):
        failed = message.is_error and not message.content.lower().startswith("error")
        text = f"Error: {message.content}" if failed else message.content
        output = _parts(text, message.attachments) if message.attachments else text
        id = call_id(message.tool_call_id)
        return [{"type": "function_call_output", "call_id": id, "output": output}]
    return [{"role": "user", "content": _parts(message.content, message.attachments)}]


def _parts(text: str, files: Sequence[Attachment]) -> list[dict[str, Any]]:
    return [*map(_file_part, files), {"type": "input_text", "text": text}]


def _file_part(file: Attachment) -> dict[str, Any]:
    url = f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"
    if file.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": file.name or "file", "file_data": url}


def _assistant_items(message: AssistantMessage) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if message.content:
        items.append({"role": "assistant", "content": message.content})
    items += (
        {
            "type": "function_call",
            "call_id": call_id(call.id),
            "name": call_name(call.name),
            "arguments": msgspec.json.encode(call.input).decode(),
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
        "parameters": object_schema(tool.input_schema),
        "strict": False,  # strict schemas must list every property as required
    }


# Incoming


class _Item(Struct):
    type: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class _Details(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


class _Reason(Struct):
    reason: str | None = None


class _Error(Struct):
    code: str | None = None
    message: str | None = None


class _Response(Struct):
    output: list[dict[str, Any]] | None = None
    usage: _Usage | None = None
    incomplete_details: _Reason | None = None
    error: _Error | None = None


class _Event(Struct):
    type: str = ""
    delta: Any = None
    output_index: int = -1
    item: dict[str, Any] | None = None
    response: _Response | None = None


class ResponseBuilder:
    """Assembles one answer from its events."""

    def __init__(self, name: str, provider: str) -> None:
        self._name = name
        self._provider = provider
        self._size = AnswerSize(name)
        self._text: list[str] = []
        self._items: dict[int, dict[str, Any]] = {}  # by position in the answer
        self._refused = False
        self._end: _Event | None = None

    def add(self, data: Any) -> list[ModelEvent]:
        """Add one decoded event; return the resulting model events.

        Raises:
            msgspec.ValidationError: The event is not an event of the Responses API.
            ModelInterrupted: The answer is too long, or failed.
            ModelOverloaded: The provider is overloaded.
        """
        event = msgspec.convert(data, _Event)
        if event.type in _TEXT_EVENTS and isinstance(event.delta, str) and event.delta:
            self._refused |= event.type.startswith("response.refusal")
            self._size.add(event.delta)
            self._text.append(event.delta)
            return [TextDelta(event.delta)]
        if event.type in _REASONING_EVENTS and isinstance(event.delta, str) and event.delta:
            self._size.add(event.delta)
            return [ReasoningDelta(event.delta)]
        if event.type == "response.output_item.done" and event.item:
            self._size.add_json(event.item)
            self._items[event.output_index] = event.item
        elif event.type in ("response.completed", "response.incomplete"):
            self._end = event
        elif event.type == "response.failed":
            raise self._failure(event)
        return []

    def add_whole(self, answer: Any) -> list[ModelEvent]:
        """Add an answer that is not streamed.

        Raises:
            msgspec.ValidationError: The answer is not a response.
        """
        self._size.add_json(answer)
        response = msgspec.convert(answer, _Response)
        self._end = _Event("response.completed", response=response)
        parts = (
            part
            for item in response.output or []
            if item.get("type") == "message"
            for part in item.get("content") or []
        )
        self._text += (str(part["text"]) for part in parts if part.get("type") == "output_text")
        return [TextDelta(text) for text in self._text]

    def _failure(self, event: _Event) -> ModelInterrupted | ModelOverloaded:
        error = (event.response and event.response.error) or _Error()
        reason = " ".join((error.message or error.code or "no reason given").split())[:300]
        if error.code in ("rate_limit_exceeded", "server_is_overloaded"):
            return ModelOverloaded(f"{self._name} is overloaded: {reason}; try again later")
        return ModelInterrupted(f"the answer of {self._name} was cut off: {reason}")

    def reply(self) -> Reply:
        """Return the whole answer.

        Raises:
            ModelInterrupted: The stream ended before the answer did.
        """
        if self._end is None:
            raise ModelInterrupted(
                f"the answer of {self._name} was cut off: the stream ended early"
            )
        response = self._end.response or _Response()
        items = [item for _, item in sorted(self._items.items())] or response.output or []
        reason = response.incomplete_details.reason if response.incomplete_details else None
        stop_reason = "end"
        if self._end.type == "response.incomplete":
            stop_reason = _STOP_REASONS.get(reason or "", "length")
        calls = self._calls(items, cut=stop_reason == "length")
        if stop_reason == "end" and (calls or self._refused):
            stop_reason = "tool_calls" if calls else "refusal"
        data = None
        if any(item.get("type") == "reasoning" for item in items) and stop_reason != "length":
            data = {"provider": self._provider, "items": items}
        message = AssistantMessage("".join(self._text), calls, data)
        return Reply(message, _total(response.usage), stop_reason)

    def _calls(self, items: Sequence[dict[str, Any]], *, cut: bool) -> tuple[ToolCall, ...]:
        found = [msgspec.convert(i, _Item) for i in items if i.get("type") == "function_call"]
        if cut and found and not found[-1].arguments.strip():
            found.pop()  # the token limit came before the first argument
        return unique_ids([tool_call(each.call_id, each.name, each.arguments) for each in found])


def _total(usage: _Usage | None) -> Usage:
    usage = usage or _Usage()
    details = usage.input_tokens_details or _Details()
    return Usage(
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        details.cached_tokens or 0,
        details.cache_write_tokens or 0,
    )
