"""Search for the parts of a request that may be arguments: paths, numbers, places, quotations."""

from __future__ import annotations

import functools
import json
import re
import zoneinfo
from typing import Any

from msgspec import Struct

from interlock.models.local.words import stems


class Span(Struct, frozen=True):
    """A piece of a request that looks like a value.

    `kind` is a key of `ENCLOSING` or `PATTERNS`, or "zone", or "object" or "name" for plain words.
    """

    kind: str
    start: int  # characters from the start of the request
    end: int
    value: Any  # the argument for a tool: text, or a number


_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS: dict[str, int] = dict(zip(re.findall(r"\w+", _NUMBER_WORDS), range(13), strict=True))
_OPERAND = r"(?:\d+(?:\.\d+)?|\b[a-z]{2,7}\([^()]*\)|\b[a-zA-Z]\b|\((?:[^()]|\([^()]*\))*\))"
_SPOKEN = {"plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/"}
_OPERATOR = rf"(?:\s*(?:\*\*|==|[-+*/^%=])\s*|\s+(?:{'|'.join(_SPOKEN)})\s+)"

# In order: characters found by an earlier kind are not available to a later one.
ENCLOSING = {
    "json": re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]|\{[^{}]*\}"),
    "quoted": re.compile(
        r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)",
    ),
    "url": re.compile(r"\bhttps?://[^\s<>\"']*[^\s<>\"'.,;:!?)]"),
    "email": re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "sql": re.compile(
        r"\b(?:SELECT\b.+\bFROM|INSERT\s+INTO|UPDATE\b.+\bSET|DELETE\s+FROM|CREATE\s+TABLE)\b.+",
        re.IGNORECASE | re.DOTALL,
    ),
}
PATTERNS = {
    "hash": re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b"),
    "date": re.compile(
        r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?\b|\b(?:today|tomorrow|yesterday)\b"
        r"|\b\d+ (?:minute|hour|day|week|month|year)s? ago\b",
        re.IGNORECASE,
    ),
    "clock": re.compile(
        r"\b(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?:\s?[ap]\.?m\b\.?)?(?![\d.])"
        r"|\b(?:0?[1-9]|1[0-2])\s?[ap]\.?m\b\.?|\b(?:noon|midnight)\b",
        re.IGNORECASE,
    ),
    "assignment": re.compile(
        r"(?<![-+*/^(])(?<![-+*/^(] )\b[a-z_]\w*\s*=\s*-?\d+(?:\.\d+)?(?=\s*(?:,|;|and\b|$|[.?!]))"
    ),
    "expression": re.compile(
        rf"(?<![\w/~.])-?(?:\d+(?=[a-z(]))?{_OPERAND}(?:{_OPERATOR}-?(?:\d+(?=[a-z(]))?{_OPERAND})+(?![\w/])"
    ),
    "path": re.compile(
        r"(?<![\w/])(?:[A-Za-z]:\\|~?/|\.{1,2}/)[\w.@+~/\\*-]*[\w*~/]|(?<![\w/])[~.](?=[\s?!]|$)(?<!\w\.)"
        r"|\b[\w@+-][\w.@+-]*(?:/[\w.@+*-]*\w)+/?"
        r"|(?<![\w.])(?:[\w-]+\.)+[A-Za-z][A-Za-z0-9]{0,4}\b(?!\()"
        r"|(?<!\S)[\w*-]*\*\.\w+",
    ),
    "identifier": re.compile(
        r"\b(?=\w*[A-Za-z])(?=\w*\d)\w+(?:[-.:]\w+)*|\b(?=[\w.-]*[A-Za-z_])\w+(?:[-_.]\w+)*[-.]\d\w*|\b\w+(?:[-_]\w+)+"
    ),
    "number": re.compile(
        r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w])|\b(?:" + "|".join(NUMBERS) + r")\b",
        re.IGNORECASE,
    ),
}
# Only a lookahead, so that "is in the box" matches at "is" and at "in".
_OBJECT = re.compile(
    r"\b(?=(?:in|for|of|to|on|at|from|about|with|against|and|than|called|named|titled|into|is)\s+"
    r"(?:(?:the|a|an|my|our|this|that|its)\s+)?([A-Za-z]\w*)(?=\s*(?:[,.?!;:]|$|\b[a-z]+\b)))"
)
_NAME = re.compile(r"(?<=[a-zß-öø-ÿ,] )[A-Z]\w+(?: [A-Z]\w+)*")


def find_spans(text: str) -> list[Span]:
    """Return every piece of `text` that looks like a value, in the order of the text.

    Pieces of definite kinds do not overlap; an "object" (the word after a preposition) or a
    "name" (capitalised words) may overlap a zone, as "Paris" is both.
    """
    taken: list[Span] = []

    def free(start: int, end: int) -> bool:
        return all(end <= span.start or span.end <= start for span in taken)

    for kind, pattern in [*ENCLOSING.items(), ("zone", _zone_pattern()), *PATTERNS.items()]:
        for match in pattern.finditer(text):
            if free(match.start(), match.end()):
                value = _value(kind, match)
                if value is not None:
                    taken.append(Span(kind, match.start(), match.end(), value))
    definite = [span for span in taken if span.kind != "zone"]
    for kind, pattern, group in (("name", _NAME, 0), ("object", _OBJECT, 1)):
        for match in pattern.finditer(text):
            start, end = match.span(group)
            if stems(match.group(group)) and all(
                end <= span.start or span.end <= start for span in definite
            ):
                taken.append(Span(kind, start, end, match.group(group)))
    return sorted(taken, key=lambda span: (span.start, -span.end))


def _value(kind: str, match: re.Match[str]) -> Any:
    text = match.group()
    if kind == "zone":
        return _zones()[text.lower().replace(" ", "_")]
    if kind == "quoted":
        return next(group for group in match.groups() if group is not None)
    if kind == "json":
        return _json(text)
    if kind == "number":
        return as_number(text)
    if kind == "clock":
        return _clock(text)
    if kind == "expression":
        return re.sub("|".join(_SPOKEN), lambda spoken: _SPOKEN[spoken.group()], text)
    if kind == "sql":
        return text.rstrip(" ?!.")
    return text


def as_number(text: str) -> int | float:
    """Return the number written in digits or as one English word."""
    word = text.lower()
    if word in NUMBERS:
        return NUMBERS[word]
    number = float(text.replace(",", ""))
    return int(number) if number.is_integer() and "." not in text else number


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _clock(text: str) -> str:
    word = text.lower()
    if word in ("noon", "midnight"):
        return "12:00" if word == "noon" else "00:00"
    hour, minute = [*re.findall(r"\d+", word), "0"][:2]
    hours = int(hour)
    if "p" in word and hours < 12:
        hours += 12
    elif "a" in word and hours == 12:
        hours = 0
    return f"{hours:02}:{int(minute):02}"


@functools.cache
def _zones() -> dict[str, str]:
    """Return IANA zone names by their usual spellings, in lower case with underscores."""
    names: dict[str, str] = {}
    for name in sorted(zoneinfo.available_timezones()):
        if name.startswith(("Etc/", "SystemV/", "US/")) or name in ("Factory", "localtime"):
            continue
        city = name.rpartition("/")[2].lower()
        if "/" in name and len(city) > 3:
            names.setdefault(city, name)
        elif "/" not in name and len(name) > 3 and name.isalpha():
            names.setdefault(name.lower(), name)  # countries, such as Japan
    names.update({name.lower(): name for name in zoneinfo.available_timezones() if "/" in name})
    names.update(utc="Etc/UTC", gmt="Etc/GMT")
    return names


@functools.cache
def _zone_pattern() -> re.Pattern[str]:
    # Longest first, so that "America/North_Dakota/Center" does not end at its area. A place starts
    # with a capital letter; otherwise it is a word: "is there a nome here".
    names = sorted(_zones(), key=len, reverse=True)
    alternatives = "|".join(re.escape(name).replace("_", "[ _]") for name in names)
    return re.compile(rf"(?<![\w/.-])(?=[A-Z])(?i:{alternatives})(?![\w/-]|\.\w)")
