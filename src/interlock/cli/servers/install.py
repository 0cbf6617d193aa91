"""`interlock install` and `uninstall`: enter servers into the configuration of other clients."""

from __future__ import annotations

import re
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from interlock.cli import config_option
from interlock.cli.servers.server_file import split
from interlock.cli.signals import run
from interlock.cli.terminal import say, warn
from interlock.errors import ConfigError
from interlock.text.quoting import visible

if TYPE_CHECKING:
    from interlock.cli.servers.client_files import ClientFile
    from interlock.config import ServerConfig

CLIENTS = ("claude", "claude-desktop", "cursor", "vscode")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URL = re.compile(r"https?://", re.IGNORECASE)

_client = click.argument("client", type=click.Choice(CLIENTS))
_scope = click.option(
    "--scope",
    type=click.Choice(["user", "project", "local"]),
    default="user",
    help="For you, for everyone in this folder, or for you in this folder (claude only).",
)


@click.command()
@_client
@click.argument("servers", metavar="SERVER…", nargs=-1)
@_scope
@click.option("--name", help="The name in that client, for one SERVER.")
@click.option("--print", "only_print", is_flag=True, help="Print the entry, and change nothing.")
@click.option("--check", is_flag=True, help="Start the entered servers, and list their tools.")
@click.option("--force", is_flag=True, help="Replace an entry that interlock did not make.")
@config_option.config_option
def install(
    client: str,
    servers: tuple[str, ...],
    scope: str,
    name: str | None,
    only_print: bool,
    check: bool,
    force: bool,
    config: Path | None,
) -> int:
    """Enter servers into Claude Code, Claude Desktop, Cursor or VS Code.

    SERVER is a Python FILE[:NAME] as for `interlock run`, the name of a configured server, or the
    URL of a gateway. --check without SERVER starts every server that interlock has entered.

    \b
    Example:
      interlock install claude notes.py
      interlock install vscode time --scope project
      interlock install --check claude
    """
    from interlock.cli.servers import client_files

    if not servers and not check:
        raise click.UsageError("name a SERVER, or give --check")
    if name is not None and len(servers) != 1:
        raise click.UsageError("--name is for one SERVER")
    place = client_files.place_of(client, scope)
    entries = {_name(each, name): _entry(each, place, config) for each in servers}
    for each in servers:
        _tell_consents(each, config)
    if len(entries) < len(servers):
        raise click.UsageError("two SERVERs have the same name; enter one with --name")
    if only_print:
        click.echo(msgspec.json.format(msgspec.json.encode(place.document(entries))).decode())
        return 0
    for key, entry in entries.items():
        place.add(key, entry, force=force)
        say(f"{key} is entered in {place.path}; restart {client} to use it")
        _warn_of_readers(place, entry)
    if check:
        return run(_check({**entries} or place.ours()))
    return 0


@click.command()
@_client
@click.argument("name")
@_scope
@click.option("--force", is_flag=True, help="Remove an entry that interlock did not make.")
def uninstall(client: str, name: str, scope: str, force: bool) -> None:
    """Remove a server that `interlock install` has entered.

    \b
    Example:
      interlock uninstall claude notes
    """
    from interlock.cli.servers import client_files

    place = client_files.place_of(client, scope)
    place.remove(name, force=force)
    say(f"{name} is removed from {place.path}")


# Entries


def _name(server: str, name: str | None) -> str:
    if name is None and _URL.match(server):
        name = "interlock"
    if name is None:
        path, part = split(server)
        name = part or path.stem
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"name {name!r} is not 1 to 64 of A-Z a-z 0-9 _ -; give --name")
    return name


def _entry(server: str, place: ClientFile, config: Path | None) -> dict[str, Any]:
    if _URL.match(server):
        return place.of_url(server, {})
    path, part = split(server)
    if path.is_file():
        source = f"{path.resolve()}:{part}" if part else str(path.resolve())
        return place.of_program(_interpreter(), ["-m", "interlock", "run", source], {})
    if server.endswith(".py"):
        raise ConfigError(f"file {server} does not exist")
    _, found = config_option.find(config_option.load(config), server)
    return _configured(server, found, place)


def _warn_of_readers(place: ClientFile, entry: dict[str, Any]) -> None:
    """Warn if other users can read the values of an entry; the file keeps its mode."""
    has_values = any(entry.get(name) for name in ("env", "headers"))
    if has_values and not place.is_shared and place.path.exists():
        mode = stat.S_IMODE(place.path.stat().st_mode)
        if mode & 0o077:
            warn(f"other users can read {place.path} (mode {mode:03o}): run chmod 600 {place.path}")


def _tell_consents(server: str, config: Path | None) -> None:
    """Print the settings of a configured server that the client does not show."""
    from interlock.config.consent import consents

    if _URL.match(server) or split(server)[0].is_file():
        return
    _, found = config_option.find(config_option.load(config), server)
    for line in consents(found):
        say(f"{visible(server)} {visible(line)}")


def _interpreter() -> str:
    """Return the absolute path of Python: programs on a desktop have another PATH."""
    return str(Path(sys.executable).absolute())


def _configured(name: str, server: ServerConfig, place: ClientFile) -> dict[str, Any]:
    from interlock.config import HttpServer, StdioServer

    if isinstance(server, HttpServer):
        return place.of_url(server.url, server.headers, kind=server.type)
    if not isinstance(server, StdioServer):
        raise ConfigError(f"server {name!r} runs in interlock only; enter a gateway URL instead")
    command = shutil.which(server.command)
    if command is None:
        raise ConfigError(f"program {server.command!r} of server {name!r} is not in PATH")
    if server.cwd is not None and not place.has_cwd:
        raise ConfigError(f"server {name!r} has a cwd, which {place.client} does not support")
    entry = place.of_program(str(Path(command).absolute()), [*server.args], server.env)
    return entry if server.cwd is None else {**entry, "cwd": str(Path(server.cwd).absolute())}


# Checking


async def _check(entries: dict[str, dict[str, Any]]) -> int:
    """Start each entry in the client's way; return 1 if one does not answer."""
    import os

    from interlock.cli.server_status import is_broken, problem_of, statuses
    from interlock.config import HttpServer, StdioServer
    from interlock.config.variables import fill

    def filled(values: dict[str, str]) -> dict[str, str]:
        return {key: fill(value, key, os.environ) for key, value in values.items()}

    servers: dict[str, Any] = {
        name: HttpServer(url=entry["url"], headers=filled(entry.get("headers", {})))
        if "url" in entry
        else StdioServer(
            command=entry["command"],
            args=tuple(entry.get("args", ())),
            env=filled(entry.get("env", {})),
            cwd=entry.get("cwd"),
        )
        for name, entry in entries.items()
    }
    if not servers:
        say("interlock has entered nothing there")
        return 0
    broken = 0
    for status in await statuses(servers):
        if is_broken(status):
            broken = 1
            warn(problem_of(status))
        else:
            say(f"{status.name}: ok, {status.tools} tools")
    return broken
