"""Arguments from models, read as they are meant, as far as the tool's schema permits one reading.

Models often send JSON as text ("[1,2]" for an array), and null for an argument to leave out. Rules:

1. Only a value that the schema refuses is changed. Text stays text wherever the schema takes any
   text, and null stays null wherever the schema takes null.
2. Nothing is lost: text must be JSON, without a repeated key, and with numbers that keep all their
   digits. Text such as "5.0" becomes the integer 5, because it is exactly whole.
3. Null is left out only if it is an optional member of an object.
4. If several readings are possible, none is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET

from interlock.schema.validator import Validator
from interlock.types import JsonObject

if TYPE_CHECKING:
    import jsonschema_rs

MAX_ROUNDS = 8  # readings of text inside of text, and of one error after another in large values
MAX_EXACT = 2**53  # beyond this, a float stands for several integers
MAX_READINGS = 8  # alternatives of a schema that could take a value after a change

Reading = Literal["text", "null"]
Path: TypeAlias = "tuple[str | int, ...]"
_Edits: TypeAlias = "dict[Path, Any]"  # the new value at each path; UNSET leaves a member out


def convert(
    arguments: JsonObject, validator: Validator, keep_null: Collection[str] = ()
) -> tuple[JsonObject, dict[str, Reading]]:
    """Read arguments that do not fit their schema as they are meant.

    Args:
        arguments: The arguments; they are not changed.
        validator: The validator for the tool's schema.
        keep_null: The arguments in which null has a meaning of its own, and is never left out.

    Returns:
        The converted arguments, which may still not fit, and what was read: "text" or "null" for
        each argument that was changed, by name.
    """
    value: Any = arguments
    read: dict[str, Reading] = {}
    errors = validator.problems(value)
    for _ in range(MAX_ROUNDS):
        edits = _merged(_chosen(error, value, validator) for error in errors)
        edits = {
            path: new
            for path, new in edits.items()
            if new is not UNSET or str(path[0]) not in keep_null
        }
        changed = _edited(value, edits)
        errors = validator.problems(changed) if edits else []
        needed = edits.keys() & set(_missing(errors))
        if needed:
            edits = {path: new for path, new in edits.items() if path not in needed}
            changed = _edited(value, edits)
            errors = validator.problems(changed) if edits else []
        if not edits:
            break
        for path, new in edits.items():
            read[str(path[0])] = "null" if new is UNSET else "text"
        value = changed
        if not errors:
            break
    return value, read


def whole_numbers(value: Any) -> Any:
    """Return a JSON value in which the floats without a fraction are integers, as 3 for 3.0."""
    match value:
        case float() if value.is_integer() and abs(value) <= MAX_EXACT:
            return int(value)
        case list():
            return [whole_numbers(each) for each in value]
        case dict():
            return {key: whole_numbers(each) for key, each in value.items()}
    return value


# Readings


def _chosen(error: jsonschema_rs.ValidationError, value: Any, validator: Validator) -> _Edits:
    """Return the changes that resolve an error; {} if there are none, or several."""
    readings = _readings(error)
    if len(readings) > 1:
        readings = [
            edits
            for edits in readings[:MAX_READINGS]
            if not any(_is_same(error, each) for each in validator.problems(_edited(value, edits)))
        ]
    return readings[0] if len(readings) == 1 else {}


def _readings(error: jsonschema_rs.ValidationError) -> list[_Edits]:
    """Return each set of changes that could resolve an error."""
    if error.kind.name in {"anyOf", "oneOf"}:
        return _readings_of_alternatives(error)
    path = tuple(error.instance_path)
    given: Any = error.instance
    if not path or not _is_mismatch(error):
        return []
    read = UNSET if given is None else _read(given, error.kind)
    if read is UNSET and (
        not isinstance(path[-1], str) or (given is not None and given.strip() != "null")
    ):
        return []
    return [{path: read}]


def _readings_of_alternatives(error: jsonschema_rs.ValidationError) -> list[_Edits]:
    branches = _branches(error)
    if isinstance(error.instance, str) and not _is_mismatch(error):
        return []
    readings: list[_Edits] = []
    for branch in branches:
        parts = [_readings(inner) for inner in branch]
        if parts and all(len(each) == 1 for each in parts):
            edits = _merged(each[0] for each in parts)
            if edits not in readings:
                readings.append(edits)
    return [edits for edits in readings if UNSET not in edits.values()] or readings


def _is_mismatch(error: jsonschema_rs.ValidationError) -> bool:
    """Return whether a schema refuses each text, or null, in place of the value."""
    given, limit = error.instance, error.kind.value
    if given is not None and not isinstance(given, str):
        return False
    match error.kind.name:
        case "type":
            return True
        case "const":
            return type(limit) is not type(given)
        case "enum":
            return type(given) not in map(type, limit)
        case "anyOf" | "oneOf":
            here = error.instance_path
            return all(
                any(each.instance_path == here and _is_mismatch(each) for each in branch)
                for branch in _branches(error)
            )
    return False


def _branches(error: jsonschema_rs.ValidationError) -> list[list[jsonschema_rs.ValidationError]]:
    return error.kind.value or [[]]  # no list if several alternatives of `oneOf` fit


def _is_same(one: jsonschema_rs.ValidationError, other: jsonschema_rs.ValidationError) -> bool:
    return one.instance_path == other.instance_path and one.schema_path == other.schema_path


def _missing(errors: Iterable[jsonschema_rs.ValidationError]) -> Iterator[Path]:
    """Return the paths of required members that are missing."""
    for error in errors:
        if error.kind.name == "required":
            yield (*error.instance_path, error.kind.value)
        elif error.kind.name in {"anyOf", "oneOf"}:
            for branch in _branches(error):
                yield from _missing(branch)


# Text


def _read(text: str, kind: Any) -> Any:
    """Return the JSON value in a text if an error of this kind permits it; otherwise UNSET."""
    try:
        value = json.loads(
            text, parse_float=_number, parse_constant=_refused, object_pairs_hook=_object
        )
    except (ValueError, RecursionError):
        return UNSET
    if kind.name == "type":
        wanted = set(kind.value)
        if type(value) is float and value.is_integer() and "number" not in wanted:
            value = int(Decimal(text))
        return value if _types(value) & wanted else UNSET
    allowed = kind.value if kind.name == "enum" else [kind.value]
    return value if any(value == each and type(value) is type(each) for each in allowed) else UNSET


def _types(value: Any) -> set[str]:
    match value:
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case list():
            return {"array"}
        case dict():
            return {"object"}
        case None:
            return {"null"}
    return set()


def _number(text: str) -> float:
    number = float(text)
    if Decimal(repr(number)) != Decimal(text):
        raise ValueError("the number has more digits than a float keeps")
    return number


def _refused(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is repeated")
    return made


# Changes


def _merged(parts: Iterable[_Edits]) -> _Edits:
    merged: _Edits = {}
    for part in parts:
        merged.update(part)
    return merged


def _edited(value: Any, edits: _Edits) -> Any:
    """Return a copy of a value with changes; parts without changes are shared."""
    by_step: dict[str | int, _Edits] = {}
    for path, new in edits.items():
        by_step.setdefault(path[0], {})[path[1:]] = new
    if not by_step:
        return value
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    for step, below in by_step.items():
        if () not in below:
            copy[step] = _edited(copy[step], below)
        elif below[()] is UNSET:
            del copy[step]
        else:
            copy[step] = below[()]
    return copy
