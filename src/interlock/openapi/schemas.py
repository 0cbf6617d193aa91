"""Schemas of OpenAPI 2.0 to 3.2 -> JSON Schema 2020-12.

Invalid and unknown parts of a schema are dropped, which only widens it. A reference becomes
`#/$defs/NAME`; each definition is translated once for all tools.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from interlock.openapi import bodies, texts
from interlock.openapi.document import Document
from interlock.openapi.references import DocumentError
from interlock.schema import validator
from interlock.schema.merging import is_number
from interlock.text import quoting
from interlock.types import JsonObject

MAX_DEPTH = 128
MAX_PATTERN = 4_096  # characters
MAX_PATTERNS = 1_000  # patterns in a document; checking a pattern takes up to 3 ms
MAX_MAPPED = 256  # characters in a discriminator's value
MAX_SUBSCHEMAS = 10_000  # subschemas in one tool; the largest known tool has 431
Schema = JsonObject | bool

TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS = (
    *("minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "minContains", "maxContains"),
)
_TEXTS = ("title", "description", "format", "contentMediaType", "contentEncoding")
_FLAGS = ("uniqueItems", "deprecated")
_VALUES = ("const", "default", "enum")

# Keywords whose value is a schema (ONE), a list of schemas, or an object with schemas as values.
ONE = (
    *("items", "additionalProperties", "propertyNames", "contains"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
# Widening a schema inside these keywords may make the whole schema refuse more.
INVERTING = ("not", "if", "then", "else")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS = ("properties", "patternProperties", "dependentSchemas")
_HOLDS_ONE = frozenset((*ONE, *INVERTING))
_COMBINED = ("$ref", "allOf", "anyOf", "oneOf")
_ANNOTATIONS = ("title", "description", "default", "deprecated")
_NAME_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")


class Translator:
    """Translates the schemas of one document, for input or for output.

    Input schemas omit `readOnly` properties, output schemas omit `writeOnly` properties. With
    `has_files`, a schema for bytes becomes the schema of a file object.
    """

    def __init__(
        self,
        document: Document,
        direction: Literal["input", "output"],
        *,
        has_files: bool = False,
    ) -> None:
        self._warnings = document.warnings
        self._has_files = has_files
        self._follow = document.references.follow
        self._find = document.references.find
        self._hide = "readOnly" if direction == "input" else "writeOnly"
        self._names: dict[str, str] = {}  # reference -> name of the definition
        self._references: dict[str, str] = {}  # name of the definition -> reference
        self._definitions: dict[str, Schema | DocumentError] = {}
        self._uses: dict[str, set[str]] = {}
        self._used: set[str] = set()
        self._size = 0  # subschemas translated so far for this tool or definition
        self._sizes: dict[str, int] = {}
        self._hidden_of: dict[str, frozenset[str]] = {}  # hidden properties by reference
        self._linear: dict[str, bool] = {}  # pattern -> whether it is checked in linear time

    def begin_tool(self) -> None:
        """Reset the count of subschemas before the next tool is translated."""
        self._size = 0

    def translate(self, node: Any) -> Schema:
        """Translate a schema; references in the result point into `definitions`.

        Raises:
            DocumentError: A reference leads nowhere, or the schema is nested too deep.
        """
        return self._schema(node, 0, frozenset())

    def definitions(self, schemas: Iterable[Any]) -> dict[str, Schema]:
        """Return the definitions that translated schemas refer to, directly or through others.

        Raises:
            DocumentError: A definition cannot be translated.
        """
        waiting = sorted(references_in(schemas))
        found: dict[str, Schema] = {}
        for name in waiting:  # the loop appends to `waiting`
            if name in found:
                continue
            definition = self._definition(name)
            if isinstance(definition, DocumentError):
                raise definition
            found[name] = definition
            self._count(self._sizes[name])
            waiting += sorted(self._uses[name] - found.keys())
        return found

    def _count(self, subschemas: int) -> None:
        self._size += subschemas
        if self._size > MAX_SUBSCHEMAS:
            raise _too_large()

    # Definitions

    def _definition(self, name: str) -> Schema | DocumentError:
        if name not in self._definitions:
            before, self._size = self._size, 0
            self._used = set()
            try:
                self._definitions[name] = self.translate(self._find(self._references[name]))
            except DocumentError as error:
                self._definitions[name] = error
            self._uses[name] = self._used
            self._sizes[name], self._size = self._size, before
        return self._definitions[name]

    def _refer(self, reference: str) -> str:
        name = self._names.get(reference)
        if name is None:
            last = reference.rpartition("/")[2] or "document"
            plain = _NAME_FOREIGN.sub("_", last.replace("~1", "_"))[:64].strip("_") or "schema"
            name, count = plain, 1
            while name in self._references:
                count += 1
                name = f"{plain}_{count}"
            self._names[reference] = name
            self._references[name] = reference
        self._used.add(name)
        return f"#/$defs/{name}"

    # Schemas

    def _schema(self, node: Any, depth: int, hidden: frozenset[str]) -> Schema:
        """Translate a schema; drop the names in `hidden` from its `required` list."""
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            return {}
        if depth > MAX_DEPTH:
            raise DocumentError(f"a schema is nested too deep (limit {MAX_DEPTH} levels)")
        self._count(1)
        _check_values(node)
        hidden |= self._hidden(node)
        if self._has_files and bodies.is_binary(node):
            return _file(node)
        schema = _plain_keywords(node)
        if self._is_linear(node.get("pattern")):
            schema["pattern"] = node["pattern"]
        reference = node.get("$ref")
        if isinstance(reference, str):
            self._check_target(node)
            schema["$ref"] = self._refer(reference)
        self._read_object(node, schema, depth, hidden)
        for keyword in (*ONE, *INVERTING):
            if keyword != "items" and isinstance(node.get(keyword), dict | bool):
                schema[keyword] = self._schema(node[keyword], depth + 1, frozenset())
        for keyword in LISTS:
            items = node.get(keyword)
            if isinstance(items, list) and items:
                inherited = hidden if keyword != "prefixItems" else frozenset()
                schema[keyword] = [self._branch(each, depth + 1, inherited) for each in items]
        self._read_discriminator(node, schema)
        if "oneOf" in schema:
            _widen_one_of(schema)
        self._read_items(node, schema, depth)
        if node.get("nullable") is True or node.get("x-nullable") is True:
            return _nullable(schema)
        return schema

    def _branch(self, node: Any, depth: int, hidden: frozenset[str]) -> Schema:
        """Translate an alternative of `anyOf` or `oneOf`.

        A definition that requires a hidden property is inlined without that requirement.
        """
        if hidden and isinstance(node, dict) and "$ref" in node:
            target = self._follow(node)
            required = target.get("required") if isinstance(target, dict) else None
            if isinstance(required, list):
                elsewhere = hidden - self._hidden(target)
                node = target if elsewhere.intersection(_strings(required)) else node
        return self._schema(node, depth, hidden)

    def _check_target(self, node: JsonObject) -> None:
        if not isinstance(self._follow(node), dict | bool):
            raise DocumentError(
                f"the reference {quoting.echo(node['$ref'])} does not lead to a schema"
            )

    def _read_object(
        self, node: JsonObject, schema: JsonObject, depth: int, hidden: frozenset[str]
    ) -> None:
        properties = node.get("properties")
        if isinstance(properties, dict):
            schema["properties"] = {
                name: self._schema(each, depth + 1, frozenset())
                for name, each in properties.items()
                if name not in hidden
            }
        required = node.get("required")
        if isinstance(required, list):
            names = [each for each in dict.fromkeys(_strings(required)) if each not in hidden]
            if names:
                schema["required"] = names
        for keyword in MAPS[1:]:
            members = node.get(keyword)
            if isinstance(members, dict):
                schema[keyword] = {
                    name: self._schema(each, depth + 1, frozenset())
                    for name, each in members.items()
                    if keyword != "patternProperties" or self._is_linear(name)
                }

    def _read_items(self, node: JsonObject, schema: JsonObject, depth: int) -> None:
        items = node.get("items")
        if isinstance(items, dict | bool):
            schema["items"] = self._schema(items, depth + 1, frozenset())
        elif isinstance(items, list) and items:  # the tuple form of draft 4
            schema["prefixItems"] = [self._schema(each, depth + 1, frozenset()) for each in items]

    def _is_linear(self, pattern: Any) -> bool:
        """Return whether the validator can check a pattern in linear time."""
        if not isinstance(pattern, str):
            return False
        if pattern not in self._linear:
            has_room = len(self._linear) < MAX_PATTERNS and len(pattern) <= MAX_PATTERN
            self._linear[pattern] = has_room and _can_check(pattern)
            if not self._linear[pattern]:
                self._warnings.append(
                    f"the pattern {quoting.echo(pattern)} is not checked: it is not valid, is too "
                    "long, or needs backtracking"
                )
        return self._linear[pattern]

    def _read_discriminator(self, node: JsonObject, schema: JsonObject) -> None:
        """Restrict the discriminator in each alternative to the values mapped to it."""
        discriminator = node.get("discriminator")
        if not isinstance(discriminator, dict):
            return
        name, mapping = discriminator.get("propertyName"), discriminator.get("mapping")
        if not isinstance(name, str) or not isinstance(mapping, dict):
            return
        values: dict[str, list[str]] = {}
        for value, target in mapping.items():
            if isinstance(target, str) and len(value) <= MAX_MAPPED:
                reference = target if "#" in target else f"#/components/schemas/{target}"
                values.setdefault(reference, []).append(value)
        for keyword in ("oneOf", "anyOf"):
            if keyword not in schema:
                continue
            for raw, branch in zip(node[keyword], schema[keyword], strict=True):
                target = str(raw.get("$ref")) if isinstance(raw, dict) else ""
                if target in values and not self._is_fixed(raw, name):
                    fixed: JsonObject = {"enum": values[target]}
                    if len(values[target]) == 1:
                        fixed = {"const": values[target][0]}
                    branch.setdefault("properties", {})[name] = fixed

    def _is_fixed(self, node: Any, name: str) -> bool:
        target = self._follow(node)
        properties = target.get("properties") if isinstance(target, dict) else None
        fixed = self._follow(properties.get(name)) if isinstance(properties, dict) else None
        return isinstance(fixed, dict) and ("const" in fixed or "enum" in fixed)

    def _hidden(self, node: JsonObject) -> frozenset[str]:
        """Return the properties that input or output omits, including those in `allOf`."""
        names: frozenset[str] = frozenset()
        seen: set[int] = set()
        waiting: list[Any] = [node]
        while waiting and len(seen) < MAX_DEPTH:
            raw = waiting.pop()
            part = self._follow(raw)
            if not isinstance(part, dict) or id(part) in seen:
                continue
            seen.add(id(part))
            names |= self._own_hidden(raw, part)
            branches = part.get("allOf")
            if isinstance(branches, list):
                waiting += branches
        return names

    def _own_hidden(self, raw: JsonObject, part: JsonObject) -> frozenset[str]:
        """Return the properties that input or output omits, without those in `allOf`."""
        reference = raw.get("$ref") if len(raw) == 1 else None
        if isinstance(reference, str) and reference in self._hidden_of:
            return self._hidden_of[reference]
        properties = part.get("properties")
        if not isinstance(properties, dict):
            properties = {}
        if len(properties) > MAX_SUBSCHEMAS:
            raise _too_large()
        names = frozenset(name for name, each in properties.items() if self.is_hidden(each))
        if isinstance(reference, str):
            self._hidden_of[reference] = names
        return names

    def is_hidden(self, node: Any) -> bool:
        """Return whether input or output omits the property with this schema."""
        target = self._follow(node)
        return isinstance(target, dict) and target.get(self._hide) is True


def _too_large() -> DocumentError:
    return DocumentError(f"its schemas are too large (limit {MAX_SUBSCHEMAS:,} subschemas)")


def _can_check(pattern: str) -> bool:
    import jsonschema_rs

    is_valid = jsonschema_rs.meta.is_valid({"pattern": pattern})
    return is_valid and validator.is_linear(pattern)


def _file(node: JsonObject) -> JsonObject:
    description = node.get("description")
    if not isinstance(description, str):
        return dict(bodies.FILE)
    return {**bodies.FILE, "description": f"{description} {bodies.FILE['description']}"}


def subschemas(schema: JsonObject) -> Iterator[Schema]:
    """Return the direct subschemas of a translated schema."""
    for keyword, value in schema.items():
        if keyword in _HOLDS_ONE:
            yield value
        elif keyword in LISTS:
            yield from value
        elif keyword in MAPS:
            yield from value.values()


def references_in(schemas: Iterable[Schema]) -> Counter[str]:
    """Count the references to each definition in translated schemas."""
    found: Counter[str] = Counter()
    waiting = list(schemas)
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, dict):
            if "$ref" in schema:
                found[definition_of(schema["$ref"])] += 1
            waiting += subschemas(schema)
    return found


def definition_of(reference: str) -> str:
    """Return the name of the definition that `#/$defs/NAME` refers to."""
    return reference.removeprefix("#/$defs/")


def _check_values(node: JsonObject) -> None:
    """Raise an error if a value in a schema is nested too deep to be encoded.

    Raises:
        DocumentError: A value is nested too deep.
    """
    level = [node[keyword] for keyword in _VALUES if keyword in node]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise DocumentError(f"a value in a schema is nested too deep (limit {MAX_DEPTH} levels)")


def _plain_keywords(node: JsonObject) -> JsonObject:
    """Return the keywords that have no subschemas, as JSON Schema 2020-12 writes them.

    Keywords with invalid values are dropped.
    """
    schema: JsonObject = {}
    kind = _types(node.get("type"))
    if kind:
        schema["type"] = kind
    for keyword in _TEXTS:
        if isinstance(node.get(keyword), str):
            schema[keyword] = texts.visible(node[keyword])
    if node.get("type") == "file":
        schema.update(type="string", format="binary")
    enum = node.get("enum")
    if isinstance(enum, list) and enum:
        schema["enum"] = [_as_text(each) for each in enum] if kind == "string" else enum
        if isinstance(kind, str) and not any(_is_of(kind, each) for each in schema["enum"]):
            del schema["type"]  # no value would be valid
    for keyword in ("const", "default"):
        if keyword in node:
            schema[keyword] = _as_text(node[keyword]) if kind == "string" else node[keyword]
    for keyword in _FLAGS:
        if node.get(keyword) is True:
            schema[keyword] = True
    _read_bounds(node, schema)
    dependent = node.get("dependentRequired")
    if isinstance(dependent, dict):
        schema["dependentRequired"] = {
            name: _strings(each) for name, each in dependent.items() if isinstance(each, list)
        }
    return schema


def _read_bounds(node: JsonObject, schema: JsonObject) -> None:
    for keyword in _NUMBERS:
        if is_number(node.get(keyword)):
            schema[keyword] = node[keyword]
    for bound in ("Minimum", "Maximum"):  # exclusive bounds are booleans up to OpenAPI 3.0
        if node.get(f"exclusive{bound}") is True and bound.lower() in schema:
            schema[f"exclusive{bound}"] = schema.pop(bound.lower())
    multiple = node.get("multipleOf")
    if is_number(multiple) and multiple > 0:
        schema["multipleOf"] = multiple
    for keyword in _COUNTS:
        count = node.get(keyword)
        if is_number(count) and count >= 0 and count == int(count):
            schema[keyword] = int(count)


def _widen_one_of(schema: JsonObject) -> None:
    """Replace `oneOf` by `anyOf`: in most documents the alternatives overlap."""
    alternatives = schema.pop("oneOf")
    if "anyOf" in schema:
        schema.setdefault("allOf", []).append({"anyOf": alternatives})
    else:
        schema["anyOf"] = alternatives


def _types(value: Any) -> str | list[str] | None:
    if isinstance(value, str):
        return value if value in TYPES else None
    if isinstance(value, list):
        names = list(dict.fromkeys(each for each in _strings(value) if each in TYPES))
        if len(names) == len(value):
            return names[0] if len(names) == 1 else names
    return None


def _nullable(schema: JsonObject) -> JsonObject:
    if any(keyword in schema for keyword in _COMBINED):
        kept = {keyword: schema.pop(keyword) for keyword in _ANNOTATIONS if keyword in schema}
        return {**kept, "anyOf": [schema, {"type": "null"}]}
    kind = schema.get("type")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"] if kind != "null" else kind
    elif isinstance(kind, list) and "null" not in kind:
        schema["type"] = [*kind, "null"]
    if "const" in schema and schema["const"] is not None:
        schema["enum"] = [schema.pop("const"), None]
    elif "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema


def _is_of(kind: str, value: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "number" | "integer":
            return is_number(value)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _as_text(value: Any) -> Any:
    """Return a number in a list of strings as text; YAML parsed it as a number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _strings(values: list[Any]) -> list[str]:
    return [each for each in values if isinstance(each, str)]
