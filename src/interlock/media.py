"""Pictures, sounds and files that a function returns; each becomes a content block."""

from __future__ import annotations

import base64
import mimetypes
import os
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, TypeAlias
from urllib.parse import quote

from interlock.attachments import UNKNOWN, sniff
from interlock.types import AudioContent, EmbeddedResource, ImageContent, ResourceContents

_SUBTYPES = {  # for formats and suffixes whose subtype is spelled differently
    "jpg": "jpeg",
    "svg": "svg+xml",
    "tif": "tiff",
    "ico": "x-icon",
    "mp3": "mpeg",
    "m4a": "mp4",
    "oga": "ogg",
    "opus": "ogg",
}
_SUFFIXES = {
    "image": ("png", "jpg", "jpeg", "gif", "webp", "bmp", "svg", "tif", "tiff", "avif", "ico"),
    "audio": ("wav", "mp3", "m4a", "ogg", "oga", "opus", "flac", "aac", "webm"),
}
_SOUNDS = (
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)


class _Recording:
    """The bytes and the media type of a picture or a sound."""

    _KIND: ClassVar[str]

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        data: bytes | None = None,
        format: str | None = None,
    ) -> None:
        self.data = _read(self, path, data)
        self.mime_type = _media_type(self._KIND, format, path, self.data)

    def _encoded(self) -> str:
        return base64.b64encode(self.data).decode()


class Image(_Recording):
    """A picture.

    Args:
        path: The file, which is read at once.
        data: The bytes, instead of a file.
        format: The format, such as "png" or "image/png"; by default that of the file's suffix, or
            of the first bytes.

    Raises:
        OSError: The file cannot be read.
        ValueError: Both or neither of `path` and `data` are given, or the format is unknown.
    """

    _KIND = "image"

    def content(self) -> ImageContent:
        """Return the block for a result or a prompt."""
        return ImageContent(data=self._encoded(), mime_type=self.mime_type)


class Audio(_Recording):
    """A sound. The arguments are those of `Image`."""

    _KIND = "audio"

    def content(self) -> AudioContent:
        """Return the block for a result or a prompt."""
        return AudioContent(data=self._encoded(), mime_type=self.mime_type)


class File:
    """A file, as an embedded resource: text if its type is textual, otherwise Base64.

    Args:
        path: The file, which is read at once.
        data: The bytes, instead of a file.
        name: The name for the client; by default that of the file.
        mime_type: The media type; by default that of the name's suffix, or of the first bytes.

    Raises:
        OSError: The file cannot be read.
        ValueError: Both or neither of `path` and `data` are given.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        data: bytes | None = None,
        name: str | None = None,
        mime_type: str | None = None,
    ) -> None:
        self.data = _read(self, path, data)
        self.name = name or (Path(path).name if path is not None else "file")
        self.mime_type = mime_type or mimetypes.guess_type(self.name)[0] or sniff(self.data)

    def content(self) -> EmbeddedResource:
        """Return the block for a result or a prompt."""
        text = blob = None
        if _is_textual(self.mime_type):
            with suppress(UnicodeDecodeError):
                text = self.data.decode()
        if text is None:
            blob = base64.b64encode(self.data).decode()
        uri = f"file:///{quote(self.name)}"
        contents = ResourceContents(uri=uri, mime_type=self.mime_type, text=text, blob=blob)
        return EmbeddedResource(resource=contents)


Media: TypeAlias = Image | Audio | File


def _read(media: object, path: str | os.PathLike[str] | None, data: bytes | None) -> bytes:
    kind = type(media).__name__
    if (path is None) == (data is None):
        raise ValueError(f"{kind} takes either path or data")
    if data is None:
        if isinstance(path, bytes):
            raise TypeError(f"the path of {kind} is bytes; pass {kind}(data=...)")
        return Path(str(path)).read_bytes()
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"the data of {kind} is {type(data).__name__}; it must be bytes")
    return bytes(data)


def _media_type(
    kind: str, format: str | None, path: str | os.PathLike[str] | None, data: bytes
) -> str:
    if format is not None:
        if "/" in format:
            return format
        format = format.lower().removeprefix(".")
        return f"{kind}/{_SUBTYPES.get(format, format)}"
    suffix = "" if path is None else Path(path).suffix.lower().removeprefix(".")
    if suffix in _SUFFIXES[kind]:
        return f"{kind}/{_SUBTYPES.get(suffix, suffix)}"
    found = sniff(data) if kind == "image" else _sound(data)
    if not found.startswith(kind):
        raise ValueError(f"the first bytes show no known format of {kind}; pass format=")
    return found


def _sound(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "audio/wav"
    if data[4:8] == b"ftyp":
        return "audio/mp4"
    return next((type for start, type in _SOUNDS if data.startswith(start)), UNKNOWN)


def _is_textual(mime_type: str) -> bool:
    kind = mime_type.partition(";")[0].strip().lower()
    return (
        kind.startswith("text/")
        or kind in ("application/json", "application/xml", "application/yaml")
        or kind.endswith(("+json", "+xml"))
    )
