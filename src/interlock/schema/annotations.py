"""Convert a JSON Schema to Python type hints.

A hint accepts every value that its schema accepts, and often more: rules such as `minimum` have no
hint, and a schema without any hint becomes `Any`. No generated source code is evaluated.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterable
from typing import Any, Literal, NotRequired, Required, TypeAlias, Union, get_args, get_origin
from urllib.parse import unquote

from interlock.types import JsonObject

MAX_DEPTH = 8  # levels of objects, lists and references
MAX_TYPES = 200  # subschemas of one document that get a hint
MAX_UNION = 8

_SIMPLE: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
}
Path: TypeAlias = tuple[str, ...]


def _typed_dict() -> Any:
    if sys.version_info < (3, 12):
        try:
            import typing_extensions
        except ImportError:
            return typing.TypedDict
        return typing_extensions.TypedDict  # pydantic refuses typing's
    return typing.TypedDict


class Hints:
    """Makes the type hints for the parts of one schema.

    Args:
        document: The schema, which has passed `schema.check`.
    """

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._left = MAX_TYPES
        self._names: dict[str, int] = {}
        self._typed_dict = _typed_dict()

    def of(self, schema: Any, name: str = "", path: Path = (), depth: int = 0) -> Any:
        """Return the hint for a subschema.

        Args:
            schema: The subschema.
            name: The name of the member that it describes, for names of types.
            path: The references that were followed to reach it.
            depth: The number of levels above it.
        """
        self._left -= 1
        if not isinstance(schema, dict):
            return Any
        if self._left < 0 or depth > MAX_DEPTH:
            return Any
        hint = self._plain(schema, name, path, depth)
        return union((hint, None)) if schema.get("nullable") is True else hint

    def resolve(self, reference: Any) -> Any:
        """Return the subschema that a reference leads to; None if it is not a JSON pointer."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        target: Any = self._document
        for part in unquote(reference[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict):
                target = target.get(key)
            elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            else:
                return None
        return target if not reference[1:] or reference[1] == "/" else None

    def _plain(self, schema: JsonObject, name: str, path: Path, depth: int) -> Any:
        if "const" in schema:
            return _of_values((schema["const"],))
        if isinstance(schema.get("enum"), list):
            return _of_values(schema["enum"])
        if "$ref" in schema:
            return self._of_reference(schema["$ref"], name, path, depth)
        type = schema.get("type")
        if isinstance(type, list):
            return union(self._of_type(each, schema, name, path, depth) for each in type)
        if type is not None:
            return self._of_type(type, schema, name, path, depth)
        for keyword in ("anyOf", "oneOf"):
            if members := schema.get(keyword):
                return self._of_union(members, name, path, depth)
        if members := schema.get("allOf"):
            return self._of_all(members, name, path, depth)
        return self._of_object(schema, name, path, depth) if "properties" in schema else Any

    def _of_reference(self, reference: Any, name: str, path: Path, depth: int) -> Any:
        target = self.resolve(reference)
        if reference in path:  # a cycle
            kind = target.get("type") if isinstance(target, dict) else None
            return {"object": dict[str, Any], "array": list[Any]}.get(str(kind), Any)
        return self.of(target, name, (*path, reference), depth + 1)

    def _of_type(self, type: Any, schema: JsonObject, name: str, path: Path, depth: int) -> Any:
        if type == "array":
            items = schema.get("items")
            if not isinstance(items, dict) or "prefixItems" in schema:
                return list[Any]
            return list[self.of(items, name, path, depth + 1)]  # type: ignore[misc]
        if type == "object":
            return self._of_object(schema, name, path, depth)
        return _SIMPLE.get(type, Any) if isinstance(type, str) else Any

    def _of_object(self, schema: JsonObject, name: str, path: Path, depth: int) -> Any:
        properties = schema.get("properties")
        extra = schema.get("additionalProperties")
        if isinstance(properties, dict) and properties and extra in (None, False):
            if "patternProperties" in schema or self._left < len(properties):
                return dict[str, Any]
            return self._of_members(properties, schema.get("required"), name, path, depth)
        if isinstance(extra, dict) and not properties and "patternProperties" not in schema:
            return dict[str, self.of(extra, name, path, depth + 1)]  # type: ignore[misc]
        return dict[str, Any]

    def _of_members(
        self, properties: JsonObject, required: Any, name: str, path: Path, depth: int
    ) -> Any:
        required = required if isinstance(required, list) else []
        members = {}
        for key, member in properties.items():
            if member is False:
                continue
            hint = self.of(member, key, path, depth + 1)
            members[key] = Required[hint] if key in required else NotRequired[hint]
        return self._typed_dict(self._type_name(name), members)

    def _of_union(self, members: Any, name: str, path: Path, depth: int) -> Any:
        if not isinstance(members, list) or len(members) > MAX_UNION:
            return Any
        return union(self.of(each, name, path, depth + 1) for each in members if each is not False)

    def _of_all(self, members: Any, name: str, path: Path, depth: int) -> Any:
        if not isinstance(members, list):
            return Any
        if len(members) == 1:
            return self.of(members[0], name, path, depth + 1)
        merged = self.merged({"allOf": members})
        return Any if merged is None else self._of_object(merged, name, path, depth)

    def merged(self, schema: JsonObject, path: Path = ()) -> JsonObject | None:
        """Return one object schema for a schema, its `$ref` and its `allOf`.

        Return None if a part of it does not describe an object.
        """
        parts: list[JsonObject] = [schema]
        if "$ref" in schema and schema["$ref"] not in path:
            path = (*path, schema["$ref"])
            parts += self._merged_all((self.resolve(schema["$ref"]),), path)
        parts += self._merged_all(schema.get("allOf") or (), path)
        properties: JsonObject = {}
        required: list[Any] = []
        whole: JsonObject = {"type": "object"}
        for part in parts:
            if part.get("type", "object") != "object" or {"enum", "const"} & part.keys():
                return None
            whole.update(
                (key, part[key])
                for key in ("additionalProperties", "patternProperties")
                if key in part
            )
            for key, member in (part.get("properties") or {}).items():
                known = properties.get(key, member)
                properties[key] = {"allOf": [known, member]} if known != member else member
            required += part.get("required") or ()
        return whole | {"properties": properties, "required": required}

    def _merged_all(self, members: Iterable[Any], path: Path) -> list[JsonObject]:
        merged = [self.merged(each, path) for each in members if isinstance(each, dict)]
        return [{"type": ""} if each is None else each for each in merged]

    def _type_name(self, name: str) -> str:
        plain = "".join(part.capitalize() for part in identifier(name).split("_")) or "Object"
        number = self._names[plain] = self._names.get(plain, 0) + 1
        return plain if number == 1 else f"{plain}{number}"


def identifier(name: str) -> str:
    """Replace characters that an identifier cannot have by "_"."""
    plain = "".join(char if f"_{char}".isidentifier() else "_" for char in name)
    return f"_{plain}" if plain[:1].isdecimal() else plain or "_"


def union(hints: Iterable[Any]) -> Any:
    """Return the union of hints, with at most one hint for each JSON type.

    msgspec demands that the JSON type of a value decides which hint applies.
    """
    plain: dict[Any, None] = {}
    values: list[Any] = []
    lists: list[Any] = []
    objects: list[Any] = []
    for hint in hints:
        for member in get_args(hint) if get_origin(hint) is Union else (hint,):
            origin = get_origin(member)
            if member is Any:
                return Any
            if origin is Literal:
                values += get_args(member)
            elif origin is list:
                lists.append(member)
            elif origin is dict or hasattr(member, "__total__"):
                objects.append(member)
            else:
                plain[type(None) if member is None else member] = None
    members = list(plain)
    if left := [each for each in values if type(each) not in plain]:
        members.append(Literal[tuple(left)])
    if lists:
        items = union(get_args(each)[0] for each in lists)
        members.append(lists[0] if len(lists) == 1 else list[items])  # type: ignore[valid-type]
    if objects:
        is_one = all(each == objects[0] for each in objects)
        members.append(objects[0] if is_one else dict[str, Any])
    return Union[tuple(members)] if 0 < len(members) <= MAX_UNION else Any  # noqa: UP007


def is_literal(value: Any) -> bool:
    """Return whether a value can be part of a `Literal`."""
    return isinstance(value, str | int | None)


def _of_values(values: Iterable[Any]) -> Any:
    values = list(values)
    if values and all(map(is_literal, values)):
        return Literal[tuple(values)]
    return union(_TYPES.get(type(each), type(each)) for each in values)


_TYPES: dict[type, Any] = {list: list[Any], dict: dict[str, Any]}
