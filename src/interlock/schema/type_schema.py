"""The JSON Schema of a type hint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    _hoist([schema, *components.values()], components)
    if components:
        schema = {**schema, "$defs": components}
    return schema


def _hoist(parts: list[Any], components: JsonObject) -> None:
    """Move the definitions within pydantic's schemas to `$defs` of the whole schema."""
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            brought = part.pop("$defs", {}) if "$defs" in part else {}
            for name, definition in brought.items():
                if components.setdefault(name, definition) != definition:
                    raise TypeError(f"two types have the same name: {name}; rename one")
            parts += part.values()
            parts += brought.values()
