"""Assembles an answer from the events of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import ModelInterrupted, ModelOverloaded
from interlock.messages import (
    AssistantMessage,
    ToolCall,
    Usage,
)
from interlock.models.answer_size import AnswerSize
from interlock.models.model import ModelEvent, ReasoningDelta, Reply, TextDelta
from interlock.models.vendors import (
    tool_call,
    unique_ids,
)

_STOP_REASONS = {"max_output_tokens": "length", "content_filter": "refusal"}
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_REASONING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


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


class ResponsesAnswer:
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
