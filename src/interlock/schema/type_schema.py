"""The JSON Schema of a type hint."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import msgspec

from interlock.schema.deadly_unions import refuse_deadly_unions
from interlock.schema.hints import has_members
from interlock.schema.member_notes import add_notes
from interlock.types import JsonObject


def schema_of(hint: Any, hook: Callable[[Any], JsonObject]) -> JsonObject:
    """Return the schema of a type, without an outermost `$ref` unless the type is recursive."""
    parts: list[Any] = []
    refuse_deadly_unions(hint, parts)
    try:
        (schema,), components = msgspec.json.schema_components(
            [hint], schema_hook=hook, ref_template="#/$defs/{name}"
        )
    except KeyError as error:  # msgspec's error for two types of the same name
        raise TypeError(f"two types have the same name: {error}; rename one") from error
    except (NameError, AttributeError, SyntaxError) as error:  # evaluating a hint in quotes
        raise TypeError(f"the type of a member cannot be resolved: {error}") from error
    add_notes([each for each in parts if has_members(each)], components)
    if set(schema) == {"$ref"}:
        target = schema["$ref"].removeprefix("#/$defs/")
        if f'"#/$defs/{target}"' not in msgspec.json.encode(components).decode():
            schema = components.pop(target)
        elif components[target].get("type") == "object":
            schema = {"type": "object", **schema}  # legacy clients require "type"
    _finish([schema, *components.values()], components, _choices(parts))
    if components:
        schema = {**schema, "$defs": components}
    return schema


def _choices(types: list[Any]) -> dict[frozenset[str], list[Any]]:
    """Return the values of each `Literal` and `Enum` in the order in which they are written."""
    found = {}
    for each in types:
        values: list[Any] = []
        if get_origin(each) is Literal:
            values = list(get_args(each))
        elif isinstance(each, type) and issubclass(each, Enum):
            values = [member.value for member in each]
        found[frozenset(map(repr, values))] = values
    return found


def _finish(
    parts: list[Any], components: JsonObject, choices: dict[frozenset[str], list[Any]]
) -> None:
    """Complete schemas of msgspec and pydantic.

    Move the definitions within pydantic's schemas to `$defs` of the whole schema, and put choices
    in the order in which they are written, because forms show them; msgspec sorts them.
    """
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            if isinstance(part.get("enum"), list):
                part["enum"] = choices.get(frozenset(map(repr, part["enum"])), part["enum"])
            brought = part.pop("$defs", {}) if "$defs" in part else {}
            for name, definition in brought.items():
                if components.setdefault(name, definition) != definition:
                    raise TypeError(f"two types have the same name: {name}; rename one")
            parts += part.values()
            parts += brought.values()
