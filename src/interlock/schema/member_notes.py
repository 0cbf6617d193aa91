"""Descriptions and formats that msgspec leaves out of the members of classes."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, get_args, get_origin

from msgspec import Struct

from interlock.schema.hints import FORMATS, member_hints
from interlock.schema.metadata import text_of
from interlock.types import JsonObject


def add_notes(classes: Iterable[type], components: JsonObject) -> None:
    """Add the texts of `Doc` and lone strings, and the formats of times, to schemas of classes.

    Args:
        classes: Dataclasses, structs and others with members.
        components: The schemas of msgspec, which are changed.
    """
    by_class: dict[str, list[JsonObject]] = {}
    for component in components.values():
        name = component.get("title", "").partition("[")[0]  # "Box[int]" is a Box
        by_class.setdefault(name, []).append(component)
    for each in classes:
        members = _by_encoded_name(each)
        for component in by_class.get(each.__name__, ()):
            items = component.get("prefixItems", ())  # of a NamedTuple
            properties = component.get("properties") or dict(zip(members, items, strict=False))
            for name, hint in members.items():
                if name in properties:
                    _note(hint, properties[name])


def _by_encoded_name(each: type) -> dict[str, Any]:
    hints = member_hints(each)
    if not issubclass(each, Struct):
        return hints
    names = zip(each.__struct_fields__, each.__struct_encode_fields__, strict=True)
    return {encoded: hints[name] for name, encoded in names if name in hints}


def _note(hint: Any, schema: JsonObject) -> None:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if text := text_of(hint.__metadata__):
            schema.setdefault("description", text)
        _note(hint.__origin__, schema)
    elif origin in (typing.Union, types.UnionType):
        for member in arguments:  # at most one of them is text
            for branch in schema.get("anyOf", ()):
                _note(member.__origin__ if get_origin(member) is Annotated else member, branch)
    elif origin is None:
        if hint in FORMATS and schema.get("type") == "string":
            schema.setdefault("format", FORMATS[hint])
    elif isinstance(schema.get("additionalProperties"), dict):
        _note(arguments[-1], schema["additionalProperties"])
    elif isinstance(schema.get("items"), dict):
        _note(arguments[0], schema["items"])
    else:
        for member, item in zip(arguments, schema.get("prefixItems", ()), strict=False):
            _note(member, item)
