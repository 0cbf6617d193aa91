"""The names by which Claude Code's model calls tools: "mcp__server__tool".

Claude Code replaces all characters except `[A-Za-z0-9_-]`, which can make two names equal, and
silently drops tools with long names. So it gets only names that it leaves unchanged. Rules:

1. Two servers never get the same name, and neither do two tools of one server.
2. A server's name contains no "__", so that the whole name can be split again.
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
_REPLACED = re.compile(r"[^A-Za-z0-9_-]")
_FOREIGN = re.compile(r"[^A-Za-z0-9]+")


def server_name(name: str) -> str:
    """Return Claude Code's name for a server; `name` is the server's name in the toolbox."""
    if len(name) <= MAX_SERVER and _SERVER.fullmatch(name) and not _is_hashed(name):
        return name
    return _hashed(name, MAX_SERVER)


def tool_name(server: str, name: str) -> str:
    """Return Claude Code's name for a tool; `server` is a result of `server_name`."""
    room = MAX_NAME - len(PREFIX) - len(server) - 2
    if len(name) <= room and _TOOL.fullmatch(name) and not _is_hashed(name):
        return name
    return _hashed(name, room)


def as_written(name: str) -> str:
    """Return a server's name as Claude Code writes it in the names of the server's tools."""
    return _REPLACED.sub("_", name)


def split(name: str) -> tuple[str, str] | None:
    """Split a whole name into server and tool; return None for a built-in tool's name."""
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
