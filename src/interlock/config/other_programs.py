"""Translation of server entries from other programs, which use different names and units.

| program | servers are in | members of a server |
|---|---|---|
| Amazon Q, Claude Code | `mcpServers` | `timeout` in ms |
| Amp | `amp.mcpServers`, which is one key | `includeTools` |
| Cline, Roo Code | `mcpServers` | `autoApprove`, `alwaysAllow`, `transportType`; `timeout` in s |
| Codex | `mcp_servers` | `http_headers`, `bearer_token_env_var`, `tool_timeout_sec`, `env_vars` |
| Continue | a list in `mcpServers` | `name`, `requestOptions`, `connectionTimeout` in ms |
| Copilot CLI | `mcpServers` | `tools` as a list, `timeout` in ms |
| Gemini CLI | `mcpServers` | `httpUrl`, `includeTools`, `excludeTools`, `trust`, `timeout` in ms |
| opencode | `mcp` or `mcp.servers` | `command` as a list, `environment`, `timeout` in ms |
| VS Code | `servers` or `mcp.servers` | `envFile`, `dev`, `gallery`, `version` |
| Windsurf | `mcpServers` | `serverUrl`, `disabledTools` |
| Zed | `context_servers` | `source`, `settings`, `command` as an object |

Members whose value is null count as missing, and so do empty ones that forms of programs write.
`{env:NAME}` of opencode and `$NAME` of Gemini CLI become references to environment variables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from interlock.config.section import NEEDS_UNIT

OWN_ROOTS = ("mcpServers", "servers", "context_servers")
ROOTS = (*OWN_ROOTS, "mcp_servers", "amp.mcpServers", "mcp")
# Members that only the other programs use, so they are ignored without a warning
_IGNORED = (
    "alwaysLoad",
    "description",
    "dev",
    "extensionName",
    "gallery",
    "icon",
    "name",
    "settings",
    "source",
    "trust",
    "version",
    "watchPaths",
)
_GEMINI = ("httpUrl", "includeTools", "excludeTools", "trust")
_MILLISECONDS = ("amazonq", "claude", "copilot", "gemini", "opencode")
_SECONDS = ("cline", "roo")
_RENAMED = {
    "serverUrl": "url",
    "httpUrl": "url",
    "environment": "env",
    "http_headers": "headers",
    "transportType": "type",
    "isActive": "enabled",
    "startup_timeout_sec": "connectTimeout",
    "tool_timeout_sec": "timeout",
    "enabled_tools": "includeTools",
    "disabled_tools": "disabledTools",
}
# Members that count as missing if they are empty
_EMPTY = {
    "": ("type", "transportType", "transport", "cwd"),
    "[]": ("env", "environment", "headers"),
}
_OPENCODE_VARIABLE = re.compile(r"(?<!\$)\{env:([A-Za-z_]\w*)\}", re.ASCII)
_GEMINI_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)", re.ASCII)
# Keyed by the word in lower case, without the signs between its parts
_TYPES = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
    "httpsse": "sse",
}


def place_of_servers(members: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys that lead from a file's root to its servers."""
    filled = (key for key in ROOTS if isinstance(members.get(key), dict | list) and members[key])
    root = next(filled, "") or next((key for key in OWN_ROOTS if key in members), ROOTS[0])
    inner = members.get(root)
    if root == "mcp" and isinstance(inner, dict):
        return next(((root, key) for key in ROOTS[:2] if key in inner), (root,))
    return (root,)


def program_of(path: Path | None) -> str:
    """Return the program whose file has this path, if its unit of time is known; else ""."""
    if path is None:
        return ""
    match path.parent.name, path.name:
        case _, ".mcp.json" | ".claude.json":
            return "claude"
        case "amazonq", "mcp.json":
            return "amazonq"
        case ".copilot", "mcp-config.json":
            return "copilot"
        case ".gemini", "settings.json":
            return "gemini"
        case _, "opencode.json" | "opencode.jsonc":
            return "opencode"
        case _, "cline_mcp_settings.json":
            return "cline"
        case ".roo", "mcp.json":
            return "roo"
    return ""


def translate(members: dict[str, Any], program: str = "") -> dict[str, Any]:
    """Return a server's members under the names that interlock uses.

    Members that already have interlock's names stay unchanged.

    Args:
        members: The members in the file.
        program: The program that wrote the file, as in `program_of`; "" if unknown.

    Raises:
        ValueError: Two members contradict each other; the text names them.
    """
    if any(name in members for name in _GEMINI):
        program = "gemini"
    elif isinstance(members.get("tools"), list):
        program = "copilot"
    found = _flattened(_with_references(members, program))
    for old, new in _RENAMED.items():
        if old in found:
            _set(found, new, found.pop(old), old)
    if isinstance(url := found.get("url"), str):
        found["url"] = url.strip()
    for name, other in (("command", "url"), ("url", "command")):
        if found.get(name) == "" and found.get(other):
            del found[name]
    if found.get("oauth") is False:  # in opencode's files: never log in
        del found["oauth"]
    _read_command(found)
    _read_credentials(found)
    _read_tools(found)
    _read_times(found, program)
    return {name: value for name, value in found.items() if name not in _IGNORED}


def _with_references(value: Any, program: str) -> Any:
    """Return a value whose texts refer to environment variables as interlock's files do."""
    if isinstance(value, dict):
        return {name: _with_references(each, program) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_references(each, program) for each in value]
    if not isinstance(value, str):
        return value
    if program == "opencode" and "{file:" in value:
        raise ValueError("has {file:…}, which is not read: write the value, or ${NAME}")
    value = _OPENCODE_VARIABLE.sub(r"${\1}", value)
    # Gemini CLI keeps the reference to a variable that is not set.
    return _GEMINI_VARIABLE.sub(r"${\1:-$\1}", value) if program == "gemini" else value


def _flattened(members: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without nulls and remarks, with the members of a nested transport."""
    found: dict[str, Any] = {}
    for name, value in members.items():
        is_empty = value in ("", []) and name in _EMPTY[str(value)]
        if value is not None and not is_empty and not name.startswith(("_", "//", "#")):
            found[name] = _type(value) if name == "type" else value
    transport = found.pop("transport", None)
    if isinstance(transport, dict):
        for name, value in transport.items():
            _set(found, name, value, f"transport.{name}")
    elif transport is not None:
        _set(found, "type", transport, "transport")
    return found


def _type(word: Any) -> Any:
    return _TYPES.get(re.sub(r"[-_+ ]", "", word.lower()), word) if isinstance(word, str) else word


def _set(found: dict[str, Any], name: str, value: Any, source: str) -> None:
    value = _type(value) if name == "type" else value
    if value is not None and found.setdefault(name, value) != value:
        raise ValueError(f'has "{name}" and another "{source}": keep one of them')


def _add(found: dict[str, Any], name: str, more: dict[str, Any]) -> None:
    """Add members to the object `name`; members that it has already stay unchanged."""
    own = found.get(name, {})
    if more and isinstance(own, dict):  # another type is refused later
        found[name] = {**more, **own}


def _read_command(found: dict[str, Any]) -> None:
    command = found.get("command")
    if isinstance(command, dict):
        del found["command"]
        for name, value in command.items():
            _set(found, "command" if name == "path" else name, value, f"command.{name}")
    elif isinstance(command, list) and command and isinstance(found.get("args", []), list):
        found["command"], found["args"] = command[0], [*command[1:], *found.get("args", [])]


def _read_credentials(found: dict[str, Any]) -> None:
    """Read headers and variables that are named by the variable that has the value."""
    if isinstance(options := found.pop("requestOptions", None), dict):
        _set(found, "headers", options.get("headers"), "requestOptions.headers")
    if isinstance(variable := found.pop("bearer_token_env_var", None), str):
        _add(found, "headers", {"Authorization": f"Bearer ${{{variable}}}"})
    if isinstance(variables := found.pop("env_http_headers", None), dict):
        _add(found, "headers", {name: f"${{{each}}}" for name, each in variables.items()})
    if isinstance(names := found.pop("env_vars", None), list):
        _add(found, "env", {name: f"${{{name}:-}}" for name in names if isinstance(name, str)})


def _read_tools(found: dict[str, Any]) -> None:
    tools = found.get("tools", {})
    if isinstance(tools, list):
        tools = {"allow": tools}
    if isinstance(tools, dict):
        if "includeTools" in found and "allow" not in tools:
            tools = {**tools, "allow": found.pop("includeTools")}
        for name in ("excludeTools", "disabledTools"):
            if name in found:
                denied, more = tools.get("deny", []), found.pop(name)
                is_list = isinstance(denied, list) and isinstance(more, list)
                tools = {**tools, "deny": [*denied, *more] if is_list else more}
        if tools:
            found["tools"] = tools


def _read_times(found: dict[str, Any], program: str) -> None:
    """Add the unit to times whose unit is known; a smaller number counts as seconds."""
    unit = "ms" if program in _MILLISECONDS else "s" if program in _SECONDS else ""
    timeout = found.get("timeout")
    if unit and isinstance(timeout, int | float) and timeout >= NEEDS_UNIT:
        found["timeout"] = f"{timeout}{unit}"
    for name in ("connectionTimeout", "startup_timeout_ms"):
        value = found.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            del found[name]
            found.setdefault("connectTimeout", f"{value}ms")
