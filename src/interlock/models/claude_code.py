"""Claude Code by name. It is an agent with a loop of its own, which only a chat can use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from interlock.errors import ModelUnavailable
from interlock.messages import Message
from interlock.models.model import ModelEvent, ToolDefinition

PROVIDER = "claude-code"


class ClaudeCodeModel:
    """The model of Claude Code. It answers nothing by itself.

    Args:
        model: As for Claude Code, such as "opus"; "" for its default.
    """

    def __init__(self, model: str = "") -> None:
        self.model = model

    @property
    def name(self) -> str:
        """As in `--model`."""
        return f"{PROVIDER}:{self.model}" if self.model else PROVIDER

    async def stream(
        self,
        messages: Sequence[Message],  # noqa: ARG002 - as in `Model`
        tools: Sequence[ToolDefinition] = (),  # noqa: ARG002 - as in `Model`
    ) -> AsyncGenerator[ModelEvent, None]:
        """Raise `ModelUnavailable`."""
        raise ModelUnavailable(
            "Claude Code answers only in `interlock chat --model claude-code` and "
            "`interlock claude`; choose another model here"
        )
        yield  # an async generator, as every model has

    async def close(self) -> None:
        """Do nothing: the chat ends the program."""
