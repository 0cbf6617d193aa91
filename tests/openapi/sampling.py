"""Arguments for a tool, made from nothing but its schema: the least, all, or awkward text."""

from __future__ import annotations

import re
import string
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from interlock.openapi import bodies

AWKWARD = "a b&c=d+é?#[x]|,;:%41\"'<>{}~"
DEPTH = 6


class Unsatisfiable(Exception):
    """No value was found for a schema."""


class Sampler:
    """Makes values for the schemas of one document.

    Args:
        definitions: The `$defs`.
        full: Whether to set optional properties.
        text: What to put into strings that nothing restricts.
    """

    def __init__(self, definitions: dict[str, Any], *, full: bool, text: str) -> None:
        self._definitions = definitions
        self._full = full
        self._text = text

    def arguments(self, schema: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
        """Return arguments for a tool; `texts` has the text for some of them."""
        required = schema.get("required", [])
        found = {}
        text = self._text
        for name, each in schema["properties"].items():
            self._text = texts.get(name, text)
            if name in required:
                found[name] = self.value(each, 0)
            elif self._full:
                try:
                    found[name] = self.value(each, 0)
                except Unsatisfiable:
                    continue
        return found

    def value(self, schema: Any, depth: int) -> Any:
        if depth > DEPTH * 3:
            raise Unsatisfiable
        schema = self._whole(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return _choice(schema["enum"], schema.get("type"))
        for keyword in ("oneOf", "anyOf"):
            for branch in schema.get(keyword, ()):
                rest = {key: each for key, each in schema.items() if key != keyword}
                try:
                    return self.value({"allOf": [branch, rest]}, depth + 1)
                except Unsatisfiable:
                    continue
        kinds = schema.get("type", _guess(schema))
        kinds = kinds if isinstance(kinds, list) else [kinds]
        kind = next((each for each in kinds if each != "null"), "null")
        return getattr(self, f"_{kind}")(schema, depth)

    def _whole(self, schema: Any, depth: int) -> dict[str, Any]:
        """Return a schema with its references and its `allOf` merged."""
        if schema is True:
            return {}
        if schema is False or depth > DEPTH * 3:
            raise Unsatisfiable
        merged = {key: each for key, each in schema.items() if key not in ("$ref", "allOf")}
        parts = list(schema.get("allOf", ()))
        if "$ref" in schema:
            parts.append(self._definitions[schema["$ref"].removeprefix("#/$defs/")])
        for part in parts:
            for key, each in self._whole(part, depth + 1).items():
                known = merged.get(key)
                if key == "properties" and known:
                    merged[key] = {
                        **known,
                        **{
                            n: {"allOf": [known[n], s]} if n in known else s
                            for n, s in each.items()
                        },
                    }
                elif key == "required" and known:
                    merged[key] = [*known, *each]
                elif key == "enum" and known:
                    merged[key] = [value for value in known if value in each] or known
                else:
                    merged[key] = each if known is None or key in ("type", "enum") else known
        return merged

    # Kinds

    def _object(self, schema: dict[str, Any], depth: int) -> Any:
        required = schema.get("required", [])
        found = {}
        for name, each in schema.get("properties", {}).items():
            if name in required or (self._full and depth < DEPTH):
                try:
                    found[name] = self.value(each, depth + 1)
                except Unsatisfiable:
                    if name in required:
                        raise
        other = schema.get("additionalProperties")
        if set(schema.get("properties", ())) == {*bodies.FILE["properties"]}:
            return {"text": self._text, "name": "a b.txt"}
        if not found and self._full and depth < DEPTH and isinstance(other, dict):
            found["key"] = self.value(other, depth + 1)
        for name in required:
            if name not in found:
                found[name] = self._text
        index = 0
        while len(found) < schema.get("minProperties", 0):
            found[f"extra{index}"] = self.value(other, depth + 1) if isinstance(other, dict) else 1
            index += 1
        return found

    def _array(self, schema: dict[str, Any], depth: int) -> Any:
        if "prefixItems" in schema:
            return [self.value(each, depth + 1) for each in schema["prefixItems"]]
        least = schema.get("minItems", 0)
        count = max(least, 2 if self._full and depth < DEPTH else 0)
        count = min(count, schema.get("maxItems", count))
        if not count:
            return []
        items = schema.get("items", {"type": "string"})
        first = self.value(items, depth + 1)
        found = [first]
        while len(found) < count:
            found.append(self._another(items, len(found), first, depth))
        if schema.get("uniqueItems"):
            found = [each for index, each in enumerate(found) if each not in found[:index]]
        return found

    def _another(self, items: Any, index: int, first: Any, depth: int) -> Any:
        whole = self._whole(items, depth)
        if "anyOf" in whole:
            return first
        if isinstance(first, str) and not whole.keys() & {"enum", "const", "pattern", "maxLength"}:
            return f"{first}{index}"
        return whole["enum"][index % len(whole["enum"])] if whole.get("enum") else first

    def _string(self, schema: dict[str, Any], _depth: int) -> str:
        text = self._text
        if "pattern" in schema:
            text = from_pattern(schema["pattern"])
            filler = text[-1:] or "a"
            return text.ljust(schema.get("minLength", 0), filler)[: schema.get("maxLength")]
        if "format" in schema and schema["format"] not in ("binary", "byte", "password"):
            text = _FORMATS.get(schema["format"], self._text)
        text = text.ljust(schema.get("minLength", 0), "x")
        return text[: schema.get("maxLength", len(text))]

    def _integer(self, schema: dict[str, Any], depth: int) -> int:
        return int(self._number({**schema, "multipleOf": schema.get("multipleOf", 1)}, depth))

    def _number(self, schema: dict[str, Any], _depth: int) -> Any:
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        step = schema.get("multipleOf")
        value = 1.5 if step is None else step * 3
        if low is not None and value <= low:
            value = low + (step or 0.5)
            value = (value // step) * step if step else value
        if high is not None and value >= high:
            value = high - (step or 0.5)
            if low is not None and value < low:
                value = low
        return value

    def _boolean(self, _schema: dict[str, Any], _depth: int) -> bool:
        return False

    def _null(self, _schema: dict[str, Any], _depth: int) -> None:
        return None


def _choice(values: list[Any], kind: Any) -> Any:
    wanted = (int, float) if kind in ("integer", "number") else object
    found = [each for each in values if each is not None and isinstance(each, wanted)]
    return found[0] if found else values[0]


def _guess(schema: dict[str, Any]) -> str:
    if "properties" in schema or "additionalProperties" in schema or "required" in schema:
        return "object"
    if "items" in schema:
        return "array"
    return "number" if schema.keys() & {"minimum", "maximum"} else "string"


_FORMATS = {
    "date": "2026-11-22",
    "date-time": "2026-11-22T14:00:00Z",
    "email": "a@example.com",
    "uri": "https://example.com/a?b=c#d",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "ipv4": "192.0.2.1",
}


def from_pattern(pattern: str) -> str:
    """Return a short text that a regular expression matches."""
    text = _of(_parser.parse(pattern))
    if not re.search(pattern, text):
        raise Unsatisfiable
    return text


def _of(parsed: Any) -> str:
    return "".join(_one(op, argument) for op, argument in parsed)


def _one(op: Any, argument: Any) -> str:
    if op is codes.LITERAL:
        return chr(argument)
    if op is codes.NOT_LITERAL:
        return "b" if chr(argument) == "a" else "a"
    if op is codes.ANY:
        return "a"
    if op in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, most, inner = argument
        return _of(inner) * (least or min(most, 1))
    if op is codes.SUBPATTERN:
        return _of(argument[3])
    if op is codes.BRANCH:
        return _of(argument[1][0])
    if op is codes.IN:
        return next(each for each in string.printable if _is_in(each, argument))
    return ""  # an anchor


def _is_in(char: str, items: Any) -> bool:
    negated = items[0][0] is codes.NEGATE
    found = False
    for op, argument in items[1:] if negated else items:
        if op is codes.LITERAL:
            found |= ord(char) == argument
        elif op is codes.RANGE:
            found |= argument[0] <= ord(char) <= argument[1]
        elif op is codes.CATEGORY:
            name = str(argument).rpartition("_")[2]
            classes = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}
            expression = classes[name]
            inverted = "NOT_" in str(argument)
            found |= bool(re.match(expression, char)) != inverted
    return found != negated
