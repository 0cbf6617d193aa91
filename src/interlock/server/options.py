"""Options of `Server.tool`, `Server.resource` and `Server.prompt`, checked where they are given."""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from interlock.errors import SignatureError
from interlock.schema.signature import at_caller, located

_L = TypeVar("_L")
_T = TypeVar("_T", bound=Struct)
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
# Options of other packages that nearest spelling would not find, and ours with that purpose.
_ELSEWHERE = {
    "tags": "visible",
    "enabled": "visible",
    "auth": "scopes",
    "structured_output": "output_schema",
    "allowed_hosts": "hosts",
    "allowed_origins": "origins",
    "stateless_http": "stateless",
}
# Attributes of the servers of other packages, and how to do the same with ours.
_ATTRIBUTES = {
    "name": "info.name",
    "version": "info.version",
    **dict.fromkeys(("http_app", "streamable_http_app", "sse_app"), "asgi()"),
    **dict.fromkeys(("run_async", "run_stdio_async", "run_http_async"), "run() or run_http()"),
    **dict.fromkeys(("enable", "disable", "add_transform"), "the option visible= of a tool"),
    "custom_route": 'run_http(health="/healthz"), or mount asgi() in Starlette',
    "add_middleware": "Server(around=[...]), or middleware=[...] for raw requests",
    **dict.fromkeys(("import_server", "add_provider"), "mount(prefix, other)"),
    **dict.fromkeys(("add_resource", "add_resource_template"), "resource(uri)(function)"),
    "add_prompt": "prompt(function)",
    **dict.fromkeys(("get_tools", "list_tools", "call_tool"), "Client(server)"),
    **dict.fromkeys(("get_resources", "list_resources", "read_resource"), "Client(server)"),
    **dict.fromkeys(("get_prompts", "list_prompts", "get_prompt"), "Client(server)"),
}


def read_options(kind: type[_T], given: Mapping[str, Any], function: Callable[..., Any]) -> _T:
    """Return options as a struct.

    Args:
        kind: The struct with all options.
        given: The keyword arguments of a decorator.
        function: The function that is decorated.

    Raises:
        SignatureError: The function cannot be called, or an option is unknown; the text names the
            nearest known one.
    """
    if isinstance(function, classmethod | staticmethod):
        raise at_caller(
            f"{function.__func__.__name__} is not bound to its class yet; register it after the "
            f"class, such as server.tool(CLASS.{function.__func__.__name__})"
        )
    if not callable(function):
        raise at_caller(f"{type(function).__name__} is not a function")
    for name in given.keys() - set(kind.__struct_fields__):
        raise located(function, f"unknown option {nearest(name, kind.__struct_fields__)}")
    return kind(**given)


def check_known(given: Mapping[str, Any], kind: type[Struct]) -> None:
    """Refuse unknown keyword arguments.

    Raises:
        SignatureError: A name is not a field of the struct; the text has the nearest known one.
    """
    for name in given.keys() - set(kind.__struct_fields__):
        raise at_caller(f"unknown option {nearest(name, kind.__struct_fields__)}")


def check_function(function: object, decorator: str, example: str) -> None:
    """Refuse a name or another value in place of the function.

    Raises:
        SignatureError: The value is text.
    """
    if isinstance(function, str):
        raise at_caller(f"{decorator} takes no positional name; write {example}")


def hint_of_attribute(name: str) -> str:
    """Return the end of an error about an attribute that servers of other packages have."""
    return f"; use {_ATTRIBUTES[name]}" if name in _ATTRIBUTES else ""


def checked_lifespan(lifespan: _L) -> _L:
    """Return a server's lifespan.

    Raises:
        SignatureError: It is a generator function without its decorator, or not a function.
    """
    if lifespan is not None and not callable(lifespan):
        raise at_caller(f"lifespan is a {type(lifespan).__name__}; pass the function itself")
    if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
        name = lifespan.__name__
        raise located(lifespan, f"decorate the lifespan {name} with contextlib.asynccontextmanager")
    return lifespan


def check_uri(uri: object) -> None:
    """Refuse a decorator without its URI.

    Raises:
        SignatureError: The value is not text.
    """
    if not isinstance(uri, str):
        raise at_caller('a resource needs its URI; write resource("notes://{name}")')


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a name with the most similar known one, or with all that are known."""
    known = sorted(known)
    match = difflib.get_close_matches(_ELSEWHERE.get(name, name), known, 1)
    return f"{name!r}; " + (f"use {match[0]!r}" if match else f"known are {', '.join(known)}")


def check_name(name: object) -> None:
    """Refuse names that clients and providers of models refuse.

    Raises:
        SignatureError: The name has other characters, or more than 128.
    """
    if not isinstance(name, str) or not name or name == "<lambda>":
        raise SignatureError("the function has no name; set one with tool(name=...)")
    if not _NAME.fullmatch(name):
        raise SignatureError(
            f"invalid tool name {name[:200]!r}: it must have 1 to 128 letters, digits, '_', '-', "
            "'.' and '/'; set one with tool(name=...)"
        )


def check_limits(timeout: object, concurrency: object) -> None:
    """Refuse limits that would fail every call.

    Raises:
        SignatureError: `timeout` is not a number of seconds above 0, or `concurrency` is below 1.
    """
    if timeout is not None and (
        isinstance(timeout, bool)
        or not isinstance(timeout, int | float)
        or not 0 < timeout < math.inf
    ):
        raise SignatureError(f"timeout={timeout!r} is not a number of seconds above 0")
    if concurrency is not None and (
        isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1
    ):
        raise SignatureError(f"concurrency={concurrency!r} is not a whole number above 0")


def checked_annotations(given: object, kind: type[_T]) -> _T | None:
    """Return the annotations of an item, which may be a dict with the names of the specification.

    Args:
        given: The option that the author passed.
        kind: `ToolAnnotations` or `Annotations`.

    Raises:
        SignatureError: A key is unknown, or its value has another type.
    """
    if given is None or isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        was = type(given).__name__
        raise SignatureError(f"annotations is a {was}; pass a dict or {kind.__name__}")
    known = kind.__struct_encode_fields__
    for key in given.keys() - set(known):
        raise SignatureError(f"annotations has the unknown key {nearest(key, known)}")
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        raise SignatureError(f"annotations: {error}") from error
