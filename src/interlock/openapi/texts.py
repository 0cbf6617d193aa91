"""Cleans texts from documents for models: readable, short, without invisible characters."""

from __future__ import annotations

import re

from interlock.text.quoting import INVISIBLE

_HIDDEN = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{INVISIBLE}]")
_COMMENT = re.compile(r"<!--.*?(-->|$)", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,1000}>")
_TABLE_ROW = re.compile(r"^[ \t]*\|.*$", re.MULTILINE)
_BLANK = re.compile(r"(?<![ \t])[ \t]*\n\s*\n\s*")
_SPACES = re.compile(r"[ \t]{2,}")


def visible(text: str) -> str:
    """Remove control, invisible and direction-changing characters from a text."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub("", text)


def prose(text: str) -> str:
    """Remove HTML tags and Markdown tables from a text."""
    if "<" in text:
        text = _TAG.sub("", _COMMENT.sub("", text))
    if "|" in text:
        text = _TABLE_ROW.sub("", text)
    if "  " in text or "\n" in text:
        text = _SPACES.sub(" ", _BLANK.sub("\n\n", text))
    return text.strip()


def clip(text: str, limit: int) -> str:
    """Cut a text to at most `limit` characters, between words."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = max(cut.rfind(" "), cut.rfind("\n"))
    if space > limit // 2:
        cut = cut[:space]
    return cut.rstrip(" \n,;:") + "…"
