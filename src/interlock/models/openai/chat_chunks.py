"""The chunks of the chat completions API, as servers really send them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from interlock.messages import Usage
from interlock.models import lenient


class Function(Struct):
    """A part of a call."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class Fragment(Struct):
    """A part of a tool call, or a whole one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    name: str | None = None  # beside the id, without `function`
    arguments: str | dict[str, Any] | None = None
    # What a provider attaches to a call, to be sent back with it: Google, and LiteLLM for it.
    extra_content: dict[str, Any] | None = None
    provider_specific_fields: dict[str, Any] | None = None


class Delta(Struct):
    """The next part of a message, or a whole message."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    thinking_parts: str | None = None  # the text of thinking that comes as parts of `content`
    reasoning_details: list[dict[str, Any]] | None = None
    thinking_blocks: list[dict[str, Any]] | None = None
    extra_content: dict[str, Any] | None = None
    tool_calls: list[Fragment] | None = None
    function_call: Function | None = None  # before `tool_calls` existed

    @property
    def says_something(self) -> bool:
        """Whether there is text, reasoning or a part of a call."""
        return bool(self.content or self.tool_calls or self.reasoning or self.reasoning_content)


class Choice(Struct):
    """One of the answers. Some servers stream `message`, or repeat the answer so far there.

    Some send `text`, as the older API for completions did.
    """

    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    message: Delta | None = None


class _Details(Struct):
    cached_tokens: int | None = None


class ChunkUsage(Struct):
    """The numbers of tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek

    def as_usage(self) -> Usage:
        details = self.prompt_tokens_details or _Details()
        cached = details.cached_tokens or self.prompt_cache_hit_tokens or 0
        return Usage(self.prompt_tokens or 0, self.completion_tokens or 0, cached)


class Chunk(Struct):
    """One event of the stream."""

    choices: list[Choice] | None = None
    usage: ChunkUsage | None = None
    model: str | None = None


def convert(event: Any) -> Chunk:
    """Return the chunk that a decoded event means.

    Raises:
        ValueError: The event is not a JSON object.
    """
    try:
        return msgspec.convert(event, Chunk)
    except (msgspec.ValidationError, UnicodeError):
        choices = event.get("choices") if isinstance(event, dict) else None
        for choice in choices if isinstance(choices, list) else [choices]:
            if isinstance(choice, dict):
                for message in (choice.get("delta"), choice.get("message")):
                    if isinstance(message, dict):
                        _separate_thinking(message)
                        _list_calls(message)
        return lenient.convert(event, Chunk)


def _separate_thinking(message: dict[str, Any]) -> None:
    """Move thinking out of a list of parts, as Mistral sends it."""
    if isinstance(parts := message.get("content"), list):
        message["thinking_parts"] = [each for each in parts if _is_thinking(each)]
        message["content"] = [each for each in parts if not _is_thinking(each)]


def _list_calls(message: dict[str, Any]) -> None:
    """Read calls by number, as PHP writes a list with a gap, as a list."""
    calls = message.get("tool_calls")
    if isinstance(calls, dict) and calls and all(map(str.isdecimal, calls)):
        message["tool_calls"] = [*calls.values()]


def _is_thinking(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "reasoning")
