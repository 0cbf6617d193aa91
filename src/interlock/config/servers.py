"""Which servers there are: `mcpServers` files, read whole or refused whole.

The files of Claude Desktop, Cursor and VS Code (`servers`) are read as they are, with comments
and trailing commas. Rules:

1. A file is wrong or right as a whole; an error names the line and the place.
2. `${VAR}` and `${VAR:-default}` are filled in by `resolve`, from the operator's environment
   and for these files only; a missing variable costs one server.
3. Relative paths (`command`, `cwd`) are relative to the working directory, as in other tools.
4. A `.mcp.json` in the working folder came with the folder: it is read by way of `trust` only.
5. No value of `env` or `headers` appears in an error or a repr.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from interlock.config import section, shared_file, variables
from interlock.config.jsonc import Document
from interlock.config.section import Section
from interlock.errors import ConfigError

VARIABLE = "INTERLOCK_MCP_CONFIG"
MAX_SERVERS = 1_000
MAX_NAME = 64
MAX_CONCURRENCY = 10_000
MAX_MESSAGE_BYTES = 1024 * 1024 * 1024
MAX_PORT = 65_535

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
    enabled: bool = True

    @property
    def uses_login(self) -> bool:
        """Whether we say who we are by a login that is kept, if the server asks."""
        return self.auth in ("auto", "oauth") and not _has_token(self.headers)

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


# Finding


def find(explicit: Path | str | None = None) -> Path | None:
    """Find the file to load.

    Returns:
        The file named by `explicit`, else by INTERLOCK_MCP_CONFIG, else `mcp.json` in the
        user's config folder; None when that last one does not exist.

    Raises:
        ConfigError: A file was named and does not exist.
    """
    if explicit is not None:
        return _named(Path(explicit), "the file named by --config")
    if named := os.environ.get(VARIABLE):
        return _named(Path(named), f"the file named by {VARIABLE}")
    path = default_path()
    return path if _exists(path) else None


def default_path() -> Path:
    """Where the user's own file is, or would be."""
    from platformdirs import user_config_path

    return user_config_path("interlock") / "mcp.json"


def _named(path: Path, role: str) -> Path:
    try:
        path = path.expanduser()
    except RuntimeError as error:  # ~nobody
        raise ConfigError(f"{role} does not exist: {path}: {error}") from None
    if not _exists(path):
        raise ConfigError(f"{role} does not exist: {path}")
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return True  # reading it will say what is wrong
    except (OSError, ValueError):
        return False


# Reading

_COMMON_KEYS = (
    "timeout",
    "connectTimeout",
    "concurrency",
    "namespace",
    "tools",
    "sharing",
    "enabled",
    "disabled",
    "maxMessageBytes",
)
_STDIO_KEYS = ("type", "command", "args", "env", "cwd", *_COMMON_KEYS)
_KEY_OF = {"connect_timeout": "connectTimeout", "max_message_bytes": "maxMessageBytes"}
_HTTP_KEYS = ("type", "url", "headers", "auth", "oauth", *_COMMON_KEYS)
_HTTP_TYPES: dict[str, Literal["http", "sse"]] = {
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}


def load(path: Path | None) -> Config:
    """Read a file; None gives no servers and no complaint.

    Raises:
        ConfigError: It cannot be read, or something in it is wrong.
    """
    return Config() if path is None else loads(shared_file.read(path), path)


def loads(text: bytes, path: Path | None = None) -> Config:
    """Read a file's content.

    Args:
        text: JSON in UTF-8, comments and trailing commas allowed.
        path: Where it comes from, for messages.

    Raises:
        ConfigError: Something in it is wrong. Names file, line and place.
    """
    root = section.parse(text, path)
    for key, value in root.members.items():
        looks_like_one = isinstance(value, dict) and ("command" in value or "url" in value)
        if looks_like_one and key not in ("mcpServers", "servers"):
            root.refuse('is a server outside of "mcpServers": move it inside', key)
    if "mcpServers" in root.members and "servers" in root.members:
        root.refuse('stands beside "mcpServers": keep one of them', "servers")
    if root.members.get("inputs"):
        root.warn("is not supported: use environment variables, as ${NAME}", "inputs")
    key = _servers_key(root.members)
    root.warn_unknown((key, "inputs", "$schema"))
    table = root.within(key)
    count = len(table.members)
    if count > MAX_SERVERS:
        table.refuse(f"has {count:,} servers, over the limit of {MAX_SERVERS:,}")
    servers = {name: _server(table, name) for name in table.members}
    taken: dict[str, str] = {}  # name in addresses -> name in the file
    for name, server in servers.items():
        address = server.namespace or name
        if address in taken:
            table.refuse(f"is {address!r} in addresses, as {taken[address]!r} is", name)
        taken[address] = name
    return Config(path, servers, tuple(root.warnings))


def _servers_key(members: dict[str, Any]) -> str:
    return "servers" if "servers" in members else "mcpServers"


def _server(table: Section, name: str) -> ServerConfig:
    _check_name(table, name, name)
    entry = table.within(name)
    if "command" in entry.members and "url" in entry.members:
        entry.refuse('has both "command" and "url": keep one of them')
    if "command" in entry.members:
        return _stdio_server(entry)
    if "url" in entry.members:
        return _http_server(entry)
    return entry.refuse('needs a "command" to run or a "url" to connect to')


def _stdio_server(entry: Section) -> StdioServer:
    entry.warn_unknown(_STDIO_KEYS)
    entry.choice("type", ("stdio",))
    return StdioServer(
        command=entry.filled("command"),
        args=entry.texts("args"),
        env=_environment(entry.within("env")),
        cwd=entry.filled("cwd") if "cwd" in entry.members else None,
        connect_timeout=entry.seconds("connectTimeout", 30.0),
        **_common(entry),
    )


def _http_server(entry: Section) -> HttpServer:
    entry.warn_unknown(_HTTP_KEYS)
    type = _HTTP_TYPES[entry.choice("type", tuple(_HTTP_TYPES))]
    url = entry.filled("url")
    if "${" not in url and (problem := _url_problem(url)):
        entry.refuse(problem, "url")
    headers = _headers(entry.within("headers"))
    if isinstance(entry.members.get("auth"), dict):  # Cursor's way of writing "oauth"
        auth: Auth = "oauth"
        oauth = _oauth_client(entry.within("auth"), "CLIENT_ID", "CLIENT_SECRET")
    else:
        auth = cast("Auth", entry.choice("auth", get_args(Auth)))
        oauth = _oauth_client(entry.within("oauth"), "clientId", "clientSecret")
    if problem := _auth_problem(auth, headers):
        entry.refuse(problem, "auth")
    return HttpServer(
        url=url,
        headers=headers,
        type=type,
        auth=auth,
        oauth=oauth,
        connect_timeout=entry.seconds("connectTimeout", 10.0),
        **_common(entry),
    )


def _common(entry: Section) -> dict[str, Any]:
    namespace = entry.filled("namespace") if "namespace" in entry.members else None
    if namespace is not None:
        _check_name(entry, "namespace", namespace)
    return {
        "timeout": entry.seconds("timeout", 120.0),
        "concurrency": entry.count("concurrency", 16, MAX_CONCURRENCY),
        "max_message_bytes": entry.count("maxMessageBytes", 16 * 1024 * 1024, MAX_MESSAGE_BYTES),
        "namespace": namespace,
        "tools": _tool_filter(entry.within("tools")),
        "sharing": entry.choice("sharing", get_args(Sharing)),
        "enabled": entry.flag("enabled", True) and not entry.flag("disabled", False),
    }


def _check_name(entry: Section, key: str, name: str) -> None:
    if not name or len(name) > MAX_NAME:
        entry.refuse(f"must be a name of 1 to {MAX_NAME} characters, not {len(name)}", key)
    if ":" in name or not name.isprintable() or name != name.strip():
        entry.refuse("must be a name without colon, control characters and blanks around it", key)


def _environment(env: Section) -> dict[str, str]:
    for name in env.members:
        if not name or "=" in name or "\0" in name:
            env.refuse("is not a name of an environment variable", name)
        env.text(name)
    return env.members


def _headers(headers: Section) -> dict[str, str]:
    for name in headers.members:
        if not _HEADER_NAME.fullmatch(name):
            headers.refuse("is not a name of an HTTP header", name)
        if problem := _header_problem(headers.text(name)):
            headers.refuse(problem, name)
    return headers.members


def _tool_filter(tools: Section) -> ToolFilter:
    tools.warn_unknown(("allow", "deny", "idempotent"))
    allow = tools.texts("allow") if "allow" in tools.members else None
    return ToolFilter(allow, tools.texts("deny"), tools.texts("idempotent"))


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _header_problem(value: str) -> str | None:
    printable = all(char == "\t" or char.isprintable() for char in value)
    return None if printable else "has a line break or another control character"


_METADATA = "clientMetadataUrl"


def metadata_problem(url: str) -> str | None:
    """Say what is wrong with the URL of a client's metadata; None when nothing is."""
    return None if re.match(r"https://[^/?#\s]+/[^#\s]", url) else "must be https://, with a path"


def _oauth_client(oauth: Section, id: str, secret: str) -> OAuthClient:
    oauth.warn_unknown((id, secret, _METADATA, "issuer", "callbackPort", "scopes"))
    for of_client in (secret, "issuer"):
        if of_client in oauth.members and id not in oauth.members:
            oauth.refuse(f'needs a "{id}" beside it', of_client)
    issuer = oauth.filled("issuer") if "issuer" in oauth.members else ""
    if issuer and (problem := _url_problem(issuer)):
        oauth.refuse(problem, "issuer")
    metadata = oauth.filled(_METADATA) if _METADATA in oauth.members else ""
    if metadata and id in oauth.members:
        oauth.refuse(f'stands beside "{id}": keep one of them', _METADATA)
    if metadata and (problem := metadata_problem(metadata)):
        oauth.refuse(problem, _METADATA)
    given = oauth.members.get("scopes")
    port = oauth.count("callbackPort", 0, MAX_PORT) if "callbackPort" in oauth.members else 0
    return OAuthClient(
        client_id=oauth.filled(id) if id in oauth.members else "",
        client_metadata_url=metadata,
        client_secret=oauth.filled(secret) if secret in oauth.members else "",
        issuer=issuer,
        callback_port=port,
        scopes=tuple(given.split()) if isinstance(given, str) else oauth.texts("scopes"),
    )


def _auth_problem(auth: str, headers: Mapping[str, str]) -> str | None:
    if auth == "bearer" and not _has_token(headers):
        return 'is "bearer", which needs a header Authorization: add it to "headers"'
    if auth in ("oauth", "none") and _has_token(headers):
        return f'is "{auth}", beside a header Authorization: keep one of them'
    return None


def _has_token(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)


def _url_problem(url: str) -> str | None:
    return None if re.match(r"https?://[^/\s]", url) else "must start with https:// or http://"


# Variables

_Server = TypeVar("_Server", StdioServer, HttpServer)


def resolve(server: _Server, environ: Mapping[str, str]) -> _Server:
    """Fill in `${VAR}`, `${env:VAR}` and `${VAR:-default}`; the default also stands in for "".

    Raises:
        ConfigError: A variable is not set and has no default. Only this server suffers.
    """

    def expand(text: str, place: str) -> str:
        return variables.fill(text, place, environ)

    def expand_all(values: dict[str, str], place: str) -> dict[str, str]:
        return {name: expand(value, f"{place}.{name}") for name, value in values.items()}

    if isinstance(server, HttpServer):
        resolved = msgspec.structs.replace(
            server,
            url=expand(server.url, "url"),
            headers=expand_all(server.headers, "headers"),
            oauth=msgspec.structs.replace(
                server.oauth,
                client_id=expand(server.oauth.client_id, "oauth.clientId"),
                client_secret=expand(server.oauth.client_secret, "oauth.clientSecret"),
            ),
        )
        if problem := _url_problem(resolved.url):
            raise ConfigError(f"url {problem}")
        for name, value in resolved.headers.items():
            if problem := _header_problem(value):
                raise ConfigError(f"headers.{name} {problem}")
        return resolved
    return msgspec.structs.replace(
        server,
        command=expand(server.command, "command"),
        args=tuple(expand(arg, f"args[{index}]") for index, arg in enumerate(server.args)),
        env=expand_all(server.env, "env"),
        cwd=None if server.cwd is None else expand(server.cwd, "cwd"),
    )


# Editing


def add_server(path: Path, name: str, server: ServerConfig) -> None:
    """Add a server to a file, which is made (for its owner only) if there is none.

    Other processes that edit it at the same moment lose nothing, and no reader ever sees half
    a file. Comments, order, unknown keys and indentation stay.

    Raises:
        ConfigError: The file is wrong, has a server of this name, or cannot be written.
    """

    def change(document: Document, config: Config) -> str:
        if name in config.servers:
            raise ConfigError(f"{path} already has a server {name!r}: remove it first")
        key = _servers_key(document.value)
        if key not in document.value:
            if document.value:  # it may be the settings of some other program
                raise ConfigError(
                    f'{path} has no {key}: put "{key}": {{}} into it if it is meant, or -- before '
                    "COMMAND if --config is for that"
                )
            return document.with_member((), key, {name: _entry(server)})
        return document.with_member((key,), name, _entry(server))

    _edit(path, change)


def remove_server(path: Path, name: str) -> None:
    """Remove a server from a file, as carefully as `add_server`.

    Raises:
        ConfigError: The file is wrong, has no such server, or cannot be written.
    """

    def change(document: Document, config: Config) -> str:
        if name not in config.servers:
            raise ConfigError(f"{path} has no server {name!r}")
        return document.without_member((_servers_key(document.value), name))

    _edit(path, change)


def _entry(server: ServerConfig) -> dict[str, Any]:
    """Write a server as the file has it, without what is the default anyway."""
    default: ServerConfig
    if isinstance(server, HttpServer):
        entry: dict[str, Any] = {"type": server.type, "url": server.url}
        default = HttpServer(url="")
    else:
        entry = {"command": server.command}
        default = StdioServer(command="")
    for field in server.__struct_fields__:
        value = getattr(server, field)
        if field not in entry and value != getattr(default, field):
            entry[_KEY_OF.get(field, field)] = value
    if "tools" in entry:
        tools = {
            "allow": server.tools.allow,
            "deny": server.tools.deny or None,
            "idempotent": server.tools.idempotent or None,
        }
        entry["tools"] = {key: value for key, value in tools.items() if value is not None}
    if isinstance(server, HttpServer) and "oauth" in entry:
        oauth = {
            "clientId": server.oauth.client_id,
            _METADATA: server.oauth.client_metadata_url,
            "clientSecret": server.oauth.client_secret,
            "issuer": server.oauth.issuer,
            "callbackPort": server.oauth.callback_port,
            "scopes": server.oauth.scopes,
        }
        entry["oauth"] = {key: value for key, value in oauth.items() if value}
    return entry


def _edit(path: Path, change: Callable[[Document, Config], str]) -> None:
    path = path.resolve()  # a link stays a link: the file it leads to is replaced

    def content() -> bytes:
        before = shared_file.read(path) if path.exists() else b"{}\n"
        config = loads(before, path)
        after = change(Document(before), config).encode()
        loads(after, path)  # a server that could not be read back is not written
        return after

    shared_file.edit(path, content)
