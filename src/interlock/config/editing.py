"""Edits that add a server to a file or remove one; the rest of the file stays unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.config import shared_file
from interlock.config.gateway import Rate
from interlock.config.jsonc import JsoncDocument
from interlock.config.reading import KEY_OF, METADATA_KEY, loads, servers_key
from interlock.config.servers import Config, ConnectionSettings, HttpServer, Pool, StdioServer
from interlock.errors import ConfigError


def add_server(path: Path, name: str, server: StdioServer | HttpServer) -> None:
    """Add a server to a file; a missing file is created for its owner only.

    Concurrent edits by other processes are kept, and readers never see an incomplete file.
    Comments, order, unknown keys and indentation are preserved.

    Raises:
        ConfigError: The file is wrong, has a server of this name, or cannot be written.
    """

    def change(document: JsoncDocument, config: Config) -> str:
        if name in config.servers:
            raise ConfigError(f"{path} already has a server {name!r}: remove it first")
        key = servers_key(document.value)
        if key not in document.value:
            if document.value:  # the file may hold the settings of another program
                raise ConfigError(
                    f'{path} has no {key}: add "{key}": {{}} to it, or put -- before COMMAND '
                    "if --config is an option of COMMAND"
                )
            return document.with_member((), key, {name: _entry(server)})
        return document.with_member((key,), name, _entry(server))

    _edit(path, change)


def remove_server(path: Path, name: str) -> None:
    """Remove a server from a file, with the guarantees of `add_server`.

    Raises:
        ConfigError: The file is wrong, has no such server, or cannot be written.
    """

    def change(document: JsoncDocument, config: Config) -> str:
        if name not in config.servers:
            raise ConfigError(f"{path} has no server {name!r}")
        return document.without_member((servers_key(document.value), name))

    _edit(path, change)


def _entry(server: StdioServer | HttpServer) -> dict[str, Any]:
    """Return a server's members as the file has them, without defaults."""
    default: StdioServer | HttpServer
    if isinstance(server, HttpServer):
        entry: dict[str, Any] = {"type": server.type, "url": server.url}
        default = HttpServer(url="")
    else:
        entry = {"command": server.command}
        default = StdioServer(command="")
    # By default, the timeout of connecting is at most that of a request.
    connect_timeout = min(default.connect_timeout, server.timeout)
    default = replace(default, connect_timeout=connect_timeout)
    common = ConnectionSettings.__struct_fields__
    for field in sorted(server.__struct_fields__, key=common.__contains__):  # common ones last
        value = getattr(server, field)
        if field not in entry and value != getattr(default, field):
            entry[KEY_OF.get(field, field)] = value
    if "tools" in entry:
        tools = {
            "allow": server.tools.allow,
            "deny": server.tools.deny or None,
            "idempotent": server.tools.idempotent or None,
            "risk": _written(server.tools.risk, ("read", "write")) or None,
            "override": {name: _written(each) for name, each in server.tools.override.items()}
            or None,
        }
        entry["tools"] = {key: value for key, value in tools.items() if value is not None}
    if "pool" in entry:
        default_pool = Pool()
        entry["pool"] = {
            name: value
            for name, value in _written(server.pool).items()
            if value != getattr(default_pool, name)
        }
    if "limits" in entry:
        entry["limits"] = _written(server.limits)
    if "results" in entry:
        entry["results"] = {"max": server.max_result_bytes}
    if isinstance(server, HttpServer) and "oauth" in entry:
        oauth = {
            "clientId": server.oauth.client_id,
            METADATA_KEY: server.oauth.client_metadata_url,
            "clientSecret": server.oauth.client_secret,
            "issuer": server.oauth.issuer,
            "callbackPort": server.oauth.callback_port,
            "scopes": server.oauth.scopes,
        }
        entry["oauth"] = {key: value for key, value in oauth.items() if value}
    return entry


def _written(part: Struct, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    values = {name: getattr(part, name) for name in names or part.__struct_fields__}
    return {
        name: str(value) if isinstance(value, Rate) else value
        for name, value in values.items()
        if value not in (None, ())
    }


def _edit(path: Path, change: Callable[[JsoncDocument, Config], str]) -> None:
    path = path.resolve()  # keeps a symbolic link, and replaces its target

    def content() -> bytes:
        before = shared_file.read(path) if path.exists() else b"{}\n"
        config = loads(before, path)
        after = change(JsoncDocument(before), config).encode()
        loads(after, path)  # never write a file that cannot be read back
        return after

    shared_file.edit(path, content)
