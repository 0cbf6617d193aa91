"""An API key as it is stored in the database."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from interlock.text.timestamps import rfc3339
from interlock.types import JsonObject

TENANT = "default"
READ_ONLY = ("mcp:read",)

KeyState = Literal["active", "expired", "revoked", "rotated"]


class StoredKey(Struct, frozen=True):
    """An API key without its secret. Times are microseconds since 1970, UTC.

    Attributes:
        hash: The SHA-256 of the key's whole text.
        user: The user that the key belongs to, without "user:".
        name: A name for display.
        scopes: The scopes that the key grants.
        view: The only view that the key may use; "" for all views.
        limits: The key's own rates and quotas, written as in the configuration.
        created: When the key was created.
        expires: When the key expires; None if it never expires.
        last_used: When the key was last used, accurate to a minute; None if it was never used.
        revoked: When the key was revoked; None if it was not revoked.
        replaced_by: The id of the key that replaced it by rotation.
        created_by: The principal that created the key.
    """

    id: str
    hash: bytes
    user: str
    name: str = ""
    scopes: tuple[str, ...] = READ_ONLY
    view: str = ""
    limits: JsonObject = {}
    created: int = 0
    expires: int | None = None
    last_used: int | None = None
    revoked: int | None = None
    replaced_by: str | None = None
    created_by: str = ""
    tenant: str = TENANT

    @property
    def lifetime(self) -> float | None:
        """Seconds from creation to expiry; None for a key that never expires."""
        return None if self.expires is None else (self.expires - self.created) / 1_000_000

    def state(self, now: int) -> KeyState:
        if self.revoked is not None and self.revoked <= now:
            return "revoked"
        if self.expires is not None and self.expires <= now:
            return "rotated" if self.replaced_by else "expired"
        return "active"

    def as_json(self, now: int, key: str | None = None) -> JsonObject:
        shown: JsonObject = {
            "id": self.id,
            "user": f"user:{self.user}",
            "name": self.name,
            "scopes": list(self.scopes),
            "view": self.view or None,
            "limits": self.limits,
            "created": rfc3339(self.created),
            "expires": rfc3339(self.expires),
            "lastUsed": rfc3339(self.last_used),
            "state": self.state(now),
            "replacedBy": self.replaced_by,
        }
        shown = {name: value for name, value in shown.items() if value is not None}
        return shown if key is None else shown | {"key": key}
