"""Differences between an API's answers and its document, removed from structured content.

Differences are counted by place and kind; values are never stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from interlock import durable
from interlock.text.quoting import kind
from interlock.types import JsonObject

MAX_PLACES = 100  # places counted per tool; differences in further places are counted together
_MAX_DEPTH = 64
_LEAVE_OUT = object()
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


class Drift:
    """Counts how often a server's answers differ from its document, by tool and place."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def note(self, tool: str, places: Iterable[str], times: int = 1) -> None:
        for place in places:
            counts = self._counts.setdefault(tool, Counter())
            known = place in counts or len(counts) < MAX_PLACES
            counts[place if known else "other places"] += times

    def keep(self, file: Path) -> None:
        """Add the counts to a file, for `interlock openapi check`, and reset them."""
        if not self._counts:
            return
        total = Drift.kept(file)
        for tool, counts in self._counts.items():
            for place, times in counts.items():
                total.note(tool, [place], times)
        self._counts = {}
        with suppress(OSError, durable.NotSynced):  # the counts are lost
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            durable.replace(file, msgspec.json.encode(total._counts))

    @classmethod
    def kept(cls, file: Path) -> Drift:
        """Return the counts in a file; an empty `Drift` if the file cannot be read."""
        drift = cls()
        try:
            found = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, int]])
        except (OSError, msgspec.DecodeError):
            return drift
        drift._counts = {tool: Counter(counts) for tool, counts in found.items()}
        return drift

    @property
    def lines(self) -> list[str]:
        """Return a line for each tool and place, the most frequent difference first."""
        return [
            f"tool {tool!r}: {place} ({times} times)"
            for tool, counts in self._counts.items()
            for place, times in counts.most_common()
        ]


def fitting(value: Any, schema: JsonObject, empty: Any) -> tuple[Any, list[str]]:
    """Remove the parts of a value that do not match a schema; return a line for each removed part.

    Args:
        value: Any JSON value.
        schema: A schema of types and property names, as in the output schema of a tool.
        empty: The replacement for a value that does not match at all.
    """
    places: list[str] = []
    fitted = _Fitting(schema, places).part(value, schema, "", 0)
    return (empty, places) if fitted is _LEAVE_OUT else (fitted, places)


class _Fitting:
    def __init__(self, root: JsonObject, places: list[str]) -> None:
        self._root = root
        self._places = places

    def part(self, value: Any, schema: Any, place: str, depth: int) -> Any:
        """Return the part of a value that matches; `_LEAVE_OUT` if nothing matches."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return value
        schema = self._target(schema)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                return self._one_of(value, schema[keyword], place, depth)
        kinds = schema.get("type")
        if kinds is not None and not _is_of(value, [kinds] if isinstance(kinds, str) else kinds):
            self._places.append(f"{place or 'the answer'} is {kind(value)}")
            return _LEAVE_OUT
        if isinstance(value, dict):
            return self._object(value, schema, place, depth)
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            return self._list(value, schema["items"], place, depth)
        return value

    def _target(self, schema: JsonObject) -> JsonObject:
        for _ in range(_MAX_DEPTH):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            found: Any = self._root
            for step in reference.removeprefix("#").split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                found = found.get(step) if isinstance(found, dict) else None
            if not isinstance(found, dict):
                return {}
            schema = found
        return {}

    def _one_of(self, value: Any, options: list[Any], place: str, depth: int) -> Any:
        best: tuple[Any, list[str]] | None = None
        for option in options:
            inner = _Fitting(self._root, [])
            fitted = inner.part(value, option, place, depth + 1)
            if not inner._places:
                return fitted
            if fitted is not _LEAVE_OUT and (best is None or len(inner._places) < len(best[1])):
                best = fitted, inner._places
        if best is None:
            self._places.append(f"{place or 'the answer'} is {kind(value)}")
            return _LEAVE_OUT
        self._places += best[1]
        return best[0]

    def _object(self, value: JsonObject, schema: JsonObject, place: str, depth: int) -> JsonObject:
        properties = schema.get("properties")
        others = schema.get("additionalProperties")
        if not isinstance(properties, dict):
            properties = {}
        found = {}
        for name, each in value.items():
            inner = properties.get(name, others)
            path = f"{place}.{name}" if place and name in properties else name
            path = path if name in properties else f"{place}.*".lstrip(".")
            fitted = self.part(each, inner, path, depth + 1)
            if fitted is not _LEAVE_OUT:
                found[name] = fitted
        return found

    def _list(self, value: list[Any], items: JsonObject, place: str, depth: int) -> list[Any]:
        fitted = (self.part(each, items, f"{place}[]", depth + 1) for each in value)
        return [each for each in fitted if each is not _LEAVE_OUT]


def _is_of(value: Any, kinds: Any) -> bool:
    if not isinstance(kinds, list):
        return True
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, float) and value.is_integer() and "integer" in kinds:
        return True
    return any(isinstance(value, _KINDS.get(str(each), (object,))) for each in kinds)
