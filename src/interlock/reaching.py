"""How each kind of server in a toolbox becomes a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from interlock import config
from interlock.client import Client, ClientOptions
from interlock.config import HttpServer, ServerConfig, StdioServer
from interlock.transports import Authorization, InProcessServer

if TYPE_CHECKING:
    from interlock.transports.pool import HttpPool

MIN_SECRET = 6  # characters; shorter values would make any text unreadable

_KINDS: dict[str, Literal["auto", "sse"]] = {"http": "auto", "sse": "sse"}


def make_client(
    server: ServerConfig | InProcessServer,
    environ: Mapping[str, str],
    pool: Callable[[], HttpPool],
    options: ClientOptions,
) -> tuple[Client, list[str]]:
    """Make a client that is not open yet.

    Args:
        server: As configured.
        environ: Where `${VAR}` is looked up.
        pool: Gives the connections that all servers with a URL share.
        options: For the client.

    Returns:
        The client, and what the configuration brought from elsewhere: the server may repeat it.

    Raises:
        ConfigError: A variable that is not set, or a URL or header that cannot be used.
    """
    if not isinstance(server, StdioServer | HttpServer):
        return Client(server.connect, **options), []
    options = {**options, "timeout": server.timeout, "connect_timeout": server.connect_timeout}
    if isinstance(server, StdioServer):
        return _of_program(server, config.resolve(server, environ), options)
    resolved = config.resolve(server, environ)
    client = Client.http(
        resolved.url,
        headers=resolved.headers,
        auth=_authorization(resolved),
        transport=_KINDS[resolved.type],
        pool=pool(),
        max_frame_bytes=resolved.max_message_bytes,
        **options,
    )
    return client, _long_enough([*resolved.headers.values(), resolved.url.partition("?")[2]])


def _of_program(
    written: StdioServer, resolved: StdioServer, options: ClientOptions
) -> tuple[Client, list[str]]:
    client = Client.stdio(
        resolved.command,
        *resolved.args,
        env=resolved.env,
        cwd=resolved.cwd,
        max_frame_bytes=resolved.max_message_bytes,
        **options,
    )
    filled = [arg for arg in resolved.args if arg not in written.args]
    return client, _long_enough([*resolved.env.values(), *filled])


def _authorization(server: HttpServer) -> Authorization | None:
    if not server.uses_login:
        return None
    from interlock.oauth.kept import KeptLogin

    return KeptLogin(server.url, is_expected=server.auth == "oauth")


def _long_enough(texts: list[str]) -> list[str]:
    return [text for text in texts if len(text) >= MIN_SECRET]
