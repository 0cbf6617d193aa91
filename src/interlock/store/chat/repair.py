"""Repair of conversations that ended early because of a crash or an interrupt.

Providers require the order that `interlock.messages` describes: each tool call has exactly one
result, after the message with the call, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, interrupted


def unanswered_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the tool calls at the end of a conversation that have no result, in order."""
    answers = list(takewhile(_is_answer, reversed(messages)))
    last = messages[-len(answers) - 1] if len(answers) < len(messages) else None
    if not isinstance(last, AssistantMessage):
        return []
    return [call for call in last.tool_calls if not _pop_answer(call, answers)]


def answer_every_call(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with one result for each tool call, in the required order.

    A missing result becomes the error "interrupted". A result that arrived later, because two
    programs used the conversation, is dropped: the model has already received the error.
    """
    result: list[Message] = []
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue  # the result is added after its call, below
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
