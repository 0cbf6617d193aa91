"""Reads the arguments of a tool call from the text that a model or its server wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from interlock.messages import ToolCall
from interlock.text.quoting import replace_surrogates


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


_SPACE = re.compile(r"\s*")
# What local models and their servers leave around the arguments: a fence of Markdown before them;
# a fence, a closing brace too many, special tokens or tags of a chat template after them.
_BEFORE = re.compile(r"(?:[\s\ufeff]|```(?:json)?)*")
_AFTER = re.compile(r"(?:[\s\0}]|```|<\|[^<>|]{1,40}\|>|</?[a-z_]{1,40}>)*")
# Models write line breaks and tabs into texts as they are, above all in code:
# https://github.com/MoonshotAI/kimi-cli/issues/1378
_DECODER = json.JSONDecoder(parse_constant=_refuse, strict=False)


def tool_calls(id: str, name: str, arguments: str) -> list[ToolCall]:
    """Build the calls that one call of the provider means, from the text of its arguments.

    Blank text or an empty list means no arguments. Different objects that follow each other are
    calls of the same tool, which some servers join; only the first one has the id. Text that is
    anything else makes the call malformed.
    """
    if not (id.isascii() and name.isascii() and arguments.isascii()):
        id, name, arguments = replace_surrogates([id, name, arguments])
    name = _plain(name)
    try:
        inputs = _objects(arguments) or [{}]
    except (ValueError, RecursionError):
        return [ToolCall(id, name, malformed=arguments)]
    return [ToolCall(id if place == 0 else "", name, each) for place, each in enumerate(inputs)]


def _plain(name: str) -> str:
    """Return the name of a tool without what servers leave of gpt-oss's format around it."""
    return name.strip().partition("<|")[0].removeprefix("functions.")


def _objects(arguments: str) -> list[dict[str, Any]]:
    """Return the different objects in a text, without empty ones.

    Some servers send the arguments twice, send an empty object before them, or send null instead
    of an empty object.
    """
    if not arguments.strip():
        return []
    try:
        values = [msgspec.json.decode(arguments)]
    except (msgspec.DecodeError, UnicodeError):
        values = _sequence(arguments.strip())
    found: dict[bytes, dict[str, Any]] = {}
    for value in values:
        if isinstance(value, str):
            value = _quoted(value)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if value not in (None, []) and not isinstance(value, dict):
            raise ValueError("the arguments are not an object")
        if value:
            found.setdefault(msgspec.json.encode(value, order="sorted"), value)
    return list(found.values())


def _sequence(text: str) -> list[Any]:
    """Decode JSON values that follow each other; half of a character becomes U+FFFD."""
    values: list[Any] = []
    place = _end(_BEFORE, text, 0)
    while not values or _end(_AFTER, text, place) < len(text):
        value, end = _DECODER.raw_decode(text, place)
        values.append(replace_surrogates(value))
        place = _end(_SPACE, text, end)
    return values


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Return where a pattern that always matches ends."""
    found = pattern.match(text, place)
    return place if found is None else found.end()


def _quoted(text: str) -> Any:
    """Return the object that a JSON string contains as JSON."""
    return msgspec.json.decode(text, type=dict[str, Any]) if text.strip() else None


def unique_ids(calls: Sequence[ToolCall], taken: Collection[str] = ()) -> tuple[ToolCall, ...]:
    """Return the calls with unique ids: some servers send none, or the same one for all.

    Args:
        calls: The calls of one answer.
        taken: Ids that the calls must not have.
    """
    seen = {*taken}
    result = []
    for call in calls:
        if not call.id or call.id in seen:
            call = msgspec.structs.replace(call, id=f"call_{uuid4().hex[:24]}")
        seen.add(call.id)
        result.append(call)
    return tuple(result)
