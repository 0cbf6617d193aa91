"""Reads servers from environment variables: MCP_ENABLED, MCP_SERVERS and related variables.

1. If MCP_ENABLED is not true, all other variables are ignored.
2. If any part of MCP_SERVERS is invalid, all of it is refused. Errors never show a value.
3. MCP_SERVERS is an `mcpServers` object, or a list of objects with the members `name`, `url`,
   `auth_token`, `timeout`, `enabled` and `namespace`, or `command`, `args` and `env` instead of
   `url`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.config import reading, shared_file
from interlock.config.section import nearest
from interlock.config.servers import Config, ServerConfig
from interlock.errors import ConfigError
from interlock.text import urls
from interlock.text.quoting import kind

ENABLED = "MCP_ENABLED"
SERVERS = "MCP_SERVERS"
SERVERS_FILE = "MCP_SERVERS_FILE"
TTL = "MCP_DISCOVERY_CACHE_TTL"
TIMEOUT = "MCP_TOOL_EXECUTION_TIMEOUT"
MAX_SECONDS = 86_400.0

_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off", "")
_KEYS = ("name", "url", "auth_token", "timeout", "enabled", "namespace", "command", "args", "env")
_PLACE = re.compile(r"configuration, line \d+: mcpServers\.s(\d+)")


class EnvironmentSettings(Struct, frozen=True):
    """The values of the environment variables.

    Attributes:
        servers: The servers, keyed by name; {} if MCP_ENABLED is not true.
        list_ttl: The seconds after which a list of tools is read again; None for the default.
        call_timeout: The seconds for a whole call, even if it reports progress; None for the
            default.
        warnings: Warnings for the operator, one line each.
    """

    servers: dict[str, ServerConfig] = {}
    list_ttl: float = 3_600.0
    call_timeout: float = 30.0
    warnings: tuple[str, ...] = ()


def read(environ: Mapping[str, str]) -> EnvironmentSettings:
    """Read and check the environment variables.

    Raises:
        ConfigError: A variable is not valid. The text names it without its value.
    """
    ttl = _seconds(environ, TTL, 3_600.0, least=0.0)
    timeout = _seconds(environ, TIMEOUT, 30.0, least=0.001)
    text = _text(environ)
    if not _is_enabled(environ):
        unused = f"{SERVERS} is set and not used: set {ENABLED}=true to use it"
        return EnvironmentSettings({}, ttl, timeout, (unused,) if text.strip() else ())
    if not text.strip():
        return EnvironmentSettings({}, ttl, timeout)
    warnings: list[str] = []
    servers = {
        name: replace(server, call_timeout=timeout, list_ttl=ttl)
        for name, server in _servers(text, warnings).items()
    }
    return EnvironmentSettings(servers, ttl, timeout, tuple(warnings))


def load(environ: Mapping[str, str]) -> Config | None:
    """Return a configuration with the servers from the variables; None if they define no server.

    Raises:
        ConfigError: A variable is not valid; see `read`.
    """
    settings = read(environ) if _text(environ).strip() else EnvironmentSettings()
    if not settings.servers:
        return None
    return Config(variable=SERVERS, servers=settings.servers, warnings=settings.warnings)


def _is_enabled(environ: Mapping[str, str]) -> bool:
    word = environ.get(ENABLED, "").strip().lower()
    if word not in _TRUE + _FALSE:
        raise ConfigError(f"{ENABLED} must be one of true, 1, yes, on, false, 0, no, off")
    return word in _TRUE


def _seconds(environ: Mapping[str, str], name: str, default: float, least: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= MAX_SECONDS:
        raise ConfigError(
            f"{name} must be a number of seconds from {least:g} to {MAX_SECONDS:,.0f}"
        )
    return value


def _text(environ: Mapping[str, str]) -> str:
    given, file = environ.get(SERVERS, ""), environ.get(SERVERS_FILE, "")
    if given and file:
        raise ConfigError(f"{SERVERS} and {SERVERS_FILE} are both set: keep one of them")
    if not file:
        return given
    path = Path(file)
    if not path.exists():
        raise ConfigError(f"the file named by {SERVERS_FILE} does not exist: {path}")
    return shared_file.read(path).decode("utf-8", "replace")


def _servers(text: str, warnings: list[str]) -> dict[str, ServerConfig]:
    try:
        given = msgspec.json.decode(text)
    except ValueError as error:
        # The decoder's error contains a position but no value, so it is safe to show.
        raise ConfigError(f"{SERVERS} is not JSON: {error}") from None
    if isinstance(given, dict):
        members = given if "mcpServers" in given or "servers" in given else {"mcpServers": given}
        loaded = reading.loads(msgspec.json.encode(members))
        for reason in loaded.ignored.values():
            raise ConfigError(f"{SERVERS}: {reason.removeprefix('line 1: ')}")
        warnings += (each.replace("configuration, line 1", SERVERS) for each in loaded.warnings)
        return loaded.servers
    if not isinstance(given, list):
        raise ConfigError(f"{SERVERS} must be a list of servers, not {kind(given)}")
    names: dict[str, int] = {}
    members = {
        f"s{place}": _member(place, each, names, warnings) for place, each in enumerate(given)
    }
    loaded = reading.loads(msgspec.json.encode({"mcpServers": members}))
    for reason in loaded.ignored.values():
        raise ConfigError(_PLACE.sub(rf"{SERVERS}[\1]", f"configuration, {reason}"))
    warnings += (_PLACE.sub(rf"{SERVERS}[\1]", each) for each in loaded.warnings)
    return {
        name: replace(loaded.servers[f"s{place}"], namespace=None) for name, place in names.items()
    }


def _member(place: int, entry: Any, names: dict[str, int], warnings: list[str]) -> dict[str, Any]:
    def refuse(problem: str, key: str = "") -> NoReturn:
        raise ConfigError(f"{SERVERS}[{place}]{'.' if key else ''}{key} {problem}")

    if not isinstance(entry, dict):
        refuse(f"must be an object, not {kind(entry)}")
    for key in entry.keys() - set(_KEYS):
        shown = key[:64] if key.isprintable() else "a key"
        warnings.append(f"{SERVERS}[{place}].{shown} is unknown and ignored{nearest(key, _KEYS)}")
    name = entry.get("namespace") or entry.get("name")
    if not isinstance(name, str) or not name.strip():
        refuse('needs a "name"')
    if name in names:
        refuse(f"has the same name in addresses as {SERVERS}[{names[name]}]: change its namespace")
    names[name] = place
    member = {key: entry[key] for key in _KEYS[1:] if entry.get(key) is not None}
    member |= {"namespace": name, "timeout": member.get("timeout", 30)}
    if (token := member.pop("auth_token", None)) not in (None, ""):
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token):
            refuse("must be a token without blanks and line breaks", "auth_token")
        if "command" in entry:
            refuse("is for servers with a URL: use env", "auth_token")
        member["headers"] = {"Authorization": f"Bearer {token}"}
        if _is_readable(entry.get("url")):
            warnings.append(f"{SERVERS}[{place}].url sends the token unencrypted: use https")
    return member


def _is_readable(url: Any) -> bool:
    """Return whether requests to a URL cross a network unencrypted."""
    if not isinstance(url, str) or not url.startswith("http://"):
        return False
    try:
        return not urls.is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
