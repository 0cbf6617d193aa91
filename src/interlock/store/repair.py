"""What a crash or an interrupt leaves open, closed so that every provider accepts it.

The rules are those of `interlock.messages`: each tool call is answered once, right after the
message that made it, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from interlock.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    interrupted,
)


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last message but for answers that have none yet, in order."""
    answers = list(takewhile(_is_answer, reversed(messages)))
    asked = len(messages) - len(answers) - 1
    last = messages[asked] if asked >= 0 else None
    if not isinstance(last, AssistantMessage):
        return []
    return [call for call in last.tool_calls if not _take_answer(call, answers)]


def closed(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with every call answered once, in its place.

    An answer that comes too late, as when two programs had the conversation open, is left out:
    the model has been told that the call was interrupted.
    """
    result: list[Message] = []
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue  # put beside its call below
        result.append(message)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            answers = list(takewhile(_is_answer, islice(messages, position + 1, None)))
            result += [
                _take_answer(call, answers) or interrupted(call) for call in message.tool_calls
            ]
    return result


def _is_answer(message: Message) -> bool:
    return isinstance(message, ToolMessage)


def _take_answer(call: ToolCall, answers: list[Message]) -> Message | None:
    for position, answer in enumerate(answers):
        if isinstance(answer, ToolMessage) and answer.tool_call_id == call.id:
            return answers.pop(position)
    return None
