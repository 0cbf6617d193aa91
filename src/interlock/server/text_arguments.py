"""Arguments that arrive as text: arguments of prompts and variables of URI templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from interlock.errors import InvalidArguments
from interlock.protocol.envelope import encode
from interlock.types import JsonObject

_TEXT = frozenset({"string", "integer", "number", "boolean", "null"})


class TextArguments:
    """Converts text to the JSON that an input schema describes.

    Text, numbers, booleans, dates and choices are the text itself; a value of any other type is
    JSON text.

    Args:
        schema: The input schema of a function.

    Attributes:
        choices: The possible values of arguments that have a few, such as those of an `Enum`.
    """

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._definitions: JsonObject = schema.get("$defs", {})
        self.choices: dict[str, list[str]] = {}
        self._json: set[str] = set()
        self._maybe_text: set[str] = set()  # such as `str | list[str]`
        for name, each in schema.get("properties", {}).items():
            kinds, values = self._kinds(each)
            if not kinds <= _TEXT:
                self._json.add(name)
                if "string" in kinds:
                    self._maybe_text.add(name)
            elif values is not None:
                self.choices[name] = values

    def _kinds(self, schema: JsonObject) -> tuple[set[str], list[str] | None]:
        """Return the JSON types of a schema, and its possible values if they are few."""
        for _ in range(len(self._definitions) + 1):
            if "$ref" not in schema:
                break
            schema = self._definitions.get(schema["$ref"].removeprefix("#/$defs/"), {})
        if "enum" in schema or "const" in schema:
            values = schema["enum"] if "enum" in schema else [schema["const"]]
            named = [each if isinstance(each, str) else encode(each).decode() for each in values]
            return {"string"}, [each for each in named if each != "null"]
        members = schema.get("anyOf") or schema.get("oneOf")
        if members:
            kinds: set[str] = set()
            merged: list[str] | None = []
            for each in members:
                inner, values = self._kinds(each)
                kinds |= inner
                if inner != {"null"}:
                    merged = None if merged is None or values is None else [*merged, *values]
            return kinds, merged
        kind = schema.get("type", "string")  # a value of any type may be text
        values = ["true", "false"] if kind == "boolean" else None
        return {kind} if isinstance(kind, str) else set(kind), values

    def hint(self, name: str) -> str:
        """Return the text to add to the description of an argument; "" if it is plain text."""
        if name not in self._json:
            return ""
        schema = self._schema["properties"][name]
        if self._definitions and b"$ref" in encode(schema):
            schema = {**schema, "$defs": self._definitions}
        shown = {key: each for key, each in schema.items() if key not in ("description", "default")}
        return f"JSON text that fits {encode(shown).decode()}"

    def encoded(self, values: Mapping[str, str]) -> Raw:
        """Return arguments as a JSON object.

        Raises:
            InvalidArguments: An argument is not JSON text; the text names it.
        """
        if self._json.isdisjoint(values):
            return Raw(encode(values))
        return Raw(encode({name: self._value(name, text) for name, text in values.items()}))

    def _value(self, name: str, text: str) -> Any:
        if name not in self._json:
            return text
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            if name in self._maybe_text:
                return text
            raise InvalidArguments(f"{name}: not valid JSON; send {self.hint(name)}") from None
        return text if name in self._maybe_text and not isinstance(value, list | dict) else value


class Choices:
    """The completion of an argument that has a few possible values."""

    def __init__(self, values: list[str]) -> None:
        self._values = values

    async def complete(self, value: str, arguments: dict[str, str], context: object) -> list[str]:  # noqa: ARG002
        """Return the values that begin with the typed text, in upper or lower case."""
        typed = value.casefold()
        return [each for each in self._values if each.casefold().startswith(typed)]
