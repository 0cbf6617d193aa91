"""Files in messages: how the model receives them, and how the page shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from interlock.attachments import BLOCK, MAX_FILE, MAX_FILES, MEDIA, TEXT, block, check_all, sniff
from interlock.errors import AttachmentError, UnknownConversation
from interlock.messages import Attachment, UserMessage
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
    """Return the part of a file of this type that the model gets: "text", "file" or "name"."""
    if type == TEXT:
        return "text"
    return "file" if type in MEDIA else "name"


def described(file: ChatFile) -> JsonObject:
    """Return a file's id, name and other facts as JSON for the page."""
    return {
        "id": file.id,
        "name": file.name,
        "type": file.type,
        "bytes": file.bytes,
        "givenAs": given_as(file.type),
    }


async def with_files(files: ChatFileStore, content: str, ids: Sequence[str]) -> UserMessage:
    """Return a message with its files: texts in blocks of its text, images and PDFs attached.

    Raises:
        TurnError: A file does not exist, or the files are too many or too large.
    """
    if len(ids) > MAX_FILES:
        raise TurnError("too_large", f"too many files ({len(ids)}, limit {MAX_FILES})")
    parts = [content]
    media: list[Attachment] = []
    for id in ids:
        try:
            file, body = await files.get(id)
        except UnknownConversation:
            raise TurnError("not_found", "no such file") from None
        if file.type in MEDIA:
            media.append(Attachment(file.type, body, file.name))
        parts.append(block(file.id, file.type, file.bytes, file.name, _text_of(file, body)))
    try:
        check_all(media)
    except AttachmentError as error:
        raise TurnError("too_large", str(error)) from None
    return UserMessage("\n\n".join(part for part in parts if part), tuple(media))


def _text_of(file: ChatFile, body: bytes) -> str:
    match given_as(file.type):
        case "text":
            return body.decode()
        case "file":
            return "[attached]"
    return "[only the name of this file was given to the model]"


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
