"""Conversion of messages to rows and back.

A text column cannot store every Python string: PostgreSQL refuses NUL, and no database accepts half
of a character. JSON can express NUL, so a `content` with NUL is stored twice: without NUL in its
own column, and exactly in `content_json`. Half of a character becomes U+FFFD, because no model or
program that gets the message could use it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from interlock.errors import StoreCorrupt, StoreError
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Unfinished,
    Usage,
    UserMessage,
)
from interlock.text.quoting import replace_surrogates
from interlock.text.surrogates import repair_json

MAX_DEPTH = 200  # levels of nested objects and lists; Python's JSON decoder fails near 1000


def row_from_message(message: Message) -> dict[str, str | None]:
    """Return the columns of a message, except conversation, position and time.

    Raises:
        StoreError: A tool call's input or the provider's data is not valid JSON.
        TypeError: `message` is not a message.
    """
    if not isinstance(message, Message):
        raise TypeError(f"not a message: {type(message).__name__}")
    columns: dict[str, str | None] = {
        "content": storable(message.content),
        "content_json": None,
        "tool_calls": None,
        "tool_results": None,
        "provider_data": None,
        "attachments": None,
        "usage": None,
        "unfinished": None,
    }
    if "\0" in message.content:
        columns["content_json"] = _encode(message.content, "content")
    if isinstance(message, UserMessage | ToolMessage) and message.attachments:
        columns["attachments"] = _encode(msgspec.to_builtins(message.attachments), "attachment")
    match message:
        case SystemMessage():
            columns["role"] = "system"
        case UserMessage():
            columns["role"] = "user"
        case AssistantMessage(tool_calls=calls, provider_data=data, usage=usage, unfinished=why):
            columns["role"] = "assistant"
            if why is not None:
                columns["unfinished"] = _encode(msgspec.to_builtins(why), "reason")
            if calls:
                columns["tool_calls"] = _encode([_call_object(call) for call in calls], "tool call")
            if data is not None:
                columns["provider_data"] = _encode(data, "provider data")
            if usage is not None:
                columns["usage"] = _encode(msgspec.to_builtins(usage), "usage")
        case ToolMessage(tool_call_id=id, name=name, is_error=is_error, loads=loads):
            columns["role"] = "tool"
            result: dict[str, Any] = {"tool_call_id": id, "name": name, "is_error": is_error}
            if loads:
                result["loads"] = loads
            columns["tool_results"] = _encode([result], "tool result")
    return columns


def message_from_row(row: Mapping[str, Any]) -> Message:
    """Return the message in a row. Columns that are NULL get default values.

    Raises:
        StoreCorrupt: This program cannot have written the row.
    """
    try:
        return _message(row)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreCorrupt(
            f"message {row['position']} of conversation {row['conversation_id']!r}"
            f" cannot be read: {type(error).__name__}"
        ) from error


def storable(text: str) -> str:
    """Replace each character that a text column cannot store by U+FFFD."""
    if "\0" not in text and not _has_surrogates(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "�")


# Writing


def _call_object(call: ToolCall) -> dict[str, Any]:
    malformed = {} if call.malformed is None else {"malformed": call.malformed}
    return {"id": call.id, "name": call.name, "input": call.input, **malformed}


def _encode(value: object, what: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        # Count brackets first, because few values have enough of them to need the slow check.
        if text.count("{") + text.count("[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise ValueError(f"nested over {MAX_DEPTH} deep")
        if _has_surrogates(text):
            text = json.dumps(replace_surrogates(value), ensure_ascii=False, separators=(",", ":"))
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot keep a message whose {what} is not JSON: {error}") from error


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level:
        level = [inner for outer in level for inner in _children(outer)]
        depth += 1
    return depth - 1


def _children(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value


# Reading


def _message(row: Mapping[str, Any]) -> Message:
    content = row["content"] if row["content_json"] is None else _decode(row["content_json"])
    match row["role"]:
        case "system":
            return SystemMessage(content)
        case "user":
            return UserMessage(content, _attachments(row))
        case "assistant":
            calls = _decode(row["tool_calls"] or "[]")
            data = None if row["provider_data"] is None else _decode(row["provider_data"])
            usage = None if row["usage"] is None else msgspec.json.decode(row["usage"], type=Usage)
            text = row["unfinished"]
            why = None if text is None else msgspec.json.decode(text, type=Unfinished)
            made = tuple(ToolCall(**call) for call in calls)
            return AssistantMessage(content, made, data, usage, why)
        case "tool":
            (result,) = _decode(row["tool_results"] or '[{"tool_call_id":""}]')
            loads = tuple(result.pop("loads", ()))
            return ToolMessage(
                content=content, **result, attachments=_attachments(row), loads=loads
            )
        case role:
            raise ValueError(f"role {role!r}")


def _attachments(row: Mapping[str, Any]) -> tuple[Attachment, ...]:
    text = row["attachments"]
    return () if text is None else msgspec.convert(_decode(text), tuple[Attachment, ...])


def _decode(text: str) -> Any:
    # Earlier versions stored halves of characters as escapes.
    return json.loads(repair_json(text.encode()) if "\\ud" in text else text)
