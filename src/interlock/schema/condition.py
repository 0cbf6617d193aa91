"""Conditions of a policy on one JSON value: JSON Schema in which a keyword implies its type.

In JSON Schema `{"maximum": 50}` accepts the text "999", and `{"pattern": "^prod"}` accepts a list.
A condition that permits something must not, and one that forbids something must. Rules:

1. `pattern` implies a string, `maximum` a number, `items` an array, and so on; `const` and `enum`
   imply the types of their values. A `type` beside such keywords takes the place of what they
   imply.
2. For a value of another type the strict reading fails, and the lenient one holds. Items
   and members inside the value are read in the same way.
3. `under` is a folder: the value is an absolute path at or below it, without empty, `.` and `..`
   segments. The lenient reading also holds for a path that cannot be located: a relative one, or
   one with such segments.
4. Unknown keywords are refused, because a misspelled one would permit everything. There are no
   references, and patterns run in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from interlock.errors import SchemaError
from interlock.schema.validator import MAX_PATTERN_BYTES
from interlock.text import quoting

if TYPE_CHECKING:
    import jsonschema_rs

MAX_DEPTH = 16  # conditions inside conditions
MAX_FOLDER = 4_096  # characters

_Types = frozenset[str]

# Keywords, and the type that each implies.
_IMPLIED: dict[str, str] = {
    "pattern": "string",
    "minLength": "string",
    "maxLength": "string",
    "under": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
    "items": "array",
    "prefixItems": "array",
    "contains": "array",
    "minItems": "array",
    "maxItems": "array",
    "uniqueItems": "array",
    "properties": "object",
    "patternProperties": "object",
    "additionalProperties": "object",
    "propertyNames": "object",
    "required": "object",
    "dependentRequired": "object",
    "minProperties": "object",
    "maxProperties": "object",
}
_INNER = ("items", "contains", "additionalProperties", "propertyNames")  # on parts of the value
_INNER_LISTS = ("prefixItems",)
_INNER_TABLES = ("properties", "patternProperties")
_ALTERNATIVES = ("allOf", "anyOf")  # on the value itself
KEYWORDS = (*_IMPLIED, "type", "const", "enum", *_ALTERNATIVES, "not")

_PROBLEMS = {
    "type": "has another type",
    "const": "is not the value",
    "enum": "is not one of the values",
    "pattern": "does not match the pattern",
    "under": "is not under the folder",
    "minLength": "is too short",
    "maxLength": "is too long",
    "minimum": "is under its minimum",
    "exclusiveMinimum": "is not over its minimum",
    "maximum": "is over its maximum",
    "exclusiveMaximum": "is not under its maximum",
    "required": "lacks a member",
    "anyOf": "fits none of the alternatives",
    "not": "fits what is excluded",
}


def problem(keyword: str) -> str:
    """Describe the problem of a value that fails a keyword, such as "is over its maximum"."""
    return _PROBLEMS.get(keyword, f"does not fit {keyword}")


class Condition:
    """A condition on one JSON value, made by `compile`; conditions with the same text are equal.

    Attributes:
        document: The condition as written.
        accepts_absence: Whether the condition also holds if the value is missing.
    """

    __slots__ = ("_lenient", "_schema", "_strict", "accepts_absence", "document")

    def __init__(self, document: Mapping[str, Any]) -> None:
        rest = {key: value for key, value in document.items() if key != "absent"}
        self.document = dict(document)
        self.accepts_absence = document.get("absent", False) is True
        self._schema = _whole(rest, lenient=False)
        self._strict = _engine(self._schema)
        self._lenient = _engine(_whole(rest, lenient=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and other.document == self.document

    def __hash__(self) -> int:
        return hash(frozenset(self.document))

    def __repr__(self) -> str:
        return f"Condition({', '.join(sorted(self.document))})"

    def holds(self, value: Any) -> bool:
        """Return whether a value meets the condition; a value of another type does not."""
        try:
            return self._strict.is_valid(value)
        except ValueError:  # not a JSON value, for example a lone surrogate
            return False

    def may_hold(self, value: Any) -> bool:
        """Return whether a value meets the condition, or is of another type."""
        try:
            return self._lenient.is_valid(value)
        except ValueError:
            return True

    def engine(self, *, is_lenient: bool) -> Callable[[Any], bool]:
        """Return a faster function for `holds`, or for `may_hold` if `is_lenient`.

        It raises `ValueError` for a value that is not JSON, such as a lone surrogate.
        """
        return self._lenient.is_valid if is_lenient else self._strict.is_valid

    def failed_keyword(self, value: Any) -> str:
        """Return the first keyword that a value fails; "type" for a value of another type."""
        try:
            error = next(iter(self._strict.iter_errors(value)), None)
        except ValueError:
            return "type"
        if error is None:
            return ""
        place: Any = self._schema
        for step in error.schema_path[:-1]:
            place = place[step]
        is_folder = isinstance(place, dict) and place.get("$comment") == "under"
        return "under" if is_folder else str(error.kind.name)


def compile(document: Any) -> Condition:
    """Compile a condition. The first call loads the validation engine, which takes some 40 ms.

    Args:
        document: An object with `KEYWORDS`, and perhaps `absent`.

    Raises:
        SchemaError: The condition is not valid; the text names the place and the reason.
    """
    if not isinstance(document, dict):
        raise SchemaError(f"must be an object of JSON Schema, not {quoting.kind(document)}")
    if not isinstance(document.get("absent", False), bool):
        raise SchemaError("absent: must be true or false")
    rest = {key: value for key, value in document.items() if key != "absent"}
    _check(rest, [])
    return Condition(document)


# Checking


def _check(node: Any, place: list[str | int]) -> None:
    if isinstance(node, bool) and place:
        return
    if not isinstance(node, dict):
        raise SchemaError(f"{_at(place)}must be an object, not {quoting.kind(node)}")
    if len(place) > 2 * MAX_DEPTH:
        raise SchemaError(f"is nested deeper than {MAX_DEPTH} levels")
    for key in node:
        if key not in KEYWORDS:
            raise SchemaError(f"{_at(place)}unknown keyword {quoting.echo(key)}{_hint(key)}")
    if "under" in node:
        _check_folder(node["under"], [*place, "under"])
    for key, inner in _children(node, place):
        _check(inner, [*place, *key])
    if _types(node) == frozenset():
        raise SchemaError(f"{_at(place)}has keywords of different types, so no value fits")


def _children(
    node: Mapping[str, Any], place: list[str | int]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for key in (*_INNER, "not"):
        if key in node:
            yield (key,), node[key]
    for key in (*_INNER_LISTS, *_ALTERNATIVES):
        if key in node:
            items = node[key]
            if not isinstance(items, list) or not items:
                raise SchemaError(f"{_at([*place, key])}must be a list of conditions")
            yield from (((key, index), item) for index, item in enumerate(items))
    for key in _INNER_TABLES:
        if key in node:
            table = node[key]
            if not isinstance(table, dict):
                raise SchemaError(f"{_at([*place, key])}must be an object of conditions")
            yield from (((key, name), item) for name, item in table.items())


def _check_folder(folder: Any, place: list[str | int]) -> None:
    if not isinstance(folder, str) or len(folder) > MAX_FOLDER:
        raise SchemaError(f"{_at(place)}must be the path of a folder")
    if not re.fullmatch(_PATH, folder):
        raise SchemaError(f"{_at(place)}must be an absolute path without . and .. segments")


def _at(place: list[str | int]) -> str:
    return f"{quoting.place(place)}: " if place else ""


def _hint(key: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(key[: quoting.MAX_ECHO], KEYWORDS, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


# Types


def _types(node: Any) -> _Types | None:
    if isinstance(node, bool):
        return None
    implied = [frozenset({_IMPLIED[key]}) for key in node if key in _IMPLIED]
    if "const" in node:
        implied.append(frozenset({_type_of(node["const"])}))
    if isinstance(node.get("enum"), list):
        implied.append(frozenset(map(_type_of, node["enum"])))
    if "type" in node:
        written = node["type"]
        named = frozenset(filter(_is_text, written if isinstance(written, list) else [written]))
        if not implied:
            return None
        numbers = frozenset({"number"}) if "integer" in named else frozenset()
        fits = all(each & (named | numbers) for each in implied)
        return named if fits else frozenset()
    implied += [each for inner in node.get("allOf", ()) if (each := _types(inner)) is not None]
    if "anyOf" in node:
        alternatives = [_types(inner) for inner in node["anyOf"]]
        if None not in alternatives:
            implied.append(frozenset().union(*(each or () for each in alternatives)))
    if "not" in node and (excluded := _types(node["not"])) is not None:
        implied.append(excluded)
    return frozenset.intersection(*implied) if implied else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _type_of(value: Any) -> str:
    return quoting.kind(value).rpartition(" ")[2].replace("list", "array")


# Translating


def _whole(node: Any, *, lenient: bool) -> Any:
    """Translate the condition on a value, or on a part of it, to JSON Schema."""
    body = _body(node, lenient)
    types = _types(node)
    if types is None:
        return body
    if lenient:
        return {"anyOf": [{"not": {"type": sorted(types)}}, body]}
    return {"type": sorted(types)} | body


def _body(node: Any, lenient: bool) -> Any:
    """Translate a condition, for a value that has one of its types."""
    if isinstance(node, bool):
        return node
    body = dict(node)
    for key in _INNER:
        if key in node:
            body[key] = _whole(node[key], lenient=lenient)
    for key in _INNER_LISTS:
        if key in node:
            body[key] = [_whole(inner, lenient=lenient) for inner in node[key]]
    for key in _INNER_TABLES:
        if key in node:
            body[key] = {name: _whole(each, lenient=lenient) for name, each in node[key].items()}
    for key in _ALTERNATIVES:
        if key in node:
            body[key] = [_typed(inner, lenient) for inner in node[key]]
    if "not" in node:
        body["not"] = _typed(node["not"], not lenient)
    if "under" in body:
        folder = _folder(body.pop("under"), lenient)
        body["allOf"] = [*body.get("allOf", ()), folder]
    return body


def _typed(node: Any, lenient: bool) -> Any:
    body, types = _body(node, lenient), _types(node)
    return body if types is None else {"type": sorted(types)} | body


# A name in a path: not empty, "." or ".."; without backslashes, which separate names on Windows.
_CHARACTER = r"[^/\\\x00-\x1f\x7f]"
_NOT_DOT = r"[^/\\\x00-\x1f\x7f.]"
_NAME = rf"(?:{_NOT_DOT}{_CHARACTER}*|\.{_NOT_DOT}{_CHARACTER}*|\.\.{_CHARACTER}+)"
_BELOW = rf"(?:/{_NAME})*/?"
_PATH = rf"(?:/|(?:/{_NAME})+/?)"


def _folder(folder: str, lenient: bool) -> dict[str, Any]:
    root = re.sub(r"[\\^$.|?*+()\[\]{}]", r"\\\g<0>", folder.rstrip("/"))
    paths = f"{root}{_BELOW}" if root else _PATH
    below: dict[str, Any] = {"$comment": "under", "pattern": f"^{paths}$"}
    if not lenient:
        return below
    return {"anyOf": [below, {"not": {"pattern": f"^{_PATH}$"}}]}


def _engine(schema: Any) -> jsonschema_rs.Validator:
    import jsonschema_rs

    try:
        return jsonschema_rs.Draft202012Validator(
            schema,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES),
            validate_formats=False,
        )
    except ValueError as error:
        place = _at(list(_written(getattr(error, "instance_path", []))))
        raise SchemaError(f"{place}{_reason(error)}") from None


def _written(path: Iterable[str | int]) -> Iterator[str | int]:
    """Return a path in a translated condition without the steps that the translation added."""
    return iter([step for step in path if step != "anyOf" and not isinstance(step, int)])


def _reason(error: ValueError) -> str:
    """Return the problem of a keyword's value, without the value."""
    kind: Any = getattr(error, "kind", None)
    match kind.name if kind is not None else "":
        case "format":
            return "is not a regular expression that runs in linear time"
        case "type":
            return f"must be of type {' or '.join(kind.types)}"
        case _:
            return "is not valid for this keyword"
