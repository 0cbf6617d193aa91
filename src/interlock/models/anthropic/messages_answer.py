"""Assembles an answer from the events of the Messages API."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from interlock.messages import AssistantMessage, ToolCall, Usage
from interlock.models import lenient
from interlock.models.answer_size import AnswerSize
from interlock.models.call_arguments import tool_calls, unique_ids
from interlock.models.half_characters import HalfCharacters
from interlock.models.model import ModelEvent, ReasoningDelta, Reply, TextDelta
from interlock.models.whole_answers import check_end
from interlock.protocol.envelope import encode_lossy
from interlock.text.quoting import replace_surrogates

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
    partial_json: str | dict[str, Any] = ""
    stop_reason: str | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Message(Struct):
    usage: _Usage | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    model: str | None = None


class _Event(Struct):
    type: str = ""
    index: int | None = None
    message: _Message | None = None
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


# The block of a piece whose block was not announced, by the member of the piece.
_BLOCKS = {"text": "text", "thinking": "thinking", "signature": "thinking"}


class MessagesAnswer:
    """Assembles one answer from its events."""

    def __init__(self, name: str, provider: str) -> None:
        """Begin an answer.

        Args:
            name: The name of the model for errors.
            provider: The model and server to which alone the blocks of the answer are sent back.
        """
        self._name = name
        self._provider = provider
        self._blocks: dict[int, dict[str, Any]] = {}  # by place, in the form to send back
        self._places: dict[int, int] = {}  # by index: some servers give all blocks index 0
        self._pieces: dict[int, dict[str, list[str]]] = {}  # by place and field of the block
        self._halves: dict[int, HalfCharacters] = {}  # by place
        # Pieces of each tool_use block's arguments, by place
        self._arguments: dict[int, list[str]] = {}
        self._size = AnswerSize(name)
        self._usage = _Usage()
        self._stop_reason = ""
        self._model = ""  # that answers
        self.is_stated = False  # whether the provider stated why it stopped

    def add(self, data: Any) -> list[ModelEvent]:
        """Add one decoded event; return the resulting model events.

        Raises:
            ValueError: The event is not a JSON object.
            ModelInterrupted: The answer is too long.
        """
        event = lenient.convert(data, _Event)
        if event.type == "content_block_delta" and event.delta:
            return self._extend_block(event.index, event.delta)
        if event.type == "content_block_start" and event.content_block:
            place = self._place_of(event.index, event.content_block)
            return self._start_block(place, event.content_block)
        if event.type == "message_start" and event.message:
            self._count(event.message.usage)
            self._model = event.message.model or ""
        elif event.type == "message_delta":
            self._count(event.usage)
            self._stop((event.delta and event.delta.stop_reason) or "")
        elif event.type == "message_stop":
            self.is_stated = True
        elif event.type == "message":
            return self.add_whole(data)
        return []

    def add_whole(self, answer: Any) -> list[ModelEvent]:
        """Add an answer that is not streamed; see `add`."""
        if isinstance(answer, dict) and isinstance(said := answer.get("content"), str):
            answer = {**answer, "content": [{"type": "text", "text": said}]}
        message = lenient.convert(answer, _Message)
        self._count(message.usage)
        self._model = message.model or ""
        self._stop(message.stop_reason or "end_turn")
        return [
            piece
            for index, block in enumerate(message.content or [])
            for piece in self._start_block(index, block)
        ]

    def _stop(self, reason: str) -> None:
        self._stop_reason = reason or self._stop_reason
        self.is_stated = bool(self._stop_reason)

    @property
    def _last(self) -> int:
        return max(self._blocks, default=-1)

    def reply(self, *, marked: bool = False) -> Reply:
        """Return the whole answer.

        Args:
            marked: Whether the stream ended with `[DONE]`.

        Raises:
            ModelInterrupted: The stream ended before the answer did.
        """
        last = self._arguments.get(self._last)
        check_end(
            self._name,
            stated=self.is_stated,
            marked=marked,
            has_text=bool(self._blocks),
            last_arguments=None if last is None else "".join(last),
        )
        stop_reason = _STOP_REASONS.get(self._stop_reason, "end")
        self._finish_blocks(cut=stop_reason == "length")
        blocks = [block for _, block in sorted(self._blocks.items())]
        calls = unique_ids(self._calls())
        text = "".join(block["text"] for block in blocks if block.get("type") == "text")
        message = AssistantMessage(text, calls, self._provider_data(blocks))
        if calls and stop_reason == "end":
            stop_reason = "tool_calls"
        return Reply(message, self._total(), stop_reason, self._model)

    def _place_of(self, index: int | None, block: dict[str, Any]) -> int:
        """Return the place of a block that starts: after the others, if its index is taken."""
        if index is None:
            return self._last + 1
        place = self._places.get(index, index)
        known = self._blocks.get(place)
        if known is not None:
            is_other = any(known.get(each) != block.get(each) for each in ("type", "id"))
            if is_other or self._pieces[place] or self._arguments.get(place):
                place = self._last + 1
        self._places[index] = place
        return place

    def _start_block(self, place: int, block: dict[str, Any]) -> list[ModelEvent]:
        self._size.add_call()
        self._size.add_json(block)
        if "type" not in block:
            block["type"] = "tool_use" if "name" in block else "text"
        self._blocks[place] = block
        self._pieces[place] = {}
        self._halves[place] = HalfCharacters()
        if block["type"] == "tool_use":
            self._arguments[place] = []
        if block["type"] != "text":
            return []
        block["text"] = self._halves[place].add(lenient.text_of(block.get("text")) or "")
        return [TextDelta(block["text"])] if block["text"] else []

    def _extend_block(self, index: int | None, delta: _Delta) -> list[ModelEvent]:
        place = self._last if index is None else self._places.get(index, index)
        if place not in self._blocks:
            kind = next((_BLOCKS[each] for each in _BLOCKS if getattr(delta, each)), None)
            if kind is None:
                raise ValueError(f"a piece of block {index}, which has not started")
            place = max(place, 0)
            self._start_block(place, {"type": kind, kind: ""})
        # The members tell what a piece is, since some servers write another type.
        if delta.partial_json and place in self._arguments:
            piece = delta.partial_json
            text = piece if isinstance(piece, str) else encode_lossy(piece).decode()
            self._size.add(text)
            self._arguments[place].append(text)
        elif delta.text:
            return [TextDelta(text)] if (text := self._add_piece(place, "text", delta.text)) else []
        elif delta.thinking:
            thought = self._add_piece(place, "thinking", delta.thinking)
            return [ReasoningDelta(thought)] if thought else []
        elif delta.signature:
            self._size.add(delta.signature)
            self._blocks[place]["signature"] = delta.signature
        return []

    def _add_piece(self, place: int, field: str, text: str) -> str:
        self._size.add(text)
        half = self._halves[place]
        if half.is_open or not text.isascii():
            text = half.add(text)
        self._pieces[place].setdefault(field, []).append(text)
        return text

    def _finish_blocks(self, *, cut: bool) -> None:
        last = self._last
        if cut and last in self._arguments and not "".join(self._arguments[last]):
            # The token limit came before the first argument, so the call is dropped.
            del self._arguments[last], self._blocks[last]
        for index, block in list(self._blocks.items()):
            for field, pieces in self._pieces[index].items():
                rest = self._halves[index].end()
                block[field] = str(block.get(field) or "") + "".join(pieces) + rest
            if block.get("type") == "text" and not str(block.get("text", "")).strip():
                # The API sends empty text blocks, but refuses them in requests.
                del self._blocks[index]

    def _calls(self) -> list[ToolCall]:
        calls = []
        for index, pieces in sorted(self._arguments.items()):
            block = self._blocks[index]
            arguments = "".join(pieces)
            given = block.get("input")
            if not arguments and isinstance(given, dict | str):
                arguments = given if isinstance(given, str) else encode_lossy(given).decode()
            id, name = (lenient.text_of(block.get(each)) or "" for each in ("id", "name"))
            found = tool_calls(id, name, arguments)
            block["name"], block["input"] = found[0].name, found[0].input
            calls += found
        return calls

    def _provider_data(self, blocks: list[dict[str, Any]]) -> dict[str, Any] | None:
        # The message itself has text and calls, so only answers with other blocks need storing.
        if all(block.get("type") in ("text", "tool_use") for block in blocks):
            return None
        return {"provider": self._provider, "content": replace_surrogates(blocks)}

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
