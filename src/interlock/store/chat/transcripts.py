"""Export of a conversation as JSON or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.messages import AssistantMessage, Message, ToolMessage, Unfinished
from interlock.text.quoting import fenced
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.store import Conversation


def as_json(conversation: Conversation, messages: Sequence[Message]) -> JsonObject:
    """Return a conversation as a JSON object, without losing data."""
    found: JsonObject = msgspec.to_builtins(conversation)
    return {**found, "messages": msgspec.to_builtins(messages)}


def as_markdown(conversation: Conversation, messages: Sequence[Message]) -> str:
    """Return a conversation as a Markdown document."""
    title = f"# {conversation.title or conversation.id}\n"
    return "\n".join([title, *map(_section, messages)])


def _section(message: Message) -> str:
    match message:
        case ToolMessage():
            failed = ", failed" if message.is_error else ""
            return f"## tool `{message.name}`{failed}\n\n{fenced(message.content)}\n"
        case AssistantMessage():
            parts = [message.content] if message.content else []
            parts += [
                f"Calls `{call.name}`:\n\n{fenced(encoded(call.input), 'json')}"
                for call in message.tool_calls
            ]
            if message.unfinished is not None:
                parts.append(f"*{unfinished(message.unfinished)}*")
            return "## assistant\n\n" + "\n\n".join(parts) + "\n"
    return f"## {role_of(message)}\n\n{message.content}\n"


def unfinished(why: Unfinished) -> str:
    """Return in one line why an answer is not complete."""
    match why.reason:
        case "stopped":
            return "stopped by the user"
        case "" | "interrupted":
            return "cut off: the program ended"
    return " ".join(f"failed: {why.detail}".split())


def encoded(value: Any) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def role_of(message: Message) -> str:
    """Return the role of a message's author: "system", "user", "assistant" or "tool"."""
    return str(message.__struct_config__.tag)
