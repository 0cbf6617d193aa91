"""`interlock token`: print a server's credential, for programs that send requests themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli import config_option
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json
from interlock.errors import AuthError, AuthRequired, ConfigError, LoginRequired

if TYPE_CHECKING:
    from interlock.config import Config, HttpServer


@click.command()
@click.argument("url", metavar="URL")
@click.option("--headers", "as_headers", is_flag=True, help="Print all headers, as a JSON object.")
@config_option.config_option
def token(url: str, as_headers: bool, config: Path | None) -> None:
    """Print the access token for URL, refreshed if it has expired.

    The token comes from the login that `interlock servers login` has stored. --headers prints it
    as headers, together with the headers that your file has for this URL. Claude Code can run this
    command as the `headersHelper` of a server, so that its own files contain no key. Keep the
    output secret: anyone who has it can call the server as you.

    \b
    Example:
      interlock token --headers https://tools.example.com/mcp
    """
    server = _configured(url, config_option.load(config))
    if as_headers:
        emit_json(run(_headers(url, server)))
        return
    scheme, _, value = run(_headers(url, server)).get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not value:
        raise ConfigError(f"{url} has no bearer token; print its headers with --headers")
    emit(value)


def _configured(url: str, config: Config) -> HttpServer | None:
    from interlock.config import HttpServer, resolve

    for server in config.servers.values():
        if isinstance(server, HttpServer):
            try:
                resolved = resolve(server, os.environ)
            except ConfigError:
                if server.url == url:
                    raise
                continue
            if resolved.url == url:
                return resolved
    return None


async def _headers(url: str, server: HttpServer | None) -> Mapping[str, str]:
    """Return the headers that a request needs.

    Raises:
        LoginRequired: There is neither a login nor a header.
        AuthError: The token is bound to a key, so it cannot be used elsewhere.
    """
    if server is not None and not server.uses_login:
        return server.headers
    from interlock.oauth.stored_login import StoredLogin
    from interlock.toolbox.connect import client_identity

    client = client_identity(server) if server is not None else None
    issuer = server.oauth.issuer if server is not None else ""
    login = StoredLogin(url, is_expected=True, client=client, issuer=issuer)
    try:
        if not await login.valid_token():
            await login.refresh_after(AuthRequired("a token is needed", 401))
    except LoginRequired:
        if server is not None and server.headers and server.auth != "oauth":
            return server.headers
        raise
    own = login.headers("POST", url)
    if "DPoP" in own:
        raise AuthError(f"the token for {url} is bound to a key of interlock; no header is enough")
    return {**(server.headers if server is not None else {}), **own}
