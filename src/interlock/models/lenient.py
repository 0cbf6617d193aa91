"""Reads the events of a provider as what they mean, even if the strict decoder refuses them.

Providers that imitate an API send numbers as text, a list of parts instead of text, one object
instead of a list, or null for anything. The strict decoder comes first, because it is much faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

from interlock.text.quoting import echo

Event = TypeVar("Event", bound=Struct)
_TEXTS = ("text", "content", "thinking", "reasoning", "summary", "value")  # members of a part


def convert(value: Any, type: type[Event]) -> Event:
    """Return the struct that an object means. Members that mean nothing get their default values.

    Raises:
        ValueError: The value is not an object.
    """
    try:
        return msgspec.convert(value, type)
    except (msgspec.ValidationError, UnicodeError):  # an error cannot quote half of a character
        if not isinstance(value, dict):
            raise ValueError(f"it has {echo(value)}, which is not an object") from None
    found: Event = _reader(type)(value)
    return found


def text_of(value: Any) -> str | None:
    """Return the text of a value: of text, a number, a part with text, or a list of such parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        return next(
            (each for name in _TEXTS if (each := text_of(value.get(name))) is not None), None
        )
    texts = [each for part in value if (each := text_of(part)) is not None]
    return "".join(texts) if texts else None


def _number(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


_Read = Callable[[Any], Any]  # returns None for a value that means nothing


@cache
def _reader(type: Any) -> _Read:
    return _read_as(inspect.type_info(type))


def _read_as(type: inspect.Type) -> _Read:
    match type:
        case inspect.StrType():
            return text_of
        case inspect.IntType():
            return _number
        case inspect.DictType():
            return lambda value: value if isinstance(value, dict) else None
        case inspect.ListType(item_type=item):
            return _list(_read_as(item))
        case inspect.StructType(cls=cls, fields=fields):
            return _struct(
                cls, [(each.name, each.encode_name, _read_as(each.type)) for each in fields]
            )
        case inspect.UnionType(types=types):
            return _union([each for each in types if not isinstance(each, inspect.NoneType)])
    return lambda value: value


def _list(read: _Read) -> _Read:
    def read_list(value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        return [each for each in map(read, values) if each is not None]

    return read_list


def _struct(cls: Any, fields: list[tuple[str, str, _Read]]) -> _Read:
    def read_struct(value: Any) -> Any:
        if not isinstance(value, dict):
            return None
        present = (
            (name, read(value[key])) for name, key, read in fields if value.get(key) is not None
        )
        return cls(**{name: each for name, each in present if each is not None})

    return read_struct


def _union(types: list[inspect.Type]) -> _Read:
    """Read an object as an object if the union has one, and anything else as its other type."""
    objects = [_read_as(each) for each in types if isinstance(each, inspect.DictType)]
    others = [_read_as(each) for each in types if not isinstance(each, inspect.DictType)]
    of_object, of_others = (objects or others)[0], (others or objects)[0]
    return lambda value: of_object(value) if isinstance(value, dict) else of_others(value)
