"""Edits of a configuration file that add or remove a server and leave the rest unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.config import shared_file
from interlock.config.gateway import Rate
from interlock.config.jsonc import JsoncDocument
from interlock.config.other_programs import place_of_servers
from interlock.config.reading import KEY_OF, METADATA_KEY, loads
from interlock.config.section import NEEDS_UNIT
from interlock.config.servers import (
    Config,
    ConnectionSettings,
    HttpServer,
    Pool,
    StdioServer,
    ToolFilter,
)
from interlock.errors import ConfigError

_TIMES = ("timeout", "connect_timeout")


def add_server(path: Path, name: str, server: StdioServer | HttpServer) -> None:
    """Add a server to a file; if the file is missing, create it for its owner only.

    Simultaneous edits by other processes are not lost, and readers never see an incomplete file.
    Comments, order, unknown members and indentation are preserved.

    Raises:
        ConfigError: The file is not valid, has a server with this name, or cannot be written.
    """

    def change(document: JsoncDocument, config: Config) -> str:
        if name in config.servers or name in config.ignored:
            raise ConfigError(f"{path} already has a server {name!r}: remove it first")
        own = config.gateway.public_url if config.gateway else ""
        if isinstance(server, HttpServer) and own and server.url.rstrip("/") == own.rstrip("/"):
            raise ConfigError(
                f"{server.url} is the gateway of {path} itself; add it to the file of a client, "
                "with --config FILE"
            )
        place = place_of_servers(document.value)
        key = place[0]
        if key not in document.value:
            if document.value:  # not empty: it may contain another program's settings, so keep it
                raise ConfigError(
                    f'{path} has no {key}: add "{key}": {{}} to it, or put -- before COMMAND '
                    "if --config is an option of COMMAND"
                )
            return document.with_member((), key, {name: _entry(server)})
        if document.text[document.spans[place].value] != "{":
            raise ConfigError(f"{path}: {'.'.join(place)} is not an object: add {name!r} by hand")
        return document.with_member(place, name, _entry(server))

    _edit(path, change)


def remove_server(path: Path, name: str) -> None:
    """Remove a server from a file, as safely as `add_server` adds it.

    Raises:
        ConfigError: The file is not valid, has no server with this name, or cannot be written.
    """

    def change(document: JsoncDocument, _: Config) -> str:
        place = (*place_of_servers(document.value), name)
        if place not in document.spans:
            raise ConfigError(f"{path} has no server {name!r}")
        return document.without_member(place)

    _edit(path, change)


def _entry(server: StdioServer | HttpServer) -> dict[str, Any]:
    """Return the members for a server's entry in the file, without default values."""
    default: StdioServer | HttpServer
    if isinstance(server, HttpServer):
        entry: dict[str, Any] = {"type": server.type, "url": server.url}
        default = HttpServer(url="")
    else:
        entry = {"command": server.command}
        default = StdioServer(command="")
    # The default timeout for connecting is at most the timeout for requests.
    connect_timeout = min(default.connect_timeout, server.timeout)
    default = replace(default, connect_timeout=connect_timeout)
    common = ConnectionSettings.__struct_fields__
    for field in sorted(server.__struct_fields__, key=common.__contains__):  # common fields last
        value = getattr(server, field)
        if field not in entry and value != getattr(default, field):
            needs_unit = field in _TIMES and value >= NEEDS_UNIT
            entry[KEY_OF.get(field, field)] = f"{value!r}s" if needs_unit else value
    if "tools" in entry:
        entry["tools"] = _written_filter(server.tools)
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


def _written_filter(tools: ToolFilter) -> dict[str, Any]:
    members = {
        "allow": tools.allow,
        "deny": tools.deny or None,
        "idempotent": tools.idempotent or None,
        "alwaysLoad": tools.always_load or None,
        "risk": _written(tools.risk, ("read", "write")) or None,
        "override": {name: _written(each) for name, each in tools.override.items()} or None,
    }
    return {key: value for key, value in members.items() if value is not None}


def _written(part: Struct, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    values = {name: getattr(part, name) for name in names or part.__struct_fields__}
    return {
        name: str(value) if isinstance(value, Rate) else value
        for name, value in values.items()
        if value not in (None, ())
    }


def _edit(path: Path, change: Callable[[JsoncDocument, Config], str]) -> None:
    path = path.resolve()  # write to the target of a symbolic link instead of replacing the link

    def content() -> bytes:
        before = shared_file.read(path) if path.exists() else b"{}\n"
        config = loads(before, path)
        after = change(JsoncDocument(before), config).encode()
        # Raise rather than write a file or a server that cannot be read again.
        ignored = loads(after, path).ignored
        if new := next((each for each in ignored if each not in config.ignored), None):
            raise ConfigError(f"{path}, {ignored[new]}")
        return after

    shared_file.edit(path, content)
