"""Pins: definitions that an operator has accepted, and how they compare with a server's lists.

Rules:

1. A definition's hash covers everything about a tool or prompt that a model sees. For an operation
   of an API, it also covers the data that is sent and its target. The order of members is ignored.
2. A server has its own hash, which covers its launch and its instructions. While that hash differs
   from its pin, nothing that the server offers is available.
3. A definition that differs from its pin or has no pin waits for an operator. The server's other
   definitions work meanwhile. A renamed tool counts as a new one, without a pin.
4. A pin that was made in another format, by another version of interlock, is compared by what the
   server itself states, its source. If only the format differs, the definition stays accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field
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
# The way in which this version of interlock writes definitions. Raise it with each change that
# gives the same server other definitions; a test fails then. Hashes of sources never change.
FORMAT = 1
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
        format: The format in which the accepted definition is written; see `FORMAT`.
        source: The hash of what the server itself states; None if it equals `hash`.
        seen_hash: The hash of the server's definition, if it differs from the accepted one.
        seen_definition: The server's definition as JSON, if it differs from the accepted one.
        seen_format: The format of the server's definition.
        seen_source: The hash of the server's source, as for the accepted definition.
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
    format: int = 1
    source: str | None = None
    seen_hash: str | None = None
    seen_definition: str | None = None
    seen_format: int = 1
    seen_source: str | None = None
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

    @property
    def is_rewritten(self) -> bool:
        """Whether only interlock writes the accepted definition differently now."""
        return self.state == "accepted" and self.seen_hash is not None

    def accepted(self) -> Pin:
        """Return the pin with the server's present definition as the accepted one."""
        if self.seen_definition is None:
            return self
        return replace(
            self.without_seen(),
            state="accepted",
            hash=self.seen_hash,
            definition=self.seen_definition,
            format=self.seen_format,
            source=self.seen_source,
        )

    def rejected(self) -> Pin:
        """Return the pin with the server's present definition as one that was never accepted."""
        own = self.accepted()
        return replace(
            own,
            state="new",
            hash=None,
            definition=None,
            format=1,
            source=None,
            seen_hash=own.hash,
            seen_definition=own.definition,
            seen_format=own.format,
            seen_source=own.source,
            risk=None,
        )

    def without_seen(self) -> Pin:
        return replace(self, seen_hash=None, seen_definition=None, seen_format=1, seen_source=None)


class Offered(Struct, frozen=True, dict=True):
    """A definition that a server offers at present.

    Attributes:
        kind: The kind of the definition.
        name: The server's name for the tool or prompt; "" for the server itself.
        document: The definition, as interlock writes it.
        stated: The server's own statement, of which interlock makes the document; None if the
            document is from a pin, or equal.
        format: The format of the document.
        kept_source: The source of a document that is from a pin.
    """

    kind: Kind
    name: str
    document: JsonObject
    stated: JsonObject | None = None
    format: int = field(default_factory=lambda: FORMAT)
    kept_source: str | None = None

    @classmethod
    def kept(cls, pin: Pin) -> Offered | None:
        """Return the definition that was last seen; None if the server no longer offers it."""
        text = pin.accepted().definition
        if pin.state == "gone" or text is None:
            return None
        seen, document = pin.accepted(), msgspec.json.decode(text)
        return cls(pin.kind, pin.name, document, None, seen.format, seen.source)

    @cached_property
    def hash(self) -> str:
        return hash_of(self.document)

    @cached_property
    def source(self) -> str | None:
        """The hash of what the server itself states; None if it equals `hash`."""
        if self.stated is None:
            return self.kept_source
        found = _digest(self.stated)
        return None if found == self.hash else found

    @property
    def text(self) -> str:
        """The definition as JSON, with its members in the server's order."""
        return _encode(self.document).decode()


def hash_of(document: JsonObject) -> str:
    """Return the SHA-256 of a definition in the present format, as hexadecimal digits."""
    return _digest(document)


def _digest(document: JsonObject) -> str:
    """Return a hash that is the same in every version of interlock."""
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
                pin = _seen(pin, each, "new", now).accepted()
        found[key] = _compared(pin, each, now)
    for key, pin in known.items():
        if key not in found and pin.hash is not None:  # drop pins that were never accepted
            found[key] = _gone(pin, now)
    return found


def _compared(pin: Pin, offered: Offered, now: int) -> Pin:
    if pin.hash == offered.hash:
        is_newer = offered.format > pin.format
        return _accepted(
            replace(pin, format=offered.format if is_newer else pin.format, source=offered.source),
            now,
        )
    if pin.hash is None:
        return _seen(pin, offered, "new", now)
    is_same_source = (pin.source or pin.hash) == (offered.source or offered.hash)
    if pin.format == offered.format or not is_same_source:
        return _seen(pin, offered, "changed", now)
    if pin.format < offered.format:
        return _seen(pin, offered, "accepted", now)
    # A gateway of an older version runs beside one whose operator has accepted the newer format.
    return pin if pin.state == "accepted" else _accepted(pin, now)


def _accepted(pin: Pin, now: int) -> Pin:
    if pin.state == "accepted" and pin.seen_hash is None:
        return pin
    return replace(pin.without_seen(), state="accepted", since=now)


def _seen(pin: Pin, offered: Offered, state: State, now: int) -> Pin:
    found = replace(
        pin,
        state=state,
        seen_hash=offered.hash,
        seen_definition=offered.text,
        seen_format=offered.format,
        seen_source=offered.source,
    )
    known = (pin.state, pin.seen_hash, pin.seen_source, pin.seen_format)
    if known == (found.state, found.seen_hash, found.seen_source, found.seen_format):
        return pin
    return replace(found, since=pin.since if pin.state == state else now)


def _gone(pin: Pin, now: int) -> Pin:
    if pin.state == "gone":
        return pin
    return replace(pin.without_seen(), state="gone", since=now)
