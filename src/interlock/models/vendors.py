"""Conversions that all vendors' models need: of names, ids, schemas, results and files.

Rules that let a conversation continue with another provider's model:

1. The ids and names of tool calls are converted the same way for every provider.
2. A tool's schema is made an object at its top level; the rest is sent unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2s
from typing import Any

import msgspec

from interlock.messages import Attachment, Message, ToolMessage, UserMessage
from interlock.models.model import Notice

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_COMBINED = ("allOf", "anyOf", "oneOf")
_REFUSED_AT_THE_TOP = frozenset((*_COMBINED, "$ref", "enum", "not"))


def call_id(id: str) -> str:
    """Return `id` if every provider accepts it, else a valid id that is derived from it.

    Anthropic accepts letters, digits, "_" and "-"; OpenAI accepts at most 40 characters.
    """
    if _ID.fullmatch(id):
        return id
    return f"call_{blake2s(id.encode('utf-8', 'replace'), digest_size=12).hexdigest()}"


def call_name(name: str) -> str:
    """Return the name of a past call in a form that every provider accepts."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"


def object_schema(encoded: bytes) -> dict[str, Any]:
    """Decode a tool's input schema, and convert its top level to a form that all providers accept.

    Anthropic and OpenAI refuse a whole request if one schema is not an object at the top or has
    `allOf`, `anyOf` or `oneOf` there. The properties of all such branches are offered together.
    Arguments are checked against the original schema before the tool runs.
    """
    decoded = msgspec.json.decode(encoded)
    schema: dict[str, Any] = decoded if isinstance(decoded, dict) else {}
    if schema.get("type") == "object" and not _REFUSED_AT_THE_TOP.intersection(schema):
        return schema if "properties" in schema else {**schema, "properties": {}}
    flat = {key: value for key, value in schema.items() if key not in _REFUSED_AT_THE_TOP}
    properties = _mapping(schema.get("properties")).copy()
    required = _names(schema.get("required"))
    for keyword, branch in _branches(schema):
        properties = {**_mapping(branch.get("properties")), **properties}
        if keyword == "allOf":
            required += [name for name in _names(branch.get("required")) if name not in required]
    flat |= {"type": "object", "properties": properties}
    return flat | {"required": required} if required else flat


def _branches(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    branches: list[tuple[str, Any]] = [("allOf", {"$ref": schema.get("$ref")})]
    for keyword in _COMBINED:
        listed = schema.get(keyword)
        branches += [(keyword, branch) for branch in (listed if isinstance(listed, list) else [])]
    return [(keyword, _resolve(schema, _mapping(branch))) for keyword, branch in branches]


def _resolve(schema: dict[str, Any], branch: dict[str, Any]) -> dict[str, Any]:
    match str(branch.get("$ref", "")).split("/"):
        case ["#", ("$defs" | "definitions") as section, name]:
            return _mapping(_mapping(schema.get(section)).get(name))
    return branch


IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
DOCUMENTS = frozenset(("application/pdf",))


def kind_of(media_type: str) -> str:
    """Return the kind of a file as users call it: "images", "sounds" or "documents"."""
    if media_type.startswith("image/"):
        return "images"
    return "sounds" if media_type.startswith("audio/") else "documents"


def without_files(
    messages: Sequence[Message], keep: frozenset[str] = frozenset(), *, largest: int = 0
) -> list[Message]:
    """Return the messages without the files that a model cannot read.

    A line replaces each such file of a user. In a result, the text already names the files.

    Args:
        messages: The conversation.
        keep: The media types that the model can read.
        largest: The largest image in bytes that the model can read; 0 for any.
    """
    return [_without_files(message, keep, largest) for message in messages]


def _without_files(message: Message, keep: frozenset[str], largest: int) -> Message:
    if not isinstance(message, UserMessage | ToolMessage) or not message.attachments:
        return message
    kept = tuple(each for each in message.attachments if _is_readable(each, keep, largest))
    content = message.content
    if isinstance(message, UserMessage):
        notes = [file_note(each) for each in message.attachments if each not in kept]
        content = "\n".join(line for line in (content, *notes) if line)
    return msgspec.structs.replace(message, content=content, attachments=kept)


def _is_readable(file: Attachment, keep: frozenset[str], largest: int) -> bool:
    fits = not largest or len(file.data) <= largest or file.media_type not in IMAGES
    return file.media_type in keep and fits


def unread_files(
    model: str, messages: Sequence[Message], keep: frozenset[str] = frozenset(), *, largest: int = 0
) -> list[Notice]:
    """Return the notice about files of the last message that a model cannot read, if it has any.

    The arguments are those of `without_files`.
    """
    last = messages[-1] if messages else None
    files = last.attachments if isinstance(last, UserMessage) else ()
    unread = [each for each in files if not _is_readable(each, keep, largest)]
    names = ", ".join(each.name or f"a file ({each.media_type})" for each in unread)
    notice = f"{model} cannot read {names}; it gets the name but not the content"
    return [Notice(notice)] if unread else []


def file_note(file: Attachment) -> str:
    """Return the line that replaces a file."""
    name = f" {file.name}" if file.name else ""
    return f"[{file.media_type}{name}, {len(file.data):,} bytes: this model cannot read it]"


NO_OUTPUT = "(no output)"


def result_text(result: ToolMessage) -> str:
    """Return the text of a result; a line replaces an empty one, which some providers refuse."""
    return result.content if result.content.strip() else NO_OUTPUT


def stated_result(result: ToolMessage) -> str:
    """Return `result_text`; for an API without a field for failures, the text states a failure."""
    text = result_text(result)
    failed = result.is_error and not text.lower().startswith("error")
    return f"Error: {text}" if failed else text


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
