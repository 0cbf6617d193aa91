"""The identity of a kept result. This module needs no database."""

from __future__ import annotations

import secrets
from typing import TypeAlias

from msgspec import Struct

Owner: TypeAlias = tuple[str, str]  # tenant and user


class Kept(Struct, frozen=True):
    """A kept result's id and time of expiry.

    Attributes:
        id: "r_" and random characters, so that the id cannot be guessed.
        expires: The time of expiry, in microseconds since 1970.
    """

    id: str
    expires: int

    @classmethod
    def new(cls, seconds: float, now: int) -> Kept:
        """Return a new id for a result that is kept for `seconds`, starting at `now`."""
        return cls(f"r_{secrets.token_hex(10)}", now + int(seconds * 1_000_000))
