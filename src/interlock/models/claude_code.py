"""A placeholder for the model name "claude-code": an agent, which only a chat can use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from interlock.errors import ModelUnavailable
from interlock.messages import Message
from interlock.models.model import ModelEvent, ToolDefinition

PROVIDER = "claude-code"


class ClaudeCodeModel:
    """A model whose requests always fail, because only chats can use Claude Code.

    Args:
        model: Claude Code's name of the model, such as "opus"; "" for its default.
    """

    def __init__(self, model: str = "") -> None:
        self.model = model

    @property
    def name(self) -> str:
        return f"{PROVIDER}:{self.model}" if self.model else PROVIDER

    async def stream(
        self,
        messages: Sequence[Message],  # noqa: ARG002 - as in `Model`
        tools: Sequence[ToolDefinition] = (),  # noqa: ARG002 - as in `Model`
    ) -> AsyncGenerator[ModelEvent, None]:
        raise ModelUnavailable(
            "Claude Code answers only in `interlock chat --model claude-code` and "
            "`interlock claude`; choose another model here"
        )
        yield  # makes this an async generator, as `Model` requires

    async def close(self) -> None:
        """Do nothing: the chat ends Claude Code."""
