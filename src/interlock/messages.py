"""The messages of a conversation, the same for every model provider.

A conversation is a plain list of messages. Two rules make it valid for every provider:

1. Each tool call of an `AssistantMessage` is answered by one `ToolMessage` with its id.
2. Those answers come right after it, in the order of the calls, before anything else.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = [
    "AssistantMessage",
    "Attachment",
    "Message",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "Usage",
    "UserMessage",
]


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A tool call that the model requests.

    `malformed` is the model's text if it is not a JSON object. Then `input` is empty, and the
    call must be answered with an error instead of being run.
    """

    id: str
    name: str  # the wire name
    input: dict[str, Any] = {}
    malformed: str | None = None


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system"):
    """Instructions of the program to the model, before the conversation."""

    content: str


class Attachment(Struct, frozen=True, omit_defaults=True):
    """A file in a message, such as an image or a document. In JSON, `data` is in base64."""

    media_type: str  # detected from the content
    data: bytes
    name: str = ""


class UserMessage(Struct, frozen=True, tag_field="role", tag="user", omit_defaults=True):
    """A message of the user."""

    content: str
    attachments: tuple[Attachment, ...] = ()


class Usage(Struct, frozen=True):
    """Tokens counted by the provider; 0 if it does not report them.

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


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant", omit_defaults=True):
    """A message of the model: text, tool calls, or both."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    # Data that one provider needs back unchanged (thinking signatures, reasoning_content):
    # {"provider": "anthropic", ...}. The other providers ignore it.
    provider_data: dict[str, Any] | None = None
    usage: Usage | None = None  # of the whole request, if the provider counts tokens


class ToolMessage(Struct, frozen=True, tag_field="role", tag="tool", omit_defaults=True):
    """The result of one tool call: the answer to `ToolCall.id`."""

    tool_call_id: str
    content: str
    name: str = ""  # the tool's wire name
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""A message of a conversation."""

INTERRUPTED = (
    "interrupted: the program stopped before this call's result was saved."
    " It may or may not have taken effect."
)


def interrupted(call: ToolCall) -> ToolMessage:
    """Return the answer to a call whose result was lost."""
    return ToolMessage(call.id, INTERRUPTED, call.name, is_error=True)
