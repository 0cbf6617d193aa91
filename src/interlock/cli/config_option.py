"""The options `--config` and `--json`, and loading of the servers that a command uses."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from interlock.cli.terminal import warn
from interlock.errors import ConfigError

if TYPE_CHECKING:
    from interlock.config import Config, ServerConfig

_F = TypeVar("_F", bound=Callable[..., Any])


def config_option(command: _F) -> _F:
    """Add the option `--config` to a command."""
    return click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The mcpServers file; by default INTERLOCK_MCP_CONFIG, else mcp.json in your config "
        "folder.",
    )(command)


def root_option(command: _F) -> _F:
    """Add the option `--root` to a command."""
    return click.option(
        "--root",
        "roots",
        metavar="FOLDER",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Offer this folder to the servers that ask for roots; repeatable.",
    )(command)


def with_roots(found: Config, roots: Sequence[Path]) -> Config:
    """Return a configuration whose servers may also ask for these folders as roots."""
    more = tuple(str(each.resolve()) for each in roots)
    servers = {
        name: msgspec.structs.replace(each, roots=(*each.roots, *more))
        if "roots" in each.asks
        else each
        for name, each in found.servers.items()
    }
    return msgspec.structs.replace(found, servers=servers)


def json_option(command: _F) -> _F:
    """Add the option `--json` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def raw_option(command: _F) -> _F:
    """Add the option `--raw` to a command."""
    text = "Print control characters of servers as they are, not escaped."
    return click.option("--raw", is_flag=True, help=text)(command)


def own_file(named: Path | None) -> Path:
    """Return the configuration file to edit, which may not exist yet; `named` is --config."""
    from interlock.config import VARIABLE, default_path

    found = named or os.environ.get(VARIABLE)
    return Path(found).expanduser() if found else default_path()


def load(
    path: Path | None, printed: set[str] | None = None, *, roots: Sequence[Path] = ()
) -> Config:
    """Read the configured servers; warn about members that are unknown or ignored.

    Args:
        path: The file; None for the usual one.
        printed: The warnings that were printed before, which are not repeated; new ones are added.
        roots: Folders to offer to the servers that may ask for roots; see `root_option`.

    Raises:
        ConfigError: The same errors as `in_force`.
    """
    found, ignored = in_force(path)
    printed = set() if printed is None else printed
    for warning in (*ignored, *found.warnings):
        if warning not in printed:
            warn(warning)
        printed.add(warning)
    return with_roots(found, roots) if roots else found


def in_force(path: Path | None) -> tuple[Config, list[str]]:
    """Return the configured servers, and a warning if the project file is not trusted.

    If `path` is None, MCP_SERVERS replaces the file if MCP_ENABLED is true; otherwise a trusted
    `.mcp.json` in the working folder adds its servers to the file's.

    Raises:
        ConfigError: The file or the variable is missing or invalid.
    """
    from interlock import config
    from interlock.config import environment, trust

    if path is not None or os.environ.get(config.VARIABLE):
        return config.load(config.find(path)), []
    found = environment.load(os.environ)
    if found is not None:
        return found, []
    found = config.load(config.find(None))
    project = trust.project_file()
    if project is None:
        return found, []
    if ignored := trust.untrusted_warning():
        return found, [ignored]
    return _joined(found, trust.load(project)), []


def _joined(own: Config, project: Config) -> Config:
    hidden = [
        f"server {name!r} of {project.path} is not used: {own.path} has a server of this name"
        for name in project.servers
        if name in own.servers
    ]
    return msgspec.structs.replace(
        own,
        path=own.path or project.path,
        servers={**project.servers, **own.servers},
        warnings=(*own.warnings, *project.warnings, *hidden),
        ignored={**project.ignored, **own.ignored},
        inputs={**project.inputs, **own.inputs},
    )


def find(config: Config, name: str) -> tuple[str, ServerConfig]:
    """Find a server by its name in addresses, else by its name in the file.

    Returns:
        The server's name in the file, and its configuration.

    Raises:
        ConfigError: No server has this name.
    """
    for key, server in config.servers.items():
        if name == (server.namespace or key):
            return key, server
    if name in config.servers:
        return name, config.servers[name]
    if name in config.ignored:
        raise ConfigError(f"server {name!r} of {config.path} is ignored: {config.ignored[name]}")
    names = [server.namespace or key for key, server in config.servers.items()]
    near = difflib.get_close_matches(name, names, 1)
    known = f"the servers are {', '.join(names)}" if names else "it has none"
    add = f"add it with `interlock servers add {shlex.quote(name)} COMMAND|URL`"
    hint = f"did you mean {near[0]}?" if near else f"{known}; {add}"
    place = config.path or config.variable or "the configuration"
    raise ConfigError(f"no server {name!r} in {place}; {hint}")
