"""`interlock servers`: edit and check the mcpServers file."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interlock.cli import completion, config_option
from interlock.cli.server_status import (
    say_dropped,
    say_missing,
    say_starting,
    status_rows,
    statuses,
    warn_of_broken,
)
from interlock.cli.servers import inputs
from interlock.cli.servers.add import add
from interlock.cli.servers.importing import import_
from interlock.cli.servers.login import delete_login, login, logout
from interlock.cli.signals import run
from interlock.cli.terminal import emit_json, emit_table, is_terminal, say, warn
from interlock.errors import ConfigError
from interlock.text.quoting import visible

if TYPE_CHECKING:
    from interlock.cli.servers.login_status import Login
    from interlock.config import ServerConfig


@click.group()
def servers() -> None:
    """Edit and check the file of servers, and log in to them.

    The file is the one named by --config, else by INTERLOCK_MCP_CONFIG, else mcp.json in your
    config folder.

    \b
    Example:
      interlock servers add time mcp-server-time --local-timezone UTC
      interlock servers add notes https://notes.example/mcp
      interlock servers check
    """


servers.add_command(add)
servers.add_command(import_)
servers.add_command(login)
servers.add_command(logout)


@servers.command("list")
@config_option.config_option
@config_option.json_option
def list_(config: Path | None, as_json: bool) -> None:
    """List the servers without starting them. The values of variables and headers are hidden.

    \b
    Example:
      interlock servers list
    """
    loaded = config_option.load(config)
    found = loaded.servers
    stored = _logins(found)
    if as_json:
        emit_json({"servers": [_shown(name, found[name], stored.get(name)) for name in found]})
        return
    emit_table(
        (
            name,
            "" if server.enabled else "disabled",
            _place(shown),
            " ".join(f"{each}=…" for each in shown.get("env", shown.get("headers", ()))),
            _login_shown(shown),
        )
        for name, server in found.items()
        for shown in [_shown(name, server, stored.get(name))]
    )
    if not found and not loaded.ignored:
        say("no servers; add one with `interlock servers add NAME COMMAND`")


@servers.command()
@click.argument("name", shell_complete=completion.servers)
@config_option.config_option
def remove(name: str, config: Path | None) -> None:
    """Remove a server from the file and delete its login; the rest of the file stays as it is.

    \b
    Example:
      interlock servers remove time
    """
    from interlock.cli.servers.kept_inputs import forget
    from interlock.config import load, remove_server

    path = config_option.own_file(config)
    before = load(path if path.exists() else None).servers
    remove_server(path, name)
    say(f"removed {name!r} from {path}")
    gone = before.pop(name, None)
    if gone is not None:  # the entry of the server could be read
        forget([gone])
        _forget_login(name, gone, before.values())


@servers.command()
@click.argument("name", required=False, shell_complete=completion.servers)
@config_option.config_option
@config_option.json_option
def check(name: str | None, config: Path | None, as_json: bool) -> int:
    """Start the servers, or one of them, and show their status.

    Exits with 1 if an enabled server does not work, or an entry of the file cannot be used.

    \b
    Example:
      interlock servers check
      interlock servers check time --json
    """
    loaded = config_option.load(config)
    keys = None if name is None else [config_option.find(loaded, name)[0]]
    servers = inputs.answered(loaded, keys).servers
    chosen = {key: server for key, server in servers.items() if keys is None or key in keys}
    found = run(statuses(chosen))
    if as_json:
        emit_json({"servers": found})
    else:
        emit_table(status_rows(found))
        if not found and not loaded.ignored:
            say("no servers; add one with `interlock servers add NAME COMMAND`")
        warn_of_broken(found)
        say_starting(found)
        say_missing(found)
        say_dropped(found)
    is_whole = keys is not None or not loaded.ignored
    return int(not is_whole or any(each.state not in ("ok", "disabled") for each in found))


@servers.command("forget")
@click.argument("name", shell_complete=completion.servers)
@config_option.config_option
def forget_(name: str, config: Path | None) -> None:
    """Delete the answers to a server's ${input:ID} from your keyring; they are asked for again.

    \b
    Example:
      interlock servers forget github
    """
    from interlock.cli.servers.kept_inputs import forget

    _, server = config_option.find(config_option.load(config), name)
    count = forget([server])
    say(f"forgot {count} answers" if count != 1 else "forgot 1 answer")


@servers.command()
@click.option("--yes", is_flag=True, help="Trust without asking.")
def trust(yes: bool) -> None:
    """Allow the .mcp.json of the working folder to start and contact its servers.

    Shows the servers, and the settings that grant them something, and asks first. Any change of the
    file, or of a file of variables that it names, ends the trust.

    \b
    Example:
      interlock servers trust
    """
    from interlock.config import load
    from interlock.config.consent import consents
    from interlock.config.trust import PROJECT_FILE, fingerprint, grant, is_trusted, project_file

    path = project_file()
    if path is None:
        raise ConfigError(f"this folder has no {PROJECT_FILE}")
    seen = fingerprint(path)
    if is_trusted(path):
        say(f"{path} is already trusted")
        return
    found = load(path)
    say(f"{path} would start or contact:")
    for name, server in found.servers.items():
        say(f"  {visible(name)}: {visible(_whole(server))}")  # a line break may begin a command
        for line in consents(server):
            say(f"    {visible(line)}")
    for reason in found.ignored.values():
        warn(f"{reason}; this server is ignored")
    if not yes:
        if not is_terminal(sys.stdin):
            raise click.UsageError(
                "cannot ask for confirmation without a terminal; check the file, then add --yes"
            )
        click.confirm("Trust it?", abort=True, err=True)
    grant(path, seen)
    say(f"trusted {path}")


# Shown to the user


def _forget_login(name: str, gone: ServerConfig, others: Iterable[ServerConfig]) -> None:
    """Delete the login of a removed server, unless another server uses it."""
    from interlock.cli.servers.login_status import login_url

    url = login_url(gone)
    if not url or _logins({name: gone})[name] == "none":
        return
    if url not in map(login_url, others):
        run(delete_login(name, gone))


def _login_shown(server: dict[str, Any]) -> str:
    login = server.get("login", "none")
    if login == "none":  # without "oauth" the server may not need a login
        needs_one = server.get("auth") == "oauth" or ("document" in server and "login" in server)
        return "no login" if needs_one else ""
    return f"login {login}"


def _logins(servers: Mapping[str, ServerConfig]) -> dict[str, Login]:
    from interlock.config import HttpServer, OpenApiConfig

    if not any(isinstance(each, HttpServer | OpenApiConfig) for each in servers.values()):
        return {}
    from interlock.cli.servers.login_status import logins

    return run(logins(servers))


def _shown(name: str, server: ServerConfig, login: Login | None) -> dict[str, Any]:
    from interlock.config import HttpServer, OpenApiConfig, PythonServer
    from interlock.text.redaction import masked_arguments

    shown: dict[str, Any] = {"name": name, "enabled": server.enabled}
    stored = {"login": login} if login else {}
    if isinstance(server, OpenApiConfig):
        return shown | {
            "type": "openapi",
            "document": server.openapi.document,
            "baseUrl": server.openapi.base_url,
            "headers": sorted(server.headers),
            "auth": sorted(server.openapi.auth),
            "tools": list(server.openapi.tools),
            **stored,
        }
    if isinstance(server, HttpServer):
        shown |= {
            "type": server.type,
            "url": _without_password(server.url.partition("?")[0]),
            "headers": sorted(server.headers),
            "auth": server.auth,
        }
        return shown | stored
    if isinstance(server, PythonServer):
        return shown | {"type": "python", "object": server.object}
    return shown | {
        "type": "stdio",
        "command": server.command,
        "args": [_without_password(arg) for arg in masked_arguments(server.args)],
        "cwd": server.cwd,
        "env": sorted(server.env),
    }


def _place(shown: dict[str, Any]) -> str:
    """Return the place of a server: its URL, its document, its object, or its command."""
    if "command" in shown:
        return " ".join([shown["command"], *shown["args"]])
    return str(shown.get("url") or shown.get("document") or shown["object"])


def _without_password(text: str) -> str:
    return re.sub(r"//[^/?#\s]*@", "//…@", text)


def _whole(server: ServerConfig) -> str:
    """Return everything that a server runs and sends, values included, for the user to trust."""
    from interlock.config import HttpServer, OpenApiConfig, PythonServer

    if isinstance(server, OpenApiConfig):
        api = server.openapi
        sent = [f"with {name}: {value}" for name, value in server.headers.items()]
        sent += [f"with the credential for {name}" for name in api.auth]
        return " ".join([api.base_url, f"(document {api.document})", *sent])
    if isinstance(server, HttpServer):
        sent = [f"with {name}: {value}" for name, value in server.headers.items()]
        if server.oauth.client_id:
            sent.append(f"as client {server.oauth.client_id}")
        if server.oauth.client_metadata_url:
            sent.append(f"as client {server.oauth.client_metadata_url}")
        if server.oauth.client_secret:
            sent.append(f"with client secret {server.oauth.client_secret}")
        return " ".join([server.url, f"(type {server.type}, auth {server.auth})", *sent])
    if isinstance(server, PythonServer):
        return f"{server.object} (an object of a Python module, in this program)"
    variables = [f"{name}={shlex.quote(value)}" for name, value in server.env.items()]
    folder = f" in {server.cwd}" if server.cwd else ""
    return " ".join([*variables, shlex.join([server.command, *server.args])]) + folder
