"""What must hold for every conversation."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.messages import AssistantMessage, Message, ToolMessage


def is_valid(messages: Sequence[Message]) -> bool:
    """Return whether each call has its result right after it, in the order of the calls."""
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if not expected or expected.pop(0) != message.tool_call_id:
                return False
        elif expected:
            return False
        if isinstance(message, AssistantMessage):
            expected = [call.id for call in message.tool_calls]
    return not expected
