"""Bearer tokens on a server: who asks, and what is said to who may not.

Rules:

1. Who sends no token, or one that is not good, is refused; nobody becomes anonymous.
2. A verifier that fails lets nobody in, and its words go nowhere.
3. A token is handed to the verifier and to nothing else: no error, log or repr has it.

RFC 6750 (bearer tokens), RFC 9728 (metadata). Spec 2026-07-28: basic/authorization.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from interlock import urls
from interlock.auth.principal import Principal
from interlock.errors import AuthRequired, AuthUnavailable, ConfigError, InsufficientScope
from interlock.protocol.envelope import encode

Verify = Callable[[str], Awaitable[Principal | None]]

MAX_TOKEN_BYTES = 16_384
MIN_STATIC_TOKEN = 16  # characters; shorter ones can be guessed
VERIFY_TIMEOUT = 15.0  # seconds

_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token of RFC 6749
_URL = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # fits between quotes, in a header
_log = logging.getLogger("interlock.server")


class BearerAuth(Struct, frozen=True, kw_only=True):
    """How an HTTP endpoint tells who asks.

    Attributes:
        verify: Gives who a token belongs to, or None for one that is not good. What it raises
            is answered with 503. `static_tokens` and `jwt.JwtVerifier` make such functions.
        resource: The endpoint's public URL, as clients write it; published as it is here.
        authorization_servers: Issuers where clients get tokens; published as they are here.
        scopes_supported: What clients may ask for; published.
        required_scopes: What every request needs.

    Raises:
        ConfigError: A URL that is neither https nor loopback, or a scope that is none.
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

    async def principal_of(self, authorization: Sequence[bytes]) -> Principal:
        """Tell who asks.

        Args:
            authorization: The values of all `Authorization` headers of the request, undecoded.

        Raises:
            AuthRequired: 401; no token, or not a good one. 400; not a bearer header, or two.
            InsufficientScope: 403; the token lacks a scope that every request needs.
            AuthUnavailable: 503; the verifier failed.
        """
        token = self._token(authorization)
        principal = await self._verified(token)
        if principal is None:
            raise AuthRequired("the token is not valid", 401, self._challenge("invalid_token"))
        self.require(principal, self.required_scopes)
        return principal

    def require(self, principal: Principal, scopes: Collection[str]) -> None:
        """Check that a principal has all these scopes.

        Raises:
            InsufficientScope: 403; the challenge names all of them, not only what is missing.
        """
        if not principal.scopes.issuperset(scopes):
            needed = tuple(dict.fromkeys((*self.required_scopes, *scopes)))
            raise InsufficientScope(needed, self._challenge("insufficient_scope", needed))

    # Published

    @property
    def metadata_path(self) -> str:
        """Where `metadata` is served, at the root of the host: "/.well-known/…"."""
        path = urlsplit(self.resource).path
        return _WELL_KNOWN + ("" if path == "/" else path)

    @property
    def metadata_url(self) -> str:
        """The whole URL of `metadata_path`, as challenges name it."""
        url = urlsplit(self.resource)
        return f"{url.scheme}://{url.netloc}{self.metadata_path}"

    def metadata(self) -> bytes:
        """Encode the metadata of the protected resource, for anybody who asks."""
        document: dict[str, object] = {"resource": self.resource}
        if self.authorization_servers:
            document["authorization_servers"] = list(self.authorization_servers)
        if self.scopes_supported:
            document["scopes_supported"] = list(self.scopes_supported)
        document["bearer_methods_supported"] = ["header"]
        return encode(document)

    # Checking

    def _token(self, authorization: Sequence[bytes]) -> str:
        if not authorization:
            raise AuthRequired("a bearer token is needed", 401, self._challenge())
        if len(authorization) > 1:
            raise self._malformed("more than one Authorization header")
        scheme, _, token = authorization[0].strip(b" \t").partition(b" ")
        token = token.lstrip(b" ")
        if len(token) > MAX_TOKEN_BYTES:
            raise self._malformed(f"the token is over {MAX_TOKEN_BYTES} bytes")
        if not urls.HTTP_TOKEN.fullmatch(scheme.decode("latin-1")):
            raise self._malformed("the Authorization header is malformed")
        if scheme.lower() != b"bearer":
            raise AuthRequired("only bearer tokens are accepted", 401, self._challenge())
        if not _TOKEN.fullmatch(token):
            raise self._malformed("the Authorization header has no well-formed bearer token")
        return token.decode()

    async def _verified(self, token: str) -> Principal | None:
        failure = ""
        try:
            async with asyncio.timeout(VERIFY_TIMEOUT):
                principal = await self.verify(token)
            if principal is None or isinstance(principal, Principal):
                return principal
            failure = f"it returned {type(principal).__name__}, not a Principal or None"
        except Exception as error:
            failure = f"it raised {_place_of(error)}"  # its text may have the token in it
        # Outside of the except clause, so that no context refers to the verifier's error.
        _log.error("a token could not be verified: %s", failure)
        raise AuthUnavailable("tokens cannot be verified now; try again later")

    def _malformed(self, why: str) -> AuthRequired:
        return AuthRequired(why, 400, self._challenge("invalid_request"))

    def _challenge(self, error: str = "", scopes: Sequence[str] = ()) -> str:
        """Write the value of WWW-Authenticate."""
        members = {
            "error": error,
            "resource_metadata": self.metadata_url,
            "scope": " ".join(scopes or self.required_scopes),
        }
        told = (f'{name}="{value}"' for name, value in members.items() if value)
        return f"Bearer {', '.join(told)}"


def static_tokens(tokens: Mapping[str, Principal]) -> Verify:
    """Make a verifier of fixed tokens. Only their SHA-256 digests are kept.

    Args:
        tokens: Whose each token is. A good token: `secrets.token_urlsafe(32)`.

    Raises:
        ConfigError: A token that is short, or cannot be in a header.
    """
    for token in tokens:
        if len(token) < MIN_STATIC_TOKEN:
            raise ConfigError(
                f"a token of {len(token)} characters; at least {MIN_STATIC_TOKEN} are needed"
            )
        if len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token.encode()):
            raise ConfigError("a token with characters that no bearer header can carry")
    known = [(_digest(token), principal) for token, principal in tokens.items()]

    async def verify(token: str) -> Principal | None:
        digest = _digest(token)
        found = None
        for each, principal in known:  # to the end, whatever is found: the time tells nothing
            if hmac.compare_digest(each, digest):
                found = principal
        return found

    return verify


def check_url(url: str, what: str, *, query: bool = False) -> None:
    """Check a URL of authorization: https, or http on loopback, and nothing odd in it.

    Raises:
        ConfigError: Names `what` and the URL.
    """
    try:
        parts = urls.split(url)
    except ValueError:
        raise ConfigError(f"{what} {url!r} is not a URL with a valid host and port") from None
    if not _URL.fullmatch(url):
        raise ConfigError(f"{what} {url!r} is not an absolute URL")
    if parts.scheme != "https" and not (
        parts.scheme == "http" and urls.is_loopback(parts.hostname or "")
    ):
        raise ConfigError(f"{what} {url!r} must be https, or http on loopback")
    if "@" in parts.netloc or "#" in url or ("?" in url and not query):
        raise ConfigError(f"{what} {url!r} must not have a user, a query or a fragment")


def _check_scope(scope: str) -> None:
    if not _SCOPE.fullmatch(scope):
        raise ConfigError(f"scope {scope!r} has characters that no scope may have")
    if scope == "offline_access":  # is between a client and its authorization server
        raise ConfigError("'offline_access' is no scope of a resource; leave it out")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _place_of(error: BaseException) -> str:
    """Name an error's type and the line it comes from, without its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
    return f"{type(error).__name__} at {place}"


__all__ = [
    "BearerAuth",
    "Verify",
    "static_tokens",
]
