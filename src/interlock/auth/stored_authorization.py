"""Authorizations of the front door's clients, and the people who gave them."""

from __future__ import annotations

from msgspec import Struct

from interlock.auth.stored_key import TENANT
from interlock.text.timestamps import rfc3339
from interlock.types import JsonObject

SILENCE = 86_400 * 1_000_000  # microseconds after an issuer's last word in which it need not answer
_ALWAYS = 2**63 - 1


class StoredAuthorization(Struct, frozen=True, kw_only=True):
    """An authorization that a person gave a client. Times are microseconds since 1970, UTC.

    Attributes:
        client: The client's id.
        name: How the client calls itself.
        verified: The host of the client's document; "" for a client without a document.
        places: The places of the client, as operators block them: hosts, "localhost", "SCHEME:".
        view: The view that tokens are for; "" for the endpoint of all views.
        scopes: The granted scopes. The person's own scopes limit them further.
        proven: Whether the client signs its requests, so that its refresh token never changes.
        generation: How often the refresh token was replaced.
        salt: Random bytes, with which refresh tokens are derived.
        rotated: When the refresh token was last replaced.
        seen: The newest generation whose access token made a call.
        key: The API key that signed in; "" if the person signed in at an issuer.
        expires: When the person must sign in again.
        ended: When the authorization ended; None if it did not.
        reason: Why it ended.
    """

    id: str
    user: str
    client: str
    name: str
    verified: str = ""
    places: tuple[str, ...] = ()
    view: str = ""
    scopes: tuple[str, ...] = ()
    proven: bool = False
    generation: int = 0
    salt: bytes
    rotated: int
    seen: int = -1
    key: str = ""
    created: int
    last_used: int
    expires: int
    ended: int | None = None
    reason: str = ""
    tenant: str = TENANT

    def state(self, now: int) -> str:
        """Return "active", "expired", or why the authorization ended."""
        if self.ended is not None:
            return self.reason
        return "active" if now < self.expires else "expired"

    def as_json(self, now: int) -> JsonObject:
        shown: JsonObject = {
            "id": self.id,
            "user": self.user,
            "client": self.client,
            "name": self.name,
            "verified": self.verified or None,
            "view": self.view or None,
            "scopes": list(self.scopes),
            "created": rfc3339(self.created),
            "lastUsed": rfc3339(self.last_used),
            "expires": rfc3339(self.expires),
            "state": self.state(now),
        }
        return {name: value for name, value in shown.items() if value is not None}


class StoredPerson(Struct, frozen=True, kw_only=True):
    """A person, as an issuer has last described them.

    Attributes:
        scopes: The person's scopes.
        groups: The person's groups.
        claims: The claims of the person's token.
        checked: When the issuer said so, in microseconds since 1970.
        is_asked: Whether the issuer can be asked again; otherwise its word holds until the person
            must sign in again.
    """

    user: str
    scopes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    claims: JsonObject = {}
    checked: int = 0
    tenant: str = TENANT
    is_asked: bool = False

    @property
    def usable_until(self) -> int:
        """Until when the issuer need not answer, in microseconds since 1970."""
        return self.checked + SILENCE if self.is_asked else _ALWAYS
