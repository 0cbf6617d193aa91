"""`interlock servers`: edit and try the mcpServers file."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interlock.cli import sources
from interlock.cli.running import run
from interlock.cli.terminal import emit_json, emit_table, is_terminal, safe_line, say, warn, working
from interlock.errors import ConfigError

if TYPE_CHECKING:
    from interlock.config import ServerConfig
    from interlock.member import ServerStatus


@click.group()
def servers() -> None:
    """Edit and try the file of servers.

    The file is the one named by --config, else by INTERLOCK_MCP_CONFIG, else mcp.json in your
    config folder.

    \b
    Example:
      interlock servers add time mcp-server-time --local-timezone UTC
      interlock servers check
    """


@servers.command("list")
@sources.config_option
@sources.json_option
def list_(config: Path | None, as_json: bool) -> None:
    """List the servers without starting them. Values of variables and headers are not shown.

    \b
    Example:
      interlock servers list
    """
    found = sources.load(config).servers
    if as_json:
        emit_json({"servers": [_shown(name, server) for name, server in found.items()]})
        return
    emit_table(
        (
            name,
            "" if server.enabled else "disabled",
            shown.get("url") or " ".join([shown["command"], *shown["args"]]),
            " ".join(f"{each}=…" for each in shown.get("env", shown.get("headers", ()))),
        )
        for name, server in found.items()
        for shown in [_shown(name, server)]
    )
    if not found:
        say("no servers: add one with `interlock servers add NAME COMMAND`")


@servers.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", metavar="COMMAND|URL")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="A variable for it; repeatable.")
@click.option("--cwd", metavar="FOLDER", help="Its working folder.")
@sources.config_option
def add(
    name: str,
    command: str,
    args: tuple[str, ...],
    env: tuple[str, ...],
    cwd: str | None,
    config: Path | None,
) -> None:
    """Add a server to the file, which is made if there is none.

    Put -- before COMMAND if it has options of its own called --env, --cwd, --config or --help.
    Better than a secret in the file is the name of a variable that has it: 'TOKEN=${MY_TOKEN}'.

    \b
    Example:
      interlock servers add time mcp-server-time --local-timezone UTC
      interlock servers add issues npx -y some-server --env 'TOKEN=${ISSUES_TOKEN}'
    """
    from interlock.config import HttpServer, StdioServer, add_server

    server: ServerConfig
    if command.startswith(("http://", "https://")):
        if args or env or cwd:
            raise click.UsageError("a server with a URL has no arguments, --env or --cwd")
        server = HttpServer(url=command)
    else:
        server = StdioServer(command=command, args=args, env=_variables(env), cwd=cwd)
    path = _file(config)
    add_server(path, name, server)
    say(f"added {name!r} to {path}; try it with: interlock servers check {name}")
    if isinstance(server, HttpServer):
        warn("servers with a URL cannot be reached by this version yet")


@servers.command()
@click.argument("name")
@sources.config_option
def remove(name: str, config: Path | None) -> None:
    """Remove a server from the file; comments and all else stay.

    \b
    Example:
      interlock servers remove time
    """
    from interlock.config import remove_server

    path = _file(config)
    remove_server(path, name)
    say(f"removed {name!r} from {path}")


@servers.command()
@click.argument("name", required=False)
@sources.config_option
@sources.json_option
def check(name: str | None, config: Path | None, as_json: bool) -> int:
    """Start the servers, or one of them, and tell how they are.

    Exits with 1 if one that should work does not.

    \b
    Example:
      interlock servers check
      interlock servers check time --json
    """
    loaded = sources.load(config)
    chosen = loaded.servers
    if name is not None:
        if name not in chosen:
            known = ", ".join(chosen) or "none"
            raise ConfigError(
                f"{loaded.path or 'no configuration'} has no server {name!r}: {known}"
            )
        chosen = {name: chosen[name]}
    found = run(statuses(chosen))
    if as_json:
        emit_json({"servers": found})
    else:
        emit_table(status_rows(found))
        if not found:
            say("no servers: add one with `interlock servers add NAME COMMAND`")
        warn_of_missing(found)
    return int(any(is_broken(status) for status in found))


@servers.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def trust(yes: bool) -> None:
    """Let the .mcp.json of the working folder start its servers.

    Shows what would be started and asks. Trust ends with the next change of the file.

    \b
    Example:
      interlock servers trust
    """
    from interlock.config import load
    from interlock.config.trust import PROJECT_FILE, fingerprint, grant, is_trusted, project_file

    path = project_file()
    if path is None:
        raise ConfigError(f"there is no {PROJECT_FILE} in this folder")
    seen = fingerprint(path)
    if is_trusted(path):
        say(f"{path} is trusted already")
        return
    found = load(path)
    say(f"{path} would start:")
    for name, server in found.servers.items():
        say(f"  {safe_line(name)}: {safe_line(_whole(server))}")
    if not yes:
        if not is_terminal(sys.stdin):
            raise click.UsageError("nobody to ask: look at the file, then add --yes")
        click.confirm("Trust it?", abort=True, err=True)
    grant(path, seen)
    say(f"trusted {path}")


# The file


def _file(config: Path | None) -> Path:
    """Return the file to edit; it may not exist yet."""
    from interlock.config import VARIABLE, default_path

    named = config or os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else default_path()


def _variables(pairs: tuple[str, ...]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            # The text may be a secret without its name.
            raise click.UsageError("--env takes NAME=VALUE")
        variables[name] = value
    return variables


def _shown(name: str, server: ServerConfig) -> dict[str, Any]:
    from interlock.config import HttpServer

    shown: dict[str, Any] = {"name": name, "enabled": server.enabled}
    if isinstance(server, HttpServer):
        return shown | {
            "type": server.type,
            "url": _without_password(server.url.partition("?")[0]),
            "headers": sorted(server.headers),
        }
    return shown | {
        "type": "stdio",
        "command": server.command,
        "args": [_without_password(arg) for arg in server.args],
        "cwd": server.cwd,
        "env": sorted(server.env),
    }


def _without_password(text: str) -> str:
    return re.sub(r"//[^/?#\s]*@", "//…@", text)


def _whole(server: ServerConfig) -> str:
    """Write all that decides what is run: who trusts a file must see it, values included."""
    import shlex

    from interlock.config import HttpServer

    if isinstance(server, HttpServer):
        return f"{server.url} with headers {', '.join(server.headers) or 'none'}"
    variables = [f"{name}={shlex.quote(value)}" for name, value in server.env.items()]
    folder = f" in {server.cwd}" if server.cwd else ""
    return " ".join([*variables, shlex.join([server.command, *server.args])]) + folder


# Their state


async def statuses(servers: dict[str, ServerConfig]) -> list[ServerStatus]:
    """Start the servers, note how they are, and end them."""
    from interlock.toolbox import Toolbox

    with working("starting servers"):
        async with Toolbox(servers) as toolbox:
            return list(toolbox.status.values())


def is_broken(status: ServerStatus) -> bool:
    """Whether it should work and does not."""
    return status.state not in ("ok", "disabled")


def status_rows(found: list[ServerStatus]) -> list[tuple[str, ...]]:
    """Return name, state, revision, time of start, number of tools and the server's own name."""
    return [
        (
            each.name,
            each.state,
            each.revision or "-",
            f"{each.start_seconds:.2f} s" if each.start_seconds else "-",
            f"{each.tools} tools",
            each.server_info,
        )
        for each in found
    ]


def warn_of_missing(found: list[ServerStatus]) -> None:
    """Say why servers are down and tools are missing."""
    for each in found:
        if each.reason:
            warn(f"server {each.name!r} {each.state}: {each.reason}")
        for line in each.missing:
            say(f"missing: server {each.name!r}: {safe_line(line)}")
