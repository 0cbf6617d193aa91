"""Assembles an answer from the chunks of the chat completions API.

Servers differ in how they stream tool calls: in fragments, whole, without ids, without indexes.
`_Calls` has the rules for all of them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import ModelInterrupted
from interlock.messages import (
    AssistantMessage,
    ToolCall,
    Usage,
)
from interlock.models.answer_size import AnswerSize
from interlock.models.model import (
    ModelEvent,
    ReasoningDelta,
    Reply,
    TextDelta,
)
from interlock.models.vendors import (
    tool_call,
    unique_ids,
)

_STOP_REASONS = {"length": "length", "content_filter": "refusal"}
_FAILED = {"error", "insufficient_system_resource"}  # finish reasons of an incomplete answer
_REASONING = ("reasoning_content", "reasoning")  # DeepSeek and llama.cpp; Ollama and vLLM


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Fragment(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Fragment] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None
    message: _Delta | None = None  # only if the answer is not streamed


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek

    def as_usage(self) -> Usage:
        details = self.prompt_tokens_details or _Details()
        cached = details.cached_tokens or self.prompt_cache_hit_tokens or 0
        return Usage(self.prompt_tokens or 0, self.completion_tokens or 0, cached)


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class ChatAnswer:
    """Assembles one answer from its chunks."""

    def __init__(self, name: str, provider: str) -> None:
        self._name = name
        self._provider = provider
        self._size = AnswerSize(name)
        self._text: list[str] = []
        self._reasoning: dict[str, list[str]] = {}  # by the name of its field
        self._calls = _Calls(self._size)
        self._refused = False
        self._finish_reason: str | None = None
        self._usage = Usage()

    def add(self, data: Any) -> list[ModelEvent]:
        """Add one decoded chunk; return the resulting events.

        Raises:
            msgspec.ValidationError: The chunk is not a chunk of a chat completion.
            ModelInterrupted: The answer is too long.
        """
        return self._add(msgspec.convert(data, _Chunk))

    def _add(self, chunk: _Chunk) -> list[ModelEvent]:
        if chunk.usage:
            self._usage = chunk.usage.as_usage()
        pieces: list[ModelEvent] = []
        for choice in chunk.choices or []:
            self._finish_reason = choice.finish_reason or self._finish_reason
            if choice.delta:
                pieces += self._extend(choice.delta)
        return pieces

    def add_whole(self, answer: Any) -> list[ModelEvent]:
        """Add an answer that is not streamed. Some servers cannot stream tool calls.

        Raises:
            msgspec.ValidationError: The answer is not a chat completion.
            ModelInterrupted: The answer is too long.
        """
        whole = msgspec.convert(answer, _Chunk)
        for choice in whole.choices or []:
            choice.delta, choice.finish_reason = choice.message, choice.finish_reason or "stop"
        return self._add(whole)

    def reply(self) -> Reply:
        """Return the whole answer.

        Raises:
            ModelInterrupted: The stream ended before the answer did.
        """
        if self._finish_reason is None:
            raise ModelInterrupted(
                f"the answer of {self._name} was cut off: the stream ended early"
            )
        if self._finish_reason in _FAILED:
            raise ModelInterrupted(
                f"the answer of {self._name} was cut off: the server says {self._finish_reason!r}"
            )
        stop_reason = _STOP_REASONS.get(self._finish_reason, "end")
        calls = self._calls.finish(cut=stop_reason == "length")
        if stop_reason == "end" and (calls or self._refused):
            stop_reason = "tool_calls" if calls else "refusal"
        data = None
        if self._reasoning:
            joined = {field: "".join(parts) for field, parts in self._reasoning.items()}
            data = {"provider": self._provider, **joined}
        return Reply(AssistantMessage("".join(self._text), calls, data), self._usage, stop_reason)

    def _extend(self, delta: _Delta) -> list[ModelEvent]:
        pieces: list[ModelEvent] = []
        for field in _REASONING:
            thought = getattr(delta, field)
            if thought:
                self._size.add(thought)
                self._reasoning.setdefault(field, []).append(thought)
                pieces.append(ReasoningDelta(thought))
        self._refused = self._refused or bool(delta.refusal)
        for text in (delta.content, delta.refusal):
            if text:
                self._size.add(text)
                self._text.append(text)
                pieces.append(TextDelta(text))
        for fragment in delta.tool_calls or []:
            self._calls.add(fragment)
        return pieces


class _OpenCall(Struct):
    """A call whose arguments are still arriving."""

    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[str] = []


class _Calls:
    """Assembles the fragments of tool calls.

    Rule 1: A fragment belongs to the call with its index; without an index to the call with its
        id; with neither to the last call.
    Rule 2: A fragment with a name and another id starts a call, whatever its index: some servers
        send whole calls, all with index 0.
    Rule 3: The id and the name come from the first fragment that has them.
    """

    def __init__(self, size: AnswerSize) -> None:
        self._size = size
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}  # the last call with each index
        self._by_id: dict[str, _OpenCall] = {}

    def add(self, fragment: _Fragment) -> None:
        function = fragment.function or _Function()
        call = self._find(fragment, function)
        if call is None:
            self._size.add_call()
            call = _OpenCall(fragment.index)
            self._calls.append(call)
            if fragment.index is not None:
                self._by_index[fragment.index] = call
        if not call.id and fragment.id:
            self._size.add(fragment.id)
            call.id = fragment.id
            self._by_id[call.id] = call
        if not call.name and function.name:
            self._size.add(function.name)
            call.name = function.name
        arguments = function.arguments or ""
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if arguments:
            self._size.add(arguments)
            call.arguments.append(arguments)

    def _find(self, fragment: _Fragment, function: _Function) -> _OpenCall | None:
        if fragment.index is not None:
            call = self._by_index.get(fragment.index)
        elif fragment.id:
            call = self._by_id.get(fragment.id)
        else:
            call = self._calls[-1] if self._calls and not function.name else None
        other = call and fragment.id and call.id and fragment.id != call.id
        return None if other and function.name else call

    def finish(self, *, cut: bool) -> tuple[ToolCall, ...]:
        """Return the calls in order. With `cut`, the last call may be incomplete."""
        if cut and self._calls and not "".join(self._calls[-1].arguments).strip():
            # The token limit came before the first argument, so the call is dropped.
            self._calls.pop()
        return unique_ids([tool_call(c.id, c.name, "".join(c.arguments)) for c in self._calls])
