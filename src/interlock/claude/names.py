"""Names of servers and tools for Claude Code's model: "mcp__server__tool".

Claude Code replaces other characters than `[A-Za-z0-9_-]`, so that two names may become one, and
silently drops long names. So it gets only names that need no change. Rules:

1. Two servers never share a name, and neither do two tools of one server.
2. A server's name contains no "__", so the whole name can be split again.
3. The whole name has at most 64 characters.
"""

from __future__ import annotations

import hashlib
import re

PREFIX = "mcp__"
MAX_NAME = 64
MAX_SERVER = 24
_DIGITS = 10
_SERVER = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
_TOOL = re.compile(r"[A-Za-z0-9_-]+")
_HASHED = re.compile(r"-[0-9a-f]{10}")
_FOREIGN = re.compile(r"[^A-Za-z0-9]+")


def server_name(name: str) -> str:
    """Return the name of a server for Claude Code; `name` is its name in the toolbox."""
    if len(name) <= MAX_SERVER and _SERVER.fullmatch(name) and not _is_hashed(name):
        return name
    return _hashed(name, MAX_SERVER)


def tool_name(server: str, name: str) -> str:
    """Return the name of a tool for Claude Code; `server` is a result of `server_name`."""
    room = MAX_NAME - len(PREFIX) - len(server) - 2
    if len(name) <= room and _TOOL.fullmatch(name) and not _is_hashed(name):
        return name
    return _hashed(name, room)


def whole_name(server: str, tool: str) -> str:
    """Return the model's name for a tool, from the clean names of its server and itself."""
    return f"{PREFIX}{server}__{tool}"


def split(name: str) -> tuple[str, str] | None:
    """Split a whole name into server and tool; None for a built-in tool."""
    if not name.startswith(PREFIX):
        return None
    server, _, tool = name.removeprefix(PREFIX).partition("__")
    return server, tool


def _is_hashed(name: str) -> bool:
    return _HASHED.fullmatch(name[-_DIGITS - 1 :]) is not None


def _hashed(name: str, room: int) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    short = _FOREIGN.sub("_", name).strip("_")[: room - _DIGITS - 1].strip("_")
    return f"{short or 'x'}-{digest}"
