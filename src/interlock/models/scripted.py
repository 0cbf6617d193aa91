"""A model with scripted answers, for tests and demonstrations."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from interlock.errors import ConfigError, ModelUnavailable
from interlock.messages import AssistantMessage, Message, ToolCall, Usage
from interlock.models.model import ModelEvent, Reply, TextDelta, ToolDefinition

Respond = Callable[[Sequence[Message], Sequence[ToolDefinition]], AssistantMessage]
Scripted = AssistantMessage | str | list[ToolCall] | tuple[ToolCall, ...] | Exception | Respond


class _Call(ToolCall, frozen=True, forbid_unknown_fields=True):
    """A call in a file; a misspelt member is an error."""


class _Entry(AssistantMessage, frozen=True, forbid_unknown_fields=True):
    """A message in a file; a misspelt member is an error."""

    tool_calls: tuple[_Call, ...] = ()


class ScriptedRequest(NamedTuple):
    """The messages and tools of one request, copied at the time of the request."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...]


class ScriptedModel:
    """Answers with the entries of a script, one after another.

    An entry is a whole message, its text, its tool calls, an exception to raise, or a function
    of the messages and tools that returns the message. Text is streamed word by word.

    Attributes:
        requests: The requests so far, in order.
    """

    def __init__(self, replies: Iterable[Scripted], *, name: str = "scripted") -> None:
        self._replies = list(replies)
        self._name = name
        self.requests: list[ScriptedRequest] = []

    @classmethod
    def from_file(cls, path: str | Path) -> ScriptedModel:
        """Read the script from a JSON list of assistant messages.

        Raises:
            ConfigError: The file cannot be read, or has another format.
        """
        try:
            text = Path(path).expanduser().read_bytes()
        except OSError as error:
            raise ConfigError(f"script {path}: {error.strerror or error}") from error
        try:
            msgspec.json.decode(text, type=list[_Entry])  # refuses unknown members
            replies = msgspec.json.decode(text, type=list[AssistantMessage])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f'script {path}: {error}; it must be a JSON list like [{{"content": "Hello"}}]'
            ) from error
        return cls(replies, name=f"scripted:{path}")

    @property
    def name(self) -> str:
        return self._name

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        position = len(self.requests)
        self.requests.append(ScriptedRequest(tuple(messages), tuple(tools)))
        if position >= len(self._replies):
            raise ModelUnavailable(f"the script of {self.name} has no answer {position + 1}")
        message = _message(self._replies[position], messages, tools)
        for word in re.findall(r"\s*\S+|\s+$", message.content):
            yield TextDelta(word)
        stop_reason = "tool_calls" if message.tool_calls else "end"
        yield Reply(message, message.usage or Usage(), stop_reason)

    async def close(self) -> None:
        """Do nothing."""


def _message(
    entry: Scripted, messages: Sequence[Message], tools: Sequence[ToolDefinition]
) -> AssistantMessage:
    if isinstance(entry, Exception):
        raise entry
    if isinstance(entry, AssistantMessage):
        return entry
    if isinstance(entry, str):
        return AssistantMessage(entry)
    if isinstance(entry, list | tuple):
        return AssistantMessage(tool_calls=tuple(entry))
    return entry(messages, tools)
