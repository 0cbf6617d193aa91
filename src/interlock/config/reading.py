"""Finds and reads `mcpServers` files, also the files of other programs.

1. A server that cannot be used costs only itself, unless it is `required`. Any other error refuses
   the whole file. Both name the line and the member.
2. `${VAR}` and `${VAR:-default}` are left unchanged here. `resolving.resolve` replaces them later,
   so that a missing variable disables only one server.
3. Relative paths (`command`, `cwd`) start at the working directory, as in other programs.
4. A `.mcp.json` in the working directory may be a stranger's, so it is read only through `trust`.
5. Values of `env` and `headers` appear in no error and no repr.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec

from interlock.config import (
    gateway_reading,
    inputs,
    openapi_reading,
    other_programs,
    section,
    shared_file,
)
from interlock.config.gateway import OWN
from interlock.config.limits_reading import server_limits, server_results
from interlock.config.resolving import header_problem
from interlock.config.section import Section, nearest
from interlock.config.servers import (
    AUTO,
    Auth,
    Config,
    HttpServer,
    OAuthClient,
    OpenApiConfig,
    Pool,
    PythonServer,
    Question,
    ServerConfig,
    Sharing,
    StdioServer,
    ToolFilter,
    ToolOverride,
    ToolRisk,
    has_token,
)
from interlock.config.variables import check_user_variables
from interlock.errors import ConfigError
from interlock.text import urls

VARIABLE = "INTERLOCK_MCP_CONFIG"
"""The environment variable that names the file of servers."""
MAX_SERVERS = 1_000
MAX_NAME = 64
MAX_CONCURRENCY = 10_000
MAX_MESSAGE_BYTES = 1024 * 1024 * 1024
MAX_PORT = 65_535
MAX_CONNECTIONS = 10_000
MAX_CALLS = 1_000_000_000
MAX_LIFE = 365 * 86_400  # seconds; the longest lifetime of a connection that can be configured

# Finding


def find(explicit: Path | str | None = None) -> Path | None:
    """Return the path of the file to load; None if no file exists.

    The path is `explicit`, or else the value of INTERLOCK_MCP_CONFIG, or else `mcp.json` in the
    user's configuration folder.

    Raises:
        ConfigError: `explicit` or the variable names a file that does not exist.
    """
    if explicit is not None:
        return _named(Path(explicit), "the file named by --config")
    if named := os.environ.get(VARIABLE):
        return _named(Path(named), f"the file named by {VARIABLE}")
    path = default_path()
    return path if _exists(path) else None


def default_path() -> Path:
    """Return the path of the user's default file, which need not exist."""
    from platformdirs import user_config_path

    return user_config_path("interlock") / "mcp.json"


def _named(path: Path, role: str) -> Path:
    try:
        path = path.expanduser()
    except RuntimeError as error:  # for example if ~USER names a user that does not exist
        raise ConfigError(f"{role} does not exist: {path}: {error}") from None
    if not _exists(path):
        raise ConfigError(f"{role} does not exist: {path}")
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return True  # assume that the file exists: reading it raises a clearer error
    except (OSError, ValueError):
        return False


# Reading

_CONNECTION_KEYS = ("connectTimeout", "sharing", "pool", "maxMessageBytes")
_COMMON_KEYS = (
    "timeout",
    "connectTimeout",
    "concurrency",
    "namespace",
    "tools",
    "sharing",
    "pool",
    "enabled",
    "disabled",
    "maxMessageBytes",
    "limits",
    "results",
    "asks",
    "roots",
    "required",
    "autoApprove",
    "alwaysAllow",
)
_PYTHON_KEYS = ("type", "object", *(key for key in _COMMON_KEYS if key not in _CONNECTION_KEYS))
_OBJECT = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_STDIO_KEYS = ("type", "command", "args", "env", "envFile", "cwd", *_COMMON_KEYS)
KEY_OF = {
    "connect_timeout": "connectTimeout",
    "max_message_bytes": "maxMessageBytes",
    "max_result_bytes": "results",
}
_HTTP_KEYS = ("type", "url", "headers", "auth", "oauth", *_COMMON_KEYS)
_CONNECTION_ONLY = ("connectTimeout", "maxMessageBytes", "asks", "roots")
_OPENAPI_KEYS = (
    "type",
    "openapi",
    "headers",
    *(key for key in _COMMON_KEYS if key not in _CONNECTION_ONLY),
)
_HTTP_TYPES: tuple[Literal["http", "sse"], ...] = ("http", "sse")
_TYPES = ("stdio", *_HTTP_TYPES, "openapi", "python")


def load(path: Path | None) -> Config:
    """Read a configuration file; return an empty configuration if `path` is None.

    Raises:
        ConfigError: The file cannot be read, or its content is not valid.
    """
    if path is not None and path.suffix == ".toml":
        raise ConfigError(f"{path} is not JSON: copy its servers with `interlock servers import`")
    return Config() if path is None else loads(shared_file.read(path), path)


def loads(text: bytes, path: Path | None = None) -> Config:
    """Return the configuration in a file's content; its `ignored` names unusable servers.

    Args:
        text: JSON in UTF-8. Comments and trailing commas are allowed.
        path: The file's path, for error messages.

    Raises:
        ConfigError: The content is not valid. The text names the file, line and member.
    """
    root = section.parse(text, path)
    for key, value in root.members.items():
        if _is_server(value) and key not in other_programs.OWN_ROOTS:
            root.refuse('is a server outside of "mcpServers": move it inside', key)
    roots = [key for key in other_programs.OWN_ROOTS if root.members.get(key)]
    if len(roots) > 1:
        root.refuse(f'cannot be combined with "{roots[0]}": keep one of them', roots[1])
    questions = inputs.read(root)
    place = other_programs.place_of_servers(root.members)
    _warn_of_mistakes(root, (place[0], *other_programs.OWN_ROOTS, *_OTHER_MEMBERS))
    has_gateway = "gateway" in root.members
    headers = gateway_reading.header_names(root.within("gateway")) if has_gateway else ()
    read = read_servers(root, place, path, other_programs.program_of(path), headers)
    gateway = None
    if has_gateway:
        # Rules about a server that is ignored stay valid, and match nothing.
        names = [server.namespace or name for name, server in read.servers.items()]
        gateway = gateway_reading.read(root.within("gateway"), [*names, *read.ignored])
    return msgspec.structs.replace(
        read, warnings=tuple(root.warnings), gateway=gateway, inputs=questions
    )


def read_servers(
    root: Section,
    place: tuple[str, ...],
    path: Path | None,
    program: str = "",
    headers: Collection[str] = (),
) -> Config:
    """Return the servers in one object of a file.

    Args:
        root: The file.
        place: The keys that lead to the object.
        path: The file's path.
        program: The program that wrote the file, as in `other_programs.program_of`.
        headers: The headers of requests that servers may get, in `gateway.headers`.

    Raises:
        ConfigError: The object is not valid, a server that is `required` cannot be used, or two
            servers have the same name in addresses.
    """
    table = root
    for key in place:
        table = table.named(key) if key == place[-1] else table.within(key)
    count = len(table.members)
    if count > MAX_SERVERS:
        table.refuse(f"has {count:,} servers, over the limit of {MAX_SERVERS:,}")
    servers, ignored = _servers(table, path, program, headers)
    taken: dict[str, str] = {}  # the name in the file, keyed by the name in tool addresses
    for name, server in servers.items():
        address = server.namespace or name
        if address in taken:
            table.refuse(f"is {address!r} in addresses, as {taken[address]!r} is", name)
        taken[address] = name
    return Config(path, servers, tuple(root.warnings), ignored=ignored)


def _servers(
    table: Section, path: Path | None, program: str, headers: Collection[str]
) -> tuple[dict[str, ServerConfig], dict[str, str]]:
    """Return the usable servers, and the reasons why the others are ignored."""
    found: dict[str, ServerConfig] = {}
    ignored: dict[str, str] = {}
    for name, entry in table.members.items():
        if entry == {"enabled": False}:  # in opencode's files, for a server of another file
            continue
        try:
            found[name] = _server(table, name, path, program, headers)
        except ConfigError as error:
            if isinstance(entry, dict) and entry.get("required") is True:
                raise
            ignored[name] = str(error).removeprefix(f"{path or 'configuration'}, ")
            table.warnings.append(f"{error}; this server is ignored")
    return found, ignored


_OTHER_MEMBERS = ("gateway", "inputs", "$schema")


def _warn_of_mistakes(root: Section, known: tuple[str, ...]) -> None:
    """Warn only of likely mistakes, because the file may contain other programs' members."""
    for key in islice(root.members, MAX_SERVERS):
        if key in gateway_reading.KEYS:
            root.warn('is ignored here: move it into "gateway"', key)
        elif key not in known and (hint := nearest(key, known)):
            root.warn(f"is unknown and ignored{hint}", key)


def _is_server(value: Any) -> bool:
    return isinstance(value, dict) and ("command" in value or "url" in value)


def _check_kind(entry: Section) -> None:
    """Check that an entry describes exactly one kind of server."""
    type = entry.members.get("type")
    if isinstance(type, str) and type not in _TYPES:
        entry.refuse(f"has the type {type[:MAX_NAME]!r}, not one of {', '.join(_TYPES)}")
    kinds = [key for key in ("command", "url", "openapi") if key in entry.members]
    if len(kinds) > 1:
        entry.refuse(f'has both "{kinds[0]}" and "{kinds[1]}": keep one of them')
    if not kinds and any(map(_is_server, entry.members.values())):
        entry.refuse("has servers in it: move them one level up")
    if not kinds and type != "python" and "object" not in entry.members:
        hints = (nearest(key, ("command", "url", "openapi")) for key in entry.members)
        entry.refuse(
            'needs a "command" to run, a "url" to connect to, or an "openapi" document'
            + next(filter(None, hints), "")
        )


def _server(
    table: Section, name: str, path: Path | None, program: str, headers: Collection[str]
) -> ServerConfig:
    _check_name(table, name, name)
    entry = table.within(name)
    if name == OWN and "namespace" not in entry.members:
        entry.refuse('has a reserved name: rename it, or give it a "namespace"')
    try:
        entry.members = other_programs.translate(entry.members, program)
    except ValueError as error:
        entry.refuse(str(error))
    sharing = entry.choice("sharing", get_args(Sharing))
    _check_kind(entry)
    check_user_variables(entry, is_shared=sharing == "shared", headers=headers)
    if entry.members.get("type") == "python" or "object" in entry.members:
        return _python_server(entry)
    if "openapi" in entry.members:
        return _openapi_server(entry, path)
    if "command" in entry.members:
        return _stdio_server(entry)
    return _http_server(entry)


def _stdio_server(entry: Section) -> StdioServer:
    entry.warn_unknown(_STDIO_KEYS)
    entry.choice("type", ("stdio",))
    return StdioServer(
        command=entry.filled("command"),
        args=entry.all_written("args"),
        env=_environment(entry.within("env")),
        env_file=entry.filled("envFile") if "envFile" in entry.members else None,
        cwd=entry.filled("cwd") if "cwd" in entry.members else None,
        connect_timeout=_connect_timeout(entry, 30.0),
        **_common(entry),
    )


def _connect_timeout(entry: Section, usual: float) -> float:
    """Read `connectTimeout`, whose default is at most the server's `timeout`."""
    return entry.seconds("connectTimeout", min(usual, entry.seconds("timeout", usual)))


def _http_server(entry: Section) -> HttpServer:
    entry.warn_unknown(_HTTP_KEYS)
    type = entry.choice("type", _HTTP_TYPES)
    url = entry.filled("url")
    if "${" not in url and (problem := urls.problem(url)):
        entry.refuse(problem, "url")
    headers = _headers(entry.within("headers"))
    if isinstance(entry.members.get("auth"), dict):  # in Cursor's files, an object means "oauth"
        auth: Auth = "oauth"
        oauth = _oauth_client(entry.within("auth").without_nulls(), "CLIENT_ID", "CLIENT_SECRET")
    else:
        auth = cast("Auth", entry.choice("auth", get_args(Auth)))
        oauth = _oauth_client(entry.within("oauth").without_nulls(), "clientId", "clientSecret")
    if problem := _auth_problem(auth, headers):
        entry.refuse(problem, "auth")
    return HttpServer(
        url=url,
        headers=headers,
        type=type,
        auth=auth,
        oauth=oauth,
        connect_timeout=_connect_timeout(entry, 10.0),
        **_common(entry),
    )


def _python_server(entry: Section) -> PythonServer:
    entry.warn_unknown(_PYTHON_KEYS)
    entry.need("type", "object")
    entry.choice("type", ("python",))
    if not _OBJECT.fullmatch(entry.text("object")):
        entry.refuse('must be "package.module:name"', "object")
    return PythonServer(object=entry.text("object"), **_served(entry))


def _openapi_server(entry: Section, path: Path | None) -> OpenApiConfig:
    entry.warn_unknown(_OPENAPI_KEYS)
    entry.choice("type", ("openapi",))
    document = openapi_reading.read(entry.within("openapi"), path)
    served = _served(entry)
    by_tool = {name: each["risk"] for name, each in document.tools.items() if "risk" in each}
    risk = msgspec.structs.replace(served["tools"].risk, by_tool=by_tool, trusts_annotations=True)
    return OpenApiConfig(
        openapi=document,
        headers=_headers(entry.within("headers")),
        **_sharing(entry),
        **served
        | {
            "asks": (),
            "roots": (),
            "timeout": entry.seconds("timeout", 30.0),
            "concurrency": entry.count("concurrency", 8, MAX_CONCURRENCY),
            "tools": msgspec.structs.replace(served["tools"], risk=risk),
        },
    )


def _common(entry: Section) -> dict[str, Any]:
    return {
        "max_message_bytes": entry.count("maxMessageBytes", 16 * 1024 * 1024, MAX_MESSAGE_BYTES),
        **_sharing(entry),
        **_served(entry),
    }


def _sharing(entry: Section) -> dict[str, Any]:
    return {
        "sharing": entry.choice("sharing", get_args(Sharing)),
        "pool": _pool(entry.within("pool")),
    }


def _served(entry: Section) -> dict[str, Any]:
    namespace = entry.filled("namespace") if "namespace" in entry.members else None
    if namespace is not None:
        _check_name(entry, "namespace", namespace)
        if namespace == OWN:
            entry.refuse("is reserved: use another one", "namespace")
    asks, roots = _asks(entry), _roots(entry)
    return {
        "timeout": entry.seconds("timeout", 120.0),
        "concurrency": entry.count("concurrency", 16, MAX_CONCURRENCY),
        "namespace": namespace,
        "tools": _tool_filter(entry),
        "limits": server_limits(entry.within("limits")),
        "max_result_bytes": server_results(entry.within("results")),
        "asks": (*asks, "roots") if roots and "roots" not in asks else asks,
        "roots": roots,
        "required": entry.flag("required", False),
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
            env.refuse("is not a valid variable name", name)
    return {name: env.written(name) for name in env.members}


def _headers(headers: Section) -> dict[str, str]:
    for name in headers.members:
        if not urls.HTTP_TOKEN.fullmatch(name):
            headers.refuse("is not a valid HTTP header name", name)
        if problem := header_problem(headers.written(name)):
            headers.refuse(problem, name)
    return {name: headers.written(name) for name in headers.members}


def _tool_filter(entry: Section) -> ToolFilter:
    tools = entry.within("tools")
    tools.warn_unknown(("allow", "deny", "idempotent", "risk", "override", "alwaysLoad"))
    risk = tools.within("risk")
    risk.warn_unknown(("read", "write"))
    override = tools.within("override")
    return ToolFilter(
        tools.texts("allow") if "allow" in tools.members else None,
        tools.texts("deny"),
        tools.texts("idempotent"),
        ToolRisk(risk.texts("read"), risk.texts("write")),
        {name: _override(override.within(name)) for name in override.members},
        # Cline and Roo Code add tools to these lists when the user chooses "always allow".
        (*entry.texts("autoApprove"), *entry.texts("alwaysAllow")),
        tools.texts("alwaysLoad"),
    )


def _override(section: Section) -> ToolOverride:
    section.warn_unknown(("description",))
    section.need("description")
    return ToolOverride(section.filled("description"))


def _roots(entry: Section) -> tuple[str, ...]:
    roots = entry.texts("roots")
    for index, each in enumerate(roots):
        if not each or ("://" in each and not each.startswith("file://")):
            entry.refuse("must be a folder or a file:// URI", "roots", index)
    return roots


def _asks(entry: Section) -> tuple[Question, ...]:
    match entry.members.get("asks", "auto"):
        case "auto":
            return AUTO
        case "never":
            return ()
        case list():
            asks = entry.texts("asks")
            for index, each in enumerate(asks):
                if each not in get_args(Question):
                    words = ", ".join(get_args(Question))
                    entry.refuse(f"must be one of {words}", "asks", index)
            return cast("tuple[Question, ...]", asks)
    return entry.refuse('must be "auto", "never" or a list of what it may ask', "asks")


def _pool(pool: Section) -> Pool:
    pool.warn_unknown(Pool.__struct_fields__)
    default = Pool()
    most = pool.count("max", default.max, MAX_CONNECTIONS)
    spare = pool.count("spare", default.spare, MAX_CONNECTIONS, least=0)
    if spare > most:
        pool.refuse(f'must be at most {most}, the number of connections in "max"', "spare")
    return Pool(
        max=most,
        spare=spare,
        idle=pool.duration("idle", default.idle, MAX_LIFE),
        life=pool.duration("life", default.life, MAX_LIFE),
        calls=pool.count("calls", 1, MAX_CALLS) if "calls" in pool.members else None,
    )


METADATA_KEY = "clientMetadataUrl"


def metadata_problem(url: str) -> str | None:
    """Return what is wrong with the URL of a client metadata document; None if it is valid."""
    return None if re.match(r"https://[^/?#\s]+/[^#\s]", url) else "must be https://, with a path"


def _oauth_client(oauth: Section, id: str, secret: str) -> OAuthClient:
    oauth.warn_unknown((id, secret, METADATA_KEY, "issuer", "callbackPort", "scopes"))
    if secret in oauth.members and id not in oauth.members:
        oauth.refuse(f'needs a "{id}" beside it', secret)
    issuer = oauth.filled("issuer") if "issuer" in oauth.members else ""
    if issuer and (problem := urls.problem(issuer)):
        oauth.refuse(problem, "issuer")
    metadata = oauth.filled(METADATA_KEY) if METADATA_KEY in oauth.members else ""
    if metadata and id in oauth.members:
        oauth.refuse(f'cannot be combined with "{id}": keep one of them', METADATA_KEY)
    if metadata and (problem := metadata_problem(metadata)):
        oauth.refuse(problem, METADATA_KEY)
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
    if auth == "bearer" and not has_token(headers):
        return 'is "bearer", which needs a header Authorization: add it to "headers"'
    if auth in ("oauth", "none") and has_token(headers):
        return f'is "{auth}", beside a header Authorization: keep one of them'
    return None
