"""Signed statements at the token endpoint: of clients about themselves, and of issuers.

1. A client with a document or keys of its own signs that it is this client (RFC 7523, section 2.2).
2. An issuer that the operator trusts for it states that a client may act for a person (ID-JAG,
   Enterprise-Managed Authorization), or what a workload is (Workload Identity Federation).
3. Each statement counts once, by its `jti`. Only RS256 and ES256 are accepted.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256

from interlock.auth.issuers import stated_issuer
from interlock.auth.jwt import KeySet, SignedStatements
from interlock.auth.principal import Principal
from interlock.config.gateway import Accepts
from interlock.errors import AuthUnavailable, ConfigError, InterlockError
from interlock.gateway.front_door.clients import FrontClient
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.metadata import ALGORITHMS
from interlock.gateway.front_door.request import OAuthError
from interlock.gateway.logins.people import person_of
from interlock.types import JsonObject

LONGEST = 600  # seconds that an issuer's statement may be valid
LONGEST_OF_CLIENTS = 3_600  # seconds that a client's statement may be valid
MAX_KEPT = 100  # key sets in memory, each with up to 100 keys
_LEEWAY = 60  # seconds
_TYPES: dict[Accepts, tuple[str, ...]] = {
    "id-jag": ("oauth-id-jag+jwt",),
    "workload": ("jwt", "application/jwt"),
}
_NOT_SUPPORTED = ("cnf", "authorization_details")  # claims that would limit the grant further


class Assertions:
    """Verifies signed statements.

    Args:
        parts: The shared parts of the front door.
    """

    def __init__(self, parts: DoorParts) -> None:
        self._store = parts.store
        self._wall = parts.wall
        self._resources = parts.gateway.resources
        self._issuers = parts.gateway.issuers
        self._fetcher = parts.gateway.fetcher
        self._keys: OrderedDict[tuple[str, str], KeySet] = OrderedDict()

    async def check_client(self, client: FrontClient, assertion: str) -> None:
        """Check what a client has signed about itself.

        Raises:
            OAuthError: It does not prove that it is this client.
        """
        refused = OAuthError("invalid_client", f"the assertion of {client.label} is not valid", 401)
        keys = self._keys_of(client)
        if keys is None:
            raise refused
        statements = SignedStatements(
            keys, client.id, self._own_names, algorithms=ALGORITHMS, required_claims=("jti",)
        )
        claims = await self._claims(statements, assertion, refused)
        if claims["sub"] != client.id or not self._is_short(claims, LONGEST_OF_CLIENTS):
            raise refused
        await self._use(client.id, claims, refused)

    async def person(
        self, assertion: str, kind: Accepts, client: str = ""
    ) -> tuple[Principal, JsonObject]:
        """Return the person or workload that an issuer's statement is about, and all its claims.

        Args:
            assertion: The statement.
            kind: Which kind of statement it must be.
            client: The id of the client that sent it; "" for a workload, which is its own client.

        Raises:
            OAuthError: The statement is not valid, or no issuer is trusted for this kind.
        """
        refused = OAuthError("invalid_grant", "the assertion is not valid")
        name = stated_issuer(assertion.encode(errors="replace"))
        issuer = next((each for each in self._issuers() if each.issuer == name), None)
        if issuer is None or kind not in issuer.accepts:
            raise refused
        needed = ("iat", "jti", "client_id") if kind == "id-jag" else ("jti",)
        statements = SignedStatements(
            self._kept(issuer.issuer, issuer.jwks_url, fetch=False),
            issuer.issuer,
            self._own_names if kind == "workload" else [self._resources().issuer],
            algorithms=ALGORITHMS,
            types=_TYPES[kind],
            required_claims=needed,
        )
        claims = await self._claims(statements, assertion, refused)
        self._check(claims, kind, client, refused)
        await self._use(issuer.issuer, claims, refused)
        try:
            # With rights of the operator, a scope limits this token, and not the person.
            is_limit = kind == "id-jag" and issuer.scopes
            told = {name: each for name, each in claims.items() if name not in ("scope", "scp")}
            return person_of(issuer, told if is_limit else claims), claims
        except InterlockError as error:
            raise OAuthError("invalid_grant", str(error)) from None

    def _check(self, claims: JsonObject, kind: Accepts, client: str, refused: OAuthError) -> None:
        is_plain = not any(name in claims for name in _NOT_SUPPORTED)
        has_one_audience = isinstance(claims["aud"], str) or len(claims["aud"]) == 1
        if not (is_plain and claims["sub"] and self._is_short(claims, LONGEST)):
            raise refused
        if kind == "workload":
            return
        if not has_one_audience or claims["client_id"] != client:
            raise refused

    def _is_short(self, claims: JsonObject, longest: int) -> bool:
        return bool(claims["exp"] <= self._wall() / 1_000_000 + longest + _LEEWAY)

    @property
    def _own_names(self) -> list[str]:
        issuer = self._resources().issuer
        return [issuer, f"{issuer}/token"]

    async def _claims(
        self, statements: SignedStatements, assertion: str, refused: OAuthError
    ) -> JsonObject:
        try:
            claims = await statements.claims(assertion)
        except AuthUnavailable:
            text = "the keys that verify the assertion cannot be fetched; try again later"
            raise OAuthError("temporarily_unavailable", text, 503) from None
        if claims is None:
            raise refused
        return claims

    async def _use(self, who: str, claims: JsonObject, refused: OAuthError) -> None:
        """Note that a statement was used; refuse it if it had been before."""
        told = f"{who}\n{claims['jti']}".encode(errors="surrogateescape")
        expires = int((claims["exp"] + _LEEWAY) * 1_000_000)
        if not await self._store.use_id(sha256(told).digest(), expires, self._wall()):
            raise refused

    # Keys

    def _keys_of(self, client: FrontClient) -> KeySet | None:
        match client.jwks:
            case str() as url:
                return self._kept(client.id, url, fetch=True)
            case bytes() as jwks:
                keys = KeySet(frozenset(ALGORITHMS), None)
                try:
                    keys.replace(jwks)
                except ConfigError:
                    return None
                return keys
        return None

    def _kept(self, who: str, url: str, *, fetch: bool) -> KeySet:
        kept = self._keys.get((who, url))
        if kept is None:
            algorithms = frozenset(ALGORITHMS)
            try:
                made = KeySet(algorithms, url or None, who, self._fetch if fetch else None)
            except ConfigError:
                raise OAuthError("invalid_client", "the URL of the keys is not valid") from None
            kept = self._keys[who, url] = made
            if len(self._keys) > MAX_KEPT:
                self._keys.popitem(last=False)
        self._keys.move_to_end((who, url))
        return kept

    async def _fetch(self, url: str) -> bytes:
        """Fetch the keys of a client, whose URL comes from the client: public addresses only."""
        try:
            response = await self._fetcher().get(url)
        except InterlockError as error:
            raise ConfigError(str(error)) from None
        if response.status != 200:
            raise ConfigError(f"the response has status {response.status}, not 200")
        return response.body
