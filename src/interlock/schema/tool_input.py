"""Tools' input schemas that are almost right, as many servers send them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from interlock.errors import SchemaError
from interlock.schema.cost import by_depth
from interlock.schema.inspection import Survey, point
from interlock.schema.merging import types_of
from interlock.schema.plain import plain
from interlock.schema.validator import check_tool_input, compile
from interlock.types import JsonObject

_ABSENT: tuple[Any, ...] = (None, True, [])
_DIALECTS = (
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-04/schema#",
)
# Keywords for values that are not objects; at the root they show that a schema is not for a tool.
_OF_OTHERS = frozenset(
    (
        *("items", "prefixItems", "enum", "const", "pattern", "format", "minLength", "not"),
        *("maxLength", "minimum", "maximum", "minItems", "maxItems"),
    )
)


def read_input(schema: Any) -> Any:
    """Return an input schema whose root is an object, if that is plainly what the server means.

    No schema, "", null, `{}` and `[]` mean "no arguments". A schema without a type, with the type
    "object or null", or with null for its properties or required names, means an object. Anything
    else is returned unchanged.
    """
    if isinstance(schema, str):  # JSON within JSON
        with suppress(msgspec.DecodeError, RecursionError):
            schema = msgspec.json.decode(schema or "{}", type=JsonObject)
    if isinstance(schema, bool | list) or schema is None:
        return {"type": "object"} if schema in _ABSENT else schema
    if not isinstance(schema, dict):
        return schema
    if schema.keys() == {"jsonSchema"}:  # https://github.com/twentyhq/twenty/issues/15348
        return read_input(schema["jsonSchema"])
    absent = {
        key
        for key, empty in (("properties", (None, [])), ("required", (None, False, True, "", {})))
        if key in schema and schema[key] in empty
    }
    found = {key: each for key, each in schema.items() if key not in absent}
    kind = found.get("type")
    if isinstance(kind, list | str) and kind != "object" and "object" in types_of(kind):
        found["type"] = "object"
    elif kind in (None, "") and _may_be_object(found):
        found = {**found, "type": "object"}
    return found if found != schema else schema


def _may_be_object(schema: JsonObject) -> bool:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        target = point(schema, reference[1:])
        kind = target.get("type", "object") if isinstance(target, dict) else "object"
        if "object" not in types_of(kind):
            return False
    return "properties" in schema or not _OF_OTHERS & schema.keys()


def checked_input(schema: bytes) -> bytes:
    """Return the schema that checks a tool's calls: the given one, or a mended one.

    If the schema is not valid in its dialect, it may be in another one, since many servers write
    draft 4 or 7 without saying so. Otherwise the invalid parts are left out.

    Raises:
        SchemaError: The schema does not describe an object, or is too large, or refers to another
            document.
    """
    try:
        check_tool_input(schema)
        compile(schema)
    except SchemaError:
        try:
            mended = _mended(msgspec.json.decode(schema))
        except (SchemaError, msgspec.DecodeError, RecursionError):
            mended = None
        if mended is None:
            raise
        return mended
    return schema


def _mended(schema: Any) -> bytes | None:
    """Return a valid schema for one that is not; None if it is not clear what it means."""
    if (
        not isinstance(schema, dict)
        or schema.get("type") != "object"
        or not isinstance(schema.get("properties", {}), dict)
        or _is_costly(schema)
    ):
        return None
    for dialect in _DIALECTS:
        encoded = msgspec.json.encode({**schema, "$schema": dialect})
        with suppress(SchemaError):
            compile(encoded)
            return encoded
    encoded = msgspec.json.encode(plain(schema))
    compile(encoded)
    return encoded


def _is_costly(schema: Any) -> bool:
    """Return whether a schema is over a limit, rather than not valid."""
    try:
        survey = Survey(schema)
    except SchemaError:
        return False
    try:
        by_depth(survey)
    except SchemaError:
        return True
    return False
