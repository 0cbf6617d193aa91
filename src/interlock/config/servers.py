"""The configuration of servers. No value of `env` or `headers` appears in a repr."""

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

# How requests to a URL are authenticated. "oauth": by a stored login; "bearer": by the header
# Authorization of the file; "none": not at all; "auto": by that header if there is one, else by a
# login if the server requires one.
Auth = Literal["auto", "oauth", "bearer", "none"]
"""How a server at a URL is logged in to."""


# What a server may ask clients for.
Question = Literal["elicitation", "sampling", "roots"]
AUTO: tuple[Question, ...] = ("elicitation", "roots")


class ToolRisk(Struct, frozen=True):
    """The risk of single tools of a server, as shell patterns.

    Attributes:
        read: Tools that only read.
        write: Tools that do not, even if they match `read`.
        by_tool: The risk of single tools, stronger than the patterns.
        trusts_annotations: The annotations of the tools are our own, as for an API: they never
            raise a risk, and they decide where the operator states none.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    by_tool: dict[str, Risk] = {}
    trusts_annotations: bool = False

    def of(self, tool: str) -> Risk | None:
        """Return the risk of a tool; None if the operator has not stated it."""
        if tool in self.by_tool:
            return self.by_tool[tool]
        if _is_one_of(tool, self.write):
            return "write"
        return "read" if _is_one_of(tool, self.read) else None


class ToolOverride(Struct, frozen=True):
    """What replaces parts of a tool's definition."""

    description: str


class ToolFilter(Struct, frozen=True):
    """Rules for single tools of a server, as shell patterns such as `git_*`."""

    allow: tuple[str, ...] | None = None  # tools that are offered; None: all
    deny: tuple[str, ...] = ()  # tools that are not offered, even if allowed
    idempotent: tuple[str, ...] = ()  # tools for which a repeated call has no further effect
    risk: ToolRisk = ToolRisk()
    override: dict[str, ToolOverride] = {}  # by the name of a tool
    approved: tuple[str, ...] = ()  # names of tools that the local user is not asked about

    def admits(self, tool: str) -> bool:
        """Return whether the tool is offered."""
        allowed = self.allow is None or _is_one_of(tool, self.allow)
        return allowed and not _is_one_of(tool, self.deny)

    def may_repeat(self, tool: str) -> bool:
        """Return whether a call may be repeated when its answer is lost."""
        return _is_one_of(tool, self.idempotent)


def _is_one_of(tool: str, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return False
    from fnmatch import fnmatchcase

    return any(fnmatchcase(tool, pattern) for pattern in patterns)


class Pool(Struct, frozen=True, kw_only=True):
    """Limits on the connections to one server, when its `sharing` needs more than one."""

    max: int = 16  # connections; idle ones beyond are closed, least recently used first
    spare: int = 0  # connections opened ahead of need
    idle: float = 600.0  # seconds until an unused connection is closed
    life: float = 86_400.0  # seconds until a connection is replaced
    calls: int | None = None  # calls until a connection is replaced; None: no limit


class ServerSettings(Struct, frozen=True, kw_only=True):
    """What every server can have."""

    timeout: float = 120.0  # seconds until a request times out
    concurrency: int = 16  # concurrent calls
    namespace: str | None = None  # replaces its name in tool addresses
    tools: ToolFilter = ToolFilter()
    limits: ServerLimits = ServerLimits()
    max_result_bytes: int | None = None  # None: as `Results.max` of the gateway
    asks: tuple[Question, ...] = AUTO
    required: bool = False  # the gateway is not ready while the server is down
    enabled: bool = True


class KeptLogin(Struct, frozen=True):
    """Where a gateway keeps the local user's login to a server.

    Attributes:
        database: Of the gateway; None for the default one.
        server: The name of the server there.
    """

    database: str | None
    server: str


class ConnectionSettings(ServerSettings, frozen=True, kw_only=True):
    """What a server can have that callers share connections to."""

    sharing: Sharing = "shared"
    pool: Pool = Pool()
    known: dict[str, str] = {}  # what `${input:ID}` and `${user:NAME}` stand for; not of the file
    kept_login: KeptLogin | None = None  # for programs beside a gateway; not of the file

    # Of servers from environment variables.
    call_timeout: float | None = None  # seconds of a call in all; None: as the client has it
    list_ttl: float | None = None  # the longest time that its list of tools is kept, in seconds


class StdioServer(ConnectionSettings, frozen=True, kw_only=True):
    """A server that runs as a program on this machine."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}  # added to the few variables that every server gets
    env_file: str | None = None  # a file of NAME=VALUE lines; `env` is stronger
    cwd: str | None = None

    connect_timeout: float = 30.0  # seconds until connecting times out
    max_message_bytes: int = 16 * 1024 * 1024  # the longest message accepted from it

    def __repr__(self) -> str:
        # Arguments may hold secrets as well: postgresql://user:password@host.
        return f"StdioServer({self.command!r}, {len(self.args)} args, env {sorted(self.env)})"


class OAuthClient(Struct, frozen=True, kw_only=True):
    """An OAuth client that the operator has registered with an authorization server.

    Attributes:
        client_id: Its id; "" registers a client dynamically.
        client_metadata_url: The URL of a client metadata document, instead of `client_id`; "" for
            none.
        client_secret: Its secret; "" for none.
        issuer: The only authorization server that receives the secret; "" for the first one that
            the server names.
        callback_port: The port of `http://127.0.0.1:PORT/callback`, where logins end; 0 uses a
            free one.
        scopes: The scopes to request, instead of those that the server requires.
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
    type: Literal["http", "sse"] = "http"  # "sse": the transport of 2024-11-05
    auth: Auth = "auto"
    oauth: OAuthClient = OAuthClient()

    connect_timeout: float = 10.0  # seconds until connecting times out
    max_message_bytes: int = 16 * 1024 * 1024  # the longest message accepted from it

    @property
    def uses_login(self) -> bool:
        """Whether requests use a stored login if the server requires one."""
        return self.auth in ("auto", "oauth") and not has_token(self.headers)

    def __repr__(self) -> str:
        # Neither query nor user, as both may contain tokens.
        shown = re.sub(r"//[^/?#]*@", "//…@", self.url.partition("?")[0])
        return f"HttpServer({shown!r}, {self.type}, headers {sorted(self.headers)})"


class PythonServer(ConnectionSettings, frozen=True, kw_only=True):
    """A server that is an object of a Python module, "package.module:name"."""

    object: str


class OpenApiConfig(ConnectionSettings, frozen=True, kw_only=True):
    """An HTTP API: operations of an OpenAPI document as the tools of a server."""

    openapi: ApiDocument
    headers: dict[str, str] = {}  # sent with each request

    timeout: float = 30.0  # seconds for one call, retries included
    concurrency: int = 8  # concurrent calls
    asks: tuple[Question, ...] = ()

    def __repr__(self) -> str:
        return f"OpenApiConfig({self.openapi!r}, headers {sorted(self.headers)})"


ServerConfig = StdioServer | HttpServer | OpenApiConfig | PythonServer
"""A configured server of any type."""
CONFIGURED = (StdioServer, HttpServer, OpenApiConfig, PythonServer)  # for `isinstance`
"""The classes of `ServerConfig`, for `isinstance`."""


class Config(Struct, frozen=True):
    """The servers of one file. `resolve` replaces `${VAR}` in them."""

    path: Path | None = None  # None: no file exists, or it is not used
    servers: dict[str, ServerConfig] = {}
    warnings: tuple[str, ...] = ()  # for the operator, one line each
    gateway: GatewaySettings | None = None  # None: the file has no member `gateway`
    inputs: dict[str, Input] = {}  # questions to the user, by id
    variable: str = ""  # that has the servers instead of a file


def has_token(headers: Mapping[str, str]) -> bool:
    """Return whether there is a header Authorization."""
    return any(name.lower() == "authorization" for name in headers)
