"""`interlock servers add`: add a server, a command or a URL, to the configuration file."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from interlock.cli import config_option
from interlock.cli.terminal import say, warn
from interlock.cli.utf8_command import Utf8Command

if TYPE_CHECKING:
    from interlock.config import Auth, HttpServer, OAuthClient, StdioServer

_TRY = "try it with: interlock servers check"
_LOG_IN = "log in with: interlock servers login"


@click.command(cls=Utf8Command, context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", metavar="COMMAND|URL")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--env",
    metavar="NAME=VALUE",
    multiple=True,
    help="An environment variable for the program; repeatable.",
)
@click.option("--cwd", metavar="FOLDER", help="The program's working folder.")
@click.option(
    "--header",
    metavar="'NAME: VALUE'",
    multiple=True,
    help="A header for each request to a URL; repeatable.",
)
@click.option(
    "--auth",
    type=click.Choice(["auto", "oauth", "bearer", "none"]),
    help="How to authenticate to a URL: oauth is a login, bearer a token; auto, the default, "
    "asks the server.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["http", "sse"]),
    help="The transport of a URL; sse is that of 2024-11-05, which http detects, too.",
)
@click.option("--client-id", metavar="ID", help="Id of a client that you registered for logins.")
@click.option(
    "--client-secret", metavar="SECRET", help="The client's secret, preferably as '${VARIABLE}'."
)
@click.option(
    "--client-metadata-url",
    metavar="URL",
    help="Instead of an id: the URL of a document that describes the client.",
)
@click.option(
    "--callback-port",
    metavar="PORT",
    type=click.IntRange(1, 65_535),
    help="Port of the redirect URL of logins: http://127.0.0.1:PORT/callback.",
)
@config_option.config_option
def add(
    name: str,
    command: str,
    args: tuple[str, ...],
    env: tuple[str, ...],
    cwd: str | None,
    header: tuple[str, ...],
    auth: Auth | None,
    kind: Literal["http", "sse"] | None,
    client_id: str | None,
    client_secret: str | None,
    client_metadata_url: str | None,
    callback_port: int | None,
    config: Path | None,
) -> None:
    """Add a server to the file, which is created if it does not exist: a program, or a URL.

    Put -- before COMMAND if it has an option that this command has, too. Keep secrets out of the
    file: write the name of a variable instead, as in 'TOKEN=${MY_TOKEN}'. --auth bearer without
    an Authorization header adds one with a variable, and prints its name.

    \b
    Example:
      interlock servers add time mcp-server-time --local-timezone UTC
      interlock servers add issues npx -y some-server --env 'TOKEN=${ISSUES_TOKEN}'
      interlock servers add notes https://notes.example/mcp
      interlock servers add maps https://maps.example/mcp --header 'X-API-Key: ${MAPS_KEY}'
    """
    from interlock.config import add_server

    server: StdioServer | HttpServer
    if re.match("https?://", command, re.IGNORECASE):
        if args or env or cwd:
            raise click.UsageError("a server with a URL has no arguments, --env or --cwd")
        client = _client(client_id, client_secret, client_metadata_url, callback_port)
        scheme, _, rest = command.partition(":")
        url = f"{scheme.lower()}:{rest}"
        server = _with_url(name, url, _headers(header), auth or "auto", kind or "http", client)
    else:
        of_url = (header, auth, kind, client_id, client_secret, client_metadata_url, callback_port)
        if any(of_url):
            raise click.UsageError(
                "--header, --auth, --type and the options for logins need a URL; if they are the "
                "program's own, put -- before COMMAND"
            )
        server = _program(command, args, _variables(env), cwd)
    path = config_option.own_file(config)
    add_server(path, name, server)
    in_file = f" --config {shlex.quote(str(config))}" if config else ""
    say(f"added {name!r} to {path}; {_next_step(name, server)}{in_file}")


def _program(
    command: str, args: tuple[str, ...], env: dict[str, str], cwd: str | None
) -> StdioServer:
    from interlock.config import StdioServer

    for each in () if cwd else args:
        file = Path(each.rpartition(":")[0] or each)  # FILE, or FILE:NAME
        if not file.is_absolute() and file.is_file():
            warn(
                f"{each} is relative, so the server starts only in this folder; "
                f"write {shlex.quote(str(Path.cwd() / each))}, or add --cwd"
            )
    return StdioServer(command=command, args=args, env=env, cwd=cwd)


def _client(
    id: str | None, secret: str | None, metadata_url: str | None, callback_port: int | None
) -> OAuthClient:
    from interlock.config import OAuthClient, metadata_problem

    if secret and not id:
        raise click.UsageError("--client-secret needs --client-id")
    if metadata_url and id:
        raise click.UsageError("--client-metadata-url and --client-id exclude each other")
    if metadata_url and (problem := metadata_problem(metadata_url)):
        raise click.UsageError(f"--client-metadata-url {problem}")
    return OAuthClient(
        client_id=id or "",
        client_metadata_url=metadata_url or "",
        client_secret=secret or "",
        callback_port=callback_port or 0,
    )


def _with_url(
    name: str,
    url: str,
    headers: dict[str, str],
    auth: Auth,
    kind: Literal["http", "sse"],
    client: OAuthClient,
) -> HttpServer:
    from interlock.client import Client
    from interlock.config import HttpServer

    has_token = any(each.lower() == "authorization" for each in headers)
    if has_token and auth in ("oauth", "none"):
        raise click.UsageError(f"--auth {auth} and a header Authorization exclude each other")
    if auth == "bearer" and not has_token:
        headers = {"Authorization": f"Bearer ${{{_token_variable(name)}}}", **headers}
    if "${" not in url:
        Client.http(url, headers=headers)  # raises if they cannot be used
    return HttpServer(url=url, headers=headers, type=kind, auth=auth, oauth=client)


def _variables(pairs: tuple[str, ...]) -> dict[str, str]:
    # The text may be a secret without its name, so the error does not show it.
    return _pairs(
        pairs, "=", "--env takes NAME=VALUE; if it is the program's own, put -- before COMMAND"
    )


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


def _token_variable(name: str) -> str:
    """Return the name of the variable for a server's token: notes -> NOTES_TOKEN."""
    variable = re.sub(r"[^A-Z0-9]", "_", name.upper()) + "_TOKEN"
    return f"_{variable}" if variable[0].isdecimal() else variable


def _next_step(name: str, server: StdioServer | HttpServer) -> str:
    from interlock.config import HttpServer, variables

    if isinstance(server, HttpServer):
        texts = [server.url, *server.headers.values(), server.oauth.client_secret]
    else:
        texts = [server.command, *server.args, *server.env.values()]
    unset = [each for each in variables.names(" ".join(texts)) if each not in os.environ]
    first = f"set {' and '.join(unset)}, then " if unset else ""
    logs_in = isinstance(server, HttpServer) and server.auth == "oauth"
    return f"{first}{_LOG_IN if logs_in else _TRY} {shlex.quote(name)}"
