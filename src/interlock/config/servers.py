"""The settings of configured servers. Values of `env` and `headers` appear in no repr."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from interlock.config.gateway import GatewaySettings, Risk, ServerLimits
from interlock.config.inputs import Input
from interlock.config.openapi import ApiDocument

Sharing = Literal["shared", "per_user", "per_session", "per_call"]

# How requests to a URL are authenticated. "oauth": with a stored login; "bearer": with the header
# Authorization in the file; "none": not at all; "auto": with that header if the file has it, or
# else with a login if the server requires one.
Auth = Literal["auto", "oauth", "bearer", "none"]
"""The authentication method of requests to a URL."""


# The kinds of requests that a server may send to its clients
Question = Literal["elicitation", "sampling", "roots"]
AUTO: tuple[Question, ...] = ("elicitation", "roots")


class ToolRisk(Struct, frozen=True):
    """The operator's statements about the risk of a server's tools, as shell patterns.

    Attributes:
        read: Patterns of tools that only read.
        write: Patterns of tools that change something, even if `read` matches them.
        by_tool: The risk of single tools, which overrides the patterns.
        trusts_annotations: Whether the tools' annotations are our own, as for an API. Such
            annotations never raise a risk, and they decide if the operator has stated no risk.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    by_tool: dict[str, Risk] = {}
    trusts_annotations: bool = False

    def of(self, tool: str) -> Risk | None:
        """Return a tool's risk; None if the operator has not stated the risk."""
        if tool in self.by_tool:
            return self.by_tool[tool]
        if _is_one_of(tool, self.write):
            return "write"
        return "read" if _is_one_of(tool, self.read) else None


class ToolOverride(Struct, frozen=True):
    """Texts that replace parts of a tool's definition."""

    description: str


class ToolFilter(Struct, frozen=True):
    """Rules for a server's tools, mostly as shell patterns such as `git_*`."""

    allow: tuple[str, ...] | None = None  # patterns of tools to offer; None for all tools
    deny: tuple[str, ...] = ()  # patterns of tools not to offer, even if `allow` matches them
    idempotent: tuple[str, ...] = ()  # patterns of tools whose calls are safe to repeat
    risk: ToolRisk = ToolRisk()
    override: dict[str, ToolOverride] = {}  # changes of definitions, by the tool's name
    approved: tuple[str, ...] = ()  # tools that may run without asking the local user
    always_load: tuple[str, ...] = ()  # patterns of tools that are listed in spite of a search

    def admits(self, tool: str) -> bool:
        allowed = self.allow is None or _is_one_of(tool, self.allow)
        return allowed and not _is_one_of(tool, self.deny)

    def lists(self, tool: str) -> bool:
        """Return whether a tool is listed even if a model or a client searches for tools."""
        return _is_one_of(tool, self.always_load)

    def may_repeat(self, tool: str) -> bool:
        """Return whether a call to a tool may be repeated if its result is lost."""
        return _is_one_of(tool, self.idempotent)


def _is_one_of(tool: str, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return False
    from fnmatch import fnmatchcase

    return any(fnmatchcase(tool, pattern) for pattern in patterns)


class Pool(Struct, frozen=True, kw_only=True):
    """Limits on a server's connections, if callers cannot share one connection."""

    max: int = 16  # open connections; above it, the least recently used idle one is closed
    spare: int = 0  # connections that are opened before a caller needs them
    idle: float = 600.0  # seconds after which an unused connection is closed
    life: float = 86_400.0  # seconds after which a connection is replaced
    calls: int | None = None  # calls after which a connection is replaced; None for no limit


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The settings that all kinds of servers have."""

    timeout: float = 120.0  # seconds after which a request times out
    concurrency: int = 16  # simultaneous calls
    namespace: str | None = None  # replaces the server's name in tool addresses; None to keep it
    tools: ToolFilter = ToolFilter()
    limits: ServerLimits = ServerLimits()
    max_result_bytes: int | None = None  # None for the gateway's `Results.max`
    asks: tuple[Question, ...] = AUTO
    roots: tuple[str, ...] = ()  # folders and file:// URIs to offer to the server
    required: bool = False  # whether the gateway reports "not ready" while the server is down
    enabled: bool = True


class KeptLogin(Struct, frozen=True):
    """The place in which a gateway stores the local user's login to a server.

    Attributes:
        database: The location of the gateway's database; None for the default database.
        server: The server's name in that database.
    """

    database: str | None
    server: str


class ConnectionSettings(ServerSettings, frozen=True, kw_only=True):
    """The settings of servers to which interlock opens MCP connections."""

    sharing: Sharing = "shared"
    pool: Pool = Pool()
    known: dict[str, str] = {}  # values of `${input:ID}` and `${user:NAME}`; never in the file
    kept_login: KeptLogin | None = None  # set by programs beside a gateway; never in the file

    # Set only for servers that come from environment variables
    call_timeout: float | None = None  # seconds for a whole call; None for the client's default
    list_ttl: float | None = None  # seconds after which the list of tools is read again


class StdioServer(ConnectionSettings, frozen=True, kw_only=True):
    """A server that runs as a local program."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}  # added to the few environment variables that every server gets
    env_file: str | None = None  # a file with lines NAME=VALUE; `env` overrides its values
    cwd: str | None = None
    inherits_env: bool = False  # whether it gets all variables of this process; never in the file

    connect_timeout: float = 30.0  # seconds after which connecting times out
    max_message_bytes: int = 16 * 1024 * 1024  # the largest message that is accepted

    def __repr__(self) -> str:
        # Show no arguments, because they may contain secrets: postgresql://user:password@host.
        return f"StdioServer({self.command!r}, {len(self.args)} args, env {sorted(self.env)})"


class OAuthClient(Struct, frozen=True, kw_only=True):
    """How logins to a server are made: with which client, at which authorization server.

    Attributes:
        client_id: The client's id; "" to register a client dynamically.
        client_metadata_url: The URL of a client metadata document to use instead of `client_id`; ""
            if there is none.
        client_secret: The client's secret; "" if the client has no secret.
        issuer: The authorization server to use, whatever the MCP server names; "" for the first one
            that it names.
        callback_port: The port in `http://127.0.0.1:PORT/callback`, where logins end; 0 for any
            free port.
        scopes: The scopes to request, instead of the scopes that the server requires.
    """

    client_id: str = ""
    client_metadata_url: str = ""
    client_secret: str = ""
    issuer: str = ""
    callback_port: int = 0
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"OAuthClient({self.client_id!r})"


class HttpServer(ConnectionSettings, frozen=True, kw_only=True):
    """A server at a URL."""

    url: str
    headers: dict[str, str] = {}
    type: Literal["http", "sse"] = "http"  # "sse" is the transport HTTP+SSE of 2024-11-05
    auth: Auth = "auto"
    oauth: OAuthClient = OAuthClient()
    is_named: bool = True  # False for the URL of `--server`, which is in no file; never in a file

    connect_timeout: float = 10.0  # seconds after which connecting times out
    max_message_bytes: int = 16 * 1024 * 1024  # the largest message that is accepted

    @property
    def uses_login(self) -> bool:
        """Whether requests use a stored login, if the server requires authentication."""
        return self.auth in ("auto", "oauth") and not has_token(self.headers)

    def __repr__(self) -> str:
        # Leave out query and user, because both may contain tokens.
        shown = re.sub(r"//[^/?#]*@", "//…@", self.url.partition("?")[0])
        return f"HttpServer({shown!r}, {self.type}, headers {sorted(self.headers)})"


class PythonServer(ConnectionSettings, frozen=True, kw_only=True):
    """A server object in a Python module, named as "package.module:name"."""

    object: str


class OpenApiConfig(ConnectionSettings, frozen=True, kw_only=True):
    """An HTTP API whose operations, from an OpenAPI document, become a server's tools."""

    openapi: ApiDocument
    headers: dict[str, str] = {}  # headers to send with each request

    timeout: float = 30.0  # seconds for one call, including retries
    concurrency: int = 8  # simultaneous calls
    asks: tuple[Question, ...] = ()

    def __repr__(self) -> str:
        return f"OpenApiConfig({self.openapi!r}, headers {sorted(self.headers)})"


ServerConfig = StdioServer | HttpServer | OpenApiConfig | PythonServer
"""A configured server of any type."""
CONFIGURED = (StdioServer, HttpServer, OpenApiConfig, PythonServer)  # for `isinstance`
"""The classes of `ServerConfig`, for `isinstance`."""


class Config(Struct, frozen=True):
    """The content of one configuration file. `resolve` replaces `${VAR}` in its servers."""

    path: Path | None = None  # None if no file exists, or it is not used
    servers: dict[str, ServerConfig] = {}
    warnings: tuple[str, ...] = ()  # warnings for the operator, one line each
    gateway: GatewaySettings | None = None  # None if the file has no member `gateway`
    inputs: dict[str, Input] = {}  # values to ask the user for, by id
    variable: str = ""  # the environment variable that the servers come from; "" for a file
    ignored: dict[str, str] = {}  # why the other servers in the file cannot be used, by their names


def has_token(headers: Mapping[str, str]) -> bool:
    """Return whether the headers include Authorization."""
    return any(name.lower() == "authorization" for name in headers)
