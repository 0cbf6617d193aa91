"""The metadata of a hint, `Annotated[int, ...]`, as keyword arguments of `msgspec.Meta`.

Classes of pydantic and `annotated_types` are recognised by their modules.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any, get_origin

from msgspec import Meta

from interlock.errors import SignatureError
from interlock.schema import hooks

EMPTY = inspect.Parameter.empty
NUMBERS = frozenset(("gt", "ge", "lt", "le", "multiple_of"))
LENGTHS = frozenset(("min_length", "max_length"))
LIMITS = NUMBERS | LENGTHS | {"pattern", "tz"}
_MAX_EXACT = 1024  # the denominator of a float that has no error
_GROUPED = "__is_annotated_types_grouped_metadata__"
_META = (*LIMITS, "title", "description", "examples", "extra_json_schema", "extra")


class NeedsPydantic(Exception):
    """Only pydantic can apply a part of the hint; the text names the part."""


def text_of(metadata: Iterable[Any]) -> str:
    """Return the text of a lone string or of a `Doc`; "" without one."""
    texts = [each for each in metadata if isinstance(each, str)]
    docs = [text for each in metadata if isinstance(text := getattr(each, "documentation", 0), str)]
    return docs[-1] if docs else texts[0] if len(texts) == 1 else ""


def said_by(meta: Meta) -> dict[str, Any]:
    """Return the keyword arguments of a `Meta`."""
    return {key: value for key in _META if (value := getattr(meta, key)) is not None}


def with_meta(base: Any, said: dict[str, Any]) -> Any:
    """Return a hint with one `Meta`, merged with the hint's own.

    Raises:
        NeedsPydantic: `Meta` does not accept a value.
    """
    if get_origin(base) is Annotated:
        whole: dict[str, Any] = {}
        for each in filter(lambda each: isinstance(each, Meta), base.__metadata__):
            merge(whole, said_by(each))
        merge(whole, said)
        base, said = base.__origin__, whole
    try:
        return Annotated[base, Meta(**said)]
    except (TypeError, ValueError) as error:
        raise NeedsPydantic(", ".join(f"{key}={each!r}" for key, each in said.items())) from error


def merge(said: dict[str, Any], more: dict[str, Any]) -> None:
    """Merge further metadata: keep the stricter of two limits, and the second of two notes.

    Raises:
        NeedsPydantic: Two limits cannot be combined.
    """
    for key, value in more.items():
        old = said.get(key)
        if old is None:
            said[key] = value
        elif key in ("ge", "gt", "min_length"):
            said[key] = max(old, value)
        elif key in ("le", "lt", "max_length"):
            said[key] = min(old, value)
        elif key == "multiple_of" and isinstance(old, int) and isinstance(value, int):
            said[key] = math.lcm(old, value)
        elif key == "extra_json_schema":
            said[key] = {**old, **value}
        elif key in LIMITS and old != value:
            raise NeedsPydantic(f"two values of {key}")
        else:
            said[key] = value
    for open_, closed, stricter in (("gt", "ge", max), ("lt", "le", min)):
        if open_ in said and closed in said:  # msgspec accepts only one of them
            keep = stricter(said[open_], said[closed])
            del said[closed if said[open_] == keep else open_]


# Metadata of pydantic and annotated_types


def is_of_peers(each: Any) -> bool:
    """Return whether pydantic or `annotated_types` defines the metadata."""
    kind = each if isinstance(each, type) else type(each)
    return (
        hasattr(each, "__get_pydantic_core_schema__")
        or hasattr(each, _GROUPED)
        or any(
            hooks.module_of(base) in ("pydantic", "annotated_types")
            and base.__name__ != "BaseMetadata"  # a class of the user may extend BaseMetadata
            for base in kind.__mro__
        )
    )


def is_field(each: Any) -> bool:
    """Return whether a value was made by `Field` of pydantic, or by a subclass of its kind."""
    return any(
        base.__name__ == "FieldInfo" and hooks.module_of(base) == "pydantic"
        for base in type(each).__mro__
    )


def of_peer(each: Any) -> dict[str, Any]:
    """Return the limits and notes in metadata of pydantic or `annotated_types`.

    Raises:
        NeedsPydantic: `Meta` cannot say it.
        SignatureError: Nothing can apply it.
    """
    if is_field(each):
        return _of_field(each)
    if type(each).__name__ == "Unit":  # a note for readers, which limits nothing
        return {}
    if type(each).__name__ == "Timezone":
        if each.tz not in (None, ...):
            raise SignatureError(f"{each!r} cannot be applied; use Timezone(...) or Timezone(None)")
        return {"tz": each.tz is ...}
    if hasattr(each, _GROUPED):
        parts: dict[str, Any] = {}
        for part in each:
            merge(parts, of_peer(part))
        return parts
    said = {
        key: value
        for key, value in _attributes(each).items()
        if value is not None and value is not False
    }
    if not said or not said.keys() <= LIMITS - {"tz"}:
        raise NeedsPydantic(type(each).__name__)
    for key, value in said.items():
        said[key] = _plain_limit(key, value)
    return said


def _plain_limit(key: str, value: Any) -> Any:
    if key in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise NeedsPydantic(f"{key}={value!r}")
        # msgspec finds a remainder in 0.3 / 0.1; pydantic allows for the error of a float.
        if key == "multiple_of" and value.as_integer_ratio()[1] > _MAX_EXACT:
            raise NeedsPydantic(f"{key}={value!r}")
        return int(value) if isinstance(value, float) and value.is_integer() else value
    # In Python "$" also matches before a last line break, which pydantic refuses.
    if key == "pattern" and (not isinstance(value, str) or "$" in value or not _is_pattern(value)):
        raise NeedsPydantic("the pattern")
    return value


def _of_field(field: Any) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for each in field.metadata:
        merge(said, of_peer(each))
    for need in ("discriminator", "field_title_generator"):
        if getattr(field, need, None) is not None:
            raise NeedsPydantic(need)
    if field.alias is not None or field.validation_alias is not None:
        raise SignatureError(f"alias={field.alias or field.validation_alias!r} is inside of a type")
    if getattr(field, "validate_default", None):
        raise SignatureError("validate_default cannot be applied; pass a default that is valid")
    for key in ("title", "description", "examples"):
        if (value := getattr(field, key, None)) is not None:
            said[key] = list(value) if key == "examples" else value
    extra = field.json_schema_extra
    if callable(extra):
        raise SignatureError("json_schema_extra is a function; pass a dict")
    extra = dict(extra or {})
    if getattr(field, "deprecated", None):
        extra["deprecated"] = True
    return said | ({"extra_json_schema": extra} if extra else {})


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError):
        return False
    return True


def _attributes(each: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(each) and not isinstance(each, type):
        return {member.name: getattr(each, member.name) for member in dataclasses.fields(each)}
    return dict(getattr(each, "__dict__", {}))


# A field of a parameter


def alias_of(field: Any) -> str | None:
    """Return the name for clients that a field gives to its parameter.

    Raises:
        SignatureError: The field has several names.
    """
    alias = field.alias if field.validation_alias is None else field.validation_alias
    if alias is not None and not isinstance(alias, str):
        raise SignatureError(f'{alias!r} is not one name; use alias="NAME"')
    return alias


def default_of(field: Any) -> tuple[Any, Callable[[], Any] | None]:
    """Return the default of a field, `EMPTY` without one, and the function that makes it.

    Raises:
        SignatureError: The function needs arguments.
    """
    factory = field.default_factory
    if factory is not None:
        with suppress(TypeError, ValueError):
            inspect.signature(factory).bind()
            return EMPTY, factory
        raise SignatureError("default_factory must be a function without parameters")
    is_missing = field.default is ... or type(field.default).__name__ == "PydanticUndefinedType"
    return (EMPTY if is_missing else field.default), None


def only_about_values(field: Any) -> Any:
    """Return a copy of a field without its alias and default, which concern the parameter."""
    field = copy.copy(field)
    field.alias = field.validation_alias = field.serialization_alias = None
    field.default, field.default_factory = sys.modules["pydantic_core"].PydanticUndefined, None
    return field
