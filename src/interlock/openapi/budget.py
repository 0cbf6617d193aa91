"""Schemas for models, cut to a size budget. Cuts only widen a schema, so it never refuses more.

Calls are checked against the whole schema, so errors stay precise where the shown schema is wider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from interlock.openapi import texts
from interlock.openapi.references import DocumentError
from interlock.openapi.schemas import (
    INVERTING,
    LISTS,
    MAPS,
    ONE,
    Schema,
    definition_of,
    references_in,
)
from interlock.types import JsonObject

INPUT_BYTES = 8 * 1024
MAX_BYTES = 1024 * 1024  # the largest schema to accept if it is over budget after every cut
MAX_DESCRIPTION = 200  # characters in a description that is not an argument's own
MAX_ENUM = 50
SHOWN_ENUM = 20
DEPTHS = (5, 4, 3, 2, 1)

_LISTED = frozenset({"const", "default", "dependentRequired", "enum", "required"})
_NOTES = frozenset({"title", "description", "default", "deprecated"})
# Keywords whose subschemas apply to members or items; others apply to the same value.
_DEEPER = frozenset({*ONE, "properties", "patternProperties", "prefixItems"})


class Fitted(Struct, frozen=True):
    """A schema after cutting it to its budget.

    Attributes:
        steps: The cuts that were made, in words; () if nothing was cut.
    """

    schema: JsonObject
    size: int
    steps: tuple[str, ...] = ()


class _TooLarge(Exception):
    pass


def fit(schema: JsonObject, limit: int = INPUT_BYTES) -> Fitted:
    """Cut a tool's input schema to the schema that a model sees.

    Args:
        schema: An object schema with `$defs`.
        limit: The budget in bytes of JSON.
    """
    definitions: dict[str, Schema] = schema.get("$defs", {})
    root = {key: value for key, value in schema.items() if key != "$defs"}
    steps: list[str] = []
    if not definitions and (found := _within(root, limit, steps)):
        return found
    recursive = _recursive(definitions)
    for step, change in _EDITS:
        if change is not None:
            steps.append(step)
            root = _edit(root, 0, change)
            definitions = {name: _edit(each, 1, change) for name, each in definitions.items()}
        for kept in (recursive, recursive | _shared(root, definitions)):
            if found := _joined(root, definitions, kept, limit, steps):
                return found
    return _cut(root, definitions, limit, steps)


def _within(schema: JsonObject, limit: int, steps: Iterable[str]) -> Fitted | None:
    size = len(msgspec.json.encode(schema))
    return Fitted(schema, size, tuple(steps)) if size <= limit else None


def _joined(
    root: JsonObject,
    definitions: dict[str, Schema],
    kept: set[str],
    limit: int,
    steps: list[str],
) -> Fitted | None:
    """Inline the definitions that are not `kept`; None if the result is too large."""
    inliner = _Inliner(definitions, kept, limit)
    shown: dict[str, Schema] = {}
    try:
        joined: JsonObject = inliner.inline(root)
        waiting = sorted(references_in([joined]))
        for name in waiting:  # the loop appends to `waiting`
            if name not in shown:
                shown[name] = inliner.inline(definitions[name])
                waiting += sorted(references_in([shown[name]]))
    except _TooLarge:
        return None
    return _within({**joined, "$defs": shown} if shown else joined, limit, steps)


def _shared(root: JsonObject, definitions: dict[str, Schema]) -> set[str]:
    uses = references_in([root, *definitions.values()])
    return {name for name, count in uses.items() if count > 1}


class _Inliner:
    def __init__(self, definitions: dict[str, Schema], kept: set[str], limit: int) -> None:
        self._definitions = definitions
        self._kept = kept
        self._left = limit

    def inline(self, schema: Schema) -> Any:
        if isinstance(schema, bool):
            return schema
        self._left -= _own_size(schema)
        if self._left < 0:
            raise _TooLarge
        name = _target(schema)
        if name is None or name in self._kept:
            return _mapped(schema, self.inline)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        siblings = _mapped(siblings, self.inline)
        return _merge(self.inline(self._definitions[name]), siblings)


def _cut(root: JsonObject, definitions: dict[str, Schema], limit: int, steps: list[str]) -> Fitted:
    """Replace deep schemas by stubs, so that the whole schema is within the limit.

    The stubs begin at the greatest depth of `DEPTHS` that is sufficient, or else at the smallest.

    Raises:
        DocumentError: The schema is over `MAX_BYTES` even at the smallest depth.
    """
    schema: JsonObject | None = None
    for depth in DEPTHS:
        cutter = _Cutter(definitions, limit if depth > DEPTHS[-1] else MAX_BYTES)
        cut_steps = [*steps, f"nothing below {depth} levels"]
        try:
            schema = cutter.cut(root, depth)
        except _TooLarge:
            schema = None
            continue
        if found := _within(schema, limit, cut_steps):
            return found
    if schema is None:
        raise DocumentError(f"its schema is too large to be shown (limit {MAX_BYTES:,} bytes)")
    for length in (MAX_DESCRIPTION, 80, 0):
        schema = _shorten(schema, length)
        cut_steps.append(f"descriptions of arguments cut to {length} characters")
        if found := _within(schema, limit, cut_steps):
            return found
    return Fitted(schema, len(msgspec.json.encode(schema)), tuple(cut_steps))


class _Cutter:
    """Inlines everything down to a depth, and replaces deeper schemas by stubs."""

    def __init__(self, definitions: dict[str, Schema], limit: int) -> None:
        self._definitions = definitions
        self._left = limit

    def cut(self, schema: Schema, depth: int, chain: int = 0) -> Any:
        if isinstance(schema, bool):
            return schema
        self._left -= _own_size(schema)
        if self._left < 0:
            raise _TooLarge
        name = _target(schema)
        if name is not None:
            siblings = {key: value for key, value in schema.items() if key != "$ref"}
            definition = self._definitions[name]
            if (depth <= 0 and _has_parts(definition)) or chain > 8:
                return _stub(definition, siblings, name)
            inner = self.cut(definition, depth, chain + 1)
            return _merge(inner, self.cut(siblings, depth, chain + 1))
        if depth <= 0 and _has_parts(schema):
            return _stub(schema, {}, "")
        kept = {key: value for key, value in schema.items() if key not in INVERTING}
        return _mapped(
            kept,
            lambda each: self.cut(each, depth, chain + 1),
            lambda each: self.cut(each, depth - 1),
        )


def _stub(schema: Schema, siblings: JsonObject, name: str) -> JsonObject:
    """Return a replacement for a schema: its type, and a description with its name."""
    whole = {**schema, **siblings} if isinstance(schema, dict) else siblings
    stub: JsonObject = {key: whole[key] for key in ("type", "default") if key in whole}
    description = texts.clip(str(whole.get("description", "")), MAX_DESCRIPTION // 2)
    if name:
        description = f"{description} (schema {name})" if description else f"Schema {name}."
    if description:
        stub["description"] = description
    return stub


def _has_parts(schema: Schema) -> bool:
    return isinstance(schema, dict) and any(
        keyword in schema for keyword in ("$ref", *MAPS, *LISTS, *ONE)
    )


# Edits


def _tidy(schema: JsonObject, level: int) -> None:
    """Shorten descriptions of nested properties; drop titles that repeat a property's name."""
    schema.pop("title", None)
    description = schema.get("description")
    if isinstance(description, str):
        text = texts.prose(description)
        schema["description"] = texts.clip(text, MAX_DESCRIPTION) if level > 1 else text


def _thin_out(schema: JsonObject, level: int) -> None:
    """Drop descriptions below the second level, and the ends of long enums."""
    if level > 2:
        schema.pop("description", None)
    if isinstance(schema.get("default"), dict | list):
        del schema["default"]
    enum = schema.get("enum")
    if isinstance(enum, list) and len(enum) > MAX_ENUM:
        del schema["enum"]
        some = ", ".join(
            each if isinstance(each, str) else msgspec.json.encode(each).decode()
            for each in enum[:SHOWN_ENUM]
        )
        text = f"One of {len(enum)} values, such as {texts.clip(some, 600)}."
        schema["description"] = f"{schema.get('description', '')} {text}".strip()


def _shorten(schema: JsonObject, length: int) -> JsonObject:
    def shorten(each: JsonObject, _level: int) -> None:
        description = each.get("description")
        if isinstance(description, str):
            each["description"] = texts.clip(description, length) if length else ""
            if not each["description"]:
                del each["description"]

    edited: JsonObject = _edit(schema, 0, shorten)
    return edited


def _edit(schema: Any, level: int, change: Callable[[JsonObject, int], None]) -> Any:
    if not isinstance(schema, dict):
        return schema
    edited = _mapped(
        {key: value for key, value in schema.items() if key not in INVERTING},
        lambda each: _edit(each, level, change),
        lambda each: _edit(each, level + 1, change),
    )
    change(edited, level)
    return edited | {key: schema[key] for key in INVERTING if key in schema}


_EDITS: tuple[tuple[str, Callable[[JsonObject, int], None] | None], ...] = (
    ("", None),
    ("titles and long descriptions", _tidy),
    ("descriptions below the second level, long enums", _thin_out),
)


# Trees


def _mapped(
    schema: JsonObject,
    same: Callable[[Schema], Any],
    deeper: Callable[[Schema], Any] | None = None,
) -> JsonObject:
    """Return a copy of a schema with its subschemas replaced.

    Args:
        same: Returns the replacement for a subschema that applies to the same value.
        deeper: Returns the replacement for a member's or item's schema; `same` by default.
    """
    deeper = deeper or same
    mapped: JsonObject = {}
    for keyword, value in schema.items():
        replace = deeper if keyword in _DEEPER else same
        if keyword in MAPS and isinstance(value, dict):
            mapped[keyword] = {name: replace(each) for name, each in value.items()}
        elif keyword in LISTS and isinstance(value, list):
            mapped[keyword] = [replace(each) for each in value]
        elif (keyword in ONE or keyword in INVERTING) and isinstance(value, dict):
            mapped[keyword] = replace(value)
        else:
            mapped[keyword] = value
    return mapped


def _own_size(schema: JsonObject) -> int:
    """Return a lower bound of the bytes that a schema adds to the result, without its subschemas.

    Texts count with an eighth of their length, because a shorter text beside a reference may
    replace them.
    """
    size = 0
    for keyword, value in schema.items():
        if keyword in MAPS and isinstance(value, dict):
            size += sum(map(len, value))
        elif isinstance(value, str):
            size += len(value)
        elif keyword in _LISTED:
            size += len(msgspec.json.encode(value))
    return 8 + size // 8  # a schema takes at least 8 bytes


def _merge(target: Any, siblings: JsonObject) -> Any:
    """Join an inlined definition with the siblings of the reference to it."""
    if not siblings:
        return target
    if isinstance(target, dict) and (siblings.keys() <= _NOTES or not (target.keys() - _NOTES)):
        return {**target, **siblings}
    return {"allOf": [target], **siblings}


def _target(schema: JsonObject) -> str | None:
    return definition_of(schema["$ref"]) if "$ref" in schema else None


def _recursive(definitions: dict[str, Schema]) -> set[str]:
    """Return the definitions that are in a cycle of references, or between two cycles."""
    uses = {name: set(references_in([each])) for name, each in definitions.items()}
    users: dict[str, set[str]] = {name: set() for name in definitions}
    for name, used in uses.items():
        for each in used:
            users[each].add(name)
    return set(definitions) - _strip(uses, users) - _strip(users, uses)


def _strip(uses: dict[str, set[str]], users: dict[str, set[str]]) -> set[str]:
    """Return the names whose uses, direct or indirect, never lead into a cycle."""
    left = {name: len(used) for name, used in uses.items()}
    stripped = [name for name, count in left.items() if not count]
    for name in stripped:  # the loop appends to `stripped`
        for user in users[name]:
            left[user] -= 1
            if not left[user]:
                stripped.append(user)
    return set(stripped)
