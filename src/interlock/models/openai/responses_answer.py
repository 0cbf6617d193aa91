"""Assembles an answer from the events of OpenAI's Responses API.

Servers that imitate the API omit events. The text and the calls of an answer may come in pieces, in
items that are done, or only in the last event; each is read where it comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from interlock.errors import ModelInterrupted
from interlock.messages import SEARCH_TOOLS, AssistantMessage, ToolCall, Usage
from interlock.models import lenient
from interlock.models.answer_size import AnswerSize
from interlock.models.call_arguments import tool_calls, unique_ids
from interlock.models.half_characters import HalfCharacters
from interlock.models.model import ModelEvent, ReasoningDelta, Reply, TextDelta
from interlock.models.whole_answers import check_end
from interlock.protocol.envelope import encode_lossy
from interlock.text.quoting import replace_surrogates

_STOP_REASONS = {"max_output_tokens": "length", "content_filter": "refusal"}
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_REASONING_EVENTS = (
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.reasoning.delta",
)
_ENDS = ("response.completed", "response.incomplete", "response.done")
_ARGUMENTS = "response.function_call_arguments."
CALLS = ("function_call", "tool_search_call")


class _Item(Struct):
    id: str = ""
    call_id: str = ""
    name: str = ""


class _Details(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None

    def as_usage(self) -> Usage:
        details = self.input_tokens_details or _Details()
        return Usage(
            self.input_tokens or 0,
            self.output_tokens or 0,
            details.cached_tokens or 0,
            details.cache_write_tokens or 0,
        )


class _Reason(Struct):
    reason: str | None = None


class _Response(Struct):
    output: list[dict[str, Any]] | None = None
    usage: _Usage | None = None
    incomplete_details: _Reason | None = None
    status: str | None = None
    model: str | None = None


class _Event(Struct):
    type: str = ""
    delta: Any = None
    text: Any = None
    arguments: Any = None
    output_index: int | None = None
    item_id: str | None = None
    output: list[dict[str, Any]] | None = None  # of a whole answer in one event
    item: dict[str, Any] | None = None
    response: _Response | None = None


class ResponsesAnswer:
    """Assembles one answer from its events."""

    def __init__(self, name: str, provider: str) -> None:
        self._name = name
        self._provider = provider
        self._size = AnswerSize(name)
        self._text: list[str] = []
        self._half = HalfCharacters()
        self._thought_half = HalfCharacters()
        self._spoken: set[int | None] = set()  # positions of the items whose text has arrived
        self._begun: dict[int, dict[str, Any]] = {}  # items by position in the answer
        self._items: dict[int, dict[str, Any]] = {}  # those that are done
        self._places: dict[int, int] = {}  # by index: some servers give all items index 0
        self._arguments: dict[int, list[str]] = {}  # arguments of unfinished calls
        self._refused = False
        self._end: _Event | None = None

    @property
    def is_stated(self) -> bool:
        """Whether the provider stated why it stopped, so that no more of the answer follows."""
        return self._end is not None

    def add(self, data: Any) -> list[ModelEvent]:
        """Add one decoded event; return the resulting model events.

        Raises:
            ValueError: The event is not a JSON object.
            ModelInterrupted: The answer is too long.
        """
        event = lenient.convert(data, _Event)
        kind = event.type
        if kind in _TEXT_EVENTS:
            self._refused |= kind == "response.refusal.delta"
            return self._say(event.output_index, event.delta)
        if kind in _REASONING_EVENTS:
            thought = lenient.text_of(event.delta) or ""
            self._size.add(thought)
            thought = self._thought_half.add(thought)
            return [ReasoningDelta(thought)] if thought else []
        if kind in ("response.output_text.done", "response.refusal.done"):
            return self._say_rest(event.output_index, event.text)
        if kind in _ENDS:
            return self._finish(event)
        if kind.startswith(_ARGUMENTS):
            self._extend_arguments(event)
        elif kind == "response.output_item.added" and event.item:
            self._size.add_call()
            self._size.add_json(event.item)
            self._begun[self._place(event)] = event.item
        elif kind == "response.output_item.done" and event.item:
            return self._finish_item(self._place(event), event.item)
        elif not kind and event.output is not None:
            return self.add_whole(data)
        elif kind in ("response.failed", "response.cancelled"):  # with a reason, it is an error
            raise ModelInterrupted(f"the answer of {self._name} was cut off: no reason given")
        return []

    def add_whole(self, answer: Any) -> list[ModelEvent]:
        """Add an answer that is not streamed; see `add`."""
        self._size.add_json(answer)
        response = lenient.convert(answer, _Response)
        incomplete = response.status == "incomplete"
        kind = "response.incomplete" if incomplete else "response.completed"
        return self._finish(_Event(kind, response=response))

    def _finish(self, end: _Event) -> list[ModelEvent]:
        self._end = end
        output = (end.response and end.response.output) or []
        if self._spoken:
            return []
        return [each for place, item in enumerate(output) for each in self._read(place, item)]

    def _say(self, place: int | None, text: Any) -> list[ModelEvent]:
        said = text if isinstance(text, str) else lenient.text_of(text) or ""
        if not said:
            return []
        self._spoken.add(place)
        self._size.add(said)
        if self._half.is_open or not said.isascii():
            said = self._half.add(said)
        self._text.append(said)
        return [TextDelta(said)] if said else []

    def _say_rest(self, place: int | None, text: Any) -> list[ModelEvent]:
        """Add a whole text, unless it has arrived in pieces."""
        known = place in self._spoken or None in self._spoken
        return [] if known or not text else self._say(place, text)

    def _read(self, place: int | None, item: dict[str, Any]) -> list[ModelEvent]:
        return self._say_rest(place, item.get("content")) if item.get("type") == "message" else []

    def _place(self, event: _Event) -> int:
        """Return the place of an event's item: after the others, if its index is not its own."""
        item, index = event.item or {}, event.output_index
        is_done = event.type.endswith(".done")
        ended = self._items if is_done else self._begun
        if index is not None:
            known = self._items.get(index) or self._begun.get(index) or item
            if _key(known) == _key(item) and (_key(item)[1] or index not in ended):
                self._places.setdefault(index, index)
                return index
        for place, each in self._begun.items() if is_done else ():
            if place not in ended and _is_same(each, item):
                return place
        place = max([*self._begun, *self._items], default=-1) + 1
        if index is not None:
            self._places[index] = place
        return place

    def _extend_arguments(self, event: _Event) -> None:
        places = [place for place, item in self._begun.items() if item.get("id") == event.item_id]
        place = max(self._begun, default=0)
        if event.output_index is not None:
            place = self._places.get(event.output_index, event.output_index)
        if event.item_id and places and place not in places:
            place = places[-1]
        piece = event.arguments if event.type.endswith(".done") else event.delta
        if not isinstance(piece, str) or not piece:
            return
        self._size.add(piece)
        if event.type.endswith(".done"):
            self._arguments[place] = [piece]
        else:
            self._arguments.setdefault(place, []).append(piece)

    def _finish_item(self, place: int, item: dict[str, Any]) -> list[ModelEvent]:
        self._size.add_call()
        self._size.add_json(item)
        self._items[place] = item
        return self._read(place, item)

    # The end

    def reply(self, *, marked: bool = False) -> Reply:
        """Return the whole answer.

        Args:
            marked: Whether the stream ended with `[DONE]`.

        Raises:
            ModelInterrupted: The stream ended before the answer did.
        """
        items = self._all_items()
        text = "".join(self._text) + self._half.end()
        written = [_arguments(each) for each in items if each.get("type") in CALLS]
        check_end(
            self._name,
            stated=self.is_stated,
            marked=marked,
            has_text=bool(text),
            last_arguments=written[-1] if written else None,
        )
        stop_reason = self._stop_reason()
        calls = _calls(items, cut=stop_reason == "length")
        if stop_reason == "end" and (calls or self._refused):
            stop_reason = "tool_calls" if calls else "refusal"
        data = None if stop_reason == "length" else self._data(items)
        response = (self._end and self._end.response) or _Response()
        usage = (response.usage or _Usage()).as_usage()
        return Reply(AssistantMessage(text, calls, data), usage, stop_reason, response.model or "")

    def _stop_reason(self) -> str:
        if self._end is None or self._end.type != "response.incomplete":
            return "end"
        details = self._end.response and self._end.response.incomplete_details
        return _STOP_REASONS.get((details and details.reason) or "", "length")

    def _all_items(self) -> list[dict[str, Any]]:
        """Return the items of the answer; calls that are not done have the pieces so far."""
        output = (self._end and self._end.response and self._end.response.output) or []
        if output and not self._items:
            return output
        open_items = {
            place: item | {"arguments": "".join(self._arguments[place])}
            if place in self._arguments
            else item
            for place, item in self._begun.items()
            if item.get("type") in CALLS
        }
        return [item for _, item in sorted((open_items | self._items).items())]

    def _data(self, items: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the items to send back. The API looks up reasoning without content by its id.

        It finds none, because it stores nothing: https://github.com/vercel/ai/issues/7543
        """
        kept = [
            item
            for item in items
            if item.get("type") != "reasoning"
            or item.get("encrypted_content")
            or item.get("content")
        ]
        if not any(item.get("type") == "reasoning" for item in kept):
            return None
        return {"provider": self._provider, "items": replace_surrogates(kept)}


def _key(item: dict[str, Any]) -> tuple[Any, Any]:
    return item.get("type"), item.get("id") or item.get("call_id")


def _is_same(begun: dict[str, Any], item: dict[str, Any]) -> bool:
    """Return whether an item that is done may be the one that has begun."""
    id = item.get("id")
    return begun.get("type") == item.get("type") and begun.get("id", id) == id


def _arguments(item: dict[str, Any]) -> str:
    found = item.get("arguments")
    return found if isinstance(found, str) else encode_lossy(found or {}).decode()


def _calls(items: Sequence[dict[str, Any]], *, cut: bool) -> tuple[ToolCall, ...]:
    found = [each for each in items if each.get("type") in CALLS]
    if cut and found and not _arguments(found[-1]).strip():
        found.pop()  # the token limit came before the first argument
    calls: list[ToolCall] = []
    for each in found:
        about = lenient.convert(each, _Item)
        name = about.name if each["type"] == "function_call" else SEARCH_TOOLS
        calls += tool_calls(about.call_id or about.id, name, _arguments(each))
    return unique_ids(calls)
