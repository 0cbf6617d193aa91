"""JSON values and texts as people read them: clipped for errors, whole, or in Markdown."""

from __future__ import annotations

import re
from typing import Any

import msgspec

MAX_ECHO = 80  # characters of a value shown in a message

# Characters that are invisible or change the direction of text: soft hyphen, joiners, bidi marks
# and overrides, fillers, variation selectors, controls of hieroglyphs, shorthand and music, tags,
# surrogates.
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)


# Characters that are invisible or control a terminal.
_HIDDEN = re.compile(rf"[\x00-\x1f\x7f-\x9f{INVISIBLE}]")


def visible(text: str) -> str:
    """Return text on one line, with each hidden character as its JSON escape."""
    return _HIDDEN.sub(_escape, text)


def visible_json(value: Any) -> str:
    """Return a value as indented JSON, with each hidden character as an escape."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "\n".join(map(visible, text.split("\n")))


def asked(server: str, text: str) -> str:
    """Return a server's question with its name; no further line looks like another's question."""
    return f"{server} asks:\n{quoted(text)}" if "\n" in text else f"{server} asks: {text}"


def quoted(text: str) -> str:
    """Return each line of a foreign text with a mark before it."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def kind(value: Any) -> str:
    """Return the kind of a JSON value: "a list"."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def echo(value: Any) -> str:
    """Return a value on one line of at most about `MAX_ECHO` characters."""
    if isinstance(value, dict):
        return "the object"
    if isinstance(value, list):
        return "the list"
    if isinstance(value, str):
        short = value if len(value) <= MAX_ECHO else value[:MAX_ECHO] + "…"
        return repr(short)
    if isinstance(value, int) and value.bit_length() > 200:
        return "the number"  # Python refuses to print integers over 4,300 digits
    return msgspec.json.encode(value).decode()


def clip(text: str) -> str:
    """Return text on one line of at most about `MAX_ECHO` printable characters."""
    line = " ".join(text.split())
    if len(line) > MAX_ECHO:
        line = line[:MAX_ECHO] + "…"
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)


def place(path: list[str | int]) -> str:
    """Return a path as written in a program: filter.items[2]."""
    written = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier() and len(step) <= MAX_ECHO:
            written += f".{step}"
        else:
            written += f"[{echo(step)}]"
    return written.removeprefix(".")


def replace_surrogates(value: Any) -> Any:
    """Return a JSON value whose text has U+FFFD for lone surrogates, which UTF-8 lacks.

    File names that are not UTF-8 have them: see `os.fsdecode`.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [replace_surrogates(each) for each in value]
    return value


def fenced(text: str, language: str = "") -> str:
    """Return `text` as a Markdown code block, even if it contains fences."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
