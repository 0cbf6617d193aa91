"""How a definition differs from the accepted one, with invisible characters made visible."""

from __future__ import annotations

import difflib
import re
from typing import Any

import msgspec

from interlock.store.pin import Pin
from interlock.text.quoting import INVISIBLE
from interlock.types import JsonObject

_INVISIBLE = re.compile(rf"[\x00-\x09\x0b-\x1f\x7f-\x9f{INVISIBLE}]")


def diff(pin: Pin) -> list[str]:
    """Return the lines of a unified diff from the accepted definition to the one seen.

    Of a definition that was never accepted, all lines are added. Members are sorted, and every
    line of a longer text has a line of its own, after its member.
    """
    before = _lines(pin.definition)
    after = _lines(pin.seen_definition if pin.waits else pin.definition)
    if pin.state == "gone":
        after = []
    found = difflib.unified_diff(before, after, "accepted", "offered", n=2, lineterm="")
    return [*found] if before != after else [f" {line}" for line in after]


def visible(text: str) -> str:
    """Return text with an escape for each character that is not shown, or that changes others."""
    return _INVISIBLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _lines(definition: str | None) -> list[str]:
    if definition is None:
        return []
    document: JsonObject = msgspec.json.decode(definition)
    return [visible(line) for line in _of(document, "")]


def _of(value: Any, path: str) -> list[str]:
    """Return a line for each leaf of a value: its path, and what it is."""
    if isinstance(value, dict) and value:
        pairs = sorted((f"{path}.{key}" if path else key, each) for key, each in value.items())
        return [line for inner, each in pairs for line in _of(each, inner)]
    if isinstance(value, list) and value:
        return [line for i, each in enumerate(value) for line in _of(each, f"{path}[{i}]")]
    if isinstance(value, str):
        first, *others = value.split("\n")
        return [f"{path}: {_quoted(first)}", *(f"{path}+ {_quoted(each)}" for each in others)]
    return [f"{path}: {msgspec.json.encode(value).decode()}"]


def _quoted(line: str) -> str:
    return msgspec.json.encode(line).decode()
