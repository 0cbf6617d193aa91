"""What identifies a result that is kept. This module needs no database."""

from __future__ import annotations

import secrets
from typing import TypeAlias

from msgspec import Struct

Owner: TypeAlias = tuple[str, str]  # tenant and user


class Kept(Struct, frozen=True):
    """A result that is kept.

    Attributes:
        id: "r_" and random characters, which cannot be guessed.
        expires: Microseconds since 1970.
    """

    id: str
    expires: int

    @classmethod
    def new(cls, seconds: float, now: int) -> Kept:
        """Return a new id for a result that is kept for so many seconds from now on."""
        return cls(f"r_{secrets.token_hex(10)}", now + int(seconds * 1_000_000))


__all__ = ["Kept", "Owner"]
