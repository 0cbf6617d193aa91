"""The option `--server`: one server for one command, without a configuration file."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from interlock.cli import config_option
from interlock.cli.servers import server_file
from interlock.errors import UnknownTool

if TYPE_CHECKING:
    from interlock.config import Config, ServerConfig, StdioServer

_F = TypeVar("_F", bound=Callable[..., Any])
_URL = re.compile("https?://", re.IGNORECASE)


def server_option(command: _F) -> _F:
    """Add the option `--server` to a command."""
    return click.option(
        "--server",
        "given",
        metavar="COMMAND|URL|FILE",
        help="Use only this server, without a configuration: a command line, a URL, or a Python "
        "FILE[:NAME] as for `interlock run`. Names then need no SERVER: before them.",
    )(command)


def only(given: str, config: Path | None, *, roots: Sequence[Path] = ()) -> tuple[str, Config]:
    """Return a name for the server of `--server`, and a configuration that has only this server.

    Args:
        given: The option's value.
        config: The value of `--config`, which must be None.
        roots: Folders to offer to the server.

    Raises:
        UsageError: The value is not usable, or there are two configurations.
    """
    from interlock.config import Config

    if config is not None:
        raise click.UsageError("--server needs no configuration; leave out --config")
    if not given.strip():
        raise click.UsageError("--server is empty; write a command, a URL or a file")
    name, server = _server(given.strip())
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "server"
    return name, config_option.with_roots(Config(servers={name: server}), roots)


@contextmanager
def bare_names(server: str) -> Iterator[None]:
    """Name tools in errors as the user names them: without the server."""
    try:
        yield
    except UnknownTool as error:
        raise UnknownTool(str(error).replace(f"{server}:", "")) from None


def _server(given: str) -> tuple[str, ServerConfig]:
    from interlock.config import HttpServer, StdioServer

    if _URL.match(given):
        scheme, _, rest = given.partition(":")
        url = f"{scheme.lower()}:{rest}"
        try:
            host = urlsplit(url).hostname or ""
        except ValueError:
            host = ""
        return host, HttpServer(url=url, is_named=False)
    path, name = server_file.split(given)
    if (path.is_file() and path.suffix == ".py") or re.fullmatch(r"\S+\.py(:\w+)?", given):
        server_file.checked(given)
        return path.stem, of_file(path, name)
    try:
        command, *args = shlex.split(given)
    except ValueError as error:
        raise click.UsageError(f"--server {given!r} is not a command line: {error}") from None
    return PurePath(args[-1] if args else command).stem, StdioServer(
        command=command, args=tuple(args)
    )


def of_file(path: Path, name: str, *options: str, **env: str) -> StdioServer:
    """Return the program that serves a file. It gets all variables, as from the user's shell."""
    from interlock.config import StdioServer

    source = f"{path.resolve()}:{name}" if name else str(path.resolve())
    # -P: a file of the working folder must not hide a module of Python.
    args = ("-P", "-m", "interlock", "run", source, *options)
    return StdioServer(command=sys.executable, args=args, env=env, inherits_env=True)
