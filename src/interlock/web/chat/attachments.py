"""Files in messages: how the model receives them, and how the page shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from interlock.attachments import BLOCK, MAX_FILE, MAX_FILES, TEXT, block, sniff
from interlock.errors import UnknownConversation
from interlock.store.chat.chat_files import ChatFile, ChatFileStore
from interlock.types import JsonObject
from interlock.web.chat.errors import TurnError

__all__ = [
    "MAX_FILE",
    "MAX_FILES",
    "described",
    "given_as",
    "sniff",
    "split_files",
    "with_files",
]


def given_as(type: str) -> str:
    """Return what the model gets of a file of this type: its "text" or only its "name"."""
    return "text" if type == TEXT else "name"


def described(file: ChatFile) -> JsonObject:
    """Return a file's id, name and other facts as JSON for the page."""
    return {
        "id": file.id,
        "name": file.name,
        "type": file.type,
        "bytes": file.bytes,
        "givenAs": given_as(file.type),
    }


async def with_files(files: ChatFileStore, content: str, ids: Sequence[str]) -> str:
    """Return the text of a message with its files added.

    Raises:
        TurnError: A file does not exist, or there are too many.
    """
    if len(ids) > MAX_FILES:
        raise TurnError("too_large", f"too many files ({len(ids)}, limit {MAX_FILES})")
    parts = [content]
    for id in ids:
        try:
            file, body = await files.get(id)
        except UnknownConversation:
            raise TurnError("not_found", "no such file") from None
        parts.append(block(file.id, file.type, file.bytes, file.name, _text_of(file, body)))
    return "\n\n".join(part for part in parts if part)


def _text_of(file: ChatFile, body: bytes) -> str:
    if given_as(file.type) != "text":
        return "[only the name of this file was given to the model]"
    return body.decode()


def split_files(content: str) -> tuple[str, list[JsonObject]]:
    """Split a stored message into its text and its files."""
    files: list[JsonObject] = []

    def take(match: re.Match[str]) -> str:
        id, type, size, name = match.groups()
        files.append(
            {
                "id": id,
                "name": name,
                "type": type,
                "bytes": int(size),
                "givenAs": given_as(type),
            }
        )
        return ""

    return BLOCK.sub(take, content), files
