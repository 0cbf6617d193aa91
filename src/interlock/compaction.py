"""Shortens requests whose conversation is longer than the model's context.

The stored conversation stays whole. The request leaves out the oldest parts, in this order:

1. Tool results in earlier turns; a note replaces each result, so that every call has an answer.
   Results that load tools are short, and stay.
2. Whole earlier turns; one note states how many messages were left out.
3. Tool results in the current turn, except the results of the last answer's calls.

Each model's limit becomes known when its provider first refuses a request as too long.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import ContextTooLong
from interlock.messages import AssistantMessage, Message, ToolMessage, UserMessage
from interlock.protocol.envelope import encode_lossy

SPARE = 0.9  # fraction of the limit to use, because characters only estimate tokens
_UNKNOWN = 0.5  # assumed limit: this fraction of the refused request
_NOTE = "[this result is left out"
_DROPPED = "[{} earlier messages are left out]"
_SHORT = 400  # characters; a shorter result is not worth leaving out


class CompactedRequest(Struct, frozen=True):
    """A request's messages, and the number of messages that were left out or shortened."""

    messages: list[Message]
    left_out: int = 0


class ContextLimits:
    """Estimates of how many characters each model's context can have, by the model's name."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    def learn(self, model: str, request: CompactedRequest, error: ContextTooLong) -> bool:
        """Lower a model's limit after a refusal; return whether a smaller request can be made."""
        size = size_of(request.messages)
        part = error.limit / error.used if error.limit and error.used else _UNKNOWN
        limit = int(size * min(part, 1.0) * SPARE)
        self._limits[model] = limit
        return size_of(fit(request.messages, limit).messages) < size

    def request(self, model: str, messages: Sequence[Message]) -> CompactedRequest:
        limit = self._limits.get(model)
        return CompactedRequest(list(messages)) if limit is None else fit(messages, limit)


def size_of(messages: Sequence[Message]) -> int:
    """Return the number of characters in messages, tool calls included."""
    return sum(map(_size, messages))


def _size(message: Message) -> int:
    if isinstance(message, AssistantMessage) and (message.tool_calls or message.provider_data):
        return len(encode_lossy(message))
    return len(message.content)


def fit(messages: Sequence[Message], limit: int) -> CompactedRequest:
    """Leave out the oldest parts of a conversation until it has at most `limit` characters.

    The instructions, the current turn's messages and the results of the last answer's calls are
    never left out, so the request may still be too long.
    """
    kept = list(messages)
    over = size_of(kept) - limit
    if over <= 0:
        return CompactedRequest(kept)
    users = [place for place, each in enumerate(kept) if isinstance(each, UserMessage)]
    turn = users[-1] if users else 0
    over = _shorten(kept, 0, turn, over)
    dropped = 0
    if over > 0 and len(users) > 1:
        begin = end = users[0]
        over += len(_DROPPED.format(len(kept)))
        for place in users[1:]:
            over -= size_of(kept[end:place])
            end = place
            if over <= 0:
                break
        dropped = end - begin
        kept[begin:end] = [UserMessage(_DROPPED.format(dropped))]
        turn += 1 - dropped
    if over > 0:
        answers = [place for place, each in enumerate(kept) if isinstance(each, AssistantMessage)]
        _shorten(kept, turn, answers[-1] if answers else turn, over)
    return CompactedRequest(kept, dropped + sum(map(_is_note, kept)))


def _shorten(messages: list[Message], begin: int, end: int, over: int) -> int:
    """Replace results with notes; return how many characters are still over the limit."""
    for place in range(begin, end):
        message = messages[place]
        if over <= 0:
            break
        if isinstance(message, ToolMessage) and len(message.content) > _SHORT and not message.loads:
            note = f"{_NOTE} ({len(message.content):,} characters); call the tool again if needed]"
            messages[place] = replace(message, content=note, attachments=())
            over -= len(message.content) - len(note)
    return over


def _is_note(message: Message) -> bool:
    return isinstance(message, ToolMessage) and message.content.startswith(_NOTE)
