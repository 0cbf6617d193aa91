"""Pins: definitions that an operator has accepted, and their comparison with a server's offer.

Rules:

1. A hash covers all that a model can see of a tool or prompt. For an API's operation it also covers
   the sent data and its target. The order of members does not matter.
2. A server has a hash of its own, which covers its launch and its instructions. While this hash
   differs, nothing of the server is offered.
3. A definition that differs from its pin or has no pin waits for an operator. The rest of the
   server works meanwhile. A renamed tool has no pin.
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

# "list" marks that a list of prompts was received before; it has no definition.
Kind = Literal["tool", "prompt", "server", "list"]
State = Literal["accepted", "changed", "new", "gone"]
Risk = Literal["read", "write"]
Key: TypeAlias = tuple[Kind, str]

SERVER: Key = ("server", "")
PROMPTS: Key = ("list", "prompts")
Kinds: TypeAlias = frozenset[Kind]  # the kinds in one list
TOOL_KINDS: Kinds = frozenset(("tool", "server"))
PROMPT_KINDS: Kinds = frozenset(("prompt", "list"))
_MARKS = (SERVER, PROMPTS)  # a list that was accepted before has one of them among its pins

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


class Pin(Struct, frozen=True, kw_only=True):
    """An accepted definition of a server, and the one that the server offers instead.

    Attributes:
        server: The name of the server in addresses.
        kind: The kind of thing that it defines.
        name: The server's name for it; "" for the server itself.
        state: "accepted"; "changed": the definition differs; "new": none was accepted; "gone": the
            server no longer offers it.
        hash: The hash of the accepted definition; None if none was accepted.
        definition: The accepted definition, encoded.
        seen_hash: The hash of the server's definition, where that differs.
        seen_definition: The server's definition, where that differs, encoded.
        risk: The risk of a tool, as the operator stated it.
        decided_by: The principal that accepted or rejected it; None for the first list.
        decided_at: The time of the decision, in microseconds since 1970.
        since: The time since which it has been in this state.
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
        """The key of the pin among those of its server."""
        return self.kind, self.name

    @property
    def address(self) -> str:
        """The address "server:name", or the name of the server alone."""
        return self.server if self.kind in ("server", "list") else f"{self.server}:{self.name}"

    @property
    def waits(self) -> bool:
        return self.state in ("changed", "new")


class Offered(Struct, frozen=True, dict=True):
    """A definition that a server offers now."""

    kind: Kind
    name: str
    document: JsonObject

    @cached_property
    def hash(self) -> str:
        return hash_of(self.document)

    @property
    def text(self) -> str:
        """The encoded definition, with members in the server's order."""
        return _encode(self.document).decode()


def hash_of(document: JsonObject) -> str:
    """Return the SHA-256 of a definition, in hexadecimal digits."""
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
    """Return the pins of these kinds after a list has arrived.

    Args:
        server: The name of the server.
        known: The pins of the server so far.
        offered: The list.
        kinds: The kinds of things in such a list.
        accepts_first: Whether to accept the whole list if none has arrived before.
        now: Microseconds since 1970.
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
        if key not in found and pin.hash is not None:  # a pin that was never accepted is dropped
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
