"""Translation of server entries from other programs, which use different member names.

| program | root member | members of a server |
|---|---|---|
| Windsurf | `mcpServers` | `serverUrl`, `disabledTools` |
| Gemini CLI | `mcpServers` | `httpUrl`, `includeTools`, `excludeTools`, `trust`, `timeout` in ms |
| Zed | `context_servers` | `source`, `settings` |
| VS Code | `servers` | `envFile`, `dev`, `gallery`, `version` |
| Cline, Roo Code | `mcpServers` | `autoApprove`, `alwaysAllow`, `transportType`, `disabledTools` |
"""

from __future__ import annotations

from typing import Any

ROOTS = ("mcpServers", "servers", "context_servers")
# Members that only the other programs use, so they are ignored without a warning
_IGNORED = (
    "description",
    "dev",
    "gallery",
    "icon",
    "settings",
    "source",
    "transportType",
    "trust",
    "version",
)
_GEMINI = ("httpUrl", "includeTools", "excludeTools", "trust")


def translate(members: dict[str, Any]) -> dict[str, Any]:
    """Return a server's members under the names that interlock uses.

    Members that already have interlock's names stay unchanged.
    """
    found = {name: value for name, value in members.items() if name not in _IGNORED}
    is_gemini = any(name in members for name in _GEMINI)
    for name in ("serverUrl", "httpUrl"):
        if name in found and "url" not in found:
            found["url"] = found.pop(name)
    if is_gemini and isinstance(found.get("timeout"), int) and found["timeout"] >= 1_000:
        found["timeout"] = found["timeout"] / 1_000
    tools = found.get("tools", {})
    if isinstance(tools, dict):
        if "includeTools" in found and "allow" not in tools:
            tools = {**tools, "allow": found.pop("includeTools")}
        for name in ("excludeTools", "disabledTools"):
            if name in found and "deny" not in tools:
                tools = {**tools, "deny": found.pop(name)}
        if tools:
            found["tools"] = tools
    return found
