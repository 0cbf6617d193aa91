"""Types that msgspec does not support: their schemas, and how values are read and written.

These are paths and network addresses, which are text in JSON, and the types of pydantic. Only the
user's program imports pydantic.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from typing import Any, ClassVar, Literal, get_args

import msgspec

from interlock.types import JsonObject

_Mode = Literal["validation", "serialization"]

TEXTS: dict[type, JsonObject] = {
    PurePath: {"type": "string"},
    IPv4Address: {"type": "string", "format": "ipv4"},
    IPv6Address: {"type": "string", "format": "ipv6"},
    IPv4Network: {"type": "string"},
    IPv6Network: {"type": "string"},
}
"""The types that are made from text, with their schemas."""


class _AnyInstance(type):
    """A type with every value as an instance, because msgspec checks the result of `read`."""

    def __instancecheck__(cls, _: object) -> bool:
        return True


class Adapted(metaclass=_AnyInstance):
    """A type that a `TypeAdapter` of pydantic describes and reads; `adapted` makes subclasses."""

    adapter: ClassVar[Any]
    schemas: ClassVar[dict[str, JsonObject]]


def adapted(hint: Any, name: str) -> type[Adapted]:
    """Return a type for msgspec whose values pydantic reads.

    Args:
        hint: A hint that pydantic understands.
        name: The prefix of the definitions in its schema.

    Raises:
        TypeError: pydantic cannot describe or read the type.
    """
    pydantic = sys.modules["pydantic"]
    try:
        return type(name, (Adapted,), {"adapter": pydantic.TypeAdapter(hint), "schemas": {}})
    except Exception as error:  # pydantic and its core have several without a common class
        raise TypeError(" ".join(str(error).split())) from error


def is_model(hint: Any) -> bool:
    """Return whether a type is a model of pydantic."""
    return isinstance(hint, type) and hasattr(hint, "model_json_schema")


def is_text(hint: Any) -> bool:
    """Return whether values of a type are made from text; see `TEXTS`."""
    return isinstance(hint, type) and issubclass(hint, tuple(TEXTS))


# Schemas


def input_schema(hint: Any) -> JsonObject:
    """Return the schema of values to read; for `schema_hook` of msgspec."""
    return _schema(hint, "validation")


def output_schema(hint: Any) -> JsonObject:
    """Return the schema of values that are written; for `schema_hook` of msgspec."""
    return _schema(hint, "serialization")


def _schema(hint: Any, mode: _Mode) -> JsonObject:
    if is_text(hint):
        return dict(next(TEXTS[each] for each in hint.__mro__ if each in TEXTS))
    # Definitions of several models share one namespace, so they are prefixed.
    prefix = f"{getattr(hint, '__qualname__', '')}."
    template = f"#/$defs/{prefix}{{model}}"
    if is_model(hint):
        return _prefixed(hint.model_json_schema(mode=mode, ref_template=template), prefix)
    if not (isinstance(hint, type) and issubclass(hint, Adapted)):
        raise NotImplementedError(f"type {hint!r}")  # msgspec reports the type
    if mode not in hint.schemas:
        try:
            schema = hint.adapter.json_schema(mode=mode, ref_template=template)
        except sys.modules["pydantic"].errors.PydanticUserError as error:
            raise TypeError(str(error).splitlines()[0]) from error
        hint.schemas[mode] = _prefixed(schema, prefix)
    return copy.deepcopy(hint.schemas[mode])


def _prefixed(schema: JsonObject, prefix: str) -> JsonObject:
    if "$defs" in schema:
        schema["$defs"] = {prefix + name: each for name, each in schema["$defs"].items()}
    return schema


# Values


def writer(hint: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes plain values of a type; None if msgspec encodes them.

    The type decides which members are written: a subclass may have secret ones.
    """
    if _has_model(hint):
        hint = adapted(hint, "result")
    if not (isinstance(hint, type) and issubclass(hint, Adapted)):
        return None
    return functools.partial(hint.adapter.dump_python, mode="json", by_alias=True, warnings="none")


def _has_model(hint: Any) -> bool:
    return is_model(hint) or any(_has_model(each) for each in get_args(hint))


def read(hint: Any, value: Any) -> Any:
    """Make an object of this type from a JSON value; for `dec_hook` of msgspec.

    Raises:
        ValueError: The value does not fit; the text never shows the value.
    """
    if is_text(hint):
        return _from_text(hint, value)
    if is_model(hint):
        validate = hint.model_validate_json
    elif isinstance(hint, type) and issubclass(hint, Adapted):
        validate = hint.adapter.validate_json
    else:
        raise NotImplementedError(f"type {hint!r}")  # msgspec reports the type
    try:
        return validate(msgspec.json.encode(value))
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        first = error.errors(include_url=False)[0]
        raise ValueError(_problem(first, hint)) from None


def _from_text(hint: Any, value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    try:
        return hint(value)
    except ValueError:  # its text contains the value
        raise ValueError(f"not a valid {hint.__name__}") from None


def write(value: Any) -> Any:
    """Return the JSON value of an object; for `enc_hook` of msgspec.

    Raises:
        TypeError: The type has no JSON form.
    """
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    if is_text(type(value)):
        return str(value)
    if is_of_pydantic(type(value)):
        return sys.modules["pydantic_core"].to_jsonable_python(value)
    raise TypeError(f"{type(value).__name__} is not a type for JSON")


def is_of_pydantic(hint: type) -> bool:
    """Return whether pydantic, or code written for it, defines how a type is read."""
    return (
        hasattr(hint, "__get_pydantic_core_schema__")
        or hasattr(hint, "__pydantic_validator__")
        or any(module_of(each) in ("pydantic", "pydantic_core") for each in hint.__mro__)
    )


def module_of(hint: type) -> str:
    """Return the package that defines a type."""
    return hint.__module__.partition(".")[0]


# Errors of pydantic

MAX_COINCIDENCE = 3  # characters of a value that a text may have by chance, as in a limit
_OWN_TEXTS = {  # replace error texts that contain a part of the value
    "uuid_parsing": "Input should be a valid UUID",
    "import_error": "Input should be a valid python path",
    "byte_size_unit": "Input should have a known unit of bytes",
}


def _problem(error: Any, hint: Any) -> str:
    """Return an error of pydantic as text, with the place inside of the value."""
    text = _OWN_TEXTS.get(error["type"], error["msg"])
    given = error["input"]
    if isinstance(given, str) and len(given) > MAX_COINCIDENCE and given in text:
        text = "Input is not valid"
    if error["type"] in ("value_error", "assertion_error"):
        own = error.get("ctx", {}).get("error")  # raised by a validator of the user's program
        # pydantic's own checks, such as that for email addresses, explain with parts of the value.
        text = str(own) if own is not None else text.partition(":")[0]
    names = set(_names(input_schema(hint)))  # other steps are keys from the client, or types
    steps = list(error["loc"])
    if error["type"] == "extra_forbidden":
        names.add(steps[-1])
    if error["type"] == "union_tag_invalid":
        text = "not one of the values allowed"
        names.add(tag := error["ctx"]["discriminator"].strip("'"))
        steps.append(tag)
    place = ".".join(str(each) for each in steps if isinstance(each, int) or each in names)
    return f"{place}: {text[:1].lower()}{text[1:]}" if place else text


def _names(schema: Any) -> Iterator[str]:
    """Yield the names of members and definitions in a schema. Other names come from the client."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (each.rpartition(".")[2] for each in schema.get("$defs", {}))
        for each in schema.values():
            yield from _names(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _names(each)
