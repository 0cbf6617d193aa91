"""Names of tools: addresses for people, wire names for models.

A tool is identified by its server and its name. Its address is "server:name". Models accept only
1 to 64 of `[A-Za-z0-9_-]`, so the tool's wire name is "server__name" if that is unambiguous, and
else a shortened "server__name__hash". Rules:

1. A wire name depends only on the tool's own server and name: no other server can change it.
2. Different tools have different wire names. A plain wire name contains "__" once, a hashed wire
   name twice. A plain wire name can be split, because neither part contains "__", or "_" at an end.
"""

from __future__ import annotations

import hashlib
import re

MAX_WIRE_NAME = 64
_HASH_DIGITS = 10
_PLAIN = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
_FOREIGN = re.compile(r"[^A-Za-z0-9-]+")


def address(server: str, name: str) -> str:
    """Return a tool's address, which can be split again, as server names contain no colon."""
    return f"{server}:{name}"


def wire_name(server: str, name: str) -> str:
    """Return a tool's name for models: 1 to 64 of `[A-Za-z0-9_-]`."""
    plain = f"{server}__{name}"
    if len(plain) <= MAX_WIRE_NAME and _PLAIN.fullmatch(server) and _PLAIN.fullmatch(name):
        return plain
    # The length shows where the server's name ends, whatever characters the names contain.
    whole = f"{len(server)}:{server}{name}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(whole).hexdigest()[:_HASH_DIGITS]
    room = MAX_WIRE_NAME - _HASH_DIGITS - 4
    short_server = _clean(server)[: room // 2] or "x"
    short_name = _clean(name)[: room - len(short_server)] or "x"
    return f"{short_server}__{short_name}__{digest}"


def may_be_of(name: str, server: str) -> bool:
    """Return whether a name may be the address or the wire name of a server's tool."""
    half = (MAX_WIRE_NAME - _HASH_DIGITS - 4) // 2
    prefixes = (f"{server}:", f"{server}__", f"{_clean(server)[:half] or 'x'}__")
    return name.startswith(prefixes)


def _clean(text: str) -> str:
    return _FOREIGN.sub("_", text).strip("_")
