"""An index of the rules in an untrusted schema, which is built within limits.

Every schema is indexed before other code reads it. A reference must lead to a place in the
document.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from interlock.errors import SchemaError
from interlock.text import quoting

MAX_SCHEMA_DEPTH = 32  # levels of subschemas
MAX_SUBSCHEMAS = 2_000
MAX_JSON_DEPTH = 64  # levels of the schema's own JSON, and of a value to be checked
MAX_PATTERNS = 100

_DIALECTS = {
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-04/schema": "draft-04",
    "json-schema.org/schema": "2020-12",
}
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


class _Resource:
    """The document, or a part of it that has its own `$id`."""

    def __init__(self, uri: str, root: Any) -> None:
        self.uri = uri
        self.root = root
        self.anchors: dict[str, SchemaRule] = {}


class SchemaRule:
    """A subschema that is an object, with the rules that the engine applies after it."""

    __slots__ = ("below", "here", "resource", "schema", "weight")

    def __init__(self, schema: dict[str, Any], resource: _Resource) -> None:
        self.schema = schema
        self.resource = resource
        self.weight = 1 + len(schema)
        self.here: list[SchemaRule] = []  # rules for the same value
        # Rules for the members of the value, by label: ".name" or an index for one member, "{}"
        # for every property, "[]" for every item.
        self.below: list[tuple[str | int, SchemaRule]] = []


class Survey:
    """All subschemas of a document.

    Attributes:
        root: The outermost subschema; None for `true` and `false`.
        rules: The rules of all object subschemas, by the `id` of the object. The document keeps
            the objects alive.
        patterns: All regular expressions of the schema.
        repeats: The number of times that the engine applies a rule for each use of its parent.

    Raises:
        SchemaError: The document is over a limit, has an external reference, or is not valid.
    """

    def __init__(self, document: Any) -> None:
        self.rules: dict[int, SchemaRule] = {}
        self.patterns: set[str] = set()
        self.repeats = 1
        self._subschemas = 0
        self._references: list[tuple[SchemaRule, str, bool]] = []  # from, to, dynamic
        self._resources: dict[str, _Resource] = {}
        self._dynamic_anchors: dict[str, list[SchemaRule]] = {}
        self._id_keyword = "$id"
        self._alternatives: list[SchemaRule] = []
        if isinstance(document, dict) and _dialect(document) == "draft-04":
            self._id_keyword = "id"
        self.root = self._visit(document, None, 0)
        # The list grows in the loop: a reference may lead to a place that was not indexed yet.
        for rule, reference, dynamic in self._references:
            rule.here += self._targets(rule, reference, dynamic)

    def is_tree(self) -> bool:
        """Whether the engine applies each rule to a value at most once."""
        return not self._references and self.repeats == 1

    def nests_alternatives(self) -> bool:
        """Whether an alternative contains rules, so that listing its errors may be slow."""
        return any(rule.here or rule.below for rule in self._alternatives)

    def relax(self, unchecked: set[str]) -> None:
        """Make patterns match everything, so that the schema accepts more and never less.

        This also removes the keywords that refuse a value because a pattern matches it.
        """
        for rule in self.rules.values():
            schema = rule.schema
            for keyword in _REFUSE_WHAT_FITS:
                schema.pop(keyword, None)
            if "oneOf" in schema:
                schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": schema.pop("oneOf")}]
            if schema.get("pattern") in unchecked:
                del schema["pattern"]
            if unchecked & schema.get("patternProperties", {}).keys():
                schema["patternProperties"] = {"": True}

    # Walking

    def _visit(self, schema: Any, resource: _Resource | None, depth: int) -> SchemaRule | None:
        """Index a subschema and all below it; return None for `true` and `false`."""
        if id(schema) in self.rules:
            return self.rules[id(schema)]
        self._subschemas += 1
        if self._subschemas > MAX_SUBSCHEMAS:
            raise SchemaError(f"the schema has more than {MAX_SUBSCHEMAS:,} subschemas")
        if schema is True or schema is False:
            return None
        if not isinstance(schema, dict):
            raise SchemaError(
                f"a schema must be an object or a boolean, not {quoting.kind(schema)}"
            )
        if depth >= MAX_SCHEMA_DEPTH:
            raise SchemaError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} subschemas")
        rule = SchemaRule(schema, self._resource_of(schema, resource))
        self.rules[id(schema)] = rule
        for keyword, value in schema.items():
            read = _KEYWORDS.get(keyword)
            if read is not None:
                read(self, rule, keyword, value, depth + 1)
            elif type(value) in _CONTAINERS and measure(value)[1] > MAX_JSON_DEPTH:
                raise SchemaError(f"{keyword!r} is nested deeper than {MAX_JSON_DEPTH} levels")
        return rule

    def _resource_of(self, schema: dict[str, Any], outer: _Resource | None) -> _Resource:
        identifier = schema.get(self._id_keyword)
        if not isinstance(identifier, str) or identifier.startswith("#"):
            return outer or self._add_resource("", schema)
        uri, _ = _join(outer.uri if outer else "", identifier)
        return self._add_resource(uri, schema)

    def _add_resource(self, uri: str, schema: dict[str, Any]) -> _Resource:
        return self._resources.setdefault(uri, _Resource(uri, schema))

    def _read_one(self, rule: SchemaRule, keyword: str, value: Any, depth: int) -> None:
        inner = self._visit(value, rule.resource, depth)
        if inner is not None:
            if keyword in _EVERY_MEMBER:
                rule.below.append((_EVERY_MEMBER[keyword], inner))
            elif keyword != "contentSchema":
                rule.here.append(inner)

    def _read_unevaluated(self, rule: SchemaRule, keyword: str, value: Any, depth: int) -> None:
        # To find unevaluated members, the engine applies each rule again for each `unevaluated…`
        # keyword above it: measured as 2.6 times a level.
        self.repeats = 3
        self._read_one(rule, keyword, value, depth)

    def _read_list(self, rule: SchemaRule, keyword: str, value: Any, depth: int) -> None:
        if not isinstance(value, list) or not value:
            given = quoting.kind(value) if value != [] else "an empty one"
            raise SchemaError(f"{keyword!r} must be a list of schemas, not {given}")
        for index, item in enumerate(value):
            inner = self._visit(item, rule.resource, depth)
            if inner is not None:
                if keyword in {"items", "prefixItems"}:
                    rule.below.append((index, inner))
                else:
                    rule.here.append(inner)
                if keyword in {"anyOf", "oneOf"}:
                    self._alternatives.append(inner)

    def _read_items(self, rule: SchemaRule, keyword: str, value: Any, depth: int) -> None:
        if isinstance(value, list):  # draft 2019-09 and before
            if value:
                self._read_list(rule, keyword, value, depth)
        else:
            self._read_one(rule, keyword, value, depth)

    def _read_map(self, rule: SchemaRule, keyword: str, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            raise SchemaError(
                f"{keyword!r} must be an object of schemas, not {quoting.kind(value)}"
            )
        for name, item in value.items():
            if keyword == "dependencies" and isinstance(item, list):
                continue
            if keyword == "patternProperties":
                self._read_pattern(rule, keyword, name, depth)
            inner = self._visit(item, rule.resource, depth)
            if inner is None:
                continue
            if keyword == "properties":
                rule.below.append(("." + name, inner))
            elif keyword == "patternProperties":
                rule.below.append(("{}", inner))
            elif keyword not in {"$defs", "definitions"}:
                rule.here.append(inner)

    def _read_reference(self, rule: SchemaRule, keyword: str, value: Any, _depth: int) -> None:
        self._references.append((rule, _string(keyword, value), keyword != "$ref"))

    def _read_anchor(self, rule: SchemaRule, keyword: str, value: Any, _depth: int) -> None:
        if keyword == "$recursiveAnchor":
            if value is True:
                self._dynamic_anchors.setdefault("", []).append(rule)
            return
        name = _string(keyword, value)
        if keyword in {"$id", "id"}:
            if not name.startswith("#"):
                return
            name = name[1:]  # drafts 4 to 7 define an anchor by an `$id` of "#name"
        rule.resource.anchors[name] = rule
        if keyword == "$dynamicAnchor":
            self._dynamic_anchors.setdefault(name, []).append(rule)

    def _read_type(self, _rule: SchemaRule, _keyword: str, value: Any, _depth: int) -> None:
        names = value if isinstance(value, list) else [value]
        for name in names:
            if not isinstance(name, str) or name not in _TYPES:
                raise SchemaError(f"{quoting.echo(name)} is not a type of JSON Schema")

    def _read_pattern(self, _rule: SchemaRule, keyword: str, value: Any, _depth: int) -> None:
        self.patterns.add(_string(keyword, value))
        if len(self.patterns) > MAX_PATTERNS:
            raise SchemaError(f"the schema has more than {MAX_PATTERNS} patterns")

    def _read_multiple(self, rule: SchemaRule, _keyword: str, value: Any, _depth: int) -> None:
        if isinstance(value, float):  # slow: the engine computes with fractions, up to 25 µs
            rule.weight += 300

    def _read_enum(self, rule: SchemaRule, keyword: str, value: Any, _depth: int) -> None:
        if not isinstance(value, list):
            raise SchemaError(f"{keyword!r} must be a list, not {quoting.kind(value)}")
        if measure(value)[1] > MAX_JSON_DEPTH:
            raise SchemaError(f"{keyword!r} is nested deeper than {MAX_JSON_DEPTH} levels")
        # Lookup is constant time; an error message lists every value.
        rule.weight += len(value) // 16

    # References

    def target(self, schema: dict[str, Any], reference: str) -> Any:
        """Return the target of a reference in a subschema of the document."""
        resource, fragment = self._locate(self.rules[id(schema)].resource, reference)
        if fragment and not fragment.startswith("/"):
            return resource.anchors[fragment].schema
        return point(resource.root, fragment)

    def _targets(self, rule: SchemaRule, reference: str, dynamic: bool) -> list[SchemaRule]:
        resource, fragment = self._locate(rule.resource, reference)
        if fragment and not fragment.startswith("/"):
            found: Any = resource.anchors.get(fragment)
        else:
            found = point(resource.root, fragment)
            if found is True or found is False:
                return []
            found = self._visit(found, resource, 0) if isinstance(found, dict) else None
        if found is None:
            raise SchemaError(f"the reference {quoting.echo(reference)} does not lead to a schema")
        targets = [found]
        if dynamic:
            targets += [r for r in self._dynamic_anchors.get(fragment, ()) if r is not found]
        return targets

    def _locate(self, base: _Resource, reference: str) -> tuple[_Resource, str]:
        if reference.startswith("#"):
            return base, _unquoted(reference[1:])
        uri, fragment = _join(base.uri, reference)
        resource = self._resources.get(uri)
        if resource is None:
            raise SchemaError(
                f"the reference {quoting.echo(reference)} leads outside of the schema, and "
                "schemas are never fetched; put its target into $defs"
            )
        return resource, fragment


_INDEX = re.compile(r"[0-9]{1,6}")  # few digits: int() refuses thousands of them
_CONTAINERS = frozenset({dict, list})
_EVERY_MEMBER = {
    "additionalItems": "[]",
    "additionalProperties": "{}",
    "contains": "[]",
    "items": "[]",
    "propertyNames": "{}",
    "unevaluatedItems": "[]",
    "unevaluatedProperties": "{}",
}
_REFUSE_WHAT_FITS = (
    "not",
    "if",
    "then",
    "else",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_KEYWORDS: dict[str, Callable[[Survey, SchemaRule, str, Any, int], None]] = {
    "$anchor": Survey._read_anchor,
    "$defs": Survey._read_map,
    "$dynamicAnchor": Survey._read_anchor,
    "$dynamicRef": Survey._read_reference,
    "$id": Survey._read_anchor,
    "$recursiveAnchor": Survey._read_anchor,
    "$recursiveRef": Survey._read_reference,
    "$ref": Survey._read_reference,
    "additionalItems": Survey._read_one,
    "additionalProperties": Survey._read_one,
    "allOf": Survey._read_list,
    "anyOf": Survey._read_list,
    "contains": Survey._read_one,
    "contentSchema": Survey._read_one,
    "definitions": Survey._read_map,
    "dependencies": Survey._read_map,
    "dependentSchemas": Survey._read_map,
    "else": Survey._read_one,
    "enum": Survey._read_enum,
    "id": Survey._read_anchor,
    "if": Survey._read_one,
    "items": Survey._read_items,
    "multipleOf": Survey._read_multiple,
    "not": Survey._read_one,
    "oneOf": Survey._read_list,
    "pattern": Survey._read_pattern,
    "patternProperties": Survey._read_map,
    "prefixItems": Survey._read_list,
    "properties": Survey._read_map,
    "propertyNames": Survey._read_one,
    "then": Survey._read_one,
    "type": Survey._read_type,
    "unevaluatedItems": Survey._read_unevaluated,
    "unevaluatedProperties": Survey._read_unevaluated,
}


def _dialect(document: dict[str, Any]) -> str:
    """Return the draft of JSON Schema that a document names."""
    uri = document.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    if isinstance(uri, str):
        key = uri.removeprefix("https://").removeprefix("http://").removesuffix("#")
        if key in _DIALECTS:
            return _DIALECTS[key]
    known = ", ".join(sorted(set(_DIALECTS.values())))
    raise SchemaError(f"$schema {quoting.echo(uri)} is not supported; supported are {known}")


def _string(keyword: str, value: Any) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"{keyword!r} must be a string, not {quoting.kind(value)}")
    return value


def _join(base: str, reference: str) -> tuple[str, str]:
    from urllib.parse import urldefrag, urljoin

    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        raise SchemaError(
            f"{quoting.echo(reference)} cannot be resolved: it, or the $id around it, is not a URI"
        ) from None
    return uri, _unquoted(fragment)


def _unquoted(fragment: str) -> str:
    if "%" not in fragment:
        return fragment
    from urllib.parse import unquote

    return unquote(fragment)


def point(document: Any, pointer: str) -> Any:
    """Return the value that a JSON pointer leads to; None if there is none."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            index = int(step) if _INDEX.fullmatch(step) else len(document)
            document = document[index] if index < len(document) else None
        elif isinstance(document, dict):
            document = document.get(step)
        else:
            return None
    return document


def measure(value: Any) -> tuple[int, int]:
    """Count all values inside a value, and its levels of nesting up to one over the limit.

    Long text counts as several values, because patterns read all of it.
    """
    size, depth = 0, 0
    level = [value]
    while True:
        size += len(level)
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                size += len(item) >> 10
            elif isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        if not below or depth > MAX_JSON_DEPTH:
            return size, depth
        level = below
        depth += 1
