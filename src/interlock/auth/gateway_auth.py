"""Authentication of requests to a gateway, by an API key or a token in either of two headers.

A token is one of the front door, which is for one resource only, or one of a trusted issuer.

1. A request has one credential, in `Authorization: Bearer` or `X-API-Key`. Two are refused.
2. Every refused credential gets the same response, whatever the reason. Only `on_refused` receives
   the reason, for the audit trail.
3. A cached credential is checked without waiting. In a view it always has the same `Principal`
   object, because a policy caches its decisions by this object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.api_key import API_KEY
from interlock.auth.authenticator import Headers
from interlock.auth.bearer import WELL_KNOWN, BearerAuth, check_url
from interlock.auth.issuers import Issuers, KnownToken
from interlock.auth.key_format import ACCESS_PREFIX, PREFIX
from interlock.auth.key_ring import KeyRing, KnownKey
from interlock.auth.principal import Principal
from interlock.auth.stored_key import StoredKey
from interlock.auth.verifier import TOKEN
from interlock.errors import AuthError, AuthRequired, AuthUnavailable, InsufficientScope

if TYPE_CHECKING:
    from interlock.auth.authorization_ring import AuthorizationRing
    from interlock.auth.known_access import KnownAccess

_KEY_PREFIX = PREFIX.encode()
_ACCESS_PREFIX = ACCESS_PREFIX.encode()


class RefusedCredential(Struct, frozen=True):
    """Why a credential was refused, for the audit trail; it does not contain the credential.

    Attributes:
        reason: "no_credential", "two_credentials", "bad_credential", "key_expired", "key_revoked",
            or an error of OAuth.
        address: The network address that sent the request; "" if unknown.
        key: The expired or revoked key; None if the key is unknown.
    """

    reason: str
    address: str = ""
    key: StoredKey | None = None


class GatewayAuth:
    """Authenticates requests to one path of a gateway; implements `Authenticator`.

    Args:
        keys: The API keys.
        issuers: Verifies tokens; None to accept keys only.
        resource: The path's public URL, stated in challenges. It is https, or http on loopback.
        view: The view at this path; "" if the path is for all views. Keys bound to another view get
            a 404.
        scope_prefix: A prefix that at least one of the credential's scopes must have.
        on_refused: Called for each refused credential.
        grants: Verifies the front door's tokens; None to accept none.
        login_at: The front door's issuer, which challenges name first; "" without a front door.
    """

    def __init__(
        self,
        keys: KeyRing,
        issuers: Issuers | None = None,
        *,
        resource: str,
        view: str = "",
        scope_prefix: str = "mcp:",
        scopes_supported: Sequence[str] = ("mcp:*", "mcp:read"),
        on_refused: Callable[[RefusedCredential], None] = lambda _: None,
        grants: AuthorizationRing | None = None,
        login_at: str = "",
    ) -> None:
        self._keys = keys
        self._issuers = issuers
        self._grants = grants
        self._login_at = login_at
        self._view = view
        self._scope_prefix = scope_prefix
        self._on_refused = on_refused
        self._place = scope_prefix, view
        check_url(resource, "resource")
        self._resource = resource
        self._scopes_supported = scopes_supported

    @cached_property  # because most requests never need it
    def _metadata(self) -> BearerAuth | None:
        named = [self._login_at] if self._login_at else []
        named += self._issuers.names if self._issuers is not None else []
        if not named:
            return None
        return BearerAuth(
            verify=_refuse,
            resource=self._resource,
            authorization_servers=named,
            scopes_supported=self._scopes_supported,
        )

    @property
    def challenge(self) -> str:
        return self._challenge()

    def published(self, path: str) -> bytes | None:
        """Return the protected resource's metadata if it is served at this path, else None.

        The endpoint's own metadata is also served at the path without a resource, because some
        clients look there. Without issuers nothing is published, because clients would begin a
        login that does not exist, instead of asking their user for a key.
        """
        if self._metadata is None:
            return None
        if path == WELL_KNOWN and not self._view:
            return self._metadata.metadata()
        return self._metadata.published(path)

    def known(self, headers: Headers) -> Principal | None:
        """Return the owner of a key that was accepted here before; None if not accepted yet."""
        found = None
        for header in headers:  # a plain loop, because it is faster and runs for every request
            if header[0] == b"authorization" or header[0] == API_KEY:
                if found is not None:
                    return None
                found = header
        if found is None:
            return None
        name, credential = found
        if name == b"authorization":
            if not credential.startswith(b"Bearer "):
                return None
            credential = credential[len(b"Bearer ") :]
        if self._grants is not None and credential.startswith(_ACCESS_PREFIX):
            return self._grants.admitted(credential, self._place)
        return self._keys.admitted(credential, self._place)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the owner of the credential in a request.

        Raises:
            AuthRequired: The credential is missing or invalid (401), or there are two (400).
            InsufficientScope: The credential's scopes allow nothing here (403).
            AuthUnavailable: The credential cannot be verified now (503).
            AuthError: The key is bound to another view (404).
        """
        name = value = b""
        for header in headers:  # plain loops, because they are faster and run for every request
            if header[0] == b"authorization" or header[0] == API_KEY:
                if name:
                    raise self._refused("two_credentials", peer)
                name, value = header
        if not name:
            raise self._refused("no_credential", peer)
        value = value.strip(b" \t")
        if name == b"authorization":
            scheme, _, value = value.partition(b" ")
            value = value.lstrip(b" ") if scheme.lower() == b"bearer" else b""
        try:
            known = await self._found(value, peer)
        except AuthUnavailable:
            self._on_refused(RefusedCredential("auth_unavailable", peer or ""))
            raise
        principal = known.principal
        for scope in principal.scopes:
            if scope.startswith(self._scope_prefix):
                break
        else:
            prefix = self._scope_prefix
            needed = f"{prefix}read" if prefix.endswith(":") else prefix
            error = f'error="insufficient_scope", scope="{needed}"'
            raise InsufficientScope((needed,), self._challenge(error))
        view = self._view
        if principal.view != view and view:
            if principal.view:
                raise AuthError("nothing is served at this path", 404)
            seen = known.in_views.get(view)
            if seen is None:
                seen = known.in_views[view] = replace(principal, view=view)
            principal = seen
        if not isinstance(known, KnownToken):
            known.admitted[self._place] = principal
        return principal

    def _challenge(self, error: str = "") -> str:
        """Return a challenge. It names metadata only if there is an issuer to log in at."""
        first = 'Bearer realm="interlock"'
        if self._metadata is not None:
            first = self._metadata.challenge
        return f"{first}, {error}" if error else first

    async def _found(
        self, credential: bytes, peer: str | None
    ) -> KnownKey | KnownToken | KnownAccess:
        if credential.startswith(_KEY_PREFIX):
            return await self._found_key(credential, peer)
        if credential.startswith(_ACCESS_PREFIX):
            access = None if self._grants is None else await self._grants.find(credential)
            if access is None or access.token.view != self._view:
                raise self._refused("bad_credential", peer)
            return access
        token = None
        if self._issuers is not None and TOKEN.fullmatch(credential):
            token = await self._issuers.find(credential)
        if token is None:
            raise self._refused("bad_credential", peer)
        return token

    async def _found_key(self, credential: bytes, peer: str | None) -> KnownKey:
        key = self._keys.find(credential)
        if key is not None and self._keys.is_active(key):
            return key
        # Expired and revoked keys are looked up too, so that every refusal takes equally long.
        if (lookup := self._keys.look_up(credential)) is not None:
            await lookup
            key = self._keys.find(credential)
            if key is not None and self._keys.is_active(key):
                return key
        if key is None:
            raise self._refused("bad_credential", peer)
        reason = "key_revoked" if key.stored.revoked is not None else "key_expired"
        raise self._refused(reason, peer, key.stored)

    def _refused(self, reason: str, peer: str | None, key: StoredKey | None = None) -> AuthRequired:
        self._on_refused(RefusedCredential(reason, peer or "", key))
        if reason == "two_credentials":
            text = "more than one credential; send one, as Authorization or as X-API-Key"
            return AuthRequired(text, 400, reason=reason)
        if reason == "no_credential":
            text = "a key or a token is required; send Authorization: Bearer, or X-API-Key"
            return AuthRequired(text, 401, self.challenge, reason=reason)
        text = "the credential is not valid"
        return AuthRequired(text, 401, self.challenge, reason="bad_credential")


async def _refuse(_: str) -> None:
    return None
