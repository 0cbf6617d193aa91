"""Regular expressions that mean the same in every engine."""

from __future__ import annotations

import re

MAX_PATTERN = 500  # characters
MAX_REPEATS = 100
_ESCAPE = r"\\[dDwWsS.\\+*?()\[\]{}^$|]"
_CLASS = rf"\[\^?(?:[^\\\[\]&~-]|-(?!-)|&(?!&)|~(?!~)|\\-|{_ESCAPE})+\]"
_TOKEN = re.compile(
    rf"{_CLASS}|{_ESCAPE}|\((?:\?:)?|[)|.]|[^\\^$.|?*+()\[\]{{}}]"
    r"|(?P<repeat>[*+?]|\{(?P<least>\d{1,5})(?:,(?P<most>\d{0,5}))?\})"
)


def is_common(pattern: str) -> bool:
    """Return whether RE2, Rust, ECMAScript and Python read a pattern the same way.

    Look-around, back-references, named or Unicode classes, escapes without effect, and repeats of
    repeats are read by some engines only. llama.cpp demands `^` at the begin and `$` at the end.
    """
    if len(pattern) > MAX_PATTERN or pattern[:1] != "^" or pattern[-1:] != "$":
        return False
    place, end, repeats = 1, len(pattern) - 1, True  # no repeat can follow "^"
    while place < end:
        found = _TOKEN.match(pattern, place, end)
        if found is None:
            return False
        is_repeat = found["repeat"] is not None
        if is_repeat and (repeats or _counts_too_far(found)):
            return False
        repeats = is_repeat or found[0] in ("(", "(?:", "|")
        place = found.end()
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _counts_too_far(repeat: re.Match[str]) -> bool:
    return any(int(repeat[name] or 0) > MAX_REPEATS for name in ("least", "most"))
