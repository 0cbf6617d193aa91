"""Signatures of Python functions: schemas for arguments and result, and an argument decoder.

Type hints may use all types that msgspec supports: builtin types, dataclasses, structs, TypedDict,
enums, Literal, unions, `Annotated[..., Meta(...)]`; and pydantic models. Descriptions come from
`Meta` or from the docstring's list of arguments.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from interlock.errors import SignatureError
from interlock.types import CallToolResult, Content, JsonObject

_EMPTY = inspect.Parameter.empty


class Signature(Struct, frozen=True):
    """The description of a function, by which to list and call it.

    Attributes:
        parameters: The names of the arguments, in order, without the context.
        context: The name of the parameter that receives the `Context`; None without it.
        input_schema: The JSON Schema for an object with the arguments.
        output_schema: The JSON Schema for the result; None for text, content and unknown types.
        decode: Decodes arguments to a struct with a field for each parameter. It raises msgspec's
            errors, which `problem` converts to text.
        is_async: Whether the function is `async def`.
    """

    parameters: tuple[str, ...]
    context: str | None
    input_schema: JsonObject
    output_schema: JsonObject | None
    decode: Callable[[Raw], Struct]
    is_async: bool


def describe(
    function: Callable[..., Any],
    context_type: type,
    *,
    strict: bool = True,
    fills: Callable[[inspect.Parameter, Any], bool] = lambda *_: False,
) -> Signature:
    """Return the signature of a function.

    Args:
        function: A function, plain or async, a bound method or a `functools.partial`.
        context_type: The type hint of the parameter that receives the context.
        strict: Whether values must have the exact type; False also reads numbers from strings.
        fills: Returns whether the server fills a parameter with this hint, instead of the client.

    Raises:
        SignatureError: A parameter or the result cannot be described; the text names it.
    """
    name = getattr(function, "__name__", "") or _routine(function).__qualname__
    hints = _hints(function, name)
    fields: list[tuple[str, Any, Any]] = []
    context = None
    for parameter in inspect.signature(function).parameters.values():
        where = f"parameter {parameter.name!r} of {name}"
        _check_kind(parameter, where)
        hint = hints.get(parameter.name, _EMPTY)
        if fills(parameter, hint):
            continue
        if _is_context(hint, context_type):
            context = parameter.name
            continue
        if hint is _EMPTY:
            raise SignatureError(f"{where} has no type hint; give it one, or Any")
        if parameter.name.startswith("__"):
            raise SignatureError(f"{where}: the name of an argument cannot begin with __")
        _check_describable(hint, where)
        fields.append((parameter.name, hint, _field(parameter.default)))
    arguments, schema = _struct(fields, name)
    schema.pop("title", None)
    _add_defaults(schema, function)
    _add_descriptions(schema, _doc(function))
    return Signature(
        parameters=tuple(field[0] for field in fields),
        context=context,
        input_schema=schema,
        output_schema=_output_schema(hints.get("return", _EMPTY), name),
        decode=msgspec.json.Decoder(arguments, dec_hook=_pydantic_decode, strict=strict).decode,
        is_async=is_async(function),
    )


def summary(function: Callable[..., Any]) -> str:
    """Return the docstring up to its list of arguments, as a description for models."""
    return _SECTION.split(_doc(function), maxsplit=1)[0].strip()


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, partial or callable object is `async def`."""
    return inspect.iscoroutinefunction(_routine(function))


def find_context(function: Callable[..., Any], context_type: type) -> str | None:
    """Return the name of the parameter that receives the context; ignore all other hints."""
    routine = _routine(function)
    for name in inspect.signature(function).parameters:
        try:
            hint = _resolve(routine, name)
        except Exception:  # noqa: S112 - a hint may run any code; a failing one is not the context
            continue
        if _is_context(hint, context_type):
            return name
    return None


def _routine(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _doc(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):  # a callable object, whose class may be documented
        own = _routine(function).__doc__
        return inspect.cleandoc(own) if own else inspect.getdoc(type(function)) or ""
    return inspect.getdoc(function) or ""


# Parameters


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    routine = _routine(function)
    hints = {}
    for each in getattr(routine, "__annotations__", {}):
        try:
            hints[each] = _resolve(routine, each)
        except Exception as error:
            what = f"what {name} returns" if each == "return" else f"parameter {each!r} of {name}"
            raise SignatureError(
                f"the type hint of {what} cannot be resolved: {_line(error)}; types in hints "
                "must be defined at the top of a module"
            ) from error
    return hints


def _resolve(routine: Callable[..., Any], name: str) -> Any:
    """Evaluate one type hint, which may be a string."""
    alone = types.SimpleNamespace(
        __annotations__={name: routine.__annotations__.get(name, _EMPTY)},
        __globals__=getattr(inspect.unwrap(routine), "__globals__", {}),
    )
    return typing.get_type_hints(alone, include_extras=True)[name]


def _check_kind(parameter: inspect.Parameter, where: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise SignatureError(f"{where}: * and ** parameters have no JSON Schema")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise SignatureError(f"{where} is positional only, but arguments are passed by name")


def _is_context(hint: Any, context_type: type) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return any(context_type in (each, get_origin(each)) for each in (hint, *get_args(hint)))


def _field(default: Any) -> Any:
    if default is _EMPTY:
        return msgspec.field()
    if default is None or isinstance(default, bool | int | float | str):
        return msgspec.field(default=default)
    try:
        hash(default)
    except TypeError:  # a mutable default, so each call gets a copy
        return msgspec.field(default_factory=lambda: copy.deepcopy(default))
    return msgspec.field(default_factory=lambda: default)


def _struct(fields: list[tuple[str, Any, Any]], name: str) -> tuple[type[Struct], JsonObject]:
    try:
        arguments = msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True, frozen=True
        )
        return arguments, _schema_of(arguments, _pydantic_input)
    except (TypeError, ValueError) as error:
        raise SignatureError(
            f"the parameters of {name} cannot be described: {_line(error)}"
        ) from error


def _check_describable(hint: Any, where: str) -> None:
    try:
        _schema_of(hint, _pydantic_input)
    except (TypeError, ValueError) as error:
        raise SignatureError(f"{where} has type {_type_name(hint)}, {_no_schema(error)}") from error


def _type_name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


def _no_schema(error: Exception) -> str:
    # The other lines of msgspec's error advise hooks, which users cannot set.
    reason = str(error).splitlines()[-1]
    return f"which has no JSON Schema: {reason}"


def _schema_of(hint: Any, hook: Callable[[Any], JsonObject]) -> JsonObject:
    """Return the schema of a type, without an outermost `$ref` unless the type is recursive."""
    _refuse_deadly_unions(hint, [])
    try:
        (schema,), components = msgspec.json.schema_components(
            [hint], schema_hook=hook, ref_template="#/$defs/{name}"
        )
    except KeyError as error:  # msgspec's error for two types of the same name
        raise TypeError(f"two types have the same name: {error}; rename one") from error
    except (NameError, AttributeError, SyntaxError) as error:  # from a hint that is a string
        raise TypeError(f"the type of a member cannot be resolved: {error}") from error
    if set(schema) == {"$ref"}:
        target = schema["$ref"].removeprefix("#/$defs/")
        if f'"#/$defs/{target}"' not in msgspec.json.encode(components).decode():
            schema = components.pop(target)
        elif components[target].get("type") == "object":
            schema = {"type": "object", **schema}  # legacy clients require "type"
    _hoist([schema, *components.values()], components)
    if components:
        schema = {**schema, "$defs": components}
    return schema


def _hoist(parts: list[Any], components: JsonObject) -> None:
    """Move the definitions within pydantic's schemas to `$defs` of the whole schema."""
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            brought = part.pop("$defs", {}) if "$defs" in part else {}
            for name, definition in brought.items():
                if components.setdefault(name, definition) != definition:
                    raise TypeError(f"two types have the same name: {name}; rename one")
            parts += part.values()
            parts += brought.values()


def _add_defaults(schema: JsonObject, function: Callable[..., Any]) -> None:
    """Add mutable defaults, which are copied for each call, if JSON can express them."""
    for parameter in inspect.signature(function).parameters.values():
        member = schema.get("properties", {}).get(parameter.name)
        if member is not None and parameter.default is not _EMPTY and "default" not in member:
            with contextlib.suppress(TypeError, ValueError):
                member["default"] = msgspec.to_builtins(parameter.default, enc_hook=pydantic_encode)


_AT = re.compile(r"^(.*) - at `\$\.?(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(.*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$")
_NOT_OF_THESE = re.compile(r"^Invalid (?:enum )?value .*$", re.DOTALL)
_MAX_PROBLEM = 300  # characters; the client chooses the names of members


def problem(error: Exception) -> str:
    """Return an error from `Signature.decode` as text: "limit: expected `int`, got `str`".

    The text names arguments but shows no values, which may be secret.
    """
    if isinstance(error, TypeError):  # "unhashable type", which does not name the argument
        return "a set has a list or an object in it, but must have plain values only"
    match = _AT.match(str(error))
    text, place = match.groups() if match else (str(error), "")
    noun = "member" if place else "argument"
    text = _MISSING.sub(rf"missing required {noun} '\1'", text)
    text = _UNKNOWN.sub(rf"unknown {noun} '\1'", text)
    text = _NOT_OF_THESE.sub("not one of the values allowed", text)
    text = text[:1].lower() + text[1:]
    return (f"{place}: {text}" if place else text)[:_MAX_PROBLEM]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


# Unions that make msgspec 0.22 corrupt memory and crash the interpreter

_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
_COLLECTIONS = (list, set, frozenset, dict, tuple)


def _refuse_deadly_unions(hint: Any, seen: list[Any]) -> None:
    """Refuse unions that crash msgspec, in a type and in the types of its members."""
    if any(hint is each for each in seen):
        return
    seen.append(hint)
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        _refuse_deadly_union(get_args(hint))
    inner = [*get_args(hint), getattr(hint, "__supertype__", None)]
    if isinstance(origin or hint, type):
        with contextlib.suppress(Exception):  # msgspec reports what is wrong with the hint
            inner += typing.get_type_hints(origin or hint, include_extras=True).values()
    for each in inner:
        _refuse_deadly_unions(each, seen)


def _refuse_deadly_union(members: tuple[Any, ...]) -> None:
    limits: set[str] = set()
    bare = []
    for member in members:
        if get_origin(member) is Annotated:
            bare.append(member.__origin__)
            limits.update(
                name for meta in member.__metadata__ for name in _LIMITS if _has(meta, name)
            )
        else:
            bare.append(member)
    if limits and any(get_origin(each) is tuple and ... not in get_args(each) for each in bare):
        raise TypeError("a union cannot have a tuple of fixed length and a type with limits")
    if "pattern" in limits and any(_is_collection(get_origin(each) or each) for each in bare):
        raise TypeError("a union cannot have a list, set, tuple or dict and text with a pattern")


def _is_collection(type: Any) -> bool:
    return type in _COLLECTIONS or getattr(type, "__module__", "") == "collections.abc"


def _has(meta: object, limit: str) -> bool:
    return isinstance(meta, msgspec.Meta) and getattr(meta, limit) is not None


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
    r"^[ \t]*:param(?:[ \t]+[^:\n]+?)?[ \t]+(\w+)[ \t]*:[ \t]*(.+(?:\n[ \t]+[^:\s].*)*)$",
    re.MULTILINE,
)
_NUMPY_LIST = re.compile(
    r"^Parameters[ \t]*\n-{3,}[ \t]*\n((?:(?!.*\n-{3,}[ \t]*$).*\n)*)", re.MULTILINE
)
_NUMPY_ITEM = re.compile(
    r"^(\w+(?:, \w+)*)[ \t]*(?::.*)?\n((?:[ \t]+\S.*\n|[ \t]*\n)+)", re.MULTILINE
)


def _add_descriptions(schema: JsonObject, doc: str) -> None:
    properties = schema.get("properties", {})
    for name, text in _argument_texts(doc).items():
        if name in properties:
            properties[name].setdefault("description", text)


def _argument_texts(doc: str) -> dict[str, str]:
    texts = {name: " ".join(text.split()) for name, text in _REST_ITEM.findall(doc)}
    numpy = _NUMPY_LIST.search(doc + "\n")
    for names, text in _NUMPY_ITEM.findall(numpy[1] + "\n") if numpy else ():
        texts.update(dict.fromkeys(names.split(", "), " ".join(text.split())))
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
    """Return the schema of a result; None for text, content and unknown types."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if bare in (_EMPTY, None, type(None), Any, str, bytes, object) or _has_content(bare):
        return None
    try:
        return _schema_of(hint, _pydantic_output)
    except (TypeError, ValueError) as error:
        kind = _type_name(hint)
        raise SignatureError(f"{name} returns type {kind}, {_no_schema(error)}") from error


def _has_content(hint: Any) -> bool:
    if isinstance(hint, type):
        return issubclass(hint, CallToolResult) or hint in get_args(Content)
    return any(_has_content(each) for each in get_args(hint))


# pydantic models; only the user's program imports pydantic


def _pydantic_model(hint: Any) -> Any:
    return hint if isinstance(hint, type) and hasattr(hint, "model_json_schema") else None


def _pydantic_input(hint: Any) -> JsonObject:
    return _pydantic_schema(hint, "validation")


def _pydantic_output(hint: Any) -> JsonObject:
    return _pydantic_schema(hint, "serialization")


def _pydantic_schema(hint: Any, mode: str) -> JsonObject:
    model = _pydantic_model(hint)
    if model is None:
        raise NotImplementedError(f"type {hint!r}")  # msgspec reports the type
    # Definitions of several models share one namespace, so they are prefixed.
    prefix = f"{hint.__qualname__}."
    schema: JsonObject = model.model_json_schema(
        mode=mode, ref_template=f"#/$defs/{prefix}{{model}}"
    )
    if "$defs" in schema:
        schema["$defs"] = {prefix + name: each for name, each in schema["$defs"].items()}
    return schema


def _pydantic_decode(hint: Any, value: Any) -> Any:
    model = _pydantic_model(hint)
    if model is None:
        raise NotImplementedError(f"type {hint!r}")  # msgspec reports the type
    try:
        return model.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        # The text of pydantic for this error shows the value, which may be secret.
        is_tag = first["type"] == "union_tag_invalid"
        text = "not one of the values allowed" if is_tag else first["msg"]
        raise ValueError(f"{place}: {text}" if place else text) from None


def pydantic_encode(value: Any) -> Any:
    """Return a model as plain values; for `enc_hook` of msgspec."""
    if _pydantic_model(type(value)) is None:
        raise TypeError(f"{type(value).__name__} is not a type for JSON")
    return value.model_dump(mode="json", by_alias=True)
