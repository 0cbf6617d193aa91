"""Clients for configured servers, each with a redactor for the secrets that its server receives.

A server may repeat its secrets, for example in an error. So text for users, models and logs is
redacted with `Redactor.redact` first.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from interlock import config
from interlock.client import Client, ClientOptions
from interlock.config import HttpServer, PythonServer, StdioServer
from interlock.config.servers import KeptLogin
from interlock.errors import AuthError, ConfigError, RemoteError
from interlock.text.redaction import Redactor, secret_ends
from interlock.transports import Authorization, InProcessServer, Transport

if TYPE_CHECKING:
    from interlock.oauth import ClientIdentity, TokenStore
    from interlock.openapi.server import OpenApiServer
    from interlock.transports.http_pool import HttpPool

_KINDS: dict[str, Literal["auto", "sse"]] = {"http": "auto", "sse": "sse"}


def make_client(
    server: StdioServer | HttpServer | PythonServer | InProcessServer | OpenApiServer,
    environ: Mapping[str, str],
    pool: Callable[[], HttpPool],
    options: ClientOptions,
    *,
    owner: str = "",
    user: Mapping[str, str] | None = None,
    login: Callable[[HttpServer], Authorization] | None = None,
) -> tuple[Client, Redactor]:
    """Make a client for a configured server; the caller opens it.

    Args:
        server: The server's configuration.
        environ: The environment variables that `${VAR}` refers to.
        pool: Returns the HTTP connections that all servers with a URL share.
        options: The client's options.
        owner: The principal whose stored login is used; "" for the local user.
        user: The user's values for `${user:NAME}`; None if no user is calling.
        login: Returns the user's login to a server, given its configuration with variables
            replaced; None for the local user's stored login.

    Returns:
        The client, and a redactor for the secrets that the client has.

    Raises:
        ConfigError: A variable is not set, or a URL or header is not usable.
    """
    if isinstance(server, PythonServer):
        options = _with_roots({**options, "timeout": server.timeout}, server.roots)
        client = Client(partial(_connect_to_object, server.object), **options)
        return _watched(client, Redactor(), options)
    if not isinstance(server, StdioServer | HttpServer):
        # Only an API's server distinguishes owners; other in-process servers treat callers alike.
        connect = partial(server.connect, owner) if owner else server.connect  # type: ignore[call-arg]  # see above
        return _watched(Client(connect, **options), Redactor(), options)
    options = {**options, "timeout": server.timeout, "connect_timeout": server.connect_timeout}
    if server.call_timeout is not None:
        options.setdefault("hard_timeout", server.call_timeout)
    if isinstance(server, StdioServer):
        client, redactor = _of_program(server, config.resolve(server, environ, user), options)
        return _watched(client, redactor, options)
    resolved = config.resolve(server, environ, user)
    if login is not None and resolved.uses_login:
        authorization: Authorization | None = login(resolved)
    else:
        authorization = _authorization(resolved, owner)
    client, redactor = _of_url(server, resolved, pool(), options, authorization)
    return _watched(client, redactor, options)


def _with_roots(options: ClientOptions, roots: Sequence[str]) -> ClientOptions:
    """Add a server's configured roots, and declare roots only if there are any."""
    return {**options, "roots": [*options.get("roots", ()), *roots]} if roots else options


def _connect_to_object(name: str) -> Transport:
    """Connect to a server object in a Python module, which is imported once.

    Args:
        name: "package.module:name".

    Raises:
        ConfigError: The object cannot be imported, or is not a server.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the module may raise any exception
        raise ConfigError(f"{name} cannot be imported: {error}") from error
    if not callable(getattr(found, "connect", None)):
        raise ConfigError(f"{name} is not a server; it has no method connect()")
    transport: Transport = found.connect()
    return transport


def _watched(client: Client, redactor: Redactor, options: ClientOptions) -> tuple[Client, Redactor]:
    """Make a client's trace redact the client's secrets; return the client and the redactor."""
    trace = options.get("trace")
    if trace is not None:
        trace.redactor = redactor
    return client, redactor


def _of_program(
    written: StdioServer, resolved: StdioServer, options: ClientOptions
) -> tuple[Client, Redactor]:
    client = Client.stdio(
        resolved.command,
        *resolved.args,
        env={**os.environ, **resolved.env} if resolved.inherits_env else resolved.env,
        cwd=resolved.cwd,
        max_frame_bytes=resolved.max_message_bytes,
        **_with_roots(options, resolved.roots),
    )
    filled = [arg for arg in resolved.args if arg not in written.args]
    passwords = (text for arg in resolved.args for text in _passwords_in(arg))
    return client, Redactor(
        [*resolved.env.values(), *filled, *passwords, *secret_ends(resolved.args)]
    )


def _passwords_in(arg: str) -> Iterator[str]:
    """Yield users and passwords from URLs in an argument: postgresql://user:password@host."""
    for user in re.findall(r"//([^/?#\s]*)@", arg):
        password = user.partition(":")[2]
        yield from (user, password, unquote(password))


def _of_url(
    written: HttpServer,
    resolved: HttpServer,
    pool: HttpPool,
    options: ClientOptions,
    authorization: Authorization | None,
) -> tuple[Client, Redactor]:
    client = Client.http(
        resolved.url,
        headers=resolved.headers,
        auth=authorization,
        transport=_KINDS[resolved.type],
        pool=pool,
        max_frame_bytes=resolved.max_message_bytes,
        **_with_roots(options, resolved.roots),
    )
    texts = [*_of_settings(resolved), *_of_query(resolved.url), *_filled_in(written, resolved)]
    return client, Redactor(texts, authorization)


def _authorization(server: HttpServer, owner: str) -> Authorization | None:
    if not server.uses_login:
        return None
    from interlock.oauth.stored_login import StoredLogin

    return StoredLogin(
        server.url,
        is_expected=server.auth == "oauth",
        client=client_identity(server),
        issuer=server.oauth.issuer,
        store=_store_of(server.kept_login),
        owner=owner,
    )


def _store_of(kept: KeptLogin | None) -> TokenStore | None:
    if kept is None:
        return None
    from interlock.store.local_login import LocalLogin

    return LocalLogin(kept)


def client_identity(server: HttpServer) -> ClientIdentity | None:
    """Return the OAuth client that the operator registered for a server, or None."""
    known = server.oauth
    if not known.client_id:
        return None
    from interlock.oauth import ClientIdentity

    return ClientIdentity(id=known.client_id, secret=known.client_secret, issuer=known.issuer)


async def login_challenge(server: HttpServer) -> str | None:
    """Call a server without a token; return its login challenge, or None if it needs no login.

    Args:
        server: The server's configuration, with variables replaced.

    Raises:
        InterlockError: The server cannot be reached.
    """
    client = Client.http(
        server.url,
        headers=server.headers,
        transport=_KINDS[server.type],
        connect_timeout=server.connect_timeout,
    )
    try:
        async with client:
            with suppress(RemoteError):  # the server has no tools, but it answered
                await client.list_tools()
    except AuthError as error:
        return error.challenge
    return None


# Secrets of servers with a URL


def _of_settings(server: HttpServer) -> list[str]:
    values = [*server.headers.values(), server.oauth.client_secret]
    return [*values, *(part for value in values for part in value.split()[1:])]  # "abc" of "X abc"


def _of_query(url: str) -> list[str]:
    query = urlsplit(url).query
    raw = [pair.partition("=")[2] for pair in query.split("&")]
    return [query, *raw, *(value for _, value in parse_qsl(query))]


def _filled_in(written: HttpServer, resolved: HttpServer) -> set[str]:
    """Return the parts of a URL's path that came from variables, as they may be secrets."""
    steps = urlsplit(resolved.url).path.split("/")
    return {*steps} - {*urlsplit(written.url).path.split("/")}
