"""Bearer tokens for a protected resource.

RFC 6750 (bearer tokens), RFC 9728 (metadata). Spec 2026-07-28: basic/authorization.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from interlock.auth.authenticator import Headers, values_of
from interlock.auth.principal import Principal
from interlock.auth.scopes import SCOPE
from interlock.auth.verifier import MAX_TOKEN_BYTES, TOKEN, Verify, verified
from interlock.errors import AuthRequired, ConfigError, InsufficientScope
from interlock.protocol.envelope import encode
from interlock.text.urls import HTTP_TOKEN, is_loopback

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_URL = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # characters allowed in a quoted header string


class BearerAuth(Struct, frozen=True, kw_only=True):
    """Authenticates callers by a bearer token.

    Attributes:
        verify: Returns a token's principal, or None if the token is not valid. If it raises an
            error, the response is 503. `static_tokens` and `jwt.JwtVerifier` make such functions.
        resource: The endpoint's public URL for clients; published unchanged.
        authorization_servers: The issuers that clients may get tokens from; published unchanged.
        scopes_supported: The scopes that clients may request; published in the metadata.
        required_scopes: The scopes that every request needs.

    Raises:
        ConfigError: A URL is neither https nor http on loopback, or a scope is not valid.
    """

    verify: Verify
    resource: str
    authorization_servers: Sequence[str] = ()
    scopes_supported: Sequence[str] = ()
    required_scopes: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_url(self.resource, "resource")
        for server in self.authorization_servers:
            check_url(server, "authorization server")
        for scope in (*self.scopes_supported, *self.required_scopes):
            _check_scope(scope)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:  # noqa: ARG002
        """Return the principal that a request's token identifies.

        Raises:
            AuthRequired: The token is missing or invalid (401); or the header is not a bearer
                header or occurs twice (400).
            InsufficientScope: The token lacks a scope that every request needs (403).
            AuthUnavailable: The verifier failed (503).
        """
        token = self._token(values_of(headers, b"authorization"))
        principal = await verified(self.verify, token)
        if principal is None:
            challenge = self._challenge("invalid_token")
            raise AuthRequired("the token is not valid", 401, challenge, reason="bad_credential")
        self.require(principal, self.required_scopes)
        return principal

    def require(self, principal: Principal, scopes: Collection[str]) -> None:
        """Check that a principal has all these scopes.

        Raises:
            InsufficientScope: A scope is missing (403); the challenge states all needed scopes.
        """
        if not principal.scopes.issuperset(scopes):
            needed = tuple(dict.fromkeys((*self.required_scopes, *scopes)))
            raise InsufficientScope(needed, self._challenge("insufficient_scope", needed))

    # Metadata

    @property
    def metadata_path(self) -> str:
        """The path at which `metadata` is served, at the root of the host: "/.well-known/…"."""
        path = urlsplit(self.resource).path
        return WELL_KNOWN + ("" if path == "/" else path)

    @property
    def metadata_url(self) -> str:
        """The absolute URL of `metadata_path`, which challenges state."""
        url = urlsplit(self.resource)
        return f"{url.scheme}://{url.netloc}{self.metadata_path}"

    def metadata(self) -> bytes:
        """Return the protected resource's metadata, as JSON."""
        document: dict[str, object] = {"resource": self.resource}
        if self.authorization_servers:
            document["authorization_servers"] = list(self.authorization_servers)
        if self.scopes_supported:
            document["scopes_supported"] = list(self.scopes_supported)
        document["bearer_methods_supported"] = ["header"]
        return encode(document)

    def published(self, path: str) -> bytes | None:
        return self.metadata() if path == self.metadata_path else None

    @property
    def challenge(self) -> str:
        return self._challenge()

    # Verification

    def _token(self, authorization: Sequence[bytes]) -> str:
        if not authorization:
            text = "a bearer token is required"
            raise AuthRequired(text, 401, self.challenge, reason="no_credential")
        if len(authorization) > 1:
            raise self._malformed("more than one Authorization header", "two_credentials")
        scheme, _, token = authorization[0].partition(b" ")
        token = token.lstrip(b" ")
        if len(token) > MAX_TOKEN_BYTES:
            raise self._malformed(f"token too long ({len(token)} bytes, limit {MAX_TOKEN_BYTES})")
        if not HTTP_TOKEN.fullmatch(scheme.decode("latin-1")):
            raise self._malformed("the Authorization header is malformed")
        if scheme.lower() != b"bearer":
            text = "only bearer tokens are accepted"
            raise AuthRequired(text, 401, self.challenge, reason="bad_credential")
        if not TOKEN.fullmatch(token):
            raise self._malformed("the Authorization header has no well-formed bearer token")
        return token.decode()

    def _malformed(self, why: str, reason: str = "bad_credential") -> AuthRequired:
        return AuthRequired(why, 400, self._challenge("invalid_request"), reason=reason)

    def _challenge(self, error: str = "", scopes: Sequence[str] = ()) -> str:
        members = {
            "error": error,
            "resource_metadata": self.metadata_url,
            "scope": " ".join(scopes or self.required_scopes),
        }
        given = (f'{name}="{value}"' for name, value in members.items() if value)
        return f"Bearer {', '.join(given)}"


def check_url(url: str, what: str, *, query: bool = False) -> None:
    """Check that a URL is https, or http on loopback, and has no user and no fragment.

    Raises:
        ConfigError: The URL is not allowed; the text names `what` and the URL.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # raises an error if the port is malformed
    except ValueError:
        raise ConfigError(f"{what} {url!r} is not a URL") from None
    if not host or not _URL.fullmatch(url):
        raise ConfigError(f"{what} {url!r} is not an absolute URL")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ConfigError(f"{what} {url!r} must be https, or http on loopback")
    if "@" in parts.netloc or "#" in url or ("?" in url and not query):
        raise ConfigError(f"{what} {url!r} must not contain a user name, a query or a fragment")


def _check_scope(scope: str) -> None:
    if not SCOPE.fullmatch(scope):
        raise ConfigError(f"scope {scope!r} is not valid: only printable ASCII without quotes")
    if scope == "offline_access":  # meant for the authorization server, not for a resource
        raise ConfigError("scope 'offline_access' does not belong to a resource; leave it out")
