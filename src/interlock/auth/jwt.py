"""JSON Web Tokens as bearer tokens: a verifier for `BearerAuth`.

Rules:

1. A token cannot choose how it is verified: algorithms, issuer and keys are configured. The token's
   header only selects one of the configured keys by id.
2. Only public keys verify signatures. The algorithm "none" and shared secrets are refused.
3. Forged tokens cannot cause more than one fetch of the keys every `FETCH_EVERY` seconds.

RFC 7519 (JWT), RFC 7517 (JWKS), RFC 8725 (best current practices).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from interlock import aio
from interlock.auth.bearer import check_url
from interlock.auth.principal import Principal
from interlock.auth.scopes import words_in
from interlock.auth.verifier import MAX_TOKEN_BYTES
from interlock.errors import AuthUnavailable, ConfigError, MissingExtra
from interlock.text.surrogates import repair_value
from interlock.types import JsonObject

if TYPE_CHECKING:
    from jwt import PyJWK

MAX_KEYS = 100
MAX_JWKS_BYTES = 262_144
MIN_RSA_BITS = 2_048
FETCH_TIMEOUT = 10.0  # seconds for the whole request
FETCH_EVERY = 30.0  # seconds between two fetches
KEYS_FRESH = 300.0  # seconds until keys are fetched again; meanwhile the old keys are used
KEYS_USABLE = 900.0  # seconds until old keys expire; a removed key is accepted at most this long

# Algorithms that may be configured, with the type and curve of their keys. HS* is missing because
# its keys are secrets: if a public key were used as the secret, anyone could sign tokens.
_ALGORITHMS = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
# Allowed token types; issuers also sign other types, such as proofs and logout tokens.
_TYPES = frozenset({"jwt", "application/jwt", "at+jwt", "application/at+jwt"})
Fetch: TypeAlias = Callable[[str], Awaitable[bytes]]
"""A function that returns the document at a URL; raises a `ConfigError` if it cannot."""
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_REQUIRED = ("exp", "iss", "aud", "sub")
_log = logging.getLogger("interlock.server")


class JwtVerifier:
    """Verifies an issuer's access tokens, as `BearerAuth(verify=JwtVerifier(...))`.

    The principal's id is `ISSUER#SUBJECT`. Its scopes are in the claim `scope`, or in `scp` if
    there is no `scope`. Its claims are all claims of the token.

    Args:
        issuer: The exact value of `iss`.
        audience: A value, or several, one of which `aud` must contain; usually the endpoint's URL.
        jwks: The issuer's public keys as a JWKS object.
        jwks_url: The URL to fetch the keys from: https, or http on loopback. Redirects are not
            followed. Without `jwks` and `jwks_url`, the issuer's metadata names the URL.
        algorithms: The algorithms that the issuer may sign with.
        leeway: Seconds that the issuer's clock and the server's clock may differ.
        required_claims: Claims that a token must have besides `exp`, `iss`, `aud` and `sub`.

    Raises:
        ConfigError: A setting is not valid.
        MissingExtra: The extra `serve` is not installed.
    """

    def __init__(
        self,
        issuer: str,
        audience: str | Sequence[str],
        *,
        jwks: Mapping[str, Any] | None = None,
        jwks_url: str | None = None,
        algorithms: Sequence[str] = ("RS256", "ES256"),
        leeway: float = 60.0,
        required_claims: Sequence[str] = (),
    ) -> None:
        check_url(issuer, "issuer")
        self._issuer = issuer
        accepted = [audience] if isinstance(audience, str) else list(audience)
        if not accepted or not all(accepted):
            raise ConfigError("the audience is empty, so tokens for others would be accepted")
        unknown = [each for each in algorithms if each not in _ALGORITHMS]
        if unknown or not algorithms:
            known = ", ".join(_ALGORITHMS)
            raise ConfigError(f"algorithms {list(algorithms)} must be some of {known}")
        if jwks is not None and jwks_url is not None:
            raise ConfigError("jwks and jwks_url exclude each other; give one of them, or neither")
        keys = KeySet(frozenset(algorithms), jwks_url, issuer if jwks is None else "")
        self._statements = SignedStatements(
            keys,
            issuer,
            accepted,
            algorithms=algorithms,
            leeway=leeway,
            required_claims=required_claims,
        )
        if jwks is not None:
            keys.replace(msgspec.json.encode(jwks))

    async def __call__(self, token: str) -> Principal | None:
        """Return the principal that a token identifies; None if the token is not valid.

        Raises:
            AuthUnavailable: The issuer's keys cannot be fetched, and the token needs them.
        """
        claims = await self._statements.claims(token)
        if claims is None or not claims["sub"]:
            return None
        principal = f"{self._issuer}#{claims['sub']}"  # unique, because an issuer contains no "#"
        return Principal(principal, stated_scopes(claims), claims)


class SignedStatements:
    """Verifies signed claims of one issuer: their signature, type, issuer, audience and time.

    Args:
        keys: The issuer's keys.
        issuer: The exact value of `iss`.
        audience: Values, one of which `aud` must contain.
        algorithms: The algorithms that the issuer may sign with.
        types: The accepted values of `typ`, in lower case; () for those of access tokens.
        leeway: Seconds that the issuer's clock and this machine's may differ.
        required_claims: Claims that must be there besides `exp`, `iss`, `aud` and `sub`.
    """

    def __init__(
        self,
        keys: KeySet,
        issuer: str,
        audience: Sequence[str],
        *,
        algorithms: Sequence[str] = ("RS256", "ES256"),
        types: Collection[str] = (),
        leeway: float = 60.0,
        required_claims: Sequence[str] = (),
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = list(audience)
        self._algorithms = frozenset(algorithms)
        self._types = frozenset(types) or _TYPES
        self._leeway = leeway
        self._required = [*_REQUIRED, *required_claims]
        self._jwt = _library()

    async def claims(self, token: str) -> JsonObject | None:
        """Return the claims of a token; None if it is not valid.

        Raises:
            AuthUnavailable: The issuer's keys cannot be fetched, and the token needs them.
        """
        header = _header_of(token, self._types)
        if header is None or header.alg not in self._algorithms:
            return None
        key = await self._keys.find(header.kid, header.alg)
        return None if key is None else self._verified(token, key, header.alg)

    def _verified(self, token: str, key: PyJWK, algorithm: str) -> JsonObject | None:
        try:
            claims: JsonObject = self._jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway,
                options={"require": self._required},
            )
        except (self._jwt.PyJWTError, ValueError, OverflowError, RecursionError) as error:
            _log.debug("a token was refused: %s", type(error).__name__)
            return None
        # PyJWT also accepts a number that is written as a text.
        return repair_value(claims) if isinstance(claims["exp"], int | float) else None


class KeySet:
    """An issuer's public keys, by key id and algorithm.

    Args:
        algorithms: The algorithms to use; keys for other algorithms are ignored.
        url: The URL to fetch the keys from; None if the metadata names it, or `replace` sets them.
        issuer: The issuer whose metadata names the URL; "" if `replace` sets the keys.
        fetch: Fetches the document; None to fetch URLs that an operator has configured.
    """

    def __init__(
        self,
        algorithms: frozenset[str],
        url: str | None,
        issuer: str = "",
        fetch: Fetch | None = None,
    ) -> None:
        if url is not None:
            check_url(url, "jwks_url", query=True)
        self._algorithms = algorithms
        self._url = url
        self._issuer = issuer
        self._is_fetched = bool(url or issuer)
        self._fetch_document = fetch or _document
        self._keys: dict[tuple[str | None, str], PyJWK] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Return the key with id `kid`, or the only key if `kid` is None; None if not found.

        Raises:
            AuthUnavailable: The last fetch failed, and the key is unknown or has expired.
        """
        wanted = (kid, algorithm)
        if self._is_fetched and self._is_due(wanted):
            self._tried_at = monotonic()
            self._fetching = aio.start_detached(self._fetch())
        usable = wanted in self._keys and self._age() <= KEYS_USABLE
        if self._fetching is not None and not usable:
            # A cancelled request must not cancel the fetch that other requests wait for.
            await asyncio.shield(self._fetching)
        found = self._keys.get(wanted)
        has_failed = self._fetched_at < self._tried_at
        if self._age() > KEYS_USABLE or (found is None and has_failed):
            raise AuthUnavailable("the issuer's keys cannot be fetched")
        return found

    def replace(self, document: bytes) -> None:
        """Replace all keys with the keys in a JWKS document.

        Raises:
            ConfigError: The document is not a JWKS, is too large, or has no usable key.
        """
        try:
            listed = msgspec.json.decode(document, type=_Jwks).keys
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"the keys are not a JWKS document: {error}") from None
        if len(listed) > MAX_KEYS:
            raise ConfigError(f"the JWKS document has {len(listed)} keys; {MAX_KEYS} allowed")
        keys = self._usable([each for each in listed if isinstance(each, dict)])
        if not keys:
            wanted = ", ".join(sorted(self._algorithms))
            raise ConfigError(f"the JWKS document has no usable key for {wanted}")
        self._keys = keys
        self._fetched_at = monotonic()

    def _usable(self, listed: list[JsonObject]) -> dict[tuple[str | None, str], PyJWK]:
        keys: dict[tuple[str | None, str], PyJWK] = {}
        for algorithm in self._algorithms:
            found = [
                (each.get("kid"), key)
                for each in listed
                if (key := _public_key(each, algorithm)) is not None
            ]
            for kid, key in found:
                if isinstance(kid, str):
                    keys[kid, algorithm] = key
            if len(found) == 1:
                keys[None, algorithm] = found[0][1]
        return keys

    # Fetching

    def _age(self) -> float:
        return monotonic() - self._fetched_at if self._is_fetched else 0.0

    def _is_due(self, wanted: tuple[str | None, str]) -> bool:
        if monotonic() - self._tried_at < FETCH_EVERY:
            return False
        return wanted not in self._keys or self._age() > KEYS_FRESH

    async def _fetch(self) -> None:
        import aiohttp

        url = self._url or self._issuer
        try:
            url = self._url or await self._discovered()
            self.replace(await self._fetch_document(url))
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a timeout is an OSError
            _log.warning("cannot fetch the keys at %s: %s: %s", url, type(error).__name__, error)
        finally:
            self._fetching = None

    async def _discovered(self) -> str:
        """Return the URL of the keys that the issuer's metadata names.

        Raises:
            ConfigError: No document at the well-known URLs is usable; the text says why.
        """
        import aiohttp

        failures = []
        for url in _metadata_urls(self._issuer):
            try:
                found = msgspec.json.decode(await self._fetch_document(url), type=_Metadata)
                if found.issuer != self._issuer:  # RFC 8414, section 3.3: they must be identical
                    raise ConfigError(f"the metadata is about the issuer {found.issuer!r}")
                check_url(found.jwks_uri, "jwks_uri", query=True)
            except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
                failures.append(f"{url}: {error or type(error).__name__}")
            else:
                return found.jwks_uri
        raise ConfigError("; ".join(failures))


async def _document(url: str) -> bytes:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT)
    # The session ignores proxies and credentials from the environment, cookies and compression.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with (
        aiohttp.ClientSession(
            timeout=timeout, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
        ) as session,
        session.get(url, allow_redirects=False, auto_decompress=False) as response,
    ):
        if response.status != 200:
            raise ConfigError(f"the response has status {response.status}, not 200")
        document = bytearray()
        async for piece in response.content.iter_any():
            document += piece
            if len(document) > MAX_JWKS_BYTES:
                raise ConfigError(f"the response is over {MAX_JWKS_BYTES} bytes")
        return bytes(document)


class _Header(Struct):
    """The members of a token's header that are read before it is verified."""

    alg: str
    kid: str | None = None
    typ: str = "jwt"
    crit: Any = None


class _Metadata(Struct):
    """The members of an issuer's metadata that are read."""

    issuer: str
    jwks_uri: str


class _Jwks(Struct):
    keys: list[Any]


def _metadata_urls(issuer: str) -> list[str]:
    """Return the possible URLs of an issuer's metadata: RFC 8414, and OpenID Connect Discovery."""
    parts = urlsplit(issuer)
    home, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [f"{home}{path}{_OPENID}", f"{home}{_OAUTH}{path}"]
    return urls if not path else [*urls, f"{home}{_OPENID}{path}"]


def _library() -> Any:
    try:
        import jwt
        from jwt.algorithms import has_crypto
    except ImportError:
        raise MissingExtra("verifying JSON Web Tokens", "serve") from None
    if not has_crypto:
        raise MissingExtra("verifying JSON Web Tokens", "serve")
    return jwt


def _header_of(token: str, types: Collection[str] = _TYPES) -> _Header | None:
    if len(token) > MAX_TOKEN_BYTES or token.count(".") != 2:
        return None
    import base64

    encoded = token.partition(".")[0]
    try:
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        header = msgspec.json.decode(raw, type=_Header)
    except (ValueError, RecursionError):
        return None
    # `crit` lists extensions that a verifier must support (RFC 7515), and this one supports none.
    if header.crit is not None or header.typ.lower() not in types:
        return None
    return header


def _public_key(jwk: JsonObject, algorithm: str) -> PyJWK | None:
    """Return a key for an algorithm; None if the key is for another algorithm or is not safe."""
    from jwt import PyJWK, PyJWTError

    kty, curve = _ALGORITHMS[algorithm]
    if jwk.get("kty") != kty or (curve and jwk.get("crv") != curve) or "d" in jwk:
        return None
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    if jwk.get("use", "sig") != "sig" or jwk.get("alg", algorithm) != algorithm:
        return None
    try:
        key = PyJWK(jwk, algorithm)
        bits = getattr(key.key, "key_size", MIN_RSA_BITS)
    except (PyJWTError, ValueError, TypeError) as error:
        _log.warning("a key of the JWKS document cannot be used: %s", type(error).__name__)
        return None
    if kty == "RSA" and bits < MIN_RSA_BITS:
        _log.warning("an RSA key of %d bits is not used; at least %d", bits, MIN_RSA_BITS)
        return None
    return key


def stated_scopes(claims: JsonObject) -> frozenset[str]:
    """Return the scopes in `scope` or `scp`: a list, or words separated by spaces.

    If a token has both, it has the scopes that are in both, so that no claim adds a scope.
    """
    told = [words_in(claims[name]) for name in ("scope", "scp") if name in claims]
    return frozenset.intersection(*told) if told else frozenset()
