"""The options `--config` and `--json`, and the servers of a command."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
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


def json_option(command: _F) -> _F:
    """Add the option `--json` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def own_file(named: Path | None) -> Path:
    """Return the file to edit, which may not exist yet. `named` is the value of --config."""
    from interlock.config import VARIABLE, default_path

    found = named or os.environ.get(VARIABLE)
    return Path(found).expanduser() if found else default_path()


def load(path: Path | None) -> Config:
    """Read the servers' file; warn of everything that is unknown or ignored in it.

    Unless a file is named, a trusted `.mcp.json` in the working folder adds its servers.

    Raises:
        ConfigError: The file is missing or invalid.
    """
    from interlock import config
    from interlock.config import trust

    found = config.load(config.find(path))
    project = None
    if path is None and not os.environ.get(config.VARIABLE):
        project = trust.project_file()
    if project is not None:
        if ignored := trust.untrusted_warning():
            warn(ignored)
        else:
            found = _joined(found, trust.load(project))
    for warning in found.warnings:
        warn(warning)
    return found


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
    )


def find(config: Config, name: str) -> tuple[str, ServerConfig]:
    """Find a server by its name in addresses, or else by its name in the file.

    Returns:
        Its name in the file, and its configuration.

    Raises:
        ConfigError: No server has this name.
    """
    for key, server in config.servers.items():
        if name == (server.namespace or key):
            return key, server
    if name in config.servers:
        return name, config.servers[name]
    names = [server.namespace or key for key, server in config.servers.items()]
    near = difflib.get_close_matches(name, names, 1)
    known = f"the servers are {', '.join(names)}" if names else "it has none"
    hint = f"did you mean {near[0]}?" if near else known
    raise ConfigError(f"no server {name!r} in {config.path or 'the configuration'}; {hint}")
