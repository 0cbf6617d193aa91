"""Names of servers and tools as Claude Code's model sees them: "mcp__server__tool".

Claude Code replaces other characters than `[A-Za-z0-9_-]`, so that two names may become one, and
drops long names without a word. So it is given clean names only. Rules:

1. Two servers have two names, and so have two tools of one server.
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
    """Return the name of a tool for Claude Code; `server` is what `server_name` returned."""
    room = MAX_NAME - len(PREFIX) - len(server) - 2
    if len(name) <= room and _TOOL.fullmatch(name) and not _is_hashed(name):
        return name
    return _hashed(name, room)


def whole_name(server: str, tool: str) -> str:
    """Return the name for the model of a clean pair of names."""
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
