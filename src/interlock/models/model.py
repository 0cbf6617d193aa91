"""The interface of language models: messages and tools in, a stream of events out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from msgspec import Struct

from interlock.errors import ModelInterrupted
from interlock.messages import AssistantMessage, Message, Usage


class ToolDefinition(Struct, frozen=True):
    """A tool that a model may call, in a form that no provider's format determines."""

    name: str  # wire name: 1-64 of [A-Za-z0-9_-]
    description: str
    input_schema: bytes  # the server's JSON Schema, encoded
    address: str = ""  # SERVER:TOOL, for the user; "" if the name states it
    # Whether the model gets the definition only where a result loads the tool (`ToolMessage.loads`)
    deferred: bool = False


class TextDelta(Struct, frozen=True):
    """The next piece of the answer's text. `agent` is the subagent that wrote it, or ""."""

    text: str
    agent: str = ""


class ReasoningDelta(Struct, frozen=True):
    """The next piece of the model's visible reasoning, which is not part of the answer."""

    text: str
    agent: str = ""


class Notice(Struct, frozen=True):
    """A remark about the model for the user, for example that it cannot use tools."""

    text: str


class Reply(Struct, frozen=True):
    """The whole answer. Each stream has exactly one, and it is the last event.

    `stop_reason` is "end", "tool_calls", "length" (cut by the token limit) or "refusal". `model` is
    the provider's name of the model that answered; "" if the provider does not state it.
    """

    message: AssistantMessage
    usage: Usage = Usage()
    stop_reason: str = "end"
    model: str = ""


ModelEvent = TextDelta | ReasoningDelta | Notice | Reply
"""An event of `Model.stream`; the last one is `Reply`."""


class Model(Protocol):
    """One model of one provider.

    `stream` raises `errors.ModelError` or `errors.MissingExtra` on failure. Then no part of the
    answer belongs to the conversation.

    A model with the attribute `defers_tools = True` accepts deferred definitions. A model with
    `selects_tools = True` needs every definition, because it selects tools without calling others.
    """

    @property
    def name(self) -> str:
        """The name of the model, as for `--model`: "anthropic:claude-…"."""
        ...

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model; yield the answer's pieces as they arrive, then one `Reply`."""
        ...

    async def close(self) -> None:
        """Release connections and memory. Closing twice is allowed."""
        ...


async def complete(
    model: Model, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
) -> Reply:
    """Ask the model and return the whole answer.

    Raises:
        ModelError: See `Model.stream`.
    """
    async for event in model.stream(messages, tools):
        if isinstance(event, Reply):
            return event
    raise ModelInterrupted(f"the answer of {model.name} was cut off")
