"""Repair of conversations that a crash or an interrupt cut short.

Providers require what `interlock.messages` describes: each tool call has one answer, right after
the message that made it, in the order of the calls.
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


def unanswered_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the unanswered calls at the end of a conversation, in order."""
    answers = list(takewhile(_is_answer, reversed(messages)))
    last = messages[-len(answers) - 1] if len(answers) < len(messages) else None
    if not isinstance(last, AssistantMessage):
        return []
    return [call for call in last.tool_calls if not _pop_answer(call, answers)]


def answer_every_call(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with one answer to each call, in the required order.

    A missing answer becomes the error "interrupted". An answer that came too late, because two
    programs used the conversation, is dropped: the model has already received that error.
    """
    result: list[Message] = []
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue  # the answer is added after its call, below
        result.append(message)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            answers = list(takewhile(_is_answer, islice(messages, position + 1, None)))
            result += [
                _pop_answer(call, answers) or interrupted(call) for call in message.tool_calls
            ]
    return result


def _is_answer(message: Message) -> bool:
    return isinstance(message, ToolMessage)


def _pop_answer(call: ToolCall, answers: list[Message]) -> Message | None:
    for position, answer in enumerate(answers):
        if isinstance(answer, ToolMessage) and answer.tool_call_id == call.id:
            return answers.pop(position)
    return None
