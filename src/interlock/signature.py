"""A Python function -> JSON Schema for its arguments, a decoder for them, and its output's schema.

What msgspec understands may stand in a signature: the builtin types, dataclasses, structs,
TypedDict, enums, Literal, unions, `Annotated[..., Meta(...)]`; models of pydantic too, when
they are used. Descriptions come from `Meta` or from the docstring's list of arguments.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from interlock.errors import SignatureError
from interlock.types import CallToolResult, Content, JsonObject

_EMPTY = inspect.Parameter.empty
_SCALARS = (bool, int, float, type(None))


class Signature(Struct, frozen=True):
    """What a server needs to know of a function.

    Attributes:
        parameters: Names of the arguments, in order, without the context.
        context: Name of the parameter that takes the `Context`, or None.
        input_schema: JSON Schema of an object with the arguments.
        output_schema: JSON Schema of what it returns, or None when that is not structured.
        decode: Encoded arguments -> a struct with a field for each parameter. It raises as
            msgspec does; `problem` puts that into words.
        is_async: Whether it is `async def`.
    """

    parameters: tuple[str, ...]
    context: str | None
    input_schema: JsonObject
    output_schema: JsonObject | None
    decode: Callable[[Raw], Struct]
    is_async: bool


def describe(function: Callable[..., Any], context_type: type, *, strict: bool = True) -> Signature:
    """Look at a function.

    Args:
        function: Plain or async, also a bound method or a `functools.partial`.
        context_type: A parameter annotated with this is given the context.
        strict: Take values of the very type only; False reads numbers from strings, too.

    Raises:
        SignatureError: A parameter cannot be described; the text names it.
    """
    name = getattr(function, "__name__", repr(function))
    hints = _hints(function, name)
    fields: list[tuple[str, Any, Any]] = []
    context = None
    for parameter in inspect.signature(function).parameters.values():
        where = f"parameter {parameter.name!r} of {name}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SignatureError(f"{where}: * and ** parameters have no JSON Schema")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise SignatureError(f"{where} is positional only, but arguments come by name")
        hint = hints.get(parameter.name, _EMPTY)
        if _is_context(hint, context_type):
            context = parameter.name
            continue
        if hint is _EMPTY:
            raise SignatureError(f"{where} has no type hint; give it one, or Any")
        _check_describable(hint, where)
        default = msgspec.NODEFAULT if parameter.default is _EMPTY else parameter.default
        fields.append((parameter.name, hint, _field(default)))
    arguments = _struct(fields, name)
    schema = _inline(arguments)
    _add_descriptions(schema, inspect.getdoc(function) or "")
    return Signature(
        parameters=tuple(field[0] for field in fields),
        context=context,
        input_schema=schema,
        output_schema=_output_schema(hints.get("return", _EMPTY), name),
        decode=msgspec.json.Decoder(arguments, dec_hook=_pydantic_decode, strict=strict).decode,
        is_async=_is_async(function),
    )


def summary(function: Callable[..., Any]) -> str:
    """Give the docstring up to its list of arguments: what a model should know."""
    doc = inspect.getdoc(function) or ""
    return _SECTION.split(doc, maxsplit=1)[0].strip()


# Parameters


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and callable(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception as error:
        raise SignatureError(f"the type hints of {name} cannot be resolved: {error}") from error


def _is_context(hint: Any, context_type: type) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is context_type or context_type in get_args(hint)


def _field(default: Any) -> Any:
    if default is msgspec.NODEFAULT:
        return msgspec.field()
    if isinstance(default, list | dict | set | bytearray):
        return msgspec.field(default_factory=lambda: default.copy())
    return msgspec.field(default=default)


def _struct(fields: list[tuple[str, Any, Any]], name: str) -> type[Struct]:
    try:
        return msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True, frozen=True
        )
    except TypeError as error:
        raise SignatureError(f"the parameters of {name} cannot be described: {error}") from error


def _check_describable(hint: Any, where: str) -> None:
    if _pydantic_model(hint) is not None:
        return
    try:
        msgspec.json.schema(hint, schema_hook=_pydantic_schema)
    except (TypeError, msgspec.ValidationError) as error:
        kind = getattr(hint, "__qualname__", hint)
        raise SignatureError(f"{where} has type {kind}, which has no JSON Schema") from error


def _inline(arguments: type[Struct]) -> JsonObject:
    """Describe the arguments, with the outermost object in place instead of referred to."""
    (_,), components = msgspec.json.schema_components(
        [arguments], schema_hook=_pydantic_schema, ref_template="#/$defs/{name}"
    )
    schema: JsonObject = components.pop(arguments.__name__)
    schema.pop("title", None)
    if components:
        schema["$defs"] = components
    return schema


_AT = re.compile(r"^(.*) - at `\$\.?(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(.*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$")


def problem(error: Exception) -> str:
    """Tell what `Signature.decode` raised: "limit: expected `int`, got `str`"."""
    match = _AT.match(str(error))
    text, place = match.groups() if match else (str(error), "")
    noun = "member" if place else "argument"
    text = _MISSING.sub(rf"missing required {noun} '\1'", text)
    text = _UNKNOWN.sub(rf"unknown {noun} '\1'", text)
    text = text[:1].lower() + text[1:]
    return f"{place}: {text}" if place else text


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.iscoroutinefunction(function)


# Docstrings

_SECTION = re.compile(
    r"^[ \t]*(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?)[ \t]*:?[ \t]*$"
    r"|^[ \t]*:(?:param|returns?|raises)\b",
    re.MULTILINE,
)
_GOOGLE_LIST = re.compile(
    r"^[ \t]*(?:Args|Arguments)[ \t]*:[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)+)", re.MULTILINE
)
_GOOGLE_ITEM = re.compile(r"^([ \t]+)(\w+)(?:[ \t]*\([^)\n]*\))?[ \t]*:[ \t]*(.*)$")
_REST_ITEM = re.compile(
    r"^[ \t]*:param(?:[ \t]+[^:\n]+?)?[ \t]+(\w+)[ \t]*:[ \t]*(.+)$", re.MULTILINE
)


def _add_descriptions(schema: JsonObject, doc: str) -> None:
    properties = schema.get("properties", {})
    for name, text in _argument_texts(doc).items():
        if name in properties:
            properties[name].setdefault("description", text)


def _argument_texts(doc: str) -> dict[str, str]:
    texts = {name: text.strip() for name, text in _REST_ITEM.findall(doc)}
    found = _GOOGLE_LIST.search(doc + "\n")
    current, indent = "", 0
    for line in found[1].splitlines() if found else ():
        item = _GOOGLE_ITEM.match(line)
        if item and (not current or len(item[1]) <= indent):
            current, indent = item[2], len(item[1])
            texts[current] = item[3].strip()
        elif current and line.strip():
            texts[current] = f"{texts[current]} {line.strip()}"
    return texts


# Results


def _output_schema(hint: Any, name: str) -> JsonObject | None:
    """Describe what a function returns, unless that is text, content or unknown."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if bare in (_EMPTY, None, type(None), Any, str, bytes, object) or _has_content(bare):
        return None
    model = _pydantic_model(bare)
    if model is not None:
        return typing.cast("JsonObject", model.model_json_schema(mode="serialization"))
    try:
        (schema,), components = msgspec.json.schema_components(
            [hint], schema_hook=_pydantic_schema, ref_template="#/$defs/{name}"
        )
    except TypeError as error:
        raise SignatureError(f"what {name} returns cannot be described: {error}") from error
    if set(schema) == {"$ref"}:
        target = schema["$ref"].removeprefix("#/$defs/")
        if f'"#/$defs/{target}"' not in msgspec.json.encode(components).decode():
            schema = components.pop(target)
    if components:
        schema = {**schema, "$defs": components}
    return schema


def _has_content(hint: Any) -> bool:
    """Whether a result of this type is content already, or a list of content."""
    if isinstance(hint, type):
        return issubclass(hint, CallToolResult) or hint in get_args(Content)
    return any(_has_content(each) for each in get_args(hint))


# pydantic, only if the program uses it


def _pydantic_model(hint: Any) -> Any:
    return hint if isinstance(hint, type) and hasattr(hint, "model_json_schema") else None


def _pydantic_schema(hint: Any) -> JsonObject:
    model = _pydantic_model(hint)
    if model is None:
        raise NotImplementedError(f"type {hint!r}")
    return typing.cast("JsonObject", model.model_json_schema())


def _pydantic_decode(hint: Any, value: Any) -> Any:
    model = _pydantic_model(hint)
    if model is None:
        raise NotImplementedError(f"type {hint!r}")
    try:
        return model.model_validate(value)
    except ValueError as error:
        first = error.errors()[0] if hasattr(error, "errors") else {"msg": "invalid", "loc": ()}
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None
