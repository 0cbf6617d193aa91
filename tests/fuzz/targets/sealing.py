"""Sealed text: refused if a client changed it in any way."""

from __future__ import annotations

from interlock.errors import InvalidArguments
from interlock.server.sealing import SigningSeal
from tests.fuzz.choices import Choices

TOKENS = [b"-", b"_", b"=", b"A", b"\xff"]
_SEAL = SigningSeal(bytes(32))


def target(data: bytes) -> None:
    choices = Choices(data)
    content, bound, other = choices.bytes(), choices.bytes(20), choices.bytes(20)
    text = _SEAL.close(content, bound)
    assert _SEAL.open(text, bound) == content
    at, char = choices.number(len(text)), choices.one_of("AQg_-=\n ")
    changed = text[:at] + char + text[at + 1 :]
    for forged, bound_to in (
        (choices.rest().decode(errors="replace"), bound),
        (changed, bound if changed != text else other + b"x"),
        (text, other),
    ):
        if (forged, bound_to) != (text, bound):
            refused(forged, bound_to, content)


def refused(text: str, bound_to: bytes, content: bytes) -> None:
    try:
        opened = _SEAL.open(text, bound_to)
    except InvalidArguments:
        return
    # Base64 ignores some bits of the last character before the padding.
    assert opened == content
    assert text.endswith("=")
