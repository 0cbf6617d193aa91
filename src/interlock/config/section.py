"""A reader of one object in a JSON file, member by member.

Errors name the file, the line and the member. They never show a value, because it may be secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from interlock.config.jsonc import JsoncDocument, JsoncError, Place, write_place
from interlock.errors import ConfigError
from interlock.text.quoting import kind
from interlock.text.timestamps import now_micros

MAX_SECONDS = 86_400
MAX_LONG = 10 * 365 * 86_400  # seconds; the longest duration that can be configured
MAX_WARNINGS = 20  # warnings of unknown keys in one file
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,17})?) ?(ms|s|m|h)")
_IN_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
NEEDS_UNIT = 1_000  # other programs count milliseconds, so such a number could be either
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MAX_KEY = 64  # characters of an unknown key that are compared with known keys

_Word = TypeVar("_Word", bound=str)


class _Source(NamedTuple):
    """The file to which a section belongs, and the warnings about this file."""

    document: JsoncDocument
    path: Path | None
    warnings: list[str]


class Section:
    """An object in a file. Each method reads one member; it raises `ConfigError` if it is invalid.

    Attributes:
        members: The object's members.
        warnings: The warnings about the whole file so far, one line each.
    """

    def __init__(self, source: _Source, place: Place, value: Any) -> None:
        self._source = source
        self._place = place
        self.members: dict[str, Any] = value if isinstance(value, dict) else {}
        self.warnings = source.warnings
        if not isinstance(value, dict):
            self.refuse(f"must be an object, not {kind(value)}")

    def within(self, key: str) -> Section:
        """Return a nested object as a section; if the object is missing, the section is empty."""
        return Section(self._source, (*self._place, key), self.members.get(key, {}))

    def named(self, key: str) -> Section:
        """Return a nested object of objects; a list of objects is read by their member "name"."""
        items = self.members.get(key)
        if isinstance(items, list):
            named: dict[str, Any] = {}
            for index, item in enumerate(items):
                name = item.get("name") if isinstance(item, dict) else None
                is_free = isinstance(name, str) and name not in named
                named[name if is_free else f"[{index}]"] = item  # type: ignore[index]  # a str
            items = named
        return Section(self._source, (*self._place, key), {} if items is None else items)

    def each(self, key: str) -> tuple[Section, ...]:
        """Return the objects in a list as sections; () if the list is missing."""
        items = self.members.get(key, [])
        if not isinstance(items, list):
            self.refuse(f"must be a list of objects, not {kind(items)}", key)
        return tuple(
            Section(self._source, (*self._place, key, index), item)
            for index, item in enumerate(items)
        )

    def each_usable(self, key: str) -> Iterator[Section]:
        """Yield the objects in a list as sections; warn of everything else."""
        items = self.members.get(key)
        if items is not None and not isinstance(items, list):
            self.warn(f"is ignored: it must be a list of objects, not {kind(items)}", key)
            return
        for index, item in enumerate(items or ()):
            if isinstance(item, dict):
                yield Section(self._source, (*self._place, key, index), item)
            else:
                self.warn(f"is ignored: it must be an object, not {kind(item)}", key, index)

    # Members

    def need(self, *keys: str) -> None:
        for key in keys:
            if key not in self.members:
                self.refuse(f'needs "{key}"')

    def optional(self, key: str) -> str:
        """Read a string that must not be blank; return "" if it is missing."""
        return self.filled(key) if key in self.members else ""

    def text(self, key: str) -> str:
        """Read a required string that can be passed to a program or a server."""
        return self._text(self.members[key], key)

    def filled(self, key: str) -> str:
        """Read a required string that must not be blank."""
        text = self.text(key)
        if not text.strip():
            self.refuse("must not be empty", key)
        return text

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of strings; return () if it is missing."""
        items = self.members.get(key, [])
        if not isinstance(items, list):
            self.refuse(f"must be a list of strings, not {kind(items)}", key)
        return tuple(self._text(item, key, index) for index, item in enumerate(items))

    def seconds(self, key: str, default: float) -> float:
        """Read a time greater than 0, and at most one day: 30, "30s", "1500ms", "2m" or "1h"."""
        value = self.members.get(key, default)
        if isinstance(value, str) and (written := _TIME.fullmatch(value)):
            value = float(written[1]) * _IN_SECONDS[written[2]]
        elif isinstance(value, bool) or not isinstance(value, int | float):
            ways = 'a number of seconds, or text such as "30s" or "1500ms"'
            self.refuse(f"must be {ways}, not {kind(value)}", key)
        elif NEEDS_UNIT <= value <= MAX_SECONDS * 1_000:
            units = ("s", "ms") if value <= MAX_SECONDS else ("ms",)
            ways = " or ".join(f'"{_written(value)}{unit}"' for unit in units)
            self.refuse(f"needs a unit, as some programs count ms: write {ways}", key)
        if not 0 < value <= MAX_SECONDS:
            self.refuse(f"must be more than 0 and at most {MAX_SECONDS:,} seconds", key)
        return float(value)

    def duration(self, key: str, default: float, most: int, *, zero: bool = False) -> float:
        """Read a duration in seconds, or a text with a unit: "30s", "10m", "24h", "90d".

        Args:
            key: The name of the member.
            default: The duration if the member is missing.
            most: The longest valid duration.
            zero: Whether 0 is valid.
        """
        value = self.members.get(key, default)
        if isinstance(value, str):
            value = parse_duration(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse('must be a number of seconds, or text such as "30s", "10m" or "24h"', key)
        if not (0 < value <= most or (zero and value == 0)):
            least = "at least 0" if zero else "more than 0"
            self.refuse(f"must be {least} and at most {most:,} seconds", key)
        return float(value)

    def count(self, key: str, default: int, most: int, least: int = 1) -> int:
        """Read an integer from `least` to `most`."""
        value = self.members.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse("must be a whole number", key)
        if not least <= value <= most:
            self.refuse(f"must be between {least} and {most:,}", key)
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.members.get(key, default)
        if not isinstance(value, bool):
            self.refuse(f"must be true or false, not {kind(value)}", key)
        return value

    def choice(self, key: str, choices: tuple[_Word, ...]) -> _Word:
        """Read one of `choices`; return the first choice if the member is missing."""
        value = self.members.get(key, choices[0])
        found = next((each for each in choices if each == value), None)
        if found is None:
            hint = nearest(value, choices) if isinstance(value, str) else ""
            words = f"one of {', '.join(choices)}{hint}" if choices[1:] else choices[0]
            self.refuse(f"must be {words}", key)
        return found

    def optional_choice(self, key: str, choices: tuple[_Word, ...]) -> _Word | None:
        """Read one of `choices`; return None if the member is missing."""
        return self.choice(key, choices) if key in self.members else None

    def written(self, key: str) -> str:
        """Read a required string; a number or a boolean is read as it is written in JSON."""
        return self._text(_written(self.members[key]), key)

    def all_written(self, key: str) -> tuple[str, ...]:
        """Read a list of strings, as `written` does; return () if it is missing."""
        items = self.members.get(key, [])
        if not isinstance(items, list):
            self.refuse(f"must be a list of strings, not {kind(items)}", key)
        return tuple(self._text(_written(each), key, at) for at, each in enumerate(items))

    def without_nulls(self) -> Section:
        """Return this object without the members that are null."""
        self.members = {name: value for name, value in self.members.items() if value is not None}
        return self

    def _text(self, value: Any, *steps: str | int) -> str:
        if isinstance(value, bool | int | float):
            self.refuse(f'must be a string, not {kind(value)}: put it in quotes ("…")', *steps)
        if not isinstance(value, str):
            self.refuse(f"must be a string, not {kind(value)}", *steps)
        if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value):
            self.refuse("has a character that no program accepts", *steps)
        return value

    # Problems

    def refuse(self, problem: str, *steps: str | int) -> NoReturn:
        """Raise a `ConfigError` about this object, or the nested member at the path `steps`."""
        raise ConfigError(f"{self._where(*steps)} {problem}")

    def warn(self, problem: str, *steps: str | int) -> None:
        """Add a warning about this object, or about the nested member at the path `steps`."""
        self.warnings.append(f"{self._where(*steps)} {problem}")

    def warn_unknown(self, known: tuple[str, ...], restricting: tuple[str, ...] = ()) -> None:
        """Warn of keys that are not in `known`, up to `MAX_WARNINGS` in the whole file.

        Refuse an unknown key that is most similar to a key in `restricting`.
        """
        for key in self.members:
            if key in known:
                continue
            if _most_similar(key, known) in restricting:
                self.refuse(f"is unknown{nearest(key, known)}", key)
            if len(self.warnings) < MAX_WARNINGS:
                self.warn(f"is unknown and ignored{nearest(key, known)}", key)

    def refuse_unknown(self, known: tuple[str, ...]) -> None:
        """Refuse keys that are not in `known`: a misspelled key could allow more than was meant."""
        for key in self.members:
            if key not in known:
                self.refuse(f"is unknown{nearest(key, known)}", key)

    def _where(self, *steps: str | int) -> str:
        document, path, _ = self._source
        place = (*self._place, *steps)
        return (
            f"{path or 'configuration'}, line {document.line(place)}: "
            f"{write_place(place) or 'the file'}"
        )


def _written(value: Any) -> Any:
    """Return a number or a boolean as its text in JSON; other values stay unchanged."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def parse_duration(text: str) -> int | None:
    """Return the number of seconds in "30s", "10m", "24h" or "90d"; None for any other text."""
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _SECONDS[match[2]] if match else None


def parse_moment(text: str) -> int | None:
    """Parse a date, a date with a time, or a duration before now such as "2h".

    Return microseconds since 1970; None for any other text. A time without a time zone is in UTC.
    """
    ago = parse_duration(text)
    if ago is not None:
        return now_micros() - ago * 1_000_000
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e6)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean …?)" with the most similar known name; "" if none is similar."""
    close = _most_similar(name, known)
    return f" (did you mean {close!r}?)" if close else ""


def _most_similar(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name[:MAX_KEY], list(known), n=1)), "")


def parse(text: bytes, path: Path | None) -> Section:
    """Return a section for a whole file, which must be a JSON object.

    Args:
        text: JSON in UTF-8. Comments and trailing commas are allowed.
        path: The file's path, for error messages.

    Raises:
        ConfigError: The text is not valid JSON, or not an object.
    """
    try:
        document = JsoncDocument(text)
    except JsoncError as error:
        where = f", line {error.line}" if error.line else ""
        where += f" column {error.column}" if error.column else ""
        raise ConfigError(f"{path or 'configuration'}{where}: {error}") from None
    return Section(_Source(document, path, []), (), document.value)
