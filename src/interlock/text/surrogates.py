"""Halves of characters, which neither UTF-8 nor our JSON decoder accepts.

JavaScript cuts a text between the two UTF-16 halves of a character, Java encodes each half by
itself, and Python decodes each invalid byte of a file name, an argument or a typed line to a half.
Halves are joined, or become U+FFFD, where text enters the program, so that it can be stored, sent
and printed everywhere. For values, see `quoting.replace_surrogates`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from interlock.text.quoting import replace_surrogates

_MISSING = "\ufffd".encode()

# An escape: both halves, a single half (the group), or any other escape, such as two backslashes.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F][\da-fA-F]{2})|.)", re.DOTALL
)
# Bytes: both halves (the group), or a single half. UTF-8 never has these bytes in a row.
_BYTES = re.compile(
    rb"(\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf])|\xed[\xa0-\xbf][\x80-\xbf]"
)
_FIRST = re.compile(rb"\A[\x80-\xbf]{1,3}")


def repair_json(data: bytes) -> bytes:
    """Return encoded JSON in which both halves of a character are joined, and others are U+FFFD.

    Any other data is returned unchanged, also if it is not JSON.
    """
    if b"\\ud" in data or b"\\uD" in data:
        data = _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], data)
    return _BYTES.sub(_joined, data) if b"\xed" in data else data


def path_text(path: object) -> str:
    """Return a path as text for JSON and records; it has an escape for each byte that is not UTF-8.

    Unlike U+FFFD, the escapes keep different paths different.
    """
    return str(path).encode(errors="backslashreplace").decode()


def has_halves(value: Any) -> bool:
    """Return whether a text inside of a value has half of a character; False if it is not JSON."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    except TypeError:
        return False
    return False


def repair_value(value: Any) -> Any:
    """Return a JSON value with whole characters only; the value itself if it has no others."""
    return replace_surrogates(value) if has_halves(value) else value


def repair_cut(text: bytes) -> bytes:
    """Return text that was cut anywhere, as `head -c` does, with whole characters at its ends.

    Inside of the text, only halves are repaired, so text in another encoding stays invalid, and so
    does an image.
    """
    if b"\0" in text:
        return text
    text = _BYTES.sub(_joined, _FIRST.sub(_MISSING, text))
    try:
        text.decode()
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return text[: error.start] + _MISSING
    return text


def repair_text(text: str) -> str:
    """Return text from the operating system or a terminal with whole characters only."""
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half that does not stand for a byte
        whole: str = replace_surrogates(text)
        return whole
    return _BYTES.sub(_joined, data).decode("utf-8", "replace")


def _joined(found: re.Match[bytes]) -> bytes:
    if found[1] is None:
        return _MISSING
    halves = found[1].decode("utf-8", "surrogatepass")
    return halves.encode("utf-16", "surrogatepass").decode("utf-16").encode()
