"""Names of tools: addresses for people, wire names for models.

A tool is keyed by its server and its name. Its address is "server:name". Models accept only
1 to 64 of `[A-Za-z0-9_-]`, so its wire name is "server__name" where that is unambiguous, and
"server__name__hash", shortened, where it is not. Rules:

1. A wire name depends on its own server and tool only: no other server can change it.
2. Two tools have two wire names. A plain one contains "__" once, a hashed one twice. A plain one
   can be split, because neither part contains "__" or has "_" at an end.
"""

from __future__ import annotations

import hashlib
import re

MAX_WIRE_NAME = 64
_HASH_DIGITS = 10
_PLAIN = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
_FOREIGN = re.compile(r"[^A-Za-z0-9-]+")


def address(server: str, name: str) -> str:
    """Return a tool's address. Server names contain no colon, so it can be split again."""
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


def _clean(text: str) -> str:
    return _FOREIGN.sub("_", text).strip("_")
