"""`interlock servers login` and `logout`: log in to a server in a browser."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import click

from interlock.cli import completion, config_option
from interlock.cli.server_status import is_broken, status_rows, statuses, warn_of_broken
from interlock.cli.signals import run
from interlock.cli.terminal import emit_table, is_terminal, say, warn, working
from interlock.config import (
    HttpServer,
    OpenApiConfig,
    PythonServer,
    ServerConfig,
    StdioServer,
    resolve,
)
from interlock.errors import AuthError, ConfigError, StoreError
from interlock.oauth import AuthorizationRequest
from interlock.oauth.callback import Callback, open_browser

if TYPE_CHECKING:
    from interlock.oauth import TokenStore
    from interlock.oauth.logout import LoggedOut


@click.command()
@click.argument("name", shell_complete=completion.servers)
@click.option("--no-browser", is_flag=True, help="Only show the URL to open.")
@click.option(
    "--scope",
    metavar="SCOPE",
    multiple=True,
    help="A scope to request besides the scopes that the server requires; repeatable.",
)
@config_option.config_option
def login(name: str, no_browser: bool, scope: tuple[str, ...], config: Path | None) -> int:
    """Log in to a server with a URL, in your browser.

    The login is stored for all programs of interlock, in your keyring or in files that only you
    can read, and renewed as long as the server allows. With --no-browser, open the URL on any
    machine; then paste the URL of the last page here.

    \b
    Example:
      interlock servers login notes
      interlock servers login notes --no-browser
      interlock servers login notes --scope notes:write
    """
    _check_scopes(scope)
    configured = _with_login(name, config)
    if isinstance(configured, OpenApiConfig):
        return run(_log_in_to_api(name, configured, scope, opens_browser=not no_browser))
    server = configured
    if server.auth == "none":
        raise ConfigError(f'server {name!r} does not use a login: it has "auth": "none"')
    if not server.uses_login:
        raise ConfigError(
            f"server {name!r} does not use a login: its configuration has the header "
            "Authorization; remove that to log in"
        )
    return run(_login(name, server, scope, opens_browser=not no_browser))


@click.command()
@click.argument("name", shell_complete=completion.servers)
@config_option.config_option
def logout(name: str, config: Path | None) -> None:
    """Delete the login of a server, and revoke it if its authorization server supports that.

    \b
    Example:
      interlock servers logout notes
    """
    run(delete_login(name, _with_login(name, config)))


def _with_login(name: str, config: Path | None) -> HttpServer | OpenApiConfig:
    _, server = config_option.find(config_option.load(config), name)
    if isinstance(server, StdioServer):
        raise ConfigError(f"server {name!r} is a program: only a server with a URL has a login")
    if isinstance(server, PythonServer):
        raise ConfigError(
            f"server {name!r} is a Python object: only a server with a URL has a login"
        )
    return server


def _check_scopes(scopes: tuple[str, ...]) -> None:
    from interlock.oauth.challenges import split_scopes

    for scope in scopes:
        if split_scopes(scope) != (scope,):
            raise click.UsageError(f"--scope {scope!r} is not a valid scope; pass one at a time")


# Logging in


async def _login(
    name: str, written: HttpServer, scopes: tuple[str, ...], *, opens_browser: bool
) -> int:
    from interlock.toolbox.connect import login_challenge

    server = resolve(written, os.environ)
    with working(f"asking {name}"):
        challenge = await login_challenge(server)
        if challenge is None and (server.auth == "oauth" or await _publishes_login(server)):
            challenge = ""  # some of the server's methods may require authentication
    if challenge is None:
        from interlock.oauth.discovery import OTHER_WAY

        say(f"server {name!r} requires no login and publishes no way to log in: {OTHER_WAY}")
    else:
        await _log_in(name, server, challenge, scopes, opens_browser=opens_browser)
        say(f"logged in to {name!r}")
    found = await statuses({name: written})
    emit_table(status_rows(found))
    if challenge is not None and found[0].state == "expired":  # although the login is new
        raise AuthError(f"server {name!r} refuses the tokens of its own authorization server")
    warn_of_broken(found)
    return int(any(map(is_broken, found)))


async def _log_in(
    name: str,
    server: HttpServer,
    challenge: str,
    scopes: tuple[str, ...],
    *,
    opens_browser: bool,
) -> None:
    from interlock.oauth import OAuth, UserTokenStore
    from interlock.oauth.callback import callback_server
    from interlock.toolbox.connect import client_identity

    store = UserTokenStore()
    async with callback_server(server.oauth.callback_port) as callback:
        oauth = OAuth(
            server.url,
            redirect_uri=callback.redirect_uri,
            redirect_uri_of=callback.redirect_uri_of,
            ask=LoginPrompt(name, callback, opens_browser=opens_browser).authorize,
            client=client_identity(server),
            issuer=server.oauth.issuer,
            client_metadata_url=server.oauth.client_metadata_url,
            scopes=await _with_earlier(scopes, store, server.url) or server.oauth.scopes,
            store=store,
        )
        await oauth.login(challenge)
    if oauth.save_error is not None:
        raise oauth.save_error


async def _log_in_to_api(
    name: str, config: OpenApiConfig, scopes: tuple[str, ...], *, opens_browser: bool
) -> int:
    """Log in at the authorization server that an API's document names."""
    from interlock.cli.servers.openapi import server_of
    from interlock.oauth import UserTokenStore
    from interlock.oauth.callback import callback_server

    api = server_of(name, config)
    with working(f"reading the document of {name}"):
        await api.load()
    async with callback_server(0) as callback:
        prompt = LoginPrompt(name, callback, opens_browser=opens_browser)
        login = api.tools.identity.login(
            store=UserTokenStore(),
            ask=prompt.authorize,
            redirect_uri=callback.redirect_uri,
            more_scopes=scopes,
        )
        await login.login()
    if login.save_error is not None:
        raise login.save_error
    say(f"logged in to {name!r}")
    return 0


async def _publishes_login(server: HttpServer) -> bool:
    from interlock.oauth import Fetcher
    from interlock.oauth.discovery import discover

    found = await discover(Fetcher(server.url), server.url, configured=server.oauth.issuer)
    return not found.is_guessed


async def _with_earlier(scopes: tuple[str, ...], store: TokenStore, url: str) -> tuple[str, ...]:
    """Add the stored login's scopes, because `--scope` extends a login."""
    if not scopes:
        return ()
    with suppress(StoreError):
        earlier = await store.load_tokens(url)
        if earlier is not None:
            return tuple(dict.fromkeys([*earlier.scope.split(), *scopes]))
    return scopes


# Logging out


async def delete_login(name: str, server: ServerConfig) -> None:
    """Delete the login of a server or an API, and print the outcome."""
    from interlock.oauth import UserTokenStore

    ended = await end_login(server, UserTokenStore())
    if ended is None:
        return
    if not ended.was_stored:
        say(f"{name!r} has no stored login")
    elif ended.problem:
        say(f"logged out of {name!r}: its login is deleted")
        warn(f"its tokens are valid until they expire: {ended.problem}")
    else:
        say(f"logged out of {name!r}: its login is deleted and revoked")


async def end_login(server: ServerConfig, store: TokenStore) -> LoggedOut | None:
    """Delete and revoke the login of a server or an API; return None for a server without logins.

    Raises:
        ConfigError: A variable of its configuration is not set.
        StoreError: The store cannot be read or written.
    """
    from interlock.oauth.logout import logout
    from interlock.toolbox.connect import client_identity

    if isinstance(server, OpenApiConfig):
        return await logout(resolve(server, os.environ).openapi.base_url, store)
    if isinstance(server, HttpServer):
        resolved = resolve(server, os.environ)
        return await logout(resolved.url, store, client=client_identity(resolved))
    return None


class LoginPrompt:
    """Asks the user to log in, with a browser on this machine or on another one."""

    def __init__(self, name: str, callback: Callback, *, opens_browser: bool) -> None:
        self._name = name
        self._callback = callback
        self._opens_browser = opens_browser

    async def authorize(self, request: AuthorizationRequest) -> Mapping[str, str]:
        """Show and open the login URL; return the query of the redirect that ends the login."""
        scopes = f", for {' '.join(request.scopes)}" if request.scopes else ""
        say(f"log in to {self._name!r} at {request.host}{scopes}:")
        say(request.url)
        queries = {
            asyncio.create_task(self._callback.query(request)),
            asyncio.create_task(self._open(request.url)),
        }
        try:
            done, _ = await asyncio.wait(queries, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in queries:
                task.cancel()
            await asyncio.wait(queries)

    async def _open(self, url: str) -> dict[str, str]:
        """Open the URL; without a browser, wait until the user pastes the URL of the last page."""
        if self._opens_browser:
            if await open_browser(url):  # some browsers make this wait until they are closed
                return await _never()
            say("no browser could be opened: open the URL yourself")
        return await (_pasted() if is_terminal(sys.stdin) else _never())


async def _never() -> dict[str, str]:
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return] # never set


async def _pasted() -> dict[str, str]:
    """Wait until the user pastes a URL; return the URL's query."""
    say("if the browser ends at a page that it cannot show, paste the URL of that page:")
    while True:
        line = await _line()
        if (query := _query(line)) is not None:
            return query
        say("that is not the URL: it starts with http and contains ?…state=…")


def _query(url: str) -> dict[str, str] | None:
    try:
        pairs = parse_qsl(urlsplit(url.strip()).query, keep_blank_values=True)
    except ValueError:
        return None
    query = dict(pairs)
    return query if "state" in query and len(query) == len(pairs) else None


async def _line() -> str:
    """Wait for a line on the terminal; wait forever if the terminal is closed."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    keys = sys.stdin.fileno()

    def read() -> None:
        data = os.read(keys, 65_536)  # a terminal returns whole lines
        if not data:
            loop.remove_reader(keys)
        elif not line.done():
            line.set_result(data.decode(errors="replace"))

    loop.add_reader(keys, read)
    try:
        return await line
    finally:
        loop.remove_reader(keys)
