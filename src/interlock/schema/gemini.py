"""Schemas for Gemini, which accepts less than other providers.

Gemini reads a schema as a message with a fixed set of fields: one type, no references, only texts
as values. What it cannot express is left out or becomes a sentence in the description.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from interlock.schema.plain import definition_of
from interlock.types import JsonObject

MAX_PARTS = 1_000  # subschemas; what exceeds them has no members
MAX_CACHED = 1_024  # schemas
_KEPT = ("title", "description", "minimum", "maximum", "minItems", "maxItems")
_KEPT_OF_TEXTS = ("minLength", "maxLength", "pattern")


@lru_cache(MAX_CACHED)
def narrowed(encoded: bytes) -> bytes:
    """Return a portable schema in the form that Gemini accepts."""
    schema = msgspec.json.decode(encoded)
    return msgspec.json.encode(_Narrowing(schema.get("$defs", {})).schema(schema, ()))


class _Narrowing:
    def __init__(self, definitions: JsonObject) -> None:
        self._definitions = definitions
        self._left = MAX_PARTS

    def schema(self, schema: JsonObject, path: tuple[str, ...]) -> JsonObject:
        """Convert a schema; `path` has the definitions around it."""
        self._left -= 1
        ends = self._left < 0
        while "$ref" in schema:
            name = definition_of(schema["$ref"])
            ends, path = ends or name in path, (*path, name)
            schema = self._definitions[name]
        out: JsonObject = {key: schema[key] for key in _KEPT if key in schema}
        types = schema.get("type", [])
        kinds = [types] if isinstance(types, str) else types
        nullable = {"nullable": True} if "null" in kinds else {}
        kinds = [each for each in kinds if each != "null"] or ["string"]
        if ends:  # a recursive schema is not unrolled
            return _without_members(kinds[0])
        branches = schema.get("anyOf") or [{**schema, "type": each} for each in kinds[1:] and kinds]
        if branches:
            return self._union(branches, path, bool(nullable), out.get("description", ""))
        out |= nullable | {"type": kinds[0]}
        if "enum" in schema:
            _read_values(schema["enum"], out)
        match out["type"]:
            case "object":
                self._read_object(schema, out, path)
            case "array":
                out["items"] = self.schema(schema["items"], path)
            case "string":
                _read_text(schema, out)
            case _:
                _read_exclusive(schema, out)
        return out

    def _union(
        self, branches: list[JsonObject], path: tuple[str, ...], nullable: bool, text: str
    ) -> JsonObject:
        """Return a schema with nothing but alternatives; the description moves into them."""
        found = [self.schema(each, path) for each in branches if each != {"type": "null"}]
        for each in found:
            if "anyOf" in each:
                continue
            if nullable or len(found) < len(branches):
                each["nullable"] = True
            if text:
                each["description"] = each.get("description") or text
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _read_object(self, schema: JsonObject, out: JsonObject, path: tuple[str, ...]) -> None:
        properties = {
            name: self.schema(each, path) for name, each in schema.get("properties", {}).items()
        }
        if properties:  # an empty object is refused
            out["properties"] = properties
            if "required" in schema:
                out["required"] = schema["required"]


def _without_members(kind: str) -> JsonObject:
    return {"type": kind} | ({"items": {"type": "string"}} if kind == "array" else {})


def _read_text(schema: JsonObject, out: JsonObject) -> None:
    out |= {key: schema[key] for key in _KEPT_OF_TEXTS if key in schema}
    if schema.get("format") == "date-time":
        out["format"] = "date-time"
    elif "format" in schema:
        _note(out, f"Format: {schema['format']}.")


def _read_values(values: list[Any], out: JsonObject) -> None:
    texts = [each for each in values if isinstance(each, str) and each]
    if out["type"] == "string" and texts:
        out["enum"] = texts
    else:
        shown = ", ".join(msgspec.json.encode(each).decode() for each in values if each is not None)
        _note(out, f"One of: {shown}.")


def _read_exclusive(schema: JsonObject, out: JsonObject) -> None:
    if "exclusiveMinimum" in schema:
        _note(out, f"More than {schema['exclusiveMinimum']}.")
    if "exclusiveMaximum" in schema:
        _note(out, f"Less than {schema['exclusiveMaximum']}.")


def _note(schema: JsonObject, text: str) -> None:
    schema["description"] = f"{schema.get('description', '')} {text}".strip()
