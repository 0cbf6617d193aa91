"""Conversions that all vendors' models need: of names, ids, results and files.

The ids and names of tool calls are converted the same way for every provider, so that a
conversation can continue with another provider's model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2s

import msgspec

from interlock.messages import Attachment, Message, ToolMessage, UserMessage
from interlock.models.model import Notice

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


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


def result_text(result: ToolMessage) -> str:
    """Return the text of a result; a line replaces an empty one, which some providers refuse."""
    if result.content.strip():
        return result.content
    return "the tool failed without a message" if result.is_error else "the tool ran without output"


def stated_result(result: ToolMessage) -> str:
    """Return `result_text`; for an API without a field for failures, the text states a failure."""
    text = result_text(result)
    failed = result.is_error and not text.lower().startswith("error")
    return f"Error: {text}" if failed else text
