"""What a configuration says about servers. No value of `env` or `headers` appears in a repr."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

Sharing = Literal["shared", "per_user", "per_session", "per_call"]

# How to be let in by a server with a URL. "oauth": by a login that is kept; "bearer": by the
# Authorization header of the file; "none": not at all; "auto": by the header if there is one,
# else by a login if the server asks for it.
Auth = Literal["auto", "oauth", "bearer", "none"]


class ToolFilter(Struct, frozen=True):
    """What holds for single tools of a server, as shell patterns such as `git_*`."""

    allow: tuple[str, ...] | None = None  # those that are offered; None: all
    deny: tuple[str, ...] = ()  # those that are not; stronger than allow
    idempotent: tuple[str, ...] = ()  # calling twice does what calling once does

    def admits(self, tool: str) -> bool:
        """Whether the tool is offered."""
        allowed = self.allow is None or _is_one_of(tool, self.allow)
        return allowed and not _is_one_of(tool, self.deny)

    def may_repeat(self, tool: str) -> bool:
        """Whether a call may be sent again when its answer is lost."""
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


class StdioServer(Struct, frozen=True, kw_only=True):
    """A server that is a program on this machine."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}  # added to the few variables every server gets
    cwd: str | None = None

    timeout: float = 120.0  # seconds a request may take
    connect_timeout: float = 30.0  # seconds until it must be ready
    concurrency: int = 16  # calls at once
    max_message_bytes: int = 16 * 1024 * 1024  # the longest message taken from it
    namespace: str | None = None  # instead of its name in tool addresses
    tools: ToolFilter = ToolFilter()
    sharing: Sharing = "shared"
    pool: Pool = Pool()
    enabled: bool = True

    def __repr__(self) -> str:
        # Arguments may hold secrets as well: postgresql://user:password@host.
        return f"StdioServer({self.command!r}, {len(self.args)} args, env {sorted(self.env)})"


class OAuthClient(Struct, frozen=True, kw_only=True):
    """Who we are for an authorization server that takes only clients it knows.

    Attributes:
        client_id: "" to register ourselves.
        client_metadata_url: Where a document says who this client is, for authorization servers
            that read such documents; instead of `client_id`. "" for none.
        client_secret: "" for none.
        issuer: The authorization server that knows it, and the only one that is told its secret;
            "" for the first one that the server names.
        callback_port: Of `http://127.0.0.1:PORT/callback`, where logins end; 0 takes a free one.
        scopes: To ask for, instead of what the server wants.
    """

    client_id: str = ""
    client_metadata_url: str = ""
    client_secret: str = ""
    issuer: str = ""
    callback_port: int = 0
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"OAuthClient({self.client_id!r})"


class HttpServer(Struct, frozen=True, kw_only=True):
    """A server that is reached by a URL."""

    url: str
    headers: dict[str, str] = {}
    type: Literal["http", "sse"] = "http"  # "sse": the transport of 2024-11-05
    auth: Auth = "auto"
    oauth: OAuthClient = OAuthClient()

    timeout: float = 120.0  # seconds a request may take
    connect_timeout: float = 10.0  # seconds until it must be ready
    concurrency: int = 16  # calls at once
    max_message_bytes: int = 16 * 1024 * 1024  # the longest message taken from it
    namespace: str | None = None  # instead of its name in tool addresses
    tools: ToolFilter = ToolFilter()
    sharing: Sharing = "shared"
    pool: Pool = Pool()
    enabled: bool = True

    @property
    def uses_login(self) -> bool:
        """Whether we say who we are by a login that is kept, if the server asks."""
        return self.auth in ("auto", "oauth") and not has_token(self.headers)

    def __repr__(self) -> str:
        # No query and no user: both are places for tokens.
        shown = re.sub(r"//[^/?#]*@", "//…@", self.url.partition("?")[0])
        return f"HttpServer({shown!r}, {self.type}, headers {sorted(self.headers)})"


ServerConfig = StdioServer | HttpServer


class Config(Struct, frozen=True):
    """The servers of one file. `${VAR}` in them is not filled in yet: see `resolve`."""

    path: Path | None = None  # None: no file, so no servers
    servers: dict[str, ServerConfig] = {}
    warnings: tuple[str, ...] = ()  # for the operator, one line each


def has_token(headers: Mapping[str, str]) -> bool:
    """Return whether headers carry a credential in `Authorization`."""
    return any(name.lower() == "authorization" for name in headers)
