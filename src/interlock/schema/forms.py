"""Python types as elicitation forms, which are flat: text, numbers, booleans, dates and choices."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from interlock.errors import MalformedAnswer, SignatureError
from interlock.schema.signature import describe, problem
from interlock.types import JsonObject

_ALONE = "value"  # the field of a form that is one value, as in other servers
_LIMITS: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
}
_FORMATS = ("date", "date-time", "email", "uri")  # those of the specification
_MAY_BE = "a form has text, numbers, booleans, dates, choices and lists of choices"


class TypedForm:
    """A form that is made of a type, and whose answers become values of the type.

    Args:
        hint: A type of an object with members, the type of one member, or None for no members.

    Raises:
        SignatureError: The type is not flat; the text names the member.
    """

    def __init__(self, hint: Any) -> None:
        def form(value: Any) -> None: ...

        self._name = getattr(hint, "__qualname__", str(hint))
        form.__annotations__ = {_ALONE: hint}
        form.__qualname__ = form.__name__ = f"the form {self._name}"
        try:
            signature = describe(form, _NoContext, strict=False)
        except SignatureError as error:
            raise SignatureError(f"{error}; {_MAY_BE}") from None
        self._decode: Callable[[Raw], Any] = signature.decode
        self._definitions: JsonObject = signature.input_schema.get("$defs", {})
        self._choices: dict[str, dict[str, Any]] = {}  # choices that are not text, by field
        self._nullable: set[str] = set()
        value = self._resolved(signature.input_schema["properties"][_ALONE])
        self._is_alone = "properties" not in value and hint not in (None, type(None))
        if self._is_alone:
            value = {"properties": {_ALONE: value}, "required": [_ALONE]}
        required = value.get("required", [])
        members: JsonObject = value.get("properties", {})
        fields = {name: self._field(name, each) for name, each in members.items()}
        self._required = set(required)
        self.requested_schema: JsonObject = {
            "type": "object",
            "properties": fields,
            "required": [name for name in required if name not in self._nullable],
        }

    def _resolved(self, schema: JsonObject) -> JsonObject:
        """Return a schema without its `$ref`; its other members, such as a description, stay."""
        for _ in range(len(self._definitions) + 1):
            if "$ref" not in schema:
                break
            target = self._definitions[schema["$ref"].removeprefix("#/$defs/")]
            schema = {**target, **{key: schema[key] for key in schema if key != "$ref"}}
        return schema

    def _field(self, name: str, schema: JsonObject) -> JsonObject:
        schema = self._resolved(schema)
        common: JsonObject = {key: schema[key] for key in ("title", "description") if key in schema}
        unions: list[JsonObject] = schema.get("anyOf") or schema.get("oneOf") or []
        members = [self._resolved(each) for each in unions]
        kinds = [each for each in members if each.get("type") != "null"]
        if len(kinds) < len(members):
            self._nullable.add(name)
        if members:
            return self._field(name, self._merged(name, kinds, schema) | common)
        kind = schema.get("type")
        field: JsonObject = {"type": kind, **common}
        if "enum" in schema or "const" in schema:
            field |= {"type": "string", "enum": self._named(name, _values(schema))}
        elif kind == "array":
            items = self._resolved(schema.get("items") or {})
            if "enum" not in items and "const" not in items:
                raise self._refusal(name, "a list of values that are not choices")
            field["items"] = {"type": "string", "enum": self._named(name, _values(items))}
        elif kind not in _LIMITS:
            raise self._refusal(name, "an object" if kind == "object" else "of no single type")
        if kind == "string" and schema.get("format") in _FORMATS:
            field["format"] = schema["format"]
        field |= {key: schema[key] for key in _LIMITS[field["type"]] if key in schema}
        if kind == "integer":
            field |= _inclusive(schema)
        if schema.get("default") is not None:
            field["default"] = self._named_default(name, schema["default"])
        return field

    def _merged(self, name: str, kinds: list[JsonObject], schema: JsonObject) -> JsonObject:
        """Return the only schema of a union other than null."""
        if len(kinds) == 1:
            merged = dict(kinds[0])
        elif {each.get("type") for each in kinds} == {"integer", "number"}:
            merged = {"type": "number"}
        else:
            raise self._refusal(name, "a union")
        return merged | {"default": schema.get("default")}

    def _named(self, name: str, values: list[Any]) -> list[str]:
        """Return choices as text, and note those that are not text."""
        if None in values:
            self._nullable.add(name)
        named: dict[str, Any] = {_text(each): each for each in values if each is not None}
        if any(not isinstance(each, str) for each in values):
            self._choices[name] = named
        return list(named)

    def _named_default(self, name: str, default: Any) -> Any:
        if name not in self._choices:
            return default
        return [*map(_text, default)] if isinstance(default, list) else _text(default)

    def _refusal(self, name: str, what: str) -> SignatureError:
        place = "" if self._is_alone else f"field {name!r} of "
        return SignatureError(f"{place}the form {self._name} is {what}; {_MAY_BE}")

    def decode(self, content: JsonObject) -> Any:
        """Return the content of an accepted form as a value of the type.

        Raises:
            MalformedAnswer: The content does not fit the type; the text names the field.
        """
        values = {name: self._unnamed(name, value) for name, value in content.items()}
        for name in self._nullable & self._required:
            values.setdefault(name, None)
        given = values.get(_ALONE) if self._is_alone else values
        if self._name in ("None", "NoneType"):
            return None
        try:
            encoded = msgspec.json.encode({_ALONE: given})
            return getattr(self._decode(Raw(encoded)), _ALONE)
        except (msgspec.DecodeError, TypeError, RecursionError) as error:
            text = problem(error).removeprefix(_ALONE).lstrip(".: ")
            raise MalformedAnswer(f"the answer to the form {self._name}: {text}") from None

    def _unnamed(self, name: str, value: Any) -> Any:
        choices = self._choices.get(name)
        if choices is None:
            return value
        if isinstance(value, list):
            return [choices.get(each, each) for each in value]
        return choices.get(value, value)


class _NoContext:
    """A type that no form contains, because forms have no context."""


def _values(schema: JsonObject) -> list[Any]:
    return list(schema["enum"]) if "enum" in schema else [schema["const"]]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _inclusive(schema: JsonObject) -> JsonObject:
    """Return the limits of integers, which forms state inclusively."""
    limits = {}
    if "exclusiveMinimum" in schema:
        limits["minimum"] = schema["exclusiveMinimum"] + 1
    if "exclusiveMaximum" in schema:
        limits["maximum"] = schema["exclusiveMaximum"] - 1
    return limits


@lru_cache(256)
def _cached(hint: Any) -> TypedForm:
    return TypedForm(hint)


def form_of(hint: Any) -> TypedForm:
    """Return the form of a type. Forms are cached, because a function may ask in each call.

    Raises:
        SignatureError: The type cannot be a form; the text names the member.
    """
    if isinstance(hint, list) and hint and all(isinstance(each, str) for each in hint):
        choices = f"Literal[{str(hint)[1:-1]}]"
        raise SignatureError(f"{hint!r} is not a type; write {choices}; {_MAY_BE}")
    try:
        hash(hint)
    except TypeError:
        raise SignatureError(f"{hint!r} is not a type; {_MAY_BE}") from None
    return _cached(hint)


def check_form(form: JsonObject) -> None:
    """Refuse a dict that is not the JSON Schema of a form, such as a dict of choices.

    Raises:
        SignatureError: The dict describes no object.
    """
    if form and "properties" not in form and form.get("type") != "object":
        raise SignatureError(
            'the schema of a form is {"type": "object", "properties": {...}}; for choices, write '
            "Literal or an Enum"
        )
