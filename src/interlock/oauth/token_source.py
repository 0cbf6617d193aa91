"""Tokens for one server, and one renewal at a time however many need it.

Rules:

1. A token that was refused is renewed once; who comes meanwhile waits for the same renewal and
   shares its end. Nothing is locked while a request to the server is under way.
2. Between processes the store's lock does the same; it is not held while a person is asked.
3. A token is sent by the client that it was given to. Clients that the operator has not
   registered are one client: theirs are the tokens of the person.
4. What an authorization server has given is kept, whoever stops waiting: the refresh token that
   was sent for it may be of no use any more.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace

from interlock.errors import (
    AuthError,
    ConfigError,
    InterlockError,
    MissingExtra,
    StoreCorrupt,
    StoreError,
    StoreTooNew,
)
from interlock.oauth.addresses import is_loopback
from interlock.oauth.challenges import Challenge, Dpop, split_scopes, token_challenge
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery, discover, same_issuer
from interlock.oauth.documents import ServerMetadata
from interlock.oauth.fetcher import Fetcher, shown
from interlock.oauth.login_throttle import LoginThrottle
from interlock.oauth.scopes import scopes_to_ask
from interlock.oauth.storage import Tokens, TokenStore
from interlock.oauth.tokens import TokenRefused, request_tokens

if TYPE_CHECKING:
    from interlock.oauth.dpop import DpopKey

T = TypeVar("T")

_log = logging.getLogger("interlock.oauth")


class TokenSource(ABC):
    """An `Authorization`: what `OAuth` and `ClientCredentials` have in common."""

    def __init__(
        self,
        server_url: str,
        store: TokenStore,
        scopes: Sequence[str],
        fetcher: Fetcher | None,
        client: ClientIdentity | None,
    ) -> None:
        server = urlsplit(server_url)
        is_safe = server.scheme == "https" or is_loopback(server.hostname or "")
        if not is_safe:
            raise ConfigError(f"{shown(server_url)} is sent no tokens: it must be https")
        self._server_url = server_url
        self._place = server_url  # of the tokens in the store
        self._store = store
        self._scopes = tuple(scopes)
        self._fetcher = fetcher or Fetcher(server_url)
        self._client = client
        self._tokens: Tokens | None = None
        self._loaded = False
        self._flight: asyncio.Task[None] | None = None
        self._waiting = 0
        self._key: DpopKey | None = None  # that the tokens are bound to
        self._nonce = ""  # for the next proof of that key
        self._metadata_url = ""
        self._dpop = Dpop.UNKNOWN
        self._asked: tuple[str, tuple[str, ...]] = "", ()  # issuer and scopes, last time
        self._attempts = LoginThrottle()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self._server_url)!r})"

    # For the transport and the client

    @property
    def token(self) -> str:
        """The access token to send now; "" for none, or for one that has expired."""
        tokens = self._tokens
        return "" if tokens is None or tokens.expired() else tokens.access_token

    async def valid_token(self) -> str:
        """Give the access token to send now, renewed if it has expired and nobody must be asked.

        Returns:
            "" when there is none: the server will say where to get one.

        Raises:
            StoreError: Tokens cannot be read.
        """
        if not self._loaded:
            await self._share(self._load)
        if not self.token and self._tokens is not None:
            try:
                await self._share(self._renew_expired)
            except InterlockError as error:
                # The server's answer to a request without token starts it all over.
                _log.info("%s: no new token yet: %s", shown(self._server_url), error)
        return self.token

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize one HTTP request; none without a token.

        Args:
            method: HTTP method of the request.
            url: Its URL, which a proof of the token's key names.
        """
        token = self.token
        if not token:
            return {}
        if self._key is None:
            return {"Authorization": f"Bearer {token}"}
        proof = self._key.proof(method, url, token=token, nonce=self._nonce)
        return {"Authorization": f"DPoP {token}", "DPoP": proof}

    def needs_resend(self, status: int, headers: Mapping[str, str]) -> bool:
        """Keep the nonce that a server names for the next proof (RFC 9449 section 9).

        Args:
            status: HTTP status of an answer.
            headers: Its headers, case-insensitive.

        Returns:
            Whether the request was refused only for lack of that nonce.
        """
        nonce = headers.get("DPoP-Nonce", "")
        if self._key is None or not nonce:
            return False
        self._nonce = nonce
        error = token_challenge(headers.get("WWW-Authenticate", "")).error
        return status == 401 and error == "use_dpop_nonce"

    async def refresh_after(self, error: AuthError) -> None:
        """Get a better token than the one that was refused.

        Args:
            error: How the server refused; `token_used` is the token that it was sent.

        Raises:
            LoginRequired: A person is needed, and there is nobody to ask.
            InsufficientScope: More scopes are needed than anybody gives.
            InterlockError: It cannot be had for another reason, in one line.
        """
        while not self.token or self.token == error.token_used:
            if await self._share(partial(self._renew, error)):
                return

    @abstractmethod
    async def _renew(self, error: AuthError) -> None:
        """Get another token than `error.token_used`, or raise."""

    @abstractmethod
    async def _renew_expired(self) -> None:
        """Get a new token for one that has expired, if nobody must be asked."""

    # One renewal at a time

    async def _share(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Do `work`, or wait for what is being done. Say whether it was ours."""
        while self._flight is not None and self._flight.cancelling():
            await asyncio.wait({self._flight})
        ours = self._flight is None
        if self._flight is None:
            self._flight = asyncio.create_task(work())
            self._flight.add_done_callback(self._landed)
        flight = self._flight
        self._waiting += 1
        try:
            await asyncio.wait({flight})
        finally:
            self._waiting -= 1
            if not self._waiting:
                flight.cancel()  # nobody needs it; does nothing when it has ended
        flight.result()
        return ours

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flight = None
        if not flight.cancelled():
            flight.exception()  # who waited has it, and perhaps nobody did

    # Asking the servers

    async def _discover(self, challenge: Challenge) -> Discovery:
        """Find where tokens come from: where ours do, if the server names it among others."""
        # A later challenge may leave out what an earlier one said.
        self._metadata_url = challenge.resource_metadata or self._metadata_url
        self._dpop = max(self._dpop, challenge.dpop)
        known = self._tokens or self._client
        issuer = known.issuer if known is not None else ""
        found = await discover(self._fetcher, self._server_url, self._metadata_url, issuer)
        return replace(found, dpop=max(found.dpop, self._dpop))

    async def _redeem(
        self,
        found: Discovery,
        client: ClientIdentity,
        grant: Mapping[str, str],
        scope: str,
        key: DpopKey | None,
        lacks: str = "",
    ) -> TokenRefused | None:
        """Get tokens and keep them. Its caller holds the store's lock."""
        tokens = await request_tokens(self._fetcher, found, client, grant, scope, key)
        if isinstance(tokens, TokenRefused):
            # Who refuses by a code is an authorization server, whether it was guessed or not.
            return tokens if tokens.code else TokenRefused("", found.explained(tokens.error))
        await self._keep(replace(tokens, lacks=lacks))
        return None

    # Scopes

    def _more_scopes(self, error: AuthError, found: Discovery) -> tuple[str, ...]:
        """Choose the scopes to ask for when the token's do not go far enough.

        Raises:
            AuthError: `error`: they have just been asked for.
        """
        challenge = token_challenge(error.challenge)
        before = self._asked_of(found.issuer)
        scopes = scopes_to_ask(challenge, found, before, self._scopes)
        if self._obstacle(found, scopes, step_up=True):
            raise error
        return scopes

    def _asked_of(self, issuer: str) -> tuple[str, ...]:
        """Give the scopes that were asked of an issuer last, by this process or another one."""
        if self._asked[0] == issuer:
            return self._asked[1]
        tokens = self._tokens
        return split_scopes(tokens.scope) if tokens and tokens.issuer == issuer else ()

    def _obstacle(
        self, found: Discovery, scopes: tuple[str, ...], *, step_up: bool = False
    ) -> str | None:
        return self._attempts.blocked_because(
            found.issuer, scopes, step_up=step_up, now=monotonic()
        )

    # Stored

    async def _load(self) -> None:
        """Read what this or another process has stored. A damaged place is an empty one."""
        try:
            tokens = await self._store.load_tokens(self._place)
            self._use(tokens if tokens is not None and self._is_ours(tokens) else None)
        except (StoreCorrupt, StoreTooNew) as error:
            _log.warning("%s", error)
        self._loaded = True

    def _use(self, tokens: Tokens | None) -> None:
        pem = tokens.dpop_key if tokens is not None else ""
        if not pem:
            self._key = None
        elif self._key is None or self._key.pem != pem:
            from interlock.oauth.dpop import DpopKey

            self._key = DpopKey(pem)
        self._tokens = tokens

    def _is_ours(self, tokens: Tokens) -> bool:
        """Whether tokens were given to us, if the operator has said who we are."""
        client = self._client
        if client is None:
            return True
        is_from_there = not client.issuer or same_issuer(client.issuer, tokens.issuer)
        return is_from_there and tokens.client_id == client.id

    async def _adopt(self, refused: str) -> bool:
        """Take over what another process has stored, if it is better than what was refused."""
        await self._load()
        return bool(self.token) and self.token != refused

    async def _keep(self, tokens: Tokens) -> None:
        """Use tokens from now on, and store them. Its caller holds the store's lock."""
        self._use(tokens)
        try:
            await self._store.save_tokens(self._place, tokens)
        except StoreError as error:
            _log.warning("%s", error)  # they are good for as long as this program runs


def new_key(found: Discovery) -> DpopKey | None:
    """Return a key to bind new tokens to; None unless both servers support that.

    Raises:
        MissingExtra: The protected server requires it, and there is no library to sign with.
    """
    algorithms = found.server.dpop_signing_alg_values_supported or ()
    if found.dpop is Dpop.UNKNOWN or "ES256" not in algorithms:
        return None
    try:
        from interlock.oauth.dpop import DpopKey
    except MissingExtra:
        if found.dpop is Dpop.REQUIRED:
            raise
        return None
    return DpopKey()


def discovery_from(tokens: Tokens) -> Discovery:
    """Give what was found out when tokens were given: where, and how we proved who we are.

    It needs no new search, which a request without token would start.
    """
    methods = [tokens.auth_method] if tokens.auth_method else None
    server = ServerMetadata(
        tokens.issuer,
        token_endpoint=tokens.token_endpoint,
        token_endpoint_auth_methods_supported=methods,
        dpop_signing_alg_values_supported=["ES256"] if tokens.dpop_key else None,
    )
    dpop = Dpop.REQUIRED if tokens.dpop_key else Dpop.UNKNOWN
    return Discovery(tokens.resource, None, server, dpop=dpop)


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Do work to its end, also when the task that asks for it is cancelled meanwhile."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # nobody is there any more to be told
        raise
    return task.result()
