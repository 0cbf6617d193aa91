"""Names of tools: addresses for people, wire names for models.

A tool is identified by its server and its name. Its address is "server:name". Models accept only
1 to 64 of `[A-Za-z0-9_-]`, and Gemini only a letter at the begin, so the tool's wire name is
"server__name" if that is such a name and unambiguous, and else a shortened "server__name__hash".
Rules:

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
# Names that clients accept, except those of interlock's own tools and those that end like a hash.
_ACCEPTED = re.compile(r"(?!interlock__)(?!.*__[0-9a-f]{10}\Z)[A-Za-z0-9_-]{1,64}")
_FOREIGN = re.compile(r"[^A-Za-z0-9-]+")


def address(server: str, name: str) -> str:
    """Return a tool's address, which can be split again, as server names contain no colon."""
    return f"{server}:{name}"


def wire_name(server: str, name: str) -> str:
    """Return a tool's name for models: a letter, and 0 to 63 of `[A-Za-z0-9_-]`."""
    plain = f"{server}__{name}"
    is_plain = server[:1].isalpha() and _PLAIN.fullmatch(server) and _PLAIN.fullmatch(name)
    if len(plain) <= MAX_WIRE_NAME and is_plain:
        return plain
    room = MAX_WIRE_NAME - _HASH_DIGITS - 4
    short_server = _clean(server)
    if not short_server[:1].isalpha():
        short_server = f"x{short_server}"
    short_server = short_server[: room // 2]
    short_name = _clean(name)[: room - len(short_server)] or "x"
    return f"{short_server}__{short_name}__{_digest(server, name)}"


def plain_name(server: str, name: str) -> str:
    """Return a tool's name without its server, for views with plain names.

    It is the server's own name for the tool, unless clients do not accept that name. Then it is a
    cleaned name with a hash, which depends on nothing but the tool's server and name.
    """
    if _ACCEPTED.fullmatch(name):
        return name
    short_name = _clean(name)[: MAX_WIRE_NAME - _HASH_DIGITS - 2] or "x"
    return f"{short_name}__{_digest(server, name)}"


def _digest(server: str, name: str) -> str:
    # The length shows where the server's name ends, whatever characters the names contain.
    whole = f"{len(server)}:{server}{name}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:_HASH_DIGITS]


def may_be_of(name: str, server: str) -> bool:
    """Return whether a name may be the address or the wire name of a server's tool."""
    half = (MAX_WIRE_NAME - _HASH_DIGITS - 4) // 2
    prefixes = (f"{server}:", f"{server}__", f"{_clean(server)[:half] or 'x'}__")
    return name.startswith(prefixes)


def _clean(text: str) -> str:
    return _FOREIGN.sub("_", text).strip("_")
