"""Makes the clients for one server: one for each connection, with its callers' credentials."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from interlock import config
from interlock.client import ClientOptions
from interlock.config import HttpServer, OpenApiConfig, PythonServer, ServerConfig, StdioServer
from interlock.text.redaction import masked_arguments
from interlock.toolbox.connect import make_client
from interlock.toolbox.permitted import PermittedQuestions
from interlock.toolbox.pool import SHARED, Key, PooledClient, owner_of
from interlock.toolbox.user_access import UserAccess
from interlock.toolbox.user_credentials import UserCredentials, placeholders_of
from interlock.transports import InProcessServer
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.openapi.server import OpenApiServer
    from interlock.transports.http_pool import HttpPool

API_GRACE = 5.0  # seconds after an API's timeout in which its own timeout error may arrive


class ClientFactory:
    """Makes clients for one server; the caller opens them.

    Args:
        name: The server's name in the toolbox.
        server: The server's configuration, or the server itself.
        environ: The environment variables that `${VAR}` refers to.
        http_pool: Returns the HTTP connections that all servers with a URL share.
        users: The credentials that the server needs from its users.
        credentials: The callers' credentials; None if the local user is the only caller.
        permitted: The questions that the server may ask; None for every question that has a
            handler in `options`.
        forwards: Whether the server serves a gateway's clients.
        options: Handlers for the server's questions.

    Attributes:
        latest: The shared connection that was made last; None before the first.
    """

    def __init__(
        self,
        name: str,
        server: ServerConfig | InProcessServer,
        environ: Mapping[str, str],
        http_pool: Callable[[], HttpPool],
        *,
        users: UserAccess,
        credentials: UserCredentials | None,
        permitted: PermittedQuestions | None,
        forwards: bool,
        options: ClientOptions,
    ) -> None:
        self.latest: PooledClient | None = None
        self._name = name
        self._server = server
        self._environ = environ
        self._http_pool = http_pool
        self._users = users
        self._credentials = credentials
        self._permitted = permitted
        self._forwards = forwards
        self._options = options
        self._api: OpenApiServer | None = None  # made when it is first needed

    def make(
        self,
        key: Key,
        values: Mapping[str, str] | None,
        on_loss: Callable[[PooledClient, str], None],
        on_list_changed: Callable[[str], None],
    ) -> PooledClient:
        """Make the client for a connection.

        Args:
            key: The key of the callers that may use the connection.
            values: The values of the user and the caller; see `variables.fill`.
            on_loss: Called with the reason when the connection has ended.
            on_list_changed: Called when a list has changed, if the connection lists the tools; see
                `ClientOptions`.

        Raises:
            ConfigError: A variable is not set, or a URL or header is not usable.
        """
        pooled: PooledClient
        options: ClientOptions = {
            **self._options,
            "on_loss": lambda error: on_loss(pooled, str(error)),
        }
        if self._permitted is not None:
            options = self._permitted.without_refused(options)
        if self._forwards and key != SHARED:
            options.pop("on_log", None)  # the log messages are for one user only
        if key == SHARED or self._users.is_personal:
            options["on_list_changed"] = on_list_changed
        server: StdioServer | HttpServer | PythonServer | InProcessServer | OpenApiServer
        if isinstance(self._server, OpenApiConfig):
            options["timeout"] = self._server.timeout + API_GRACE
            server = self._api_server(self._server)
        else:
            server = self._server
        owner = owner_of(key)
        client, redactor = make_client(
            server,
            self._environ,
            self._http_pool,
            options,
            owner=owner,
            user=values,
            login=self._users.login(owner),
        )
        pooled = PooledClient(key, client, redactor)
        if key == SHARED:
            self.latest = pooled
        return pooled

    def launch(self, key: bytes) -> JsonObject:
        return launch_of(self._server, self._environ, key)

    # Servers in this program

    @property
    def api(self) -> OpenApiServer | None:
        """The API's server in this process, which all connections share; None for other servers."""
        config = self._server
        return self._api_server(config) if isinstance(config, OpenApiConfig) else None

    def _api_server(self, config: OpenApiConfig) -> OpenApiServer:
        if self._api is None:
            from interlock.openapi.server import OpenApiServer  # loads aiohttp

            self._api = OpenApiServer.from_config(
                config, self._environ, self._http_pool, self._name, self._credentials
            )
        return self._api

    def notes(self, kind: Literal["missing", "flagged"]) -> tuple[str, ...]:
        """Return an in-process server's notes about its tools, in lines; () for other servers."""
        notes: tuple[str, ...] = getattr(self._api or self._server, kind, ())
        return notes

    def behind(self, tool: str) -> Any:
        """Return the request and the whole schema of an API's tool; None for other tools."""
        behind = getattr(self._api or self._server, "behind", None)
        return behind(tool) if behind is not None else None

    def stated(self, tool: str) -> JsonObject | None:
        """Return what an API's document states about a tool; None for other tools."""
        stated = getattr(self._api or self._server, "stated", None)
        found: JsonObject | None = stated(tool) if stated is not None else None
        return found

    def operation_of(self, tool: str) -> str:
        """Return the operation that an API's tool calls, "METHOD /path"; "" for other tools."""
        behind = self.behind(tool)
        return "" if behind is None else str(behind["operation"])

    def end_user(self, owner: str) -> None:
        """Drop an API's cached data about a user whose credential has changed."""
        if self._api is not None:
            self._api.end_user(owner)


# How a server is launched


def launch_of(
    server: ServerConfig | InProcessServer,
    environ: Mapping[str, str],
    key: bytes,
) -> JsonObject:
    """Return the launch to pin: a program's command and arguments, or the URL of another server.

    It contains no secret: a keyed hash replaces variables' values, URL queries, and the value of
    each argument whose name suggests a secret. It contains no user's values either.

    Args:
        server: The server's configuration.
        environ: The environment variables that `${VAR}` refers to.
        key: The key for the hashes.

    Raises:
        ConfigError: A variable is not set.
    """
    user = placeholders_of(server)
    if isinstance(server, StdioServer):
        resolved = config.resolve(server, environ, user)
        pairs = zip(masked_arguments(server.args), resolved.args, strict=True)
        launch: JsonObject = {
            "command": _text(server.command, resolved.command, key),
            "args": [_text(*pair, key) for pair in pairs],
        }
        if server.cwd is not None:
            launch["cwd"] = _text(server.cwd, resolved.cwd or "", key)
        return launch
    if isinstance(server, HttpServer):
        return {"url": _url(server.url, config.resolve(server, environ, user).url, key)}
    if isinstance(server, OpenApiConfig):
        written, filled = server.openapi, config.resolve(server, environ, user).openapi
        return {
            "document": _url(written.document, filled.document, key),
            "baseUrl": _url(written.base_url, filled.base_url, key),
        }
    if isinstance(server, PythonServer):
        return {"object": server.object}
    name = getattr(server, "name", None)
    return {"object": name if isinstance(name, str) else type(server).__qualname__}


def _text(written: str, resolved: str, key: bytes) -> str:
    if written == resolved:
        return written
    text = resolved.encode("utf-8", "surrogatepass")
    return f"{written} ({hmac.digest(key, text, 'sha256')[:16].hex()})"


def _url(written: str, resolved: str, key: bytes) -> str:
    if "${" not in written:
        parts = urlsplit(written)
        host = parts.netloc.rpartition("@")[2]
        written = parts._replace(netloc=host, query="", fragment="").geturl()
    return _text(written, resolved, key)
