"""The Python file of a server: finding the `Server` or `Gateway` in it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

import click

from interlock.errors import ConfigError, SignatureError

if TYPE_CHECKING:
    from interlock.gateway import Gateway
    from interlock.server import Server

    Served = Server | Gateway
_KINDS = ("Server", "Gateway")


def split(source: str) -> tuple[Path, str]:
    """Split FILE:NAME, for a FILE that exists; the name is "" for anything else."""
    path, colon, name = source.rpartition(":")
    if colon and not Path(source).is_file() and Path(path).is_file():
        return Path(path), name
    return Path(source), ""


def checked(source: str) -> tuple[Path, str]:
    """Split FILE:NAME.

    Raises:
        UsageError: The file does not exist.
    """
    path, name = split(source)
    if not path.is_file():
        raise click.UsageError(f"file {path} does not exist")
    return path, name


def load(path: Path, name: str) -> Served:
    """Run a file, and return its server of this name; "" is the only server.

    Raises:
        ConfigError: The file fails, or has no such server; the text states the line.
    """
    return _find(_module(path), path, name)


def _module(path: Path) -> ModuleType:
    """Run the file as a module that can import the modules beside it.

    Raises:
        ConfigError: The file fails; the text states the line.
    """
    path = path.resolve()
    sys.path.insert(0, str(path.parent))
    # Modules beside it can import it by its name, unless another module has that name.
    name = path.stem if path.stem not in sys.modules else f"served {path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file; its name must end in .py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        place = f"{error.filename or path}, line {error.lineno}"
        raise ConfigError(f"{place}: {error.msg}") from error
    except SignatureError as error:  # its text already begins with the file and line
        raise ConfigError(str(error)) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{_place(error, path)}: {_format_error(error)}") from error
    return module


def _place(error: BaseException, path: Path) -> str:
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(path)
    ]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _format_error(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def _is_served(value: object) -> TypeGuard[Served]:
    """Return whether an object is a `Server` or a `Gateway`, which is not imported for this."""
    from interlock.server import Server

    gateway = sys.modules.get("interlock.gateway.gateway")
    return isinstance(value, Server) or (gateway and isinstance(value, gateway.Gateway)) or False


def _find(module: ModuleType, path: Path, name: str) -> Served:
    found = {key: each for key, each in vars(module).items() if _is_served(each)}
    makers = {
        key: each
        for key, each in vars(module).items()
        if inspect.isfunction(each) and each.__module__ == module.__name__
    }
    if name in makers:
        return _made(makers[name], path)
    if name in found:
        return found[name]
    if not (found or name):
        makers = {key: each for key, each in makers.items() if _makes_a_server(each)}
        if len(makers) == 1:
            return _made(next(iter(makers.values())), path)
    names = [*found, *(key for key, each in makers.items() if _makes_a_server(each))]
    if name:
        known = f"it has: {', '.join(names)}" if names else "it has none"
        raise ConfigError(f"{path} has no server {name!r}; {known}")
    if len({id(each) for each in found.values()}) == 1:
        return next(iter(found.values()))
    if names:
        raise ConfigError(
            f"{path} has several servers: {', '.join(names)}; name one: {path}:{names[0]}"
        )
    raise ConfigError(
        f'{path} has no server; add one: server = Server("{path.stem}"), or name a function that '
        f"returns one: {path.name}:NAME"
    )


def _makes_a_server(function: Callable[..., Any]) -> bool:
    """Return whether a function states that it returns a `Server` or a `Gateway`."""
    stated = function.__annotations__.get("return")
    return getattr(stated, "__name__", str(stated)).rpartition(".")[2] in _KINDS


def _made(function: Callable[..., Any], path: Path) -> Served:
    """Call the function of a file that returns the server.

    Raises:
        ConfigError: The function needs arguments, fails, or returns something else.
    """
    name, code = function.__name__, function.__code__
    where = f"{path}, line {code.co_firstlineno}"
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ConfigError(f"{where}: {name} is called without arguments: {error}") from None
    try:
        made = function()
    except SignatureError as error:
        raise ConfigError(str(error)) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{_place(error, path.resolve())}: {_format_error(error)}") from error
    if inspect.iscoroutine(made):
        made.close()
        raise ConfigError(f"{where}: {name} must be a plain function; remove async")
    if not _is_served(made):
        raise ConfigError(f"{where}: {name} returned {type(made).__name__}, not a Server")
    return made
