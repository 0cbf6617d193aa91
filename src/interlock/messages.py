"""The messages of a conversation, the same for every model provider.

A conversation is a plain list of messages. Two rules make it valid for every provider:

1. Each tool call in an `AssistantMessage` has one answer: a `ToolMessage` with the call's id.
2. The answers directly follow the `AssistantMessage`, in the order of its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

__all__ = [
    "AssistantMessage",
    "Attachment",
    "Message",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "Unfinished",
    "Usage",
    "UserMessage",
]


SEARCH_TOOLS = "interlock__search_tools"
"""The wire name of the tool with which a model searches for tools; its results load them."""


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A tool call that the model requests.

    If the model's arguments are not a JSON object, `malformed` is their text and `input` is empty.
    Such a call must not be run; its answer is an error.
    """

    id: str
    name: str  # the wire name
    input: dict[str, Any] = {}
    malformed: str | None = None


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system"):
    """The program's instructions to the model, at the start of a conversation."""

    content: str


class Attachment(Struct, frozen=True, omit_defaults=True):
    """A file in a message, such as an image or a document. In JSON, `data` is in base64."""

    media_type: str  # detected from the content
    data: bytes
    name: str = ""


class UserMessage(Struct, frozen=True, tag_field="role", tag="user", omit_defaults=True):
    """A message from the user."""

    content: str
    attachments: tuple[Attachment, ...] = ()


class Usage(Struct, frozen=True):
    """Numbers of tokens, as the provider reports them; 0 for numbers that it does not report.

    Attributes:
        cached_tokens: Input tokens that came from the provider's cache.
        cache_written_tokens: Input tokens that were written to the cache, if that costs extra.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0

    def plus(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_written_tokens + other.cache_written_tokens,
        )


class Unfinished(Struct, frozen=True, omit_defaults=True):
    """Why an answer ended before it was complete.

    Attributes:
        reason: A stable code: "stopped" by the user, "interrupted" by the end of the program, or
            the code of an error. "" if the answer is being written, or its program was killed.
        detail: The error in the words that the user was shown.
    """

    reason: str = ""
    detail: str = ""


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant", omit_defaults=True):
    """A message from the model: text, tool calls, or both."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    # Data to send back to the same model unchanged, such as signed thinking:
    # {"provider": "anthropic:claude-…", ...}. It is not sent to other models.
    provider_data: dict[str, Any] | None = None
    usage: Usage | None = None  # of request and answer; None if it is not reported
    unfinished: Unfinished | None = None  # None if the answer is complete

    @property
    def is_draft(self) -> bool:
        """Whether the answer is being written, or its program was killed."""
        return self.unfinished is not None and not self.unfinished.reason


class ToolMessage(Struct, frozen=True, tag_field="role", tag="tool", omit_defaults=True):
    """The result of one tool call, whose `ToolCall.id` it has."""

    tool_call_id: str
    content: str
    name: str = ""  # the tool's wire name
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()
    loads: tuple[str, ...] = ()  # wire names of the tools that the model may call from here on


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""A message of a conversation."""

INTERRUPTED = (
    "interrupted: the program stopped before this call's result was saved."
    " It may or may not have taken effect."
)


def interrupted(call: ToolCall) -> ToolMessage:
    """Return an answer for a call whose result was lost."""
    return ToolMessage(call.id, INTERRUPTED, call.name, is_error=True)


_STOPPED = "The user stopped this answer before it was complete."
_CUT_OFF = "This answer was cut off before it was complete."
_CONTINUE = "Continue it where it ends, without repeating it."


def told_to_model(messages: Sequence[Message]) -> list[Message]:
    """Return messages for a model: a note follows each unfinished answer, empty ones are omitted.

    The note is a message of the user, because many providers refuse a conversation that ends with
    an answer.
    """
    found: list[Message] = []
    for place, message in enumerate(messages):
        if not isinstance(message, AssistantMessage) or message.unfinished is None:
            found.append(message)
        elif message.content.strip():
            note = _STOPPED if message.unfinished.reason == "stopped" else _CUT_OFF
            if place == len(messages) - 1:
                note = f"{note} {_CONTINUE}"
            found += [AssistantMessage(message.content), UserMessage(f"[{note}]")]
    return found
