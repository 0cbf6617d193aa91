"""Signatures of Python functions: schemas for arguments and result, and an argument decoder.

Type hints may use all types that msgspec supports, with limits and descriptions of msgspec,
pydantic and `annotated_types`, and all types of pydantic; `schema.hints` rewrites them. Other
descriptions come from the docstring's list of arguments.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import math
import re
import sys
import types
import typing
from collections import abc
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from interlock.errors import SignatureError
from interlock.media import Media
from interlock.schema import hooks
from interlock.schema.dataclass_defaults import FilledArguments, has_plain_defaults
from interlock.schema.docstrings import argument_texts, routine
from interlock.schema.hints import FunctionParameter, parameter, rewritten
from interlock.schema.metadata import EMPTY
from interlock.schema.type_schema import schema_of
from interlock.types import CallToolResult, Content, JsonObject

_CONTENT = (CallToolResult, *get_args(Content), *get_args(Media))


class Signature(Struct, frozen=True):
    """The description of a function, by which to list and call it.

    Attributes:
        parameters: The names of the arguments, in order, without the context.
        fields: The names of the parameters that receive them, which differ by an alias.
        context: The name of the parameter that receives the `Context`; None without it.
        input_schema: The JSON Schema for an object with the arguments.
        output_schema: The JSON Schema for the result; None for text, content and unknown types.
        write: Converts the result to plain values; None if msgspec encodes it.
        decode: Decodes arguments to a struct with a field for each parameter. It raises msgspec's
            errors, which `problem` converts to text.
        is_async: Whether the function is `async def`.
    """

    parameters: tuple[str, ...]
    fields: tuple[str, ...]
    context: str | None
    input_schema: JsonObject
    output_schema: JsonObject | None
    write: Callable[[Any], Any] | None
    decode: Callable[[Raw], Struct]
    is_async: bool


def describe(
    function: Callable[..., Any],
    context_type: type,
    *,
    strict: bool = True,
    fills: Callable[[inspect.Parameter, Any], bool] = lambda *_: False,
    has_output: bool = True,
) -> Signature:
    """Return the signature of a function.

    Args:
        function: A function, plain or async, a bound method or a `functools.partial`, of which the
            bound arguments are not described.
        context_type: The type hint of the parameter that receives the context.
        strict: Whether values must have the exact type; False also reads numbers from strings.
        fills: Returns whether the server fills a parameter with this hint, instead of the client.
        has_output: Whether to describe the result as well.

    Raises:
        SignatureError: A parameter or the result cannot be described; the text names it, and the
            file and line of the function.
    """
    try:
        return _describe(function, context_type, strict=strict, fills=fills, has_output=has_output)
    except SignatureError as error:
        raise located(function, str(error)) from error.__cause__


def located(function: Callable[..., Any], problem: str) -> SignatureError:
    """Return an error that begins with the file and line of a function."""
    code = getattr(inspect.unwrap(routine(function)), "__code__", None)
    if code is None:  # a builtin function
        return at_caller(problem)
    return _at(code.co_filename, code.co_firstlineno, problem)


def at_caller(problem: str) -> SignatureError:
    """Return an error that begins with the file and line that called this package."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("interlock."):
        frame = frame.f_back
    return _at(frame.f_code.co_filename, frame.f_lineno, problem)


def _at(file: str, line: int, problem: str) -> SignatureError:
    place = f"{file}:{line}: "
    return SignatureError(problem if problem.startswith(place) else f"{place}{problem}")


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, also inside a `functools.partial`; "" for other objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", "")


def bound_arguments(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names that a `functools.partial` binds by keyword."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= function.keywords.keys()
        function = function.func
    return frozenset(names)


def check_kind(function: Callable[..., Any], name: str) -> None:
    """Refuse functions that cannot answer a call.

    Raises:
        SignatureError: The function is a generator function.
    """
    called = routine(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise SignatureError(f"{name} is a generator function; return a list")


def _describe(
    function: Callable[..., Any],
    context_type: type,
    *,
    strict: bool,
    fills: Callable[[inspect.Parameter, Any], bool],
    has_output: bool,
) -> Signature:
    name = name_of(function) or routine(function).__qualname__
    check_kind(function, name)
    fields: list[FunctionParameter] = []
    context = None
    for each in _parameters(function, name):
        where = f"parameter {each.name!r} of {name}"
        hint = _hint(function, each.name, where)
        if fills(each, hint):
            continue
        if _is_context(hint, context_type):
            context = each.name
            continue
        if hint is EMPTY:
            raise SignatureError(f"{where} has no type hint; give it one, or Any")
        if each.name.startswith("__"):
            raise SignatureError(f"{where}: the name of an argument cannot begin with __")
        fields.append(parameter(each.name, hint, each.default, where))
    arguments, schema = _struct(function, fields, name)
    schema.pop("title", None)
    _add_defaults(schema, fields)
    for field in fields:
        _check_default(schema["properties"][field.argument], f"parameter {field.name!r} of {name}")
    _add_descriptions(schema, fields, argument_texts(function))
    returned = _hint(function, "return", f"what {name} returns") if has_output else EMPTY
    output, write = _output(returned, name)
    return Signature(
        parameters=tuple(field.argument for field in fields),
        fields=tuple(field.name for field in fields),
        context=context,
        input_schema=schema,
        output_schema=output,
        write=write,
        decode=msgspec.json.Decoder(arguments, dec_hook=hooks.read, strict=strict).decode,
        is_async=is_async(function),
    )


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, partial or callable object is `async def`."""
    return inspect.iscoroutinefunction(routine(function))


def find_context(function: Callable[..., Any], context_type: type) -> str | None:
    """Return the name of the parameter that receives the context; ignore all other hints."""
    for name in inspect.signature(function).parameters.keys() - bound_arguments(function):
        try:
            hint = _resolve(routine(function), name)
        except Exception:  # noqa: S112 - a hint may run any code; a failing one is not the context
            continue
        if _is_context(hint, context_type):
            return name
    return None


# Parameters


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """Return the parameters that a call fills: all but those that a partial has bound."""
    bound = bound_arguments(function)
    found = [
        each for each in inspect.signature(function).parameters.values() if each.name not in bound
    ]
    for each in found:
        where = f"parameter {each.name!r} of {name}"
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise SignatureError(f"{where}: * and ** parameters have no JSON Schema")
        if each is found[0] and each.name in ("self", "cls") and each.annotation is EMPTY:
            raise SignatureError(
                f"{where} has no value, because the method belongs to no object; register the "
                f"bound method, such as server.tool(OBJECT.{name})"
            )
        if each.kind is each.POSITIONAL_ONLY:
            raise SignatureError(f"{where} is positional only, but arguments are passed by name")
    return found


def _hint(function: Callable[..., Any], name: str, where: str) -> Any:
    called = routine(function)
    if name not in getattr(called, "__annotations__", {}):
        return EMPTY
    try:
        return _resolve(called, name)
    except Exception as error:
        raise SignatureError(
            f"the type hint of {where} cannot be resolved: {_line(error)}; types in hints "
            "must be defined at the top of a module"
        ) from error


def _resolve(called: Callable[..., Any], name: str) -> Any:
    """Evaluate one type hint, which may be a string."""
    alone = types.SimpleNamespace(
        __annotations__={name: called.__annotations__.get(name, EMPTY)},
        __globals__=getattr(inspect.unwrap(called), "__globals__", {}),
    )
    return typing.get_type_hints(alone, include_extras=True)[name]


def _is_context(hint: Any, context_type: type) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return any(context_type in (each, get_origin(each)) for each in (hint, *get_args(hint)))


def _field(given: FunctionParameter) -> Any:
    default = given.default
    if given.factory is not None:
        return msgspec.field(default_factory=given.factory)
    if default is EMPTY:
        return msgspec.field()
    if default is None or isinstance(default, bool | int | float | str):
        return msgspec.field(default=default)
    try:
        hash(default)
    except TypeError:  # a mutable default, so each call gets a copy
        return msgspec.field(default_factory=lambda: copy.deepcopy(default))
    return msgspec.field(default_factory=lambda: default)


def _struct(
    function: Callable[..., Any], fields: list[FunctionParameter], name: str
) -> tuple[type[Struct], JsonObject]:
    needs_filling = any(has_plain_defaults(each.hint, []) for each in fields)
    try:
        arguments = msgspec.defstruct(
            "Arguments",
            [(each.name, each.hint, _field(each)) for each in fields],
            bases=(FilledArguments if needs_filling else Struct,),
            kw_only=True,
            forbid_unknown_fields=True,
            frozen=True,
            rename={each.name: each.argument for each in fields},
        )
        return arguments, schema_of(arguments, hooks.input_schema)
    except (TypeError, ValueError) as error:
        for each in fields:
            where = f"parameter {each.name!r} of {name}"
            _check_describable(each.hint, _hint(function, each.name, where), where)
        raise SignatureError(
            f"the parameters of {name} cannot be described: {_line(error)}"
        ) from error


def _check_describable(hint: Any, written: Any, where: str) -> None:
    try:
        schema_of(hint, hooks.input_schema)
    except (TypeError, ValueError) as error:
        raise SignatureError(
            f"{where} has type {_type_name(written)}, {_no_schema(error)}"
        ) from error


def _type_name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


def _no_schema(error: Exception) -> str:
    # The other lines of msgspec's error advise hooks, which users cannot set.
    reason = str(error).splitlines()[-1]
    return f"which has no JSON Schema: {reason}"


def _add_defaults(schema: JsonObject, fields: list[FunctionParameter]) -> None:
    """Add mutable defaults, which are copied for each call, if JSON can express them."""
    for each in fields:
        member = schema["properties"][each.argument]
        if hasattr(each.default, "get_secret_value"):  # only its mask could be published
            continue
        if isinstance(each.default, float) and not math.isfinite(each.default):
            member.pop("default", None)  # msgspec writes null
            continue
        if each.default is not EMPTY and "default" not in member:
            with contextlib.suppress(TypeError, ValueError):
                member["default"] = msgspec.to_builtins(each.default, enc_hook=hooks.write)


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (int,),
    "array": (list, tuple),
    "object": (dict,),
}


def _check_default(member: JsonObject, where: str) -> None:
    """Refuse a default of another JSON type; one outside of the limits may stand for no value."""
    default, kind = member.get("default"), member.get("type")
    if default is None or "format" in member:
        return
    types = _JSON_TYPES.get(kind, (object,)) if isinstance(kind, str) else (object,)
    if not isinstance(default, types) or default not in member.get("enum", (default,)):
        allowed = f"one of {member['enum']}" if "enum" in member else f"a valid {kind}"
        raise SignatureError(
            f"{where} has the default {default!r}, which is not {allowed}; "
            "change the default or the type hint"
        )


def _add_descriptions(
    schema: JsonObject, fields: list[FunctionParameter], texts: dict[str, str]
) -> None:
    for each in fields:
        if each.name in texts:
            schema["properties"][each.argument].setdefault("description", texts[each.name])


_AT = re.compile(r"^(.*) - at `\$\.?(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(.*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(.*)`$")
_NOT_OF_THESE = re.compile(r"^Invalid (?:enum )?value .*$", re.DOTALL)
_FIRST_WORD = re.compile(r"^[A-Z](?=\w* )")  # not a place, which would end with a colon
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
    text = _FIRST_WORD.sub(lambda found: found[0].lower(), text)
    return (f"{place}: {text}" if place else text)[:_MAX_PROBLEM]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


# Results


def _output(hint: Any, name: str) -> tuple[JsonObject | None, Callable[[Any], Any] | None]:
    """Return the schema of a result, and how pydantic converts it to plain values.

    Text, content and unknown types have no schema.
    """
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if bare in (EMPTY, None, type(None), Any, str, bytes, object):
        return None, None
    if _has_content(bare) or _is_any_list(bare):
        return None, None
    new = rewritten(hint, f"what {name} returns", name)
    try:
        return schema_of(new, hooks.output_schema), hooks.writer(new)
    except (TypeError, ValueError) as error:
        kind = _type_name(hint)
        raise SignatureError(f"{name} returns type {kind}, {_no_schema(error)}") from error


def _has_content(hint: Any) -> bool:
    if isinstance(hint, type):
        return issubclass(hint, _CONTENT)
    return any(_has_content(each) for each in get_args(hint))


def _is_any_list(hint: Any) -> bool:
    """Return whether a type is a list or tuple of any items, whose schema has no limits."""
    origin = get_origin(hint) or hint
    return origin in (list, tuple, abc.Sequence, abc.Iterable, abc.Iterator) and all(
        each in (Any, object, ...) for each in get_args(hint)
    )
