"""`interlock servers`: edit and try the mcpServers file."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interlock.cli import sources
from interlock.cli.login import forget, login, logout
from interlock.cli.running import run
from interlock.cli.states import (
    is_broken,
    status_rows,
    statuses,
    tell_missing,
    warn_of_broken,
)
from interlock.cli.terminal import emit_json, emit_table, is_terminal, safe_line, say
from interlock.errors import ConfigError

if TYPE_CHECKING:
    from interlock.cli.logins import Login
    from interlock.config import Auth, HttpServer, ServerConfig


@click.group()
def servers() -> None:
    """Edit and try the file of servers, and log in to them.

    The file is the one named by --config, else by INTERLOCK_MCP_CONFIG, else mcp.json in your
    config folder.

    \b
    Example:
      interlock servers add time mcp-server-time --local-timezone UTC
      interlock servers add notes https://notes.example/mcp
      interlock servers check
    """


servers.add_command(login)
servers.add_command(logout)


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
    kept = _logins(found)
    if as_json:
        emit_json({"servers": [_shown(name, found[name], kept.get(name)) for name in found]})
        return
    emit_table(
        (
            name,
            "" if server.enabled else "disabled",
            shown.get("url") or " ".join([shown["command"], *shown["args"]]),
            " ".join(f"{each}=…" for each in shown.get("env", shown.get("headers", ()))),
            _login_shown(shown),
        )
        for name, server in found.items()
        for shown in [_shown(name, server, kept.get(name))]
    )
    if not found:
        say("no servers: add one with `interlock servers add NAME COMMAND`")


@servers.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", metavar="COMMAND|URL")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="A variable for it; repeatable.")
@click.option("--cwd", metavar="FOLDER", help="Its working folder.")
@click.option(
    "--header",
    metavar="'NAME: VALUE'",
    multiple=True,
    help="A header for each request to a URL; repeatable.",
)
@click.option(
    "--auth",
    type=click.Choice(["auto", "oauth", "bearer", "none"]),
    help="How a URL lets you in: oauth is a login, bearer a token; auto, the default, asks it.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["http", "sse"]),
    help="The transport of a URL; sse is that of 2024-11-05, which http finds out, too.",
)
@sources.config_option
def add(
    name: str,
    command: str,
    args: tuple[str, ...],
    env: tuple[str, ...],
    cwd: str | None,
    header: tuple[str, ...],
    auth: Auth | None,
    kind: Literal["http", "sse"] | None,
    config: Path | None,
) -> None:
    """Add a server to the file, which is made if there is none: a program, or a URL.

    Put -- before COMMAND if it has options of its own that this command has, too. Better than a
    secret in the file is the name of a variable that has it: 'TOKEN=${MY_TOKEN}'. --auth bearer
    without a header Authorization writes one with the name of a variable, which you are told.

    \b
    Example:
      interlock servers add time mcp-server-time --local-timezone UTC
      interlock servers add issues npx -y some-server --env 'TOKEN=${ISSUES_TOKEN}'
      interlock servers add notes https://notes.example/mcp
      interlock servers add maps https://maps.example/mcp --header 'X-API-Key: ${MAPS_KEY}'
    """
    from interlock.config import StdioServer, add_server

    path = _file(config)
    if command.startswith(("http://", "https://")):
        if args or env or cwd:
            raise click.UsageError("a server with a URL has no arguments, --env or --cwd")
        remote = _with_url(name, command, _headers(header), auth or "auto", kind or "http")
        add_server(path, name, remote)
        say(f"added {name!r} to {path}; {_next_step(name, remote)}")
        return
    if header or auth or kind:
        raise click.UsageError("--header, --auth and --type are for servers with a URL")
    add_server(path, name, StdioServer(command=command, args=args, env=_variables(env), cwd=cwd))
    say(f"added {name!r} to {path}; try it with: interlock servers check {shlex.quote(name)}")


@servers.command()
@click.argument("name")
@sources.config_option
def remove(name: str, config: Path | None) -> None:
    """Remove a server from the file, and forget its login; comments and all else stay.

    \b
    Example:
      interlock servers remove time
    """
    from interlock.config import load, remove_server

    path = _file(config)
    before = load(path if path.exists() else None).servers
    remove_server(path, name)
    say(f"removed {name!r} from {path}")
    _forget_login(name, before.pop(name), before.values())


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
        chosen = dict([sources.find(loaded, name)])
    found = run(statuses(chosen))
    if as_json:
        emit_json({"servers": found})
    else:
        emit_table(status_rows(found))
        if not found:
            say("no servers: add one with `interlock servers add NAME COMMAND`")
        warn_of_broken(found)
        tell_missing(found)
    return int(any(is_broken(status) for status in found))


@servers.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def trust(yes: bool) -> None:
    """Let the .mcp.json of the working folder start and contact its servers.

    Shows what that would be, and asks. Trust ends with the next change of the file.

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
    say(f"{path} would start or contact:")
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
    # The text may be a secret without its name, so it is not shown.
    return _pairs(pairs, "=", "--env takes NAME=VALUE")


def _headers(pairs: tuple[str, ...]) -> dict[str, str]:
    headers = _pairs(pairs, ":", "--header takes 'NAME: VALUE'")
    return {name.strip(): value.strip() for name, value in headers.items()}


def _pairs(pairs: tuple[str, ...], sign: str, usage: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, between, value = pair.partition(sign)
        if not (name and between):
            raise click.UsageError(usage)
        found[name] = value
    return found


def _with_url(
    name: str, url: str, headers: dict[str, str], auth: Auth, kind: Literal["http", "sse"]
) -> HttpServer:
    from interlock.client import Client
    from interlock.config import HttpServer

    has_token = any(each.lower() == "authorization" for each in headers)
    if has_token and auth in ("oauth", "none"):
        raise click.UsageError(f"--auth {auth} and a header Authorization: give one of them")
    if auth == "bearer" and not has_token:
        headers = {"Authorization": f"Bearer ${{{_token_variable(name)}}}", **headers}
    if "${" not in url:
        Client.http(url, headers=headers)  # refuses what cannot be used
    return HttpServer(url=url, headers=headers, type=kind, auth=auth)


def _token_variable(name: str) -> str:
    """Return the variable that has the token of a server: notes -> NOTES_TOKEN."""
    variable = re.sub(r"[^A-Z0-9]", "_", name.upper()) + "_TOKEN"
    return f"_{variable}" if variable[0].isdecimal() else variable


def _next_step(name: str, server: HttpServer) -> str:
    from interlock.config import variables

    named = shlex.quote(name)
    if server.auth == "oauth":
        return f"log in with: interlock servers login {named}"
    used = variables.names(" ".join([server.url, *server.headers.values()]))
    unset = [each for each in used if each not in os.environ]
    first = f"set {' and '.join(unset)}, then " if unset else ""
    return f"{first}try it with: interlock servers check {named}"


# What people are shown


def _forget_login(name: str, gone: ServerConfig, others: Iterable[ServerConfig]) -> None:
    """Forget the login of a server that is not there any more, unless it is another one's, too."""
    if _logins({name: gone}).get(name, "none") == "none":
        return
    from interlock.cli.logins import url_of

    if url_of(gone) not in map(url_of, others):
        run(forget(name, url_of(gone)))


def _login_shown(server: dict[str, Any]) -> str:
    login = server.get("login", "none")
    if login == "none":  # without "oauth", nobody knows whether it needs one
        return "no login" if server.get("auth") == "oauth" else ""
    return f"login {login}"


def _logins(servers: Mapping[str, ServerConfig]) -> dict[str, Login]:
    from interlock.config import HttpServer

    if not any(isinstance(server, HttpServer) for server in servers.values()):
        return {}
    from interlock.cli.logins import logins

    return run(logins(servers))


def _shown(name: str, server: ServerConfig, login: Login | None) -> dict[str, Any]:
    from interlock.config import HttpServer

    shown: dict[str, Any] = {"name": name, "enabled": server.enabled}
    if isinstance(server, HttpServer):
        shown |= {
            "type": server.type,
            "url": _without_password(server.url.partition("?")[0]),
            "headers": sorted(server.headers),
            "auth": server.auth,
        }
        return shown | ({"login": login} if login else {})
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
    """Write all that decides what is run and sent: who trusts it must see it, values included."""
    from interlock.config import HttpServer

    if isinstance(server, HttpServer):
        headers = [f"with {name}: {value}" for name, value in server.headers.items()]
        return " ".join([server.url, f"(type {server.type}, auth {server.auth})", *headers])
    variables = [f"{name}={shlex.quote(value)}" for name, value in server.env.items()]
    folder = f" in {server.cwd}" if server.cwd else ""
    return " ".join([*variables, shlex.join([server.command, *server.args])]) + folder
