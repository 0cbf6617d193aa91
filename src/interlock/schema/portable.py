"""Tool schemas in a form that every provider accepts, and the way back to the server's names.

Providers refuse a request because of one property name outside of `[A-Za-z0-9_.-]{1,64}`. So the
model sees other names, and its arguments are given the server's names again before anything else
reads them. The server's own names are accepted as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import SchemaError
from interlock.schema.inspection import MAX_JSON_DEPTH
from interlock.schema.plain import definition_of, plain, subschemas
from interlock.types import JsonObject

MAX_NAME = 64
MAX_CACHED = 1_024  # schemas
MAX_CACHED_BYTES = 64 * 1024  # a larger schema is translated each time
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")


class PortableSchema(Struct, frozen=True):
    """An input schema for models.

    Attributes:
        encoded: The schema, a JSON Schema of draft 2020-12.
        with_server_names: The same schema, with the server's names of properties.
        renames: How to rename the members of arguments; None if no property was renamed.
    """

    encoded: bytes
    with_server_names: bytes
    renames: Renames | None = None

    def to_server(self, arguments: JsonObject) -> JsonObject:
        """Return a model's arguments with the server's names."""
        return arguments if self.renames is None else self.renames.to_server(arguments)

    def to_model(self, arguments: JsonObject) -> JsonObject:
        """Return arguments of an earlier call with the names that the model knows."""
        return arguments if self.renames is None else self.renames.to_model(arguments)


def portable(encoded: bytes) -> PortableSchema:
    """Return the schema to offer to models for a tool's encoded input schema.

    A schema that is larger than any that `check` accepts becomes one for any arguments.
    """
    if len(encoded) > MAX_CACHED_BYTES:
        return _translated(encoded)
    return _cached(encoded)


def _translated(encoded: bytes) -> PortableSchema:
    try:
        document = msgspec.json.decode(encoded)
        schema = plain(document, lenient=True)
    except (SchemaError, msgspec.DecodeError, RecursionError):
        document = {}
        schema = plain(document)
    names = _new_names(schema)
    own = msgspec.json.encode(schema)
    if not names:
        return PortableSchema(own, own)
    renamed = _renamed(plain(document, lenient=True, names=names), names)
    return PortableSchema(msgspec.json.encode(renamed), own, Renames(renamed, names))


_cached = lru_cache(MAX_CACHED)(_translated)


class Renames:
    """Renames the members of arguments where the schema has a renamed property.

    Args:
        schema: The schema with the models' names.
        names: The models' names by the server's names.
    """

    def __init__(self, schema: JsonObject, names: dict[str, str]) -> None:
        self._schema = schema
        self._for_model = names
        self._for_server = {each: name for name, each in names.items()}

    def to_server(self, arguments: JsonObject) -> JsonObject:
        """Return a model's arguments with the server's names."""
        found: JsonObject = self._value(arguments, [self._schema], self._for_server, 0)
        return found

    def to_model(self, arguments: JsonObject) -> JsonObject:
        """Return a server's arguments with the models' names."""
        found: JsonObject = self._value(arguments, [self._schema], self._for_model, 0)
        return found

    def _value(self, value: Any, schemas: list[Any], names: dict[str, str], depth: int) -> Any:
        if depth > MAX_JSON_DEPTH or not isinstance(value, dict | list):
            return value
        possible = list(self._possible(schemas))
        if not possible:
            return value
        if isinstance(value, list):
            items = [each[key] for each in possible for key in ("items",) if key in each]
            items += [item for each in possible for item in each.get("prefixItems", ())]
            return [self._value(each, items, names, depth + 1) for each in value]
        found: JsonObject = {}
        for key, each in value.items():
            name, inner = self._member(key, possible, names)
            if name in found or (name != key and name in value):
                name = key  # both names are given: change neither
            found[name] = self._value(each, inner, names, depth + 1)
        return found

    def _member(
        self, key: str, possible: list[JsonObject], names: dict[str, str]
    ) -> tuple[str, list[Any]]:
        """Return a member's other name, and the schemas of its value."""
        own = self._for_model.get(key, key)  # as in the schema
        inner = [each["properties"][own] for each in possible if own in each.get("properties", ())]
        if inner:
            return names.get(key, key), inner
        return key, [each["additionalProperties"] for each in possible if _has_extra(each)]

    def _possible(self, schemas: Iterable[Any]) -> Iterator[JsonObject]:
        """Yield the schemas that a value may have to fit, with references followed."""
        waiting, seen = list(schemas), set()
        while waiting:
            each = waiting.pop()
            if not isinstance(each, dict) or id(each) in seen:
                continue
            seen.add(id(each))
            if "$ref" in each:
                waiting.append(self._schema["$defs"][definition_of(each["$ref"])])
            else:
                waiting += each.get("anyOf", ())
                yield each


def _has_extra(schema: JsonObject) -> bool:
    return isinstance(schema.get("additionalProperties"), dict)


def _new_names(schema: JsonObject) -> dict[str, str]:
    """Return a new name for each property name that some provider refuses, unique in the schema."""
    known: dict[str, None] = {}
    waiting = [schema]
    while waiting:
        each = waiting.pop(0)
        known.update(dict.fromkeys(each.get("properties", ())))
        waiting += subschemas(each)
    taken = {name for name in known if _PROPERTY.fullmatch(name)}
    names = {}
    for name in known:
        if name not in taken:
            names[name] = new = unique_name(clean_name(name), taken)
            taken.add(new)
    return names


def clean_name(name: str) -> str:
    """Return a property name that providers accept, which resembles a server's name."""
    if _PROPERTY.fullmatch(name):
        return name
    return short_name(_FOREIGN.sub("_", name).strip("_") or "argument")


def short_name(name: str) -> str:
    """Return a name of at most 64 characters; a longer one ends in a hash."""
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{digest}"


def unique_name(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken: the given one, or one with a number."""
    found, count = name, 1
    while found in taken:
        count += 1
        found = short_name(f"{name}_{count}")
    return found


def _renamed(schema: JsonObject, names: dict[str, str]) -> JsonObject:
    out = dict(schema)
    if "properties" in schema:
        out["properties"] = {
            names.get(name, name): _described(_renamed(each, names), name, names)
            for name, each in schema["properties"].items()
        }
    if "required" in schema:
        out["required"] = [names.get(name, name) for name in schema["required"]]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = _renamed(schema[key], names)
    for key in ("anyOf", "prefixItems"):
        if key in schema:
            out[key] = [_renamed(each, names) for each in schema[key]]
    if "$defs" in schema:
        out["$defs"] = {name: _renamed(each, names) for name, each in schema["$defs"].items()}
    return out


def _described(schema: JsonObject, name: str, names: dict[str, str]) -> JsonObject:
    if name not in names or "$ref" in schema:
        return schema
    text = f"{schema.get('description', '')} (the server's name: {name[:MAX_NAME]})".strip()
    return {**schema, "description": text}
