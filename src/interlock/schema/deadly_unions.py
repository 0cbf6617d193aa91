"""Unions that make msgspec 0.22 corrupt memory and crash the interpreter."""

from __future__ import annotations

import contextlib
import types
import typing
from typing import Annotated, Any, get_args, get_origin

import msgspec

_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
_COLLECTIONS = (list, set, frozenset, dict, tuple)


def refuse_deadly_unions(hint: Any, seen: list[Any]) -> None:
    """Refuse unions that crash msgspec, in a type and in the types of its members."""
    if any(hint is each for each in seen):
        return
    seen.append(hint)
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        _refuse_deadly_union(get_args(hint))
    inner = [*get_args(hint), getattr(hint, "__supertype__", None)]
    if isinstance(origin or hint, type):
        with contextlib.suppress(Exception):  # msgspec reports what is wrong with the hint
            inner += typing.get_type_hints(origin or hint, include_extras=True).values()
    for each in inner:
        refuse_deadly_unions(each, seen)


def _refuse_deadly_union(members: tuple[Any, ...]) -> None:
    limits: set[str] = set()
    bare = []
    for member in members:
        if get_origin(member) is Annotated:
            bare.append(member.__origin__)
            limits.update(
                name for meta in member.__metadata__ for name in _LIMITS if _has(meta, name)
            )
        else:
            bare.append(member)
    if limits and any(get_origin(each) is tuple and ... not in get_args(each) for each in bare):
        raise TypeError("a union cannot have a tuple of fixed length and a type with limits")
    if "pattern" in limits and any(_is_collection(get_origin(each) or each) for each in bare):
        raise TypeError("a union cannot have a list, set, tuple or dict and text with a pattern")


def _is_collection(type: Any) -> bool:
    return type in _COLLECTIONS or getattr(type, "__module__", "") == "collections.abc"


def _has(meta: object, limit: str) -> bool:
    return isinstance(meta, msgspec.Meta) and getattr(meta, limit) is not None
