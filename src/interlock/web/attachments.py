"""Files in messages: what the model gets of them, and how the page shows them again.

A file is a block at the end of the message, between two lines with its id. So a conversation
that is exported, copied or continued by another program keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from interlock.errors import UnknownConversation
from interlock.store.chat_files import ChatFile, ChatFileStore
from interlock.types import JsonObject
from interlock.web.errors import TurnError

MAX_FILE = 16 * 1024 * 1024  # bytes
MAX_FILES = 10  # of a message
MAX_TEXT = 200_000  # characters of a file that the model gets
_BLOCK = re.compile(
    r"\n*<file id=(f_[\w-]{16}) type=(\S+) bytes=(\d+) name=([^\n]*)>\n.*?\n</file \1>",
    re.DOTALL,
)
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def sniff(content: bytes) -> str:
    """Return the media type of a file by its content; what it is named does not count."""
    for start, type in _IMAGES:
        if content.startswith(start):
            return type
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content.startswith(b"%PDF-"):
        return "application/pdf"
    if b"\0" not in content:
        try:
            content.decode()
        except UnicodeDecodeError:
            pass
        else:
            return "text/plain"
    return "application/octet-stream"


def given_as(type: str) -> str:
    """Return what the model gets of a file of this type: "text" or "name"."""
    return "text" if type == "text/plain" else "name"


def described(file: ChatFile) -> JsonObject:
    """Return what the page shows of a file."""
    return {
        "id": file.id,
        "name": file.name,
        "type": file.type,
        "bytes": file.bytes,
        "givenAs": given_as(file.type),
    }


async def with_files(files: ChatFileStore, content: str, ids: Sequence[str]) -> str:
    """Return a message with its files.

    Raises:
        TurnError: A file is not there, or there are too many.
    """
    if len(ids) > MAX_FILES:
        raise TurnError("too_large", f"too many files ({len(ids)}, limit {MAX_FILES})")
    parts = [content]
    for id in ids:
        try:
            file, body = await files.get(id)
        except UnknownConversation:
            raise TurnError("not_found", "no such file") from None
        name = " ".join(file.name.split()) or "file"
        head = f"<file id={file.id} type={file.type} bytes={file.bytes} name={name}>"
        parts.append(f"{head}\n{_text_of(file, body)}\n</file {file.id}>")
    return "\n\n".join(part for part in parts if part)


def _text_of(file: ChatFile, body: bytes) -> str:
    if given_as(file.type) != "text":
        return "[only the name of this file was given to the model]"
    text = body.decode()
    if len(text) > MAX_TEXT:
        return f"{text[:MAX_TEXT]}\n[cut: {len(text) - MAX_TEXT:,} more characters]"
    return text


def split_files(content: str) -> tuple[str, list[JsonObject]]:
    """Return the text of a message, and its files."""
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

    return _BLOCK.sub(take, content), files
