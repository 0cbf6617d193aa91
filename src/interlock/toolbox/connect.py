"""How each kind of server in a toolbox becomes a client, and what nobody else may learn of that.

A server may send back what it was given, in an error for one. What reaches people, models and
logs goes through `Secrets.hide` first.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, urlsplit

from interlock import config
from interlock.client import Client, ClientOptions
from interlock.config import HttpServer, ServerConfig, StdioServer
from interlock.errors import (
    MAX_WORDS,
    AuthRequired,
    HttpError,
    InsufficientScope,
    InterlockError,
    LoginRequired,
)
from interlock.transports import Authorization, InProcessServer

if TYPE_CHECKING:
    from interlock.oauth import ClientIdentity
    from interlock.transports.http_pool import HttpPool

MIN_SECRET = 6  # characters; shorter values would make any text unreadable

_KINDS: dict[str, Literal["auto", "sse"]] = {"http": "auto", "sse": "sse"}
_LOGIN = "interlock servers login"


class Secrets:
    """What a server was given and others must not see.

    Args:
        texts: What the configuration brought.
        authorization: Whose access token is sent.
    """

    def __init__(
        self, texts: Iterable[str] = (), authorization: Authorization | None = None
    ) -> None:
        # The longest first: "Bearer abc" before "abc".
        self._texts = sorted({*texts}, key=len, reverse=True)
        self._authorization = authorization

    def __repr__(self) -> str:
        return f"Secrets({len(self._texts)})"

    def hide(self, text: str) -> str:
        """Give a text without them."""
        token = self._authorization.token if self._authorization is not None else ""
        for secret in (token, *self._texts):
            if len(secret) >= MIN_SECRET:
                text = text.replace(secret, "***")
        return text


def make_client(
    server: ServerConfig | InProcessServer,
    environ: Mapping[str, str],
    pool: Callable[[], HttpPool],
    options: ClientOptions,
) -> tuple[Client, Secrets]:
    """Make a client that is not open yet.

    Args:
        server: As configured.
        environ: Where `${VAR}` is looked up.
        pool: Gives the connections that all servers with a URL share.
        options: For the client.

    Returns:
        The client, and what it knows that others must not see.

    Raises:
        ConfigError: A variable that is not set, or a URL or header that cannot be used.
    """
    if not isinstance(server, StdioServer | HttpServer):
        return Client(server.connect, **options), Secrets()
    options = {**options, "timeout": server.timeout, "connect_timeout": server.connect_timeout}
    if isinstance(server, StdioServer):
        return _of_program(server, config.resolve(server, environ), options)
    return _of_url(server, config.resolve(server, environ), pool(), options)


def _of_program(
    written: StdioServer, resolved: StdioServer, options: ClientOptions
) -> tuple[Client, Secrets]:
    client = Client.stdio(
        resolved.command,
        *resolved.args,
        env=resolved.env,
        cwd=resolved.cwd,
        max_frame_bytes=resolved.max_message_bytes,
        **options,
    )
    filled = [arg for arg in resolved.args if arg not in written.args]
    return client, Secrets([*resolved.env.values(), *filled])


def _of_url(
    written: HttpServer, resolved: HttpServer, pool: HttpPool, options: ClientOptions
) -> tuple[Client, Secrets]:
    authorization = _authorization(resolved)
    client = Client.http(
        resolved.url,
        headers=resolved.headers,
        auth=authorization,
        transport=_KINDS[resolved.type],
        pool=pool,
        max_frame_bytes=resolved.max_message_bytes,
        **options,
    )
    texts = [*_of_settings(resolved), *_of_query(resolved.url), *_filled_in(written, resolved)]
    return client, Secrets(texts, authorization)


def _authorization(server: HttpServer) -> Authorization | None:
    if not server.uses_login:
        return None
    from interlock.oauth.stored_login import KeptLogin

    return KeptLogin(server.url, is_expected=server.auth == "oauth", client=client_identity(server))


def client_identity(server: HttpServer) -> ClientIdentity | None:
    """Give the client that the operator has registered for logins; None when there is none."""
    known = server.oauth
    if not known.client_id:
        return None
    from interlock.oauth import ClientIdentity

    return ClientIdentity(id=known.client_id, secret=known.client_secret, issuer=known.issuer)


# Secrets of servers with a URL


def _of_settings(server: HttpServer) -> list[str]:
    values = [*server.headers.values(), server.oauth.client_secret]
    return [*values, *(part for value in values for part in value.split()[1:])]  # Bearer abc: abc


def _of_query(url: str) -> list[str]:
    query = urlsplit(url).query
    raw = [pair.partition("=")[2] for pair in query.split("&")]
    return [query, *raw, *(value for _, value in parse_qsl(query))]


def _filled_in(written: HttpServer, resolved: HttpServer) -> set[str]:
    """What variables brought into the path; the host must stay readable."""
    steps = urlsplit(resolved.url).path.split("/")
    return {*steps} - {*urlsplit(written.url).path.split("/")}


# Ways out


def way_out(error: InterlockError, name: str, server: object) -> str:
    """Say what went wrong with a server that is called `name`, and what a person can do about it.

    Args:
        error: Why it does not let us in, or anything else.
        name: Its name in addresses.
        server: As configured.
    """
    text = str(error)
    login = f"{_LOGIN} {shlex.quote(name)}"
    if isinstance(error, LoginRequired):
        return text.replace(_LOGIN, login) if _LOGIN in text else f"{text}: {login}"
    if isinstance(error, HttpError) and error.status in (404, 405):
        return f"{text}; is the path of its URL right? Most servers are at /mcp, old ones at /sse"
    if isinstance(error, InsufficientScope) and isinstance(server, HttpServer):
        scopes = "".join(f" --scope {shlex.quote(scope)}" for scope in error.scopes)
        if len(scopes) > MAX_WORDS:
            scopes = ""  # the login remembers them, as far as that goes
        return f"{text}: {login}{scopes}" if server.uses_login else text
    if isinstance(error, AuthRequired) and isinstance(server, HttpServer):
        if server.auth == "none":
            return f'{text}; its configuration says "auth": "none"'
        if not server.uses_login:
            return f"{text}; it does not take the header Authorization of its configuration"
    return text
