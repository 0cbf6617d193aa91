"""Authorizations of the front door, as a database has them."""

from __future__ import annotations

from typing import Any

from interlock.auth.stored_authorization import StoredAuthorization
from interlock.text.timestamps import now_micros

DAY = 86_400 * 1_000_000  # microseconds


def authorization(id: str, **more: Any) -> StoredAuthorization:
    """Return what anna has allowed to a client, for a day."""
    now = now_micros()
    usual: dict[str, Any] = {
        "user": "user:anna",
        "client": "https://a.example/client",
        "name": "A",
        "verified": "a.example",
        "places": ("a.example",),
        "salt": b"",
        "rotated": now,
        "created": now,
        "last_used": now,
        "expires": now + DAY,
    }
    return StoredAuthorization(id=id, **(usual | more))
