"""Which servers there are: `mcpServers` files, read whole or refused whole.

The files of Claude Desktop, Cursor and VS Code (`servers`) are read as they are, with comments
and trailing commas. Rules:

1. A file is wrong or right as a whole; an error names the line and the place.
2. `${VAR}` and `${VAR:-default}` are filled in by `resolve`, from the operator's environment
   and for these files only; a missing variable costs one server.
3. Relative paths (`command`, `cwd`) are relative to the working directory, as in other tools.
4. A `.mcp.json` in the working folder came with the folder. Nothing in it is used until
   `trust` has noted its exact content.
5. No value of `env` or `headers` appears in an error or a repr.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args

import msgspec
from msgspec import Struct

from interlock.errors import ConfigError
from interlock.jsonc import Document, JsoncError, Place, write_place

VARIABLE = "INTERLOCK_MCP_CONFIG"
MAX_FILE_BYTES = 1024 * 1024
MAX_SERVERS = 1_000
MAX_NAME = 64
MAX_SECONDS = 86_400
MAX_CONCURRENCY = 10_000
MAX_WARNINGS = 20
LOCK_SECONDS = 5.0

Sharing = Literal["shared", "per_user", "per_session", "per_call"]


class ToolFilter(Struct, frozen=True):
    """Which tools of a server are offered, as shell patterns such as `git_*`."""

    allow: tuple[str, ...] | None = None  # None: all
    deny: tuple[str, ...] = ()  # stronger than allow

    def admits(self, tool: str) -> bool:
        """Whether the tool is offered."""
        from fnmatch import fnmatchcase

        allowed = self.allow is None or any(fnmatchcase(tool, p) for p in self.allow)
        return allowed and not any(fnmatchcase(tool, p) for p in self.deny)


class StdioServer(Struct, frozen=True, kw_only=True):
    """A server that is a program on this machine."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}  # added to the few variables every server gets
    cwd: str | None = None

    timeout: float = 120.0  # seconds a request may take
    connect_timeout: float = 10.0  # seconds until it must be ready
    concurrency: int = 16  # calls at once
    namespace: str | None = None  # instead of its name in tool addresses
    tools: ToolFilter = ToolFilter()
    sharing: Sharing = "shared"
    enabled: bool = True

    def __repr__(self) -> str:
        # Arguments may hold secrets as well: postgresql://user:password@host.
        return f"StdioServer({self.command!r}, {len(self.args)} args, env {sorted(self.env)})"


class HttpServer(Struct, frozen=True, kw_only=True):
    """A server that is reached by a URL."""

    url: str
    headers: dict[str, str] = {}
    type: Literal["http", "sse"] = "http"  # "sse": the transport of 2024-11-05

    timeout: float = 120.0  # seconds a request may take
    connect_timeout: float = 10.0  # seconds until it must be ready
    concurrency: int = 16  # calls at once
    namespace: str | None = None  # instead of its name in tool addresses
    tools: ToolFilter = ToolFilter()
    sharing: Sharing = "shared"
    enabled: bool = True

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


# Finding and loading


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


def load(path: Path | None) -> Config:
    """Read a file; None gives no servers and no complaint.

    Raises:
        ConfigError: It cannot be read, or something in it is wrong.
    """
    return Config() if path is None else loads(_read(path), path)


def loads(text: bytes, path: Path | None = None) -> Config:
    """Read a file's content.

    Args:
        text: JSON in UTF-8, comments and trailing commas allowed.
        path: Where it comes from, for messages.

    Raises:
        ConfigError: Something in it is wrong. Names file, line and place.
    """
    try:
        document = Document(text)
    except JsoncError as error:
        where = f", line {error.line}" if error.line else ""
        where += f" column {error.column}" if error.column else ""
        raise ConfigError(f"{path or 'configuration'}{where}: {error}") from None
    return _Reader(document, path).config()


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


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes")
    return content


# Variables


_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_Server = TypeVar("_Server", StdioServer, HttpServer)


def resolve(server: _Server, environ: Mapping[str, str]) -> _Server:
    """Fill in `${VAR}`, `${env:VAR}` and `${VAR:-default}`; the default also stands in for "".

    Raises:
        ConfigError: A variable is not set and has no default. Only this server suffers.
    """

    def expand(text: str, place: str) -> str:
        return _REFERENCE.sub(lambda match: _variable(match[1], place, environ), text)

    def expand_all(values: dict[str, str], place: str) -> dict[str, str]:
        return {name: expand(value, f"{place}.{name}") for name, value in values.items()}

    if isinstance(server, HttpServer):
        resolved = msgspec.structs.replace(
            server,
            url=expand(server.url, "url"),
            headers=expand_all(server.headers, "headers"),
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


def _variable(reference: str, place: str, environ: Mapping[str, str]) -> str:
    match = _VARIABLE.fullmatch(reference)
    if match is None:
        raise ConfigError(
            f"{place} uses ${{{reference[:MAX_NAME]}}}, which cannot be filled in: only "
            "environment variables can, as ${NAME} or ${NAME:-default}"
        )
    name, default = match.groups()
    value = environ.get(name)
    if not value and default is not None:
        return str(default)
    if value is None:
        raise ConfigError(
            f"{place} uses ${{{name}}}, and the environment variable {name} is not set: "
            f"set it, or write ${{{name}:-default}}"
        )
    return value


# Editing


def add_server(path: Path, name: str, server: ServerConfig) -> None:
    """Add a server to a file, which is made (for its owner only) if there is none.

    Other processes that edit it at the same moment lose nothing, and no reader ever sees half
    a file. Comments, order, unknown keys and indentation stay.

    Raises:
        ConfigError: The file is wrong, has a server of this name, or cannot be written.
    """

    def edit(document: Document, config: Config) -> str:
        if name in config.servers:
            raise ConfigError(f"{path} already has a server {name!r}: remove it first")
        key = "servers" if "servers" in document.value else "mcpServers"
        if key not in document.value:
            return document.with_member((), key, {name: _entry(server)})
        return document.with_member((key,), name, _entry(server))

    _edit(path, edit)


def remove_server(path: Path, name: str) -> None:
    """Remove a server from a file, as carefully as `add_server`.

    Raises:
        ConfigError: The file is wrong, has no such server, or cannot be written.
    """

    def edit(document: Document, config: Config) -> str:
        if name not in config.servers:
            raise ConfigError(f"{path} has no server {name!r}")
        key = "servers" if "servers" in document.value else "mcpServers"
        return document.without_member((key, name))

    _edit(path, edit)


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
            entry["connectTimeout" if field == "connect_timeout" else field] = value
    if "tools" in entry:
        tools = {"allow": server.tools.allow, "deny": server.tools.deny or None}
        entry["tools"] = {key: value for key, value in tools.items() if value is not None}
    return entry


def _edit(path: Path, edit: Callable[[Document, Config], str]) -> None:
    # A link stays a link: the file it leads to is replaced.
    path = path.resolve()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            content = _read(path) if path.exists() else b"{}\n"
            config = loads(content, path)
            edited = edit(Document(content), config).encode()
            loads(edited, path)  # a server that could not be read back is not written
            _replace(path, edited)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from editing files in a folder. Leaves no lock file behind."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(f"another process keeps {folder} locked") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that it is the old one or the new one, also after a power cut."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# Trust

PROJECT_FILE = ".mcp.json"


def project_file(folder: Path | None = None) -> Path | None:
    """Find the `.mcp.json` that came with a folder, the working folder by default.

    Nothing in it may be used before `is_trusted`; `load_trusted` sees to that.
    """
    path = (folder or Path.cwd()) / PROJECT_FILE
    return path.resolve() if path.is_file() else None


def fingerprint(path: Path) -> str:
    """Hash a file's content, for `trust`: SHA-256 in hex.

    Raises:
        ConfigError: It cannot be read.
    """
    return sha256(_read(path)).hexdigest()


def is_trusted(path: Path) -> bool:
    """Whether somebody has trusted this file, at this place, with exactly this content."""
    try:
        return _trusted_files().get(str(path.resolve())) == fingerprint(path)
    except ConfigError:
        return False


def trust(path: Path, seen: str) -> None:
    """Note that the operator trusts a file; any later edit needs a new look.

    Args:
        path: The file.
        seen: `fingerprint` of the content that was shown to the operator.

    Raises:
        ConfigError: The file is wrong, has changed since it was shown, or trust cannot be noted.
    """
    content = _read(path)
    if sha256(content).hexdigest() != seen:
        raise ConfigError(f"{path} has changed since it was shown: look at it again")
    loads(content, path)
    store = _trust_store()
    try:
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(store.parent):
            files = _trusted_files() | {str(path.resolve()): seen}
            _replace(store, msgspec.json.format(msgspec.json.encode(files), indent=2))
    except OSError as error:
        raise ConfigError(f"{store} cannot be written: {error.strerror}") from None


def load_trusted(path: Path) -> Config:
    """Read a project's file, if it is trusted. What was checked is what is read.

    Raises:
        ConfigError: It is not trusted, or something in it is wrong.
    """
    content = _read(path)
    if _trusted_files().get(str(path.resolve())) != sha256(content).hexdigest():
        raise ConfigError(f"{path} is not trusted: interlock servers trust")
    return loads(content, path)


def untrusted_warning(folder: Path | None = None) -> str | None:
    """Say in one line that a folder's `.mcp.json` is being ignored; None when it is not."""
    path = project_file(folder)
    if path is None or is_trusted(path):
        return None
    try:
        count = len(load(path).servers)
        what = "1 server" if count == 1 else f"{count} servers"
    except ConfigError:
        what = "which has errors"
    return (
        f"found {PROJECT_FILE} ({what}) in this folder, ignored until you trust it: "
        "interlock servers trust"
    )


def _trust_store() -> Path:
    from platformdirs import user_data_path

    return user_data_path("interlock") / "trusted.json"


def _trusted_files() -> dict[str, str]:
    """Read which files are trusted: resolved path -> SHA-256. Damaged or absent: none."""
    try:
        return msgspec.json.decode(_trust_store().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


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
)
_STDIO_KEYS = ("type", "command", "args", "env", "cwd", *_COMMON_KEYS)
_HTTP_KEYS = ("type", "url", "headers", *_COMMON_KEYS)
_HTTP_TYPES: dict[str, Literal["http", "sse"]] = {
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}


class _Reader:
    """Turns a document into a `Config`, or complains about the first wrong place."""

    def __init__(self, document: Document, path: Path | None) -> None:
        self._document = document
        self._path = path
        self._warnings: list[str] = []

    def config(self) -> Config:
        root = self._document.value
        if not isinstance(root, dict):
            self._fail((), f"must be an object, not {_kind(root)}")
        for key, value in root.items():
            if isinstance(value, dict) and ("command" in value or "url" in value):
                self._fail((key,), 'is a server outside of "mcpServers": move it inside')
        if "mcpServers" in root and "servers" in root:
            self._fail(("servers",), 'stands beside "mcpServers": keep one of them')
        key = "servers" if "servers" in root else "mcpServers"
        if root.get("inputs"):
            self._warn(("inputs",), "is not supported: use environment variables, as ${NAME}")
        self._warn_unknown((), root, (key, "inputs", "$schema"))
        servers = self._object((key,), root.get(key, {}))
        if len(servers) > MAX_SERVERS:
            self._fail((key,), f"has {len(servers):,} servers, over the limit of {MAX_SERVERS:,}")
        read = {name: self._server((key, name), value) for name, value in servers.items()}
        return Config(self._path, read, tuple(self._warnings))

    # A server

    def _server(self, place: Place, value: Any) -> ServerConfig:
        self._check_name(place, str(place[-1]))
        table = self._object(place, value)
        if "command" in table and "url" in table:
            self._fail(place, 'has both "command" and "url": keep one of them')
        if "command" in table:
            return self._stdio_server(place, table)
        if "url" in table:
            return self._http_server(place, table)
        return self._fail(place, 'needs a "command" to run or a "url" to connect to')

    def _stdio_server(self, place: Place, table: dict[str, Any]) -> StdioServer:
        self._warn_unknown(place, table, _STDIO_KEYS)
        self._choice(place, table, "type", ("stdio",), "stdio")
        return StdioServer(
            command=self._filled(place, table, "command"),
            args=self._texts(place, table, "args", ()),
            env=self._environment(place, table),
            cwd=self._filled(place, table, "cwd") if "cwd" in table else None,
            **self._common(place, table),
        )

    def _http_server(self, place: Place, table: dict[str, Any]) -> HttpServer:
        self._warn_unknown(place, table, _HTTP_KEYS)
        kind = self._choice(place, table, "type", tuple(_HTTP_TYPES), "http")
        url = self._filled(place, table, "url")
        if "${" not in url:
            self._checked((*place, "url"), _url_problem(url))
        return HttpServer(
            url=url,
            headers=self._headers(place, table),
            type=_HTTP_TYPES[kind],
            **self._common(place, table),
        )

    def _common(self, place: Place, table: dict[str, Any]) -> dict[str, Any]:
        namespace = self._filled(place, table, "namespace") if "namespace" in table else None
        if namespace is not None:
            self._check_name((*place, "namespace"), namespace)
        return {
            "timeout": self._seconds(place, table, "timeout", 120.0),
            "connect_timeout": self._seconds(place, table, "connectTimeout", 10.0),
            "concurrency": self._concurrency(place, table),
            "namespace": namespace,
            "tools": self._tool_filter(place, table),
            "sharing": self._choice(place, table, "sharing", get_args(Sharing), "shared"),
            "enabled": self._flag(place, table, "enabled", True)
            and not self._flag(place, table, "disabled", False),
        }

    def _check_name(self, place: Place, name: str) -> None:
        if not name or len(name) > MAX_NAME:
            self._fail(place, f"must be a name of 1 to {MAX_NAME} characters, not {len(name)}")
        if ":" in name or not name.isprintable() or name != name.strip():
            self._fail(
                place, "must be a name without colon, control characters and blanks around it"
            )

    def _environment(self, place: Place, table: dict[str, Any]) -> dict[str, str]:
        env = self._object((*place, "env"), table.get("env", {}))
        for name, value in env.items():
            if not name or "=" in name or "\0" in name:
                self._fail((*place, "env", name), "is not a name of an environment variable")
            self._text((*place, "env", name), value)
        return env

    def _headers(self, place: Place, table: dict[str, Any]) -> dict[str, str]:
        headers = self._object((*place, "headers"), table.get("headers", {}))
        for name, value in headers.items():
            here = (*place, "headers", name)
            if not _HEADER_NAME.fullmatch(name):
                self._fail(here, "is not a name of an HTTP header")
            self._checked(here, _header_problem(self._text(here, value)))
        return headers

    def _tool_filter(self, place: Place, table: dict[str, Any]) -> ToolFilter:
        place = (*place, "tools")
        tools = self._object(place, table.get("tools", {}))
        self._warn_unknown(place, tools, ("allow", "deny"))
        return ToolFilter(
            allow=self._texts(place, tools, "allow", ()) if "allow" in tools else None,
            deny=self._texts(place, tools, "deny", ()),
        )

    # Values

    def _object(self, place: Place, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._fail(place, f"must be an object, not {_kind(value)}")
        return value

    def _text(self, place: Place, value: Any) -> str:
        if isinstance(value, bool | int | float):
            self._fail(place, f'must be a string, not {_kind(value)}: put it in quotes ("…")')
        if not isinstance(value, str):
            self._fail(place, f"must be a string, not {_kind(value)}")
        if "\0" in value or not _is_unicode(value):
            self._fail(place, "has a character that no program or server can be given")
        return value

    def _filled(self, place: Place, table: dict[str, Any], key: str) -> str:
        text = self._text((*place, key), table[key])
        if not text.strip():
            self._fail((*place, key), "must not be empty")
        return text

    def _texts(
        self, place: Place, table: dict[str, Any], key: str, default: tuple[str, ...]
    ) -> tuple[str, ...]:
        if key not in table:
            return default
        place, value = (*place, key), table[key]
        if not isinstance(value, list):
            self._fail(place, f"must be a list of strings, not {_kind(value)}")
        return tuple(self._text((*place, index), item) for index, item in enumerate(value))

    def _seconds(self, place: Place, table: dict[str, Any], key: str, default: float) -> float:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._fail((*place, key), f"must be a number of seconds, not {_kind(value)}")
        if not 0 < value <= MAX_SECONDS:
            self._fail((*place, key), f"must be more than 0 and at most {MAX_SECONDS:,} seconds")
        return float(value)

    def _concurrency(self, place: Place, table: dict[str, Any]) -> int:
        value = table.get("concurrency", 16)
        if isinstance(value, bool) or not isinstance(value, int):
            self._fail((*place, "concurrency"), "must be a whole number")
        if not 0 < value <= MAX_CONCURRENCY:
            self._fail((*place, "concurrency"), f"must be between 1 and {MAX_CONCURRENCY:,}")
        return value

    def _flag(self, place: Place, table: dict[str, Any], key: str, default: bool) -> bool:
        value = table.get(key, default)
        if not isinstance(value, bool):
            self._fail((*place, key), f"must be true or false, not {_kind(value)}")
        return value

    def _choice(
        self,
        place: Place,
        table: dict[str, Any],
        key: str,
        choices: tuple[str, ...],
        default: str,
    ) -> str:
        value = table.get(key, default)
        if value not in choices:
            self._fail((*place, key), f"must be one of {', '.join(choices)}")
        return str(value)

    # Complaints

    def _warn_unknown(self, place: Place, table: dict[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known and len(self._warnings) < MAX_WARNINGS:
                from difflib import get_close_matches

                close = get_close_matches(key[:MAX_NAME], known, n=1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                self._warn((*place, key), f"is unknown and ignored{hint}")

    def _warn(self, place: Place, problem: str) -> None:
        self._warnings.append(f"{self._where(place)} {problem}")

    def _checked(self, place: Place, problem: str | None) -> None:
        if problem:
            self._fail(place, problem)

    def _fail(self, place: Place, problem: str) -> NoReturn:
        raise ConfigError(f"{self._where(place)} {problem}")

    def _where(self, place: Place) -> str:
        file = self._path or "configuration"
        line = self._document.line(place)
        return f"{file}, line {line}: {write_place(place) or 'the file'}"


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _header_problem(value: str) -> str | None:
    printable = all(char == "\t" or char.isprintable() for char in value)
    return None if printable else "has a line break or another control character"


def _url_problem(url: str) -> str | None:
    return None if re.match(r"https?://[^/\s]", url) else "must start with https:// or http://"


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
