"""Files that a user adds to a message: their types, their limits, and text files as text.

A text file becomes a block at the end of the message's text, between two lines with the file's id.
So the conversation still has the file when it is exported, copied or continued elsewhere. An image
or a PDF becomes an `Attachment` of the message.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path

from interlock.errors import AttachmentError
from interlock.messages import Attachment
from interlock.text.surrogates import repair_text

MAX_FILE = 16 * 1024 * 1024  # bytes of one file
MAX_FILES = 10  # files of one message
MAX_ALL = 24 * 1024 * 1024  # bytes of all files of a message together
MAX_TEXT = 200_000  # characters of a text file that are sent to the model
TEXT = "text/plain"
UNKNOWN = "application/octet-stream"
BLOCK = re.compile(
    r"\n*<file id=(f_[\w-]{16}) type=(\S+) bytes=(\d+) name=([^\n]*)>\n.*?\n</file \1>",
    re.DOTALL,
)
_STARTS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
MEDIA = frozenset((*(type for _, type in _STARTS), "image/webp"))  # types of attachments


def sniff(content: bytes) -> str:
    """Return a file's media type, detected from its content."""
    for start, type in _STARTS:
        if content.startswith(start):
            return type
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if b"\0" not in content:
        try:
            content.decode()
        except UnicodeDecodeError:
            pass
        else:
            return TEXT
    return UNKNOWN


def load(path: Path) -> Attachment:
    """Read a file from disk as an attachment.

    Raises:
        AttachmentError: The file cannot be read, is too large, or has an unsupported type.
    """
    try:
        path = path.expanduser()
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe, for example, might never end
            raise AttachmentError(f"cannot attach {path}: it is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: no such ~user
        reason = getattr(error, "strerror", None) or str(error)
        raise AttachmentError(f"cannot attach {path}: {reason}") from None
    return checked(path.name, content)


def checked(name: str, content: bytes) -> Attachment:
    """Check a file's size and type, and return it as an attachment.

    Raises:
        AttachmentError: The file is empty or too large, or neither text, an image nor a PDF.
    """
    if len(content) > MAX_FILE:
        limit = MAX_FILE // 1024 // 1024
        raise AttachmentError(f"cannot attach {name}: it is too large (limit {limit} MB)")
    if not content:
        raise AttachmentError(f"cannot attach {name}: it is empty")
    name = repair_text(name)
    type = sniff(content)
    if type == UNKNOWN:
        raise AttachmentError(
            f"cannot attach {name}: it is neither text in UTF-8, nor a PNG, JPEG, GIF or WebP "
            "image, nor a PDF"
        )
    return Attachment(type, content, name)


def described(file: Attachment) -> str:
    """Return a file's name, type and size on one line."""
    name = " ".join(file.name.split()) or "file"
    return f"{name} ({file.media_type}, {len(file.data):,} bytes)"


def check_all(files: Sequence[Attachment]) -> None:
    """Check the number and the total size of one message's files.

    Raises:
        AttachmentError: There are too many files, or together they are too large.
    """
    if len(files) > MAX_FILES:
        raise AttachmentError(f"too many files for one message ({len(files)}, limit {MAX_FILES})")
    if sum(len(each.data) for each in files) > MAX_ALL:
        limit = MAX_ALL // 1024 // 1024
        raise AttachmentError(f"the files of one message are too large (limit {limit} MB in all)")


def block(id: str, type: str, size: int, name: str, text: str) -> str:
    """Return a message's block with a text file; the end of a long text is cut off."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[cut: {len(text) - MAX_TEXT:,} more characters]"
    name = " ".join(name.split()) or "file"
    return f"<file id={id} type={type} bytes={size} name={name}>\n{text}\n</file {id}>"


def split(content: str) -> tuple[str, str]:
    """Split a message into its own text and the blocks with its files."""
    blocks = [match[0] for match in BLOCK.finditer(content)]
    return BLOCK.sub("", content), "".join(blocks)
