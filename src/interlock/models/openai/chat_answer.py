"""Assembles an answer from the chunks of the chat completions API."""

from __future__ import annotations

from typing import Any

from interlock.errors import ModelInterrupted
from interlock.messages import AssistantMessage, Usage
from interlock.models.answer_size import AnswerSize
from interlock.models.half_characters import HalfCharacters
from interlock.models.model import ModelEvent, ReasoningDelta, Reply, TextDelta
from interlock.models.openai import chat_chunks
from interlock.models.openai.call_fragments import CallFragments
from interlock.models.openai.chat_chunks import Chunk, Delta, Fragment
from interlock.models.whole_answers import check_end
from interlock.text.quoting import replace_surrogates

_STOP_REASONS = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral
    "content_filter": "refusal",
    "safety": "refusal",
}
# Reasons of an incomplete answer: of OpenRouter, DeepSeek and vLLM.
_FAILED = {"error", "insufficient_system_resource", "abort"}
# Members with reasoning as text: of DeepSeek and llama.cpp, of Ollama, vLLM and OpenRouter, and of
# others. `thinking_parts` is not a member but the thinking in a list of parts, as Mistral sends it.
REASONING = ("reasoning_content", "reasoning", "thinking", "thinking_parts")
DETAILS = ("reasoning_details", "thinking_blocks")  # OpenRouter; LiteLLM
_GROWING = ("text", "summary", "thinking")  # members of details that arrive in pieces


class ChatAnswer:
    """Assembles one answer from its chunks."""

    def __init__(self, name: str, provider: str) -> None:
        """Begin an answer.

        Args:
            name: The name of the model for errors.
            provider: The provider and model to which the data of the answer may be sent back.
        """
        self._name = name
        self._provider = provider
        self._size = AnswerSize(name)
        self._text: list[str] = []
        self._half = HalfCharacters()
        self._thought_half = HalfCharacters()
        self._reasoning: dict[str, list[str]] = {}  # by the name of its member
        self._details: dict[str, list[dict[str, Any]]] = {}  # by the name of their member
        self._extra: dict[str, Any] = {}
        self._calls = CallFragments(self._size)
        self._refused = False
        self._finish_reason = ""
        self._ends = False  # whether the last chunk had nothing but the usage
        self._usage = Usage()
        self._model = ""  # that answered

    @property
    def is_stated(self) -> bool:
        """Whether the provider stated why it stopped, so that no more of the answer follows."""
        return bool(self._finish_reason)

    def add(self, event: Any) -> list[ModelEvent]:
        """Add one decoded event; return the resulting events.

        Raises:
            ValueError: The event is not a JSON object.
            ModelInterrupted: The answer is too long.
        """
        return self._add(chat_chunks.convert(event))

    def add_whole(self, answer: Any) -> list[ModelEvent]:
        """Add an answer that is not streamed; see `add`. Some servers cannot stream calls."""
        whole = chat_chunks.convert(answer)
        for choice in whole.choices or []:
            choice.finish_reason = choice.finish_reason or "stop"
        return self._add(whole)

    def _add(self, chunk: Chunk) -> list[ModelEvent]:
        pieces: list[ModelEvent] = []
        self._model = chunk.model or self._model
        for choice in chunk.choices or ():
            self._ends = False
            if choice.finish_reason:
                self._finish_reason = choice.finish_reason
            if choice.text and not (choice.delta or choice.message):
                self._say(choice.text, pieces)
            if choice.delta:
                self._extend(choice.delta, pieces)
            if choice.message and not (choice.delta and choice.delta.says_something):
                self._extend(self._rest(choice.message), pieces)
        if chunk.usage:
            self._usage = chunk.usage.as_usage()
            self._ends = not chunk.choices
        return pieces

    def _rest(self, message: Delta) -> Delta:
        """Return a message without the text that has arrived before: some servers repeat it."""
        known = "".join(self._text)
        if known and message.content and message.content.startswith(known):
            message.content = message.content[len(known) :]
        return message

    def _extend(self, delta: Delta, pieces: list[ModelEvent]) -> None:
        if (
            delta.reasoning_content
            or delta.reasoning
            or delta.thinking
            or delta.thinking_parts
            or delta.reasoning_details
            or delta.thinking_blocks
            or delta.extra_content
        ):
            self._reason(delta, pieces)
        if delta.content:
            self._say(delta.content, pieces)
        if delta.refusal:
            self._refused = True
            self._say(delta.refusal, pieces)
        if delta.tool_calls:
            for fragment in delta.tool_calls:
                self._calls.add(fragment)
        if delta.function_call:
            self._calls.add(Fragment(function=delta.function_call))

    def _say(self, text: str, pieces: list[ModelEvent]) -> None:
        self._size.add(text)
        if self._half.is_open or not text.isascii():
            text = self._half.add(text)
        if text:
            self._text.append(text)
            pieces.append(TextDelta(text))

    def _reason(self, delta: Delta, pieces: list[ModelEvent]) -> None:
        """Keep reasoning, and show it once, although some servers send it in several members."""
        shown = ""
        for member in REASONING:
            if thought := getattr(delta, member):
                self._size.add(thought)
                self._reasoning.setdefault(member, []).append(thought)
                shown = shown or thought
        for member in DETAILS:
            if details := getattr(delta, member):
                self._size.add_json(details)
                for _ in range(_merge(self._details.setdefault(member, []), details)):
                    self._size.add_call()
                shown = shown or "".join(map(_thought, details))
        if delta.extra_content:
            self._size.add_json(delta.extra_content)
            self._extra |= delta.extra_content
        if shown := self._thought_half.add(shown):
            pieces.append(ReasoningDelta(shown))

    # The end

    def reply(self, *, marked: bool = False) -> Reply:
        """Return the whole answer.

        Args:
            marked: Whether the stream ended with `[DONE]`.

        Raises:
            ModelInterrupted: The stream ended before the answer did.
        """
        reason = self._finish_reason.lower()
        if reason in _FAILED or "malformed" in reason:
            raise ModelInterrupted(
                f"the answer of {self._name} was cut off: the server says {self._finish_reason!r}"
            )
        text = "".join(self._text) + self._half.end()
        check_end(
            self._name,
            stated=self.is_stated,
            marked=marked or self._ends,
            has_text=bool(text),
            last_arguments=self._calls.last_arguments,
        )
        stop_reason = _STOP_REASONS.get(reason, "end")
        calls, attached = self._calls.finish(cut=stop_reason == "length")
        if stop_reason == "end" and (calls or self._refused):
            stop_reason = "tool_calls" if calls else "refusal"
        message = AssistantMessage(text, calls, self._data(attached))
        return Reply(message, self._usage, stop_reason, self._model)

    def _data(self, attached: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
        """Return the data that the provider needs back with the answer."""
        data: dict[str, Any] = {name: "".join(parts) for name, parts in self._reasoning.items()}
        data |= {member: list(map(_joined, each)) for member, each in self._details.items()}
        if self._extra:
            data["extra_content"] = self._extra
        if attached:
            data["calls"] = attached
        return {"provider": self._provider, **replace_surrogates(data)} if data else None


class _Pieces(list[str]):
    """The pieces of a text, which are joined at the end."""


def _merge(known: list[dict[str, Any]], details: list[dict[str, Any]]) -> int:
    """Add details; a piece of the last one extends it. Return how many are new."""
    before = len(known)
    for each in details:
        last = known[-1] if known else {}
        if "data" in each or any(each.get(key) != last.get(key) for key in ("type", "index")):
            last = {}
            known.append(last)
        for key, value in each.items():
            if key in _GROWING and isinstance(value, str):
                if not isinstance(last.get(key), _Pieces):
                    last[key] = _Pieces()
                last[key].append(value)
            elif value is not None or key not in last:
                last[key] = value
    return len(known) - before


def _joined(detail: dict[str, Any]) -> dict[str, Any]:
    return {
        key: "".join(each) if isinstance(each, _Pieces) else each for key, each in detail.items()
    }


def _thought(detail: dict[str, Any]) -> str:
    return next((each for key in _GROWING if isinstance(each := detail.get(key), str)), "")
