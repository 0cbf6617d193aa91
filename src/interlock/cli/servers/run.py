"""`interlock run`: serve the `Server` object of a Python file."""

from __future__ import annotations

import importlib.util
import logging
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from interlock.cli.log import open_log
from interlock.errors import ConfigError, SignatureError
from interlock.text.urls import page_origin

if TYPE_CHECKING:
    from interlock.server import Server


@click.command()
@click.argument("source", metavar="FILE[:NAME]")
@click.option("--http", metavar="HOST:PORT", help="Serve over HTTP; port 0 picks a free port.")
@click.option(
    "--proxies",
    multiple=True,
    metavar="NETWORK",
    help="Believe the X-Forwarded headers of proxies at this address or in this network.",
)
@click.option(
    "--cors",
    multiple=True,
    metavar="ORIGIN",
    help="Let web pages of this origin call the server, such as https://app.example.com.",
)
def run(source: str, http: str | None, proxies: tuple[str, ...], cors: tuple[str, ...]) -> None:
    """Serve the Server object of a Python FILE, on stdin and stdout.

    NAME selects one of several servers. Ends when the client closes stdin, or on SIGINT or SIGTERM.

    \b
    Example:
      interlock run notes.py
      interlock run notes.py:server --http 127.0.0.1:8000
      interlock run notes.py --http 127.0.0.1:8000 --proxies 127.0.0.1
    """
    if http is None and (proxies or cors):
        raise click.UsageError("--proxies and --cors are for --http")
    address = None if http is None else _address(http)
    path, name = _split(source)
    open_log(logging.WARNING)  # a server logs to stderr
    if address is not None:
        served = _find(_load(path), path, name)
        served.run_http(*address, proxies=_listed(proxies), cors=_origins(cors))
        return
    from interlock.transports.pipes import take_standard_streams

    streams = take_standard_streams()  # before the file can print to stdout
    _find(_load(path), path, name).run_on(*streams)


def _address(http: str) -> tuple[str, int]:
    host, _, port = http.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.UsageError(f"--http {http!r} is not HOST:PORT, such as 127.0.0.1:8000")
    return host, int(port)


def _listed(values: tuple[str, ...]) -> list[str]:
    """Return the items of an option that may be repeated, and may have items between commas."""
    return [item.strip() for each in values for item in each.split(",") if item.strip()]


def _origins(values: tuple[str, ...]) -> list[str]:
    origins = []
    for text in _listed(values):
        found = page_origin(text)
        if found is None:  # also for "*": every page could call a server without authentication
            raise click.UsageError(f"--cors {text!r} is not an origin: write https://HOST[:PORT]")
        origins.append(found)
    return origins


def _split(source: str) -> tuple[Path, str]:
    """Split FILE:NAME; the path itself may have colons."""
    path, name = Path(source), ""
    if not path.exists() and ":" in source:
        before, _, name = source.rpartition(":")
        path = Path(before)
    if not path.is_file():
        raise click.UsageError(f"file {path} does not exist")
    return path, name


# Loading


def _load(path: Path) -> ModuleType:
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
    except SignatureError as error:  # its text begins with the place
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


def _find(module: ModuleType, path: Path, name: str) -> Server:
    """Find the module's server with this name; "" finds the only server."""
    from interlock.server import Server

    found = {key: each for key, each in vars(module).items() if isinstance(each, Server)}
    if not found:
        raise ConfigError(f'{path} has no server; add one: server = Server("{path.stem}")')
    names = ", ".join(found)
    if name:
        if name not in found:
            raise ConfigError(f"{path} has no server {name!r}; it has: {names}")
        return found[name]
    if len({id(each) for each in found.values()}) > 1:
        first = next(iter(found))
        raise ConfigError(f"{path} has several servers: {names}; name one: {path}:{first}")
    return next(iter(found.values()))
