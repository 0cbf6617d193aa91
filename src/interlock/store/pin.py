"""Pins: definitions that an operator has accepted, and how they compare with a server's lists.

Rules:

1. A definition's hash covers everything about a tool or prompt that a model sees. For an operation
   of an API, it also covers the data that is sent and its target. The order of members is ignored.
2. A server has its own hash, which covers its launch and its instructions. While that hash differs
   from its pin, nothing that the server offers is available.
3. A definition that differs from its pin or has no pin waits for an operator. The server's other
   definitions work meanwhile. A renamed tool counts as a new one, without a pin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.types import JsonObject

# "list" marks that a list of prompts was received before; such a pin has no definition.
Kind = Literal["tool", "prompt", "server", "list"]
State = Literal["accepted", "changed", "new", "gone"]
Risk = Literal["read", "write"]
Key: TypeAlias = tuple[Kind, str]

SERVER: Key = ("server", "")
PROMPTS: Key = ("list", "prompts")
Kinds: TypeAlias = frozenset[Kind]  # the kinds of definitions in one list
TOOL_KINDS: Kinds = frozenset(("tool", "server"))
PROMPT_KINDS: Kinds = frozenset(("prompt", "list"))
_MARKS = (SERVER, PROMPTS)  # the pins of every list that was accepted before include one of these

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


class Pin(Struct, frozen=True, kw_only=True):
    """A server's accepted definition, and the definition that the server offers instead.

    Attributes:
        server: The server's name, as in tool addresses.
        kind: The kind of the definition.
        name: The server's name for the tool or prompt; "" for the server itself.
        state: "accepted"; "changed": the server offers a different definition; "new": no definition
            was accepted; "gone": the server no longer offers it.
        hash: The hash of the accepted definition; None if no definition was accepted.
        definition: The accepted definition as JSON.
        seen_hash: The hash of the server's definition, if it differs from the accepted one.
        seen_definition: The server's definition as JSON, if it differs from the accepted one.
        risk: The risk of a tool, as the operator stated it.
        decided_by: The id of the principal that accepted or rejected the definition; None if it was
            accepted with the server's first list.
        decided_at: The time of the decision, in microseconds since 1970.
        since: The time at which the pin got its present state, in microseconds since 1970.
    """

    server: str
    kind: Kind
    name: str
    state: State
    hash: str | None = None
    definition: str | None = None
    seen_hash: str | None = None
    seen_definition: str | None = None
    risk: Risk | None = None
    decided_by: str | None = None
    decided_at: int | None = None
    since: int = 0

    @property
    def key(self) -> Key:
        """The pin's key, unique within its server."""
        return self.kind, self.name

    @property
    def address(self) -> str:
        """The address "server:name"; only the server's name for the server itself."""
        return self.server if self.kind in ("server", "list") else f"{self.server}:{self.name}"

    @property
    def waits(self) -> bool:
        return self.state in ("changed", "new")


class Offered(Struct, frozen=True, dict=True):
    """A definition that a server offers at present."""

    kind: Kind
    name: str
    document: JsonObject

    @cached_property
    def hash(self) -> str:
        return hash_of(self.document)

    @property
    def text(self) -> str:
        """The definition as JSON, with its members in the server's order."""
        return _encode(self.document).decode()


def hash_of(document: JsonObject) -> str:
    """Return a definition's SHA-256 as hexadecimal digits."""
    return sha256(_encode_sorted(document)).hexdigest()


def compare(
    server: str,
    known: Mapping[Key, Pin],
    offered: Iterable[Offered],
    kinds: Kinds,
    *,
    accepts_first: bool,
    now: int,
) -> dict[Key, Pin]:
    """Compare a server's list with its pins; return the pins of these kinds as they are now.

    Args:
        server: The name of the server.
        known: The server's pins before this list arrived.
        offered: The definitions in the list.
        kinds: The kinds of definitions that such a list contains.
        accepts_first: Whether to accept the whole list if it is the server's first.
        now: The current time, in microseconds since 1970.
    """
    known = {key: pin for key, pin in known.items() if key[0] in kinds}
    is_first = accepts_first and not any(mark in known for mark in _MARKS)
    found: dict[Key, Pin] = {}
    for each in offered:
        key = each.kind, each.name
        pin = known.get(key)
        if pin is None:
            pin = Pin(server=server, kind=each.kind, name=each.name, state="new", since=now)
            if is_first or key == PROMPTS:
                pin = replace(pin, state="accepted", hash=each.hash, definition=each.text)
        found[key] = _compared(pin, each, now)
    for key, pin in known.items():
        if key not in found and pin.hash is not None:  # drop pins that were never accepted
            found[key] = _gone(pin, now)
    return found


def _compared(pin: Pin, offered: Offered, now: int) -> Pin:
    if pin.hash == offered.hash:
        if pin.state == "accepted" and pin.seen_hash is None:
            return pin
        return replace(pin, state="accepted", seen_hash=None, seen_definition=None, since=now)
    state: State = "new" if pin.hash is None else "changed"
    if (pin.state, pin.seen_hash) == (state, offered.hash):
        return pin
    return replace(
        pin, state=state, seen_hash=offered.hash, seen_definition=offered.text, since=now
    )


def _gone(pin: Pin, now: int) -> Pin:
    if pin.state == "gone":
        return pin
    return replace(pin, state="gone", seen_hash=None, seen_definition=None, since=now)
