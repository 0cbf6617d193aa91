"""Tokens for one server. One renewal serves all requests that need a new token.

Rules:

1. When a token is refused, it is renewed once. Requests that are refused meanwhile wait for that
   renewal, and share its result. Nothing is locked while a request to the server is running.
2. Between processes, the store's lock has the same effect. It is released while a user logs in.
3. A token is used only by the client that received it. All clients that the operator has not
   registered count as the same client: the user's.
4. A token response is stored even if all tasks that need it are cancelled, because the refresh
   token that was sent may no longer work.
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
from interlock.oauth.challenges import Challenge, Dpop, split_scopes, token_challenge
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery, discover, same_issuer
from interlock.oauth.documents import ServerMetadata
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.identity import check_issuer
from interlock.oauth.login_throttle import LoginThrottle
from interlock.oauth.scopes import scopes_to_request
from interlock.oauth.storage import Tokens, TokenStore
from interlock.oauth.tokens import TokenRefused, request_tokens
from interlock.text.urls import display, is_loopback

if TYPE_CHECKING:
    from interlock.oauth.dpop import DpopKey

T = TypeVar("T")

_log = logging.getLogger("interlock.oauth")


class TokenSource(ABC):
    """The `Authorization` that is the base of `OAuth` and `ClientGrant`.

    Attributes:
        save_error: Why the current tokens could not be stored and are lost when the program ends;
            None if they are stored.
    """

    def __init__(
        self,
        server_url: str,
        store: TokenStore,
        scopes: Sequence[str],
        fetcher: Fetcher | None,
        client: ClientIdentity | None,
        issuer: str = "",
    ) -> None:
        server = urlsplit(server_url)
        if server.scheme != "https" and not is_loopback(server.hostname or ""):
            raise ConfigError(f"{display(server_url)} receives no tokens: it must be https")
        self.save_error: StoreError | None = None
        self._server_url = server_url
        self._key = server_url  # the key under which the store has the tokens
        self._store = store
        self._scopes = tuple(scopes)
        self._fetcher = fetcher or Fetcher(server_url)
        self._client = client
        self._configured = issuer or (client.issuer if client is not None else "")
        self._tokens: Tokens | None = None
        self._loaded = False
        self._renewal: asyncio.Task[None] | None = None
        self._waiting = 0  # the number of tasks that wait for the current renewal
        self._dpop_key: DpopKey | None = None  # the key to which the tokens are bound, if any
        self._accepted: Tokens | None = None  # the tokens that the server has accepted last
        self._nonce = ""  # the server's nonce for the next DPoP proof
        self._metadata_url = ""
        self._dpop = Dpop.UNKNOWN
        # Issuer and scopes of the last authorization request
        self._requested: tuple[str, tuple[str, ...]] = "", ()
        self._throttle = LoginThrottle()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({display(self._server_url)!r})"

    # For the transport and the client

    @property
    def token(self) -> str:
        """The access token to send; "" without a token or if it has expired."""
        tokens = self._tokens
        return "" if tokens is None or tokens.expired() else tokens.access_token

    async def valid_token(self) -> str:
        """Return the access token to send, refreshing it first if it has expired.

        Returns:
            The token; "" if getting one requires a user, or the server's challenge.

        Raises:
            StoreError: The stored tokens cannot be read.
        """
        if not self._loaded:
            await self._share(self._load)
        if not self.token and self._tokens is not None:
            try:
                await self._share(self._renew_expired)
            except InterlockError as error:
                # Send the request without a token: the server responds with 401, which starts a
                # renewal.
                _log.info("%s: no new token yet: %s", display(self._server_url), error)
        return self.token

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize an HTTP request; {} without a token.

        Args:
            method: The request's HTTP method.
            url: The request's URL. If the token is bound to a key, the proof is only for this URL.
        """
        token = self.token
        if not token:
            return {}
        if self._dpop_key is None:
            return {"Authorization": f"Bearer {token}"}
        proof = self._dpop_key.proof(method, url, token=token, nonce=self._nonce)
        return {"Authorization": f"DPoP {token}", "DPoP": proof}

    def needs_resend(self, status: int, headers: Mapping[str, str]) -> bool:
        """Remember whether the token was accepted, and the nonce for the next proof (RFC 9449).

        Args:
            status: The response's HTTP status.
            headers: The response's headers, with case-insensitive names.

        Returns:
            Whether the request was refused only because its proof lacked that nonce.
        """
        if status < 400:
            self._accepted = self._tokens
        nonce = headers.get("DPoP-Nonce", "")
        if self._dpop_key is None or not nonce:
            return False
        self._nonce = nonce
        error = token_challenge(headers.get("WWW-Authenticate", "")).error
        return status == 401 and error == "use_dpop_nonce"

    async def refresh_after(self, error: AuthError) -> None:
        """Replace a token that the server has refused.

        Args:
            error: The server's refusal; `error.token_used` is the token that was sent.

        Raises:
            LoginRequired: A user must log in, but `ask` is None.
            InsufficientScope: The server requires scopes that the authorization server does not
                grant.
            InterlockError: The renewal failed for another reason.
        """
        while not self.token or self.token == error.token_used:
            if await self._share(partial(self._renew, error)):
                return

    @abstractmethod
    async def _renew(self, error: AuthError) -> None:
        """Replace the token `error.token_used` by another token, or raise."""

    @abstractmethod
    async def _renew_expired(self) -> None:
        """Replace the expired token, if no user is needed for that."""

    # One renewal at a time

    async def _share(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run `work`, or wait for a renewal that is running; return whether `work` was run."""
        while self._renewal is not None and self._renewal.cancelling():
            await asyncio.wait({self._renewal})
        is_own = self._renewal is None
        if self._renewal is None:
            self._renewal = asyncio.create_task(work())
            self._renewal.add_done_callback(self._renewal_ended)
        renewal = self._renewal
        self._waiting += 1
        try:
            await asyncio.wait({renewal})
        finally:
            self._waiting -= 1
            if not self._waiting:
                renewal.cancel()  # this has no effect if the renewal has ended
        renewal.result()
        return is_own

    def _renewal_ended(self, renewal: asyncio.Task[None]) -> None:
        self._renewal = None
        if not renewal.cancelled():
            renewal.exception()  # avoids a warning of asyncio if every waiting task was cancelled

    # Requests to the servers

    async def _discover(self, challenge: Challenge) -> Discovery:
        """Find the authorization server: the configured one, or preferably that of the tokens."""
        # A later challenge may omit the metadata URL that an earlier challenge contained.
        self._metadata_url = challenge.resource_metadata or self._metadata_url
        self._dpop = max(self._dpop, challenge.dpop)
        known = self._tokens or self._client
        found = await discover(
            self._fetcher,
            self._server_url,
            self._metadata_url,
            known.issuer if known is not None else "",
            self._configured,
        )
        return replace(found, dpop=max(found.dpop, self._dpop))

    async def _check_issuer(self, client: ClientIdentity, found: Discovery) -> ClientIdentity:
        """Return the operator's client, bound to the issuer that was found.

        The caller must hold the store's lock.

        Raises:
            AuthError: The client belongs to a different issuer.
        """
        # Remember the issuer in memory as well, in case the store cannot be written.
        self._client = await check_issuer(client, found, self._key, self._store)
        return self._client

    async def _request_tokens(
        self,
        found: Discovery,
        client: ClientIdentity,
        grant: Mapping[str, str],
        scope: str,
        key: DpopKey | None,
        missing_scopes: str = "",
    ) -> TokenRefused | None:
        """Request tokens and store them. The caller must hold the store's lock."""
        tokens = await request_tokens(self._fetcher, found, client, grant, scope, key)
        if isinstance(tokens, TokenRefused):
            # An OAuth error code shows that the guessed authorization server does exist.
            return tokens if tokens.code else TokenRefused("", found.explained(tokens.error))
        await self._save(replace(tokens, missing_scopes=missing_scopes))
        return None

    # Scopes

    def _step_up_scopes(self, error: AuthError, found: Discovery) -> tuple[str, ...]:
        """Return the scopes to request because the token's scopes are not sufficient.

        Raises:
            AuthError: `error` itself with the reason, if these scopes were requested last time.
        """
        challenge = token_challenge(error.challenge)
        before = self._requested_of(found.issuer)
        scopes = scopes_to_request(challenge, found, before, self._scopes)
        if reason := self._blocked_because(found, scopes, step_up=True):
            if reason not in str(error):
                error.args = (f"{error}; {reason}",)
            raise error
        return scopes

    def _requested_of(self, issuer: str) -> tuple[str, ...]:
        """Return the scopes last requested from an issuer, by any process that uses the store."""
        if self._requested[0] == issuer:
            return self._requested[1]
        tokens = self._tokens
        return split_scopes(tokens.scope) if tokens and tokens.issuer == issuer else ()

    def _blocked_because(
        self, found: Discovery, scopes: tuple[str, ...], *, step_up: bool = False
    ) -> str | None:
        return self._throttle.blocked_because(
            found.issuer, scopes, step_up=step_up, now=monotonic()
        )

    # The store

    async def _load(self) -> None:
        """Load the stored tokens, which another process may have replaced.

        Tokens that could not be stored stay in use until another process stores newer tokens.
        """
        unsaved = self._tokens if self.save_error is not None else None
        try:
            tokens = await self._store.load_tokens(self._key)
            if tokens is not None and not self._is_own(tokens):
                tokens = None
            if unsaved is None or (tokens and tokens.received_at > unsaved.received_at):
                self._use(tokens)
                self.save_error = None
        except (StoreCorrupt, StoreTooNew) as error:
            _log.warning("%s", error)
        except StoreError:
            if unsaved is None:
                raise
        self._loaded = True

    def _use(self, tokens: Tokens | None) -> None:
        if tokens is None:
            self._dpop_key = None
        elif self._dpop_key is None or self._dpop_key.pem != tokens.dpop_key:
            self._dpop_key = key_from(tokens)
        self._tokens = tokens

    def _is_own(self, tokens: Tokens) -> bool:
        if self._configured and not same_issuer(self._configured, tokens.issuer):
            return False
        return self._client is None or tokens.client_id == self._client.id

    async def _reload(self, refused: str) -> bool:
        """Load the stored tokens; return whether they are valid and not the refused token."""
        await self._load()
        return bool(self.token) and self.token != refused

    async def _save(self, tokens: Tokens) -> None:
        """Use and store tokens. The caller must hold the store's lock."""
        self._use(tokens)
        self.save_error = None
        try:
            await self._store.save_tokens(self._key, tokens)
        except StoreError as error:
            _log.warning("%s", error)
            self.save_error = error


def new_key(found: Discovery) -> DpopKey | None:
    """Return a new key to bind tokens to; None unless both servers support bound tokens.

    Raises:
        MissingExtra: The protected server requires bound tokens, but the crypto library is missing.
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
    """Return a discovery with the data that tokens contain, which is enough to refresh them."""
    methods = [tokens.auth_method] if tokens.auth_method else None
    server = ServerMetadata(
        tokens.issuer,
        token_endpoint=tokens.token_endpoint,
        token_endpoint_auth_methods_supported=methods,
        dpop_signing_alg_values_supported=["ES256"] if tokens.dpop_key else None,
    )
    dpop = Dpop.REQUIRED if tokens.dpop_key else Dpop.UNKNOWN
    return Discovery(tokens.resource, None, server, dpop=dpop)


def key_from(tokens: Tokens) -> DpopKey | None:
    """Return the key that tokens are bound to; None for bearer tokens."""
    if not tokens.dpop_key:
        return None
    from interlock.oauth.dpop import DpopKey

    return DpopKey(tokens.dpop_key)


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, even if the current task is cancelled in the meantime."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # avoids a warning of asyncio, because the caller was cancelled
        raise
    return task.result()
