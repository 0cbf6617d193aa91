"""Translate a tool's input schema to the part of JSON Schema 2020-12 that every provider accepts.

Rules, because a provider refuses the whole request for one schema:

1. The root is an object with properties, without alternatives, references or values.
2. Each subschema has a type, a reference, values or alternatives; no boolean is a schema.
3. Only keywords that are known everywhere stay. A rule that is left out is a sentence in the
   description, if it is short. The server's own schema still checks the call.
4. A reference leads to `#/$defs/NAME`, and has no keywords beside it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from interlock.errors import SchemaError
from interlock.schema.inspection import MAX_JSON_DEPTH, MAX_SUBSCHEMAS, measure
from interlock.schema.merging import Merged, Merger, distinct, fits, is_number, type_of
from interlock.schema.pattern import is_common
from interlock.types import JsonObject

MAX_DEPTH = 24  # levels of subschemas
MAX_PARTS = 4_000  # subschemas in the translation; what exceeds them accepts anything
_INLINE_UNTIL = MAX_PARTS - 300  # then texts beside references are left out
MAX_LENGTH = 1_000  # minLength and maxLength; llama.cpp repeats a rule so often
MAX_ITEMS = 100
MAX_NUMBER = 2**53
MAX_NOTE = 200  # characters of a rule in a description
_MAX_LABELS = 12
_SCALARS = ["string", "number", "boolean"]
# The formats that OpenAI and the grammars of vLLM know; these refuse a request for any other one.
_FORMATS = frozenset(
    ("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_NO_NAMES: Mapping[str, str] = {}
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")
_OBJECT = {"properties", "required", "additionalProperties", "patternProperties"}
_ARRAY = {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}
_STRING = {"pattern", "minLength", "maxLength", "format", "contentEncoding"}
_NUMBER = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_NEEDS = (("object", _OBJECT), ("array", _ARRAY), ("string", _STRING), ("number", _NUMBER))


def plain(
    document: Any, *, lenient: bool = False, names: Mapping[str, str] = _NO_NAMES
) -> JsonObject:
    """Return a translated schema, whose properties have the server's names.

    Args:
        document: A decoded schema, valid or almost so.
        lenient: Whether a reference that leads nowhere stands for any value.
        names: Other names of properties, for texts that name them.

    Raises:
        SchemaError: The schema is too large; or a reference leads outside of it or nowhere, and
            `lenient` is false.
    """
    size, depth = measure(document)
    if depth > MAX_JSON_DEPTH or size > 100 * MAX_SUBSCHEMAS:
        raise SchemaError(
            f"the schema is too large: {size:,} values, nested {depth} deep "
            f"(limit {MAX_JSON_DEPTH})"
        )
    merger = Merger(document if isinstance(document, dict) else {}, lenient=lenient)
    return _Translation(merger, names).run()


class _Translation:
    def __init__(self, merger: Merger, own_names: Mapping[str, str]) -> None:
        self._document = merger.document
        self._merger = merger
        self._own_names = own_names
        self._left = MAX_PARTS
        self._names: dict[int, str] = {}  # by the id of a reference's target
        self._waiting: list[tuple[str, JsonObject]] = []  # definitions to translate
        self._open: list[int] = []  # targets that are being translated

    def run(self) -> JsonObject:
        root = self._root()
        definitions = {}
        for name, target in self._waiting:  # grows in the loop
            self._open = [id(target)]
            definitions[name] = self._inlined(self._merger.merge(target), 1)
        for name, each in definitions.items():
            if name in _reached(each, definitions, deeper=False):  # a direct reference to itself
                definitions[name] = _anything()
        used = _reached(root, definitions, deeper=True)
        kept = {name: each for name, each in definitions.items() if name in used}
        return root | ({"$defs": kept} if kept else {})

    def _root(self) -> JsonObject:
        merged = self._merger.merge(self._document)
        self._open = [id(self._document), *map(id, merged.targets)]
        found = self._folded(merged.schema)
        found = {key: each for key, each in found.items() if key not in ("enum", "default")}
        out = _texts(found) | {"type": "object"}
        self._read_object(found, out, 0)
        if not {"additionalProperties", "patternProperties"} & found.keys():
            out.pop("additionalProperties", None)  # "no arguments" rather than "any arguments"
        return out

    def schema(self, node: Any, depth: int) -> JsonObject:
        """Translate a subschema."""
        self._left -= 1
        if not isinstance(node, dict) or depth > MAX_DEPTH or self._left < 0:
            return _anything()
        target = self._merger.target(node)
        if target is not None and not isinstance(target, dict):
            return _anything()
        if target is not None and (len(node) == 1 or self._left < _INLINE_UNTIL):
            return self._refer(target, node)
        merged = self._merger.merge(node)
        if (found := self._open_target(merged)) is not None:
            return self._refer(found, node)
        return self._inlined(merged, depth)

    def _inlined(self, merged: Merged, depth: int) -> JsonObject:
        before = len(self._open)
        self._open += map(id, merged.targets)
        try:
            return self._built(merged.schema, depth)
        finally:
            del self._open[before:]

    def _open_target(self, merged: Merged) -> JsonObject | None:
        """Return a target that is being translated, which must not be inlined in itself."""
        return next((each for each in merged.targets if id(each) in self._open), None)

    def _refer(self, target: JsonObject, node: JsonObject) -> JsonObject:
        name = self._names.get(id(target))
        if name is None:
            last = str(node.get("$ref", "")).rpartition("/")[2]
            short = _FOREIGN.sub("_", last)[:60].strip("_") or "definition"
            name, count = short, 1
            while name in self._names.values():
                count += 1
                name = f"{short}_{count}"
            self._names[id(target)] = name
            self._waiting.append((name, target))
        return {"$ref": f"#/$defs/{name}"}

    # Alternatives

    def _built(self, found: JsonObject, depth: int) -> JsonObject:
        if "anyOf" in found:
            if "properties" in found or not any(map(self._stands_alone, found["anyOf"])):
                found = self._folded(found)
            else:
                return self._union(found, depth)
        types = _types(found)
        out = _texts(found)
        if not types:
            return out | _anything()
        if "null" not in types and found.get("nullable"):
            types = [*types, "null"]
        out["type"] = types[0] if len(types) == 1 else types
        if "enum" in found:
            out["enum"] = distinct(found["enum"] + [None] * bool(found.get("nullable")))
        if "object" in types and (len(types) == 1 or _OBJECT & found.keys()):
            self._read_object(found, out, depth)
        if "array" in types:
            self._read_array(found, out, depth)
        if "string" in types and "enum" not in out:
            _read_string(found, out)
        if "number" in types or "integer" in types:
            _read_bounds(found, out)
        if "default" in found and fits(found["default"], types):
            out["default"] = found["default"]
        return out

    def _stands_alone(self, branch: Any) -> bool:
        """Return whether an alternative says what a value is, not only which members it has."""
        return not isinstance(branch, dict) or bool(
            self._merger.merge(branch).schema.keys() - {"required", "title", "description"}
        )

    def _union(self, found: JsonObject, depth: int) -> JsonObject:
        notes = ("title", "description", "default", "examples", "nullable")
        rest = {key: each for key, each in found.items() if key not in (*notes, "anyOf")}
        branches = [each for each in found["anyOf"] if each is not False]
        translated = [
            self.schema({"allOf": [each, rest]} if rest else each, depth + 1) for each in branches
        ]
        if found.get("nullable"):
            translated.append({"type": "null"})
        out = _texts(found)
        if "default" in found:
            out["default"] = found["default"]
        single = union(translated)
        if "$ref" in single:
            return single
        kinds = single.get("type", [])
        if not fits(out.get("default"), [kinds] if isinstance(kinds, str) else kinds) and kinds:
            out.pop("default", None)
        return {**single, **out}

    def _folded(self, found: JsonObject) -> JsonObject:
        """Return an object schema that has the properties of all alternatives."""
        merged = [self._merger.merge(each) for each in found.get("anyOf", ())]
        closed = [each for each in merged if self._open_target(each) is None]
        self._open += (id(target) for each in closed for target in each.targets)
        branches = [inner for each in closed for inner in self._inner(each.schema)]
        rest = {key: each for key, each in found.items() if key != "anyOf"}
        if not branches:
            return rest
        own = rest.get("properties", {})
        offered: dict[str, list[Any]] = {}
        for branch in branches:
            for name, each in branch.get("properties", {}).items():
                offered.setdefault(name, []).append(each)
        more = {
            name: each[0] if len(distinct(each)) == 1 else {"anyOf": each}
            for name, each in offered.items()
        }
        trivial = [name for name, each in own.items() if each in ({}, True) and name in more]
        required = rest.get("required", [])
        shared = set.intersection(*(set(each.get("required", ())) for each in branches))
        if len(closed) < len(merged):
            shared = set()
        required = [*required, *(each for each in offered if each in shared - {*required})]
        rest["properties"] = {**more, **own, **{name: more[name] for name in trivial}}
        if required:
            rest["required"] = required
        labels = distinct(filter(None, (self._label(each, required) for each in branches)))
        if 1 < len(labels) <= _MAX_LABELS:
            _note(rest, f"Use one of these sets: {'; '.join(labels)}.", 1_000)
        return rest

    def _label(self, branch: JsonObject, required: list[str]) -> str:
        """Return the arguments that an alternative adds, as a text."""
        properties = branch.get("properties", {})
        fixed = [name for name in required if _value(properties.get(name)) is not None]
        names = [name for name in branch.get("required", ()) if name not in required]
        names = names or [name for name in properties if name not in required]
        shown = []
        for name in (*fixed, *names[:_MAX_LABELS]):
            value = _value(properties.get(name))
            own = self._own_names.get(name, name)
            shown.append(own if value is None else f"{own} = {value}")
        return " and ".join(shown)

    def _inner(self, branch: JsonObject) -> Iterable[JsonObject]:
        if "anyOf" not in branch:
            return [branch]
        merged = [self._merger.merge({"allOf": [each, branch]}) for each in branch["anyOf"]]
        return [{**each.schema, "anyOf": []} for each in merged]

    # Members

    def _read_object(self, found: JsonObject, out: JsonObject, depth: int) -> None:
        members = found.get("properties", {})
        properties = {
            name: self.schema(each, depth + 1)
            for name, each in members.items()
            if each is not False
        }
        required = [each for each in found.get("required", ()) if members.get(each) is not False]
        # A call without a required member would be refused, so an undescribed one is offered too.
        properties |= {name: _anything() for name in required if name not in properties}
        out["properties"] = properties
        if required:
            out["required"] = required
        extra = found.get("additionalProperties")
        patterns = found.get("patternProperties")
        if isinstance(patterns, dict) and patterns and not isinstance(extra, dict):
            extra = next(iter(patterns.values())) if len(patterns) == 1 else True
        if isinstance(extra, dict):
            extra = self.schema(extra, depth + 1) if extra else True
        if isinstance(extra, dict | bool):
            out["additionalProperties"] = extra
        elif not properties:
            out["additionalProperties"] = True  # llama.cpp would allow no member
        out |= {key: found[key] for key in ("minProperties", "maxProperties") if key in found}

    def _read_array(self, found: JsonObject, out: JsonObject, depth: int) -> None:
        prefix, items = found.get("prefixItems"), found.get("items")
        if isinstance(items, list):  # up to draft 7
            prefix, items = items, found.get("additionalItems")
        least, most = found.get("minItems", 0), found.get("maxItems")
        rest = [self.schema(items, depth + 1)] if items is not False else []
        if isinstance(prefix, list) and prefix:
            out["prefixItems"] = [self.schema(each, depth + 1) for each in prefix]
            if items is False:
                most = min(len(prefix), len(prefix) if most is None else most)
            elif most is not None and most <= len(prefix):
                rest = []
            # OpenAI demands `items`, and llama.cpp reads `items` only, for every place.
            rest = [*out["prefixItems"], *rest]
        elif items is False:
            most = 0
        out["items"] = union(rest) if rest else {"type": _SCALARS}
        if least:
            _bounded(out, "minItems", least, MAX_ITEMS, "At least {} items.")
        if most is not None:
            _bounded(out, "maxItems", most, MAX_ITEMS, "At most {} items.")
        if found.get("uniqueItems"):
            out["uniqueItems"] = True


def subschemas(schema: JsonObject) -> Iterator[JsonObject]:
    """Yield the direct subschemas of a translated schema."""
    yield from schema.get("properties", {}).values()
    yield from schema.get("$defs", {}).values()
    yield from schema.get("anyOf", ())
    yield from schema.get("prefixItems", ())
    if "items" in schema:
        yield schema["items"]
    if isinstance(schema.get("additionalProperties"), dict):
        yield schema["additionalProperties"]


def definition_of(reference: str) -> str:
    """Return the name of the definition that a reference in a translated schema leads to."""
    return reference.rpartition("/")[2]


def _reached(schema: JsonObject, definitions: dict[str, JsonObject], *, deeper: bool) -> set[str]:
    """Return the definitions that apply to a value, and to its members as well if `deeper`."""
    reached: set[str] = set()
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        name = definition_of(each.get("$ref", ""))
        if name and name not in reached:
            reached.add(name)
            waiting.append(definitions[name])
        waiting += subschemas(each) if deeper else each.get("anyOf", ())
    return reached


def union(schemas: Iterable[JsonObject]) -> JsonObject:
    """Return a translated schema for values that fit one of several translated schemas."""
    flat = [each["anyOf"] if each.keys() == {"anyOf"} else [each] for each in schemas]
    found: list[JsonObject] = distinct(itertools.chain.from_iterable(flat))
    if not found or any(each == _anything() for each in found):
        return _anything()
    if len(found) == 1:
        return found[0]
    if all(each.keys() == {"type", "enum"} for each in found):
        values = distinct(value for each in found for value in each["enum"])
        return _enum(values)
    return {"anyOf": found}


def _anything() -> JsonObject:
    """Return a schema for any value: llama.cpp, Gemini and others refuse one without a type."""
    items = {"type": [*_SCALARS, "object", "null"]}
    return {"type": [*_SCALARS, "object", "array", "null"], "items": items}


def _enum(values: list[Any]) -> JsonObject:
    types = list(dict.fromkeys(map(type_of, values)))
    return {"type": types[0] if len(types) == 1 else types, "enum": values}


def _types(found: JsonObject) -> list[str]:
    types: list[str] = found.get("type", [])
    if "enum" in found and not (types and all(fits(each, types) for each in found["enum"])):
        return list(dict.fromkeys(map(type_of, found["enum"])))
    if types:
        return types
    return [name for name, keys in _NEEDS if keys & found.keys()]


def _texts(found: JsonObject) -> JsonObject:
    out = {key: found[key] for key in ("title", "description", "x-mcp-header") if found.get(key)}
    return out | ({"examples": found["examples"]} if found.get("examples") else {})


def _read_string(found: JsonObject, out: JsonObject) -> None:
    pattern, form = found.get("pattern"), found.get("format")
    if pattern is not None and is_common(pattern):
        out["pattern"] = pattern
    elif pattern:
        _note(out, f"Pattern: {pattern}")
    if form in _FORMATS:
        out["format"] = form
    elif form:
        _note(out, f"Format: {form}.")
    if encoding := found.get("contentEncoding"):
        _note(out, f"Encoding: {encoding}.")
    if "minLength" in found:
        _bounded(out, "minLength", found["minLength"], MAX_LENGTH, "At least {} characters.")
    if "maxLength" in found:
        _bounded(out, "maxLength", found["maxLength"], MAX_LENGTH, "At most {} characters.")


def _read_bounds(found: JsonObject, out: JsonObject) -> None:
    for key in sorted(_NUMBER):
        if is_number(found.get(key)) and abs(found[key]) <= MAX_NUMBER:
            out[key] = found[key]


def _bounded(out: JsonObject, key: str, value: int, limit: int, text: str) -> None:
    if value <= limit:
        out[key] = value
    elif value <= MAX_NUMBER:
        _note(out, text.format(f"{value:,}"))


def _note(schema: JsonObject, text: str, limit: int = MAX_NOTE) -> None:
    if len(text) <= limit:
        schema["description"] = f"{schema.get('description', '')} {text}".strip()


def _value(schema: Any) -> str | None:
    """Return the only value that a schema allows, as JSON; None if it allows more."""
    if not isinstance(schema, dict):
        return None
    enum = schema.get("enum")
    values = [schema["const"]] if "const" in schema else enum if isinstance(enum, list) else []
    if len(values) != 1 or isinstance(values[0], dict | list):
        return None
    return msgspec.json.encode(values[0]).decode()[:MAX_NOTE]
