"""Reduces JSON Schemas to keywords that llama.cpp can compile to a grammar.

llama.cpp drops a whole grammar because of one unknown keyword, and large numbers and patterns make
it slow. The dropped keywords are checked before the tool runs, as for every model.
"""

from __future__ import annotations

from typing import Any

import msgspec

_TYPES = frozenset(("string", "number", "integer", "boolean", "null", "object", "array"))
_NOTES = ("title", "description", "default")  # keywords that restrict no value
_SECTIONS = ("$defs", "definitions")
_LONGEST_LIST = 16  # the largest minItems and maxItems that are kept
_MOST_VALUES = 500  # values of an enum
_DEEPEST = 20


def grammar_schema(encoded: bytes) -> dict[str, Any]:
    """Return a tool's input schema, reduced to keywords that a grammar can express."""
    schema = msgspec.json.decode(encoded)
    sections = {
        section: {str(name): _reduce(each, schema, 0) for name, each in schema[section].items()}
        for section in _SECTIONS
        if isinstance(schema.get(section), dict)
    }
    return _reduce(schema, schema, 0) | sections


def _reduce(schema: Any, root: dict[str, Any], depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {}
    notes = {key: schema[key] for key in _NOTES if isinstance(schema.get(key), str)}
    if "$ref" in schema:
        return notes | ({"$ref": schema["$ref"]} if _resolves(schema["$ref"], root) else {})
    if "const" in schema:
        return notes | {"const": schema["const"]}
    values = schema.get("enum")
    if isinstance(values, list) and 0 < len(values) <= _MOST_VALUES:
        return notes | {"enum": values}
    for keyword in ("anyOf", "oneOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list) and branches:
            return notes | {"anyOf": [_reduce(each, root, depth + 1) for each in branches]}
    kinds = schema.get("type")
    known = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each in _TYPES]
    if not known:
        return notes
    reduced = notes | {"type": known[0] if len(known) == 1 else known}
    if "object" in known:
        reduced |= _object(schema, root, depth)
    if "array" in known:
        reduced |= _array(schema, root, depth)
    return reduced


def _object(schema: dict[str, Any], root: dict[str, Any], depth: int) -> dict[str, Any]:
    listed = schema.get("properties")
    properties = listed if isinstance(listed, dict) else {}
    names = schema.get("required")
    required = [each for each in names if each in properties] if isinstance(names, list) else []
    # By default, forbid arguments that the schema does not name: models mostly invent these.
    others = schema.get("additionalProperties", not properties)
    return {
        "properties": {name: _reduce(each, root, depth + 1) for name, each in properties.items()},
        "required": required,
        "additionalProperties": _reduce(others, root, depth + 1)
        if isinstance(others, dict)
        else bool(others),
    }


def _array(schema: dict[str, Any], root: dict[str, Any], depth: int) -> dict[str, Any]:
    reduced: dict[str, Any] = {"items": _reduce(schema.get("items"), root, depth + 1)}
    least, most = schema.get("minItems", 0), schema.get("maxItems", _LONGEST_LIST)
    if isinstance(least, int) and isinstance(most, int) and 0 <= least <= most <= _LONGEST_LIST:
        reduced |= {key: schema[key] for key in ("minItems", "maxItems") if key in schema}
    return reduced


def _resolves(reference: Any, root: dict[str, Any]) -> bool:
    match str(reference).split("/"):
        case ["#", section, name] if section in _SECTIONS:
            found = root.get(section)
            target = found.get(name) if isinstance(found, dict) else None
            return isinstance(target, dict) and "$ref" not in target  # prevents an endless loop
    return False
