"""The shape of JSON answers: types and names only, because APIs break their other rules.

A client may refuse a result that does not match the tool's output schema, although the call had
its effect. So the output schema describes only the types and property names in an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from interlock.openapi import texts
from interlock.openapi.operations import Operation, is_json
from interlock.openapi.references import DocumentError
from interlock.types import JsonObject

OUTPUT_BYTES = 4 * 1024
MAX_ALTERNATIVES = 4
DEPTHS = (8, 5, 4, 3, 2, 1)

_KINDS = {
    "string": "string",
    "boolean": "boolean",
    "integer": "number",
    "number": "number",
    "object": "object",
    "array": "array",
    "null": "null",
}


class _TooLarge(Exception):
    pass


def of_operation(operation: Operation, follow: Callable[[Any], Any]) -> JsonObject | None:
    """Return the shape of an operation's successful JSON answers; None if it is not known.

    Args:
        follow: Resolves references.
    """
    schemas: list[Any] = []
    for response in operation.responses:
        if response.status.startswith("2"):
            for media_type, schema in response.media_types.items():
                if is_json(media_type) and schema not in schemas:
                    schemas.append(schema)
                if len(schemas) > MAX_ALTERNATIVES:
                    return None
    if not schemas:
        return None
    for depth in DEPTHS:
        try:
            shape = _join([_Shaper(follow).root(schema, depth) for schema in schemas])
        except _TooLarge:
            continue
        except DocumentError:
            return None  # the tool works without an output schema
        if shape is None or len(msgspec.json.encode(shape)) <= OUTPUT_BYTES:
            return shape
    return None


def _join(shapes: list[JsonObject]) -> JsonObject | None:
    distinct = [each for index, each in enumerate(shapes) if each not in shapes[:index]]
    if not all(distinct):  # an empty shape allows every answer
        return None
    if len(distinct) == 1:
        return distinct[0]
    joined: JsonObject = {"anyOf": distinct}
    if all(each.get("type") == "object" for each in distinct):
        joined = {"type": "object", **joined}
    return joined


class _Shaper:
    def __init__(self, follow: Callable[[Any], Any]) -> None:
        self._follow = follow
        self._left = OUTPUT_BYTES // 24  # a member takes about 24 bytes or more

    def root(self, schema: Any, depth: int) -> JsonObject:
        """Return the shape of a whole answer; a type that may also be null loses its "null"."""
        shape = self._shape(schema, depth, 0)
        kinds = shape.get("type")
        if isinstance(kinds, list) and len(kinds) == 2:
            shape["type"] = kinds[0]
        return shape

    def _shape(self, schema: Any, depth: int, chain: int) -> JsonObject:
        self._left -= 1
        if self._left < 0:
            raise _TooLarge
        parts = self._parts(schema, chain)
        kinds = self._kinds(parts)
        if not kinds:
            return {}
        shape: JsonObject = {"type": [*kinds, "null"]}
        if depth <= 0:
            return shape
        if "object" in kinds:
            self._read_object(parts, shape, depth)
        if "array" in kinds:
            items = [part["items"] for part in parts if isinstance(part.get("items"), dict)]
            if len(items) == 1 and (inner := self._shape(items[0], depth - 1, 0)):
                shape["items"] = inner
        return shape

    def _parts(self, schema: Any, chain: int) -> list[JsonObject]:
        """Return a flat list of a schema, its `allOf` branches and its alternatives."""
        schema = self._follow(schema)
        if not isinstance(schema, dict) or chain > 8:
            return [{"type": None}]
        parts = [schema]
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list):
                self._left -= len(branches)
                if self._left < 0:
                    raise _TooLarge
                for branch in branches:
                    found = self._parts(branch, chain + 1)
                    if keyword != "allOf" and not self._kinds(found):
                        found = [{"type": None}]  # an alternative without a type allows all types
                    parts += found
        return parts

    def _kinds(self, parts: list[JsonObject]) -> list[str]:
        """Return the types that a value may have besides null; [] if every type is allowed."""
        kinds: dict[str, None] = {}
        for part in parts:
            declared = part.get("type", "")
            if declared is None:
                return []
            names = declared if isinstance(declared, list) else [declared]
            if declared == "":
                names = [
                    name
                    for name, keyword in (("object", "properties"), ("array", "items"))
                    if keyword in part
                ]
            elif not all(isinstance(name, str) and name in _KINDS for name in names):
                return []
            kinds |= dict.fromkeys(_KINDS[name] for name in names)
        return [name for name in kinds if name != "null"]

    def _read_object(self, parts: list[JsonObject], shape: JsonObject, depth: int) -> None:
        schemas: dict[str, list[Any]] = {}
        for part in parts:
            properties = part.get("properties")
            for name, each in properties.items() if isinstance(properties, dict) else ():
                schemas.setdefault(name, []).append(each)
        properties = {}
        for name, found in schemas.items():
            schema = found[0] if len(found) == 1 else {"anyOf": found}
            target = self._follow(schema)
            if isinstance(target, dict) and target.get("writeOnly") is True:
                continue
            self._left -= len(name) // 24
            properties[texts.visible(name)] = self._shape(schema, depth - 1, 0)
        if properties:
            shape["properties"] = properties
        maps = [part["additionalProperties"] for part in parts if "additionalProperties" in part]
        if len(maps) == 1 and isinstance(maps[0], dict) and not properties:
            inner = self._shape(maps[0], depth - 1, 0)
            if inner:
                shape["additionalProperties"] = inner
