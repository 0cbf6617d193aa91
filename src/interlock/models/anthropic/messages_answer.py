"""Assembles an answer from the events of the Messages API."""

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
from interlock.models.model import ModelEvent, ReasoningDelta, Reply, TextDelta
from interlock.models.vendors import (
    tool_call,
    unique_ids,
)

_PROVIDER = "anthropic"
_STOP_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Started(Struct):
    usage: _Usage | None = None


class _Message(Struct):
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Event(Struct):
    type: str = ""
    index: int = -1
    message: _Started | None = None
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


class MessagesAnswer:
    """Assembles one answer from its events."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._blocks: dict[int, dict[str, Any]] = {}  # by index, in the form to send back
        self._pieces: dict[int, dict[str, list[str]]] = {}  # by index and field of the block
        self._arguments: dict[
            int, list[str]
        ] = {}  # pieces of each tool_use block's arguments, by index
        self._size = AnswerSize(name)
        self._usage = _Usage()
        self._stop_reason: str | None = None
        self._complete = False

    def add(self, data: Any) -> list[ModelEvent]:
        """Add one decoded event; return the resulting model events."""
        event = msgspec.convert(data, _Event)
        if event.type == "message_start" and event.message:
            self._count(event.message.usage)
        elif event.type == "content_block_start" and event.content_block:
            return self._start_block(event.index, event.content_block)
        elif event.type == "content_block_delta" and event.delta:
            return self._extend_block(event.index, event.delta)
        elif event.type == "message_delta":
            self._count(event.usage)
            self._stop_reason = event.delta.stop_reason if event.delta else None
        elif event.type == "message_stop":
            self._complete = True
        return []

    def add_whole(self, answer: Any) -> list[ModelEvent]:
        """Add an answer that is not streamed; see `add`."""
        message = msgspec.convert(answer, _Message)
        self._count(message.usage)
        self._stop_reason, self._complete = message.stop_reason, True
        return [
            piece
            for index, block in enumerate(message.content or [])
            for piece in self._start_block(index, block)
        ]

    def reply(self) -> Reply:
        if not self._complete:
            raise ModelInterrupted(
                f"the answer of {self._name} was cut off: the stream ended early"
            )
        stop_reason = _STOP_REASONS.get(self._stop_reason or "", "end")
        self._finish_blocks(cut=stop_reason == "length")
        blocks = [block for _, block in sorted(self._blocks.items())]
        calls = unique_ids(self._calls())
        text = "".join(block["text"] for block in blocks if block.get("type") == "text")
        message = AssistantMessage(text, calls, self._provider_data(blocks))
        if calls and stop_reason == "end":
            stop_reason = "tool_calls"
        return Reply(message, self._total(), stop_reason)

    def _start_block(self, index: int, block: dict[str, Any]) -> list[ModelEvent]:
        self._size.add_json(block)
        self._blocks[index] = block
        self._pieces[index] = {}
        if block.get("type") == "tool_use":
            self._size.add_call()
            self._arguments[index] = []
        if block.get("type") != "text":
            return []
        block["text"] = str(block.get("text") or "")
        return [TextDelta(block["text"])] if block["text"] else []

    def _extend_block(self, index: int, delta: _Delta) -> list[ModelEvent]:
        if index not in self._blocks:
            raise ValueError(f"a piece of block {index}, which has not started")
        if delta.type == "input_json_delta" and index in self._arguments:
            self._size.add(delta.partial_json)
            self._arguments[index].append(delta.partial_json)
        elif delta.type == "text_delta" and delta.text:
            self._add_piece(index, "text", delta.text)
            return [TextDelta(delta.text)]
        elif delta.type == "thinking_delta" and delta.thinking:
            self._add_piece(index, "thinking", delta.thinking)
            return [ReasoningDelta(delta.thinking)]
        elif delta.type == "signature_delta":
            self._size.add(delta.signature)
            self._blocks[index]["signature"] = delta.signature
        return []

    def _add_piece(self, index: int, field: str, text: str) -> None:
        self._size.add(text)
        self._pieces[index].setdefault(field, []).append(text)

    def _finish_blocks(self, *, cut: bool) -> None:
        last = max(self._blocks, default=-1)
        if cut and last in self._arguments and not "".join(self._arguments[last]):
            # The token limit came before the first argument, so the call is dropped.
            del self._arguments[last], self._blocks[last]
        for index, block in list(self._blocks.items()):
            for field, pieces in self._pieces[index].items():
                block[field] = str(block.get(field) or "") + "".join(pieces)
            if block.get("type") == "text" and not str(block.get("text", "")).strip():
                del self._blocks[
                    index
                ]  # the API sends empty text blocks, but refuses them in requests

    def _calls(self) -> list[ToolCall]:
        calls = []
        for index, pieces in sorted(self._arguments.items()):
            arguments = "".join(pieces)
            block = self._blocks[index]
            call = tool_call(str(block.get("id", "")), str(block.get("name", "")), arguments)
            if not arguments and isinstance(block.get("input"), dict):
                call = msgspec.structs.replace(call, input=block["input"])
            block["input"] = call.input
            calls.append(call)
        return calls

    def _provider_data(self, blocks: list[dict[str, Any]]) -> dict[str, Any] | None:
        # The message itself has text and calls, so only answers with other blocks need storing.
        if all(block.get("type") in ("text", "tool_use") for block in blocks):
            return None
        return {"provider": _PROVIDER, "content": blocks}

    def _count(self, usage: _Usage | None) -> None:
        for field in _Usage.__struct_fields__:
            value = getattr(usage, field, None)
            if value is not None:
                setattr(self._usage, field, value)

    def _total(self) -> Usage:
        usage = self._usage
        cached = usage.cache_read_input_tokens or 0
        written = usage.cache_creation_input_tokens or 0
        read = (usage.input_tokens or 0) + written + cached
        return Usage(read, usage.output_tokens or 0, cached, written)
