"""One schema for a subschema and everything that applies to the same value.

The result has the keywords of 2020-12, whatever draft the subschema was written for, and none of
those that combine schemas except `anyOf`. It accepts what the subschema accepts, and often more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from interlock.errors import SchemaError
from interlock.schema.inspection import Survey, point
from interlock.text import quoting
from interlock.types import JsonObject

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
# Names of types that are not JSON Schema's, as generators for other languages write them.
_OTHER_TYPES = {
    **dict.fromkeys(("str", "text", "char", "date", "datetime", "date-time", "uuid"), "string"),
    **dict.fromkeys(("uri", "url", "email", "file", "binary", "bytes"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long", "short"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    "bool": "boolean",
    **dict.fromkeys(("dict", "map", "json", "struct", "record"), "object"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("none", "nil"), "null"),
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS = (*("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),)
_TEXTS = ("title", "description", "pattern", "format", "contentEncoding", "x-mcp-header")
_SCHEMAS = ("items", "prefixItems", "additionalItems", "additionalProperties", "patternProperties")


class Merged(Struct, frozen=True):
    """The schema for a subschema and all that applies to the same value.

    Attributes:
        schema: The keywords; `type` is a list. Values of `properties`, `items` and the like are
            subschemas of the document, or lists `anyOf` and `allOf` of such.
        targets: The subschemas that its references lead to.
    """

    schema: JsonObject
    targets: tuple[JsonObject, ...] = ()


class Merger:
    """Merges the subschemas of one document.

    Args:
        document: The schema. If it is not a valid one, only references of the form `#/…` are
            followed.
        lenient: Whether a reference that leads nowhere stands for any value.
    """

    def __init__(self, document: JsonObject, *, lenient: bool = False) -> None:
        self.document = document
        self._lenient = lenient
        try:
            self._survey: Survey | None = Survey(document)
        except SchemaError:
            self._survey = None
        self._known: dict[int, tuple[Any, Merged]] = {}  # by id; keeps the object alive

    def merge(self, node: Any) -> Merged:
        """Return one schema for a subschema, its references, `allOf` and conditions.

        Raises:
            SchemaError: See `target`.
        """
        if not isinstance(node, dict):
            return Merged({})
        if id(node) in self._known:
            return self._known[id(node)][1]
        self._known[id(node)] = node, Merged({})  # a cycle adds nothing
        whole = own_keywords(node)
        targets: list[JsonObject] = []
        for part in self._parts(node, targets):
            merged = self.merge(part)
            targets += merged.targets
            whole = self._both(whole, merged.schema, targets)
        for part in _possible_parts(node):
            merged = self.merge(part)
            targets += merged.targets
            whole = self._offered(whole, merged.schema)
        self._known[id(node)] = node, Merged(whole, tuple(targets))
        return self._known[id(node)][1]

    def target(self, node: JsonObject) -> Any:
        """Return the target of a subschema's reference; None if it has no reference.

        Raises:
            SchemaError: The reference leads outside of the document or nowhere, and the merger is
                not lenient.
        """
        reference = next((node[key] for key in _REFERENCES if key in node), None)
        if not isinstance(reference, str):
            return None
        if self._survey is not None and id(node) in self._survey.rules:
            return self._survey.target(node, reference)
        found = None
        if reference == "#" or reference.startswith("#/"):
            found = point(self.document, unquote(reference[1:]))
        if isinstance(found, dict | bool):
            return found
        if self._lenient:
            return True
        raise SchemaError(f"the reference {quoting.echo(reference)} does not lead to a schema")

    def _parts(self, node: JsonObject, targets: list[JsonObject]) -> Iterator[Any]:
        target = self.target(node)
        if isinstance(target, dict):
            targets.append(target)
            yield target
        yield from _list(node.get("allOf"))

    def _both(self, first: JsonObject, second: JsonObject, targets: list[JsonObject]) -> JsonObject:
        """Return the schema for values that fit two schemas; the first one's texts win."""
        whole = {**second, **first}
        for key in first.keys() & second.keys():
            one, other = first[key], second[key]
            if key == "properties":
                whole[key] = {**other, **one}
                for name in one.keys() & other.keys():
                    if one[name] != other[name]:
                        whole[key][name] = {"allOf": [one[name], other[name]]}
            elif key == "required":
                whole[key] = list(dict.fromkeys((*one, *other)))
            elif key == "type":
                whole[key] = _common_types(one, other) or one
            elif key == "enum":
                whole[key] = [each for each in one if each in other] or one
        if "anyOf" in first and "anyOf" in second:
            for branch in second["anyOf"]:
                merged = self.merge(branch)
                targets += merged.targets
                whole = self._offered(whole, merged.schema)
        return whole

    def _offered(self, whole: JsonObject, part: JsonObject) -> JsonObject:
        """Return a schema with the properties of a part that may apply or not."""
        if "properties" not in part:
            return whole
        return {**whole, "properties": {**part["properties"], **whole.get("properties", {})}}


def own_keywords(node: JsonObject) -> JsonObject:
    """Return a subschema's valid keywords as 2020-12 writes them, without those that combine.

    An unknown type, a bound that is not a number and the like are left out, which only widens.
    """
    own: JsonObject = {key: node[key] for key in _TEXTS if isinstance(node.get(key), str)}
    own |= {key: node[key] for key in _SCHEMAS if key in node}
    types, values = types_of(node.get("type")), node.get("enum")
    if "const" in node:
        values = [node["const"]]
    if isinstance(values, list) and values:
        own["enum"] = values
    if node.get("nullable") is True or node.get("x-nullable") is True:  # OpenAPI
        own["nullable"] = True
    if types:
        own["type"] = types
    if "default" in node:
        own["default"] = node["default"]
    if isinstance(node.get("examples"), list):
        own["examples"] = node["examples"]
    if node.get("uniqueItems") is True:
        own["uniqueItems"] = True
    branches = [each for key in ("anyOf", "oneOf") for each in _list(node.get(key))]
    if branches:
        own["anyOf"] = branches
    _read_properties(node, own)
    _read_numbers(node, own)
    return own


def types_of(value: Any) -> list[str]:
    """Return the types that a keyword `type` names; [] if it names none, or any."""
    found: dict[str, None] = {}
    for each in value if isinstance(value, list) else [value]:
        name = str(each).strip().lower()
        name = _OTHER_TYPES.get(name, name)
        if each is None and isinstance(value, list):
            found["null"] = None
        elif isinstance(each, str) and name in TYPES:
            found[name] = None
        elif each is not None:  # "any", or a schema, as draft 3 allows
            return []
    return list(found)


def _read_properties(node: JsonObject, own: JsonObject) -> None:
    properties = node.get("properties")
    required = node.get("required")
    names = [required] if isinstance(required, str) else required
    found = list(dict.fromkeys(n for n in _list(names) if isinstance(n, str)))
    if isinstance(properties, dict):
        own["properties"] = members = {}
        for name, each in properties.items():
            if isinstance(each, dict | bool) or each is None:
                members[name] = {} if each is None else each
            elif types_of(each) and name not in ("type", "required", "additionalProperties"):
                members[name] = {"type": types_of(each)}  # a shorthand: {"name": "string"}
            if isinstance(each, dict) and each.get("required") is True:  # draft 3
                found += [name] if name not in found else []
    if found:
        own["required"] = found


def _read_numbers(node: JsonObject, own: JsonObject) -> None:
    for key in _BOUNDS:
        if is_number(node.get(key)):
            own[key] = node[key]
    for bound in ("Minimum", "Maximum"):  # exclusive bounds are booleans in draft 4
        if node.get(f"exclusive{bound}") is True and bound.lower() in own:
            own[f"exclusive{bound}"] = own.pop(bound.lower())
    multiple = node.get("multipleOf", node.get("divisibleBy"))
    if is_number(multiple) and multiple > 0:
        own["multipleOf"] = multiple
    for key in _COUNTS:
        count = node.get(key)
        if is_number(count) and count >= 0 and count == int(count):
            own[key] = int(count)


def _possible_parts(node: JsonObject) -> Iterator[Any]:
    """Yield the subschemas that apply to some values only, except alternatives."""
    yield node.get("then")
    yield node.get("else")
    for key in ("dependentSchemas", "dependencies"):
        if isinstance(node.get(key), dict):
            yield from (each for each in node[key].values() if isinstance(each, dict))


def _common_types(first: Iterable[str], second: Iterable[str]) -> list[str]:
    """Return the types that both lists allow; "number" allows integers too."""
    found: dict[str, None] = {}
    for one in first:
        for other in second:
            if one == other or {one, other} == {"integer", "number"}:
                found[one if one == other else "integer"] = None
    return list(found)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def type_of(value: Any) -> str:
    """Return the type of a JSON value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def fits(value: Any, types: Iterable[str]) -> bool:
    """Return whether a value has one of the types."""
    kind = type_of(value)
    return kind in types or (kind == "integer" and "number" in types)


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return JSON values without repetitions, in their order."""
    return list({msgspec.json.encode(each, order="sorted"): each for each in values}.values())


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
