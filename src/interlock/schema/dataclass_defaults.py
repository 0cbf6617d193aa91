"""Defaults of dataclasses in arguments.

msgspec leaves a plain default to the class: the decoded object has no value of its own, and the
encoder of msgspec omits the member. A tool that returned an argument would lose the member.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

from msgspec import Struct

from interlock.schema.hints import has_members, member_hints


class FilledArguments(Struct, frozen=True):
    """The base of arguments whose dataclasses get their defaults."""

    def __post_init__(self) -> None:
        _fill(self, set())


def has_plain_defaults(hint: Any, seen: list[Any]) -> bool:
    """Return whether a dataclass within a type has a plain default; `seen` are types to skip."""
    if has_members(hint):
        if any(hint is each for each in seen):
            return False
        seen.append(hint)
        members = [*member_hints(hint).values()]
        plain = any(_is_plain(each) for each in getattr(hint, "__dataclass_fields__", {}).values())
        return plain or any(has_plain_defaults(each, seen) for each in members)
    return any(has_plain_defaults(each, seen) for each in get_args(hint))


def _is_plain(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING


def _fill(value: Any, seen: set[int]) -> None:
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _fill(each, seen)
    elif isinstance(value, dict):
        for each in value.values():
            _fill(each, seen)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            _fill(getattr(value, name), seen)
    elif dataclasses.is_dataclass(value) and id(value) not in seen:
        seen.add(id(value))  # `__post_init__` of the author may have made a cycle
        own = getattr(value, "__dict__", None)
        for field in dataclasses.fields(value):
            if own is not None and _is_plain(field):
                own.setdefault(field.name, field.default)
            _fill(getattr(value, field.name, None), seen)
