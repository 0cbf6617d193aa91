"""Logging in: a person allows it in a browser, and refresh tokens keep it so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from interlock.errors import (
    AuthError,
    ConfigError,
    HttpError,
    InterlockError,
    LoginExpired,
    LoginRequired,
    StoreError,
)
from interlock.oauth.addresses import is_loopback
from interlock.oauth.authorization import AuthorizationRequest, Pending, begin
from interlock.oauth.challenges import Challenge, split_scopes, token_challenge
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery, origin
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.identity import identify, identity_of, retire
from interlock.oauth.login_throttle import LoginThrottle
from interlock.oauth.scopes import remember, scopes_to_ask
from interlock.oauth.storage import Tokens, TokenStore
from interlock.oauth.token_source import (
    TokenSource,
    discovery_from,
    new_key,
    run_to_completion,
)

if TYPE_CHECKING:
    from interlock.oauth.dpop import DpopKey

REFRESH_PATIENCE = 60.0  # seconds in which a refresh is not tried again that has not helped

Ask = Callable[[AuthorizationRequest], Awaitable[Mapping[str, str]]]


class OAuth(TokenSource):
    """Authorization for one server by a person's login: authorization code with PKCE.

    Args:
        server_url: The MCP endpoint, as it is asked.
        redirect_uri: Where the browser is sent in the end: http on loopback, or https. Best is a
            function that gives another address for each issuer: one that does not say in the
            browser who it is (RFC 9207) cannot send us the codes of another one then.
        ask: Shows `request.url` to a person or a browser, and returns all of the query that the
            browser brings to `redirect_uri`. None never asks: `LoginRequired` is raised instead.
        client: Registered with the authorization server by the operator.
        client_metadata_url: Where the metadata of this client can be read: https. Used with
            authorization servers that support it.
        client_name: Shown to the person, by servers that register clients.
        scopes: To ask for, instead of all that the server supports.
        store: Keeps tokens and registrations.
        fetcher: Asks addresses that servers name; None makes one for `server_url`.

    Raises:
        ConfigError: A URL that cannot be used: of the server, for the redirect, or of the metadata.
    """

    def __init__(
        self,
        server_url: str,
        *,
        redirect_uri: str | Callable[[str], str],
        ask: Ask | None,
        store: TokenStore,
        client: ClientIdentity | None = None,
        client_metadata_url: str = "",
        client_name: str = "interlock",
        scopes: Sequence[str] = (),
        fetcher: Fetcher | None = None,
    ) -> None:
        super().__init__(server_url, store, scopes, fetcher, client)
        metadata = urlsplit(client_metadata_url)
        if client_metadata_url and (metadata.scheme != "https" or metadata.path in ("", "/")):
            raise ConfigError(
                f"client_metadata_url {client_metadata_url!r} must be https, with a path"
            )
        if isinstance(redirect_uri, str):
            redirect_uri = _always(_checked(redirect_uri))
        self._redirect_uri_of = redirect_uri
        self._ask = ask
        self._client_metadata_url = client_metadata_url
        self._client_name = client_name
        self._refreshed: Tokens | None = None  # what a refresh gave last

    async def login(self, challenge: str = "") -> None:
        """Let a person log in now, whatever tokens there are.

        Args:
            challenge: The server's `WWW-Authenticate`, if it is known.

        Raises:
            InterlockError: Nobody did, or it was refused.
        """
        self._attempts = LoginThrottle()
        while not await self._share(partial(self._login_anew, token_challenge(challenge))):
            pass  # that was another renewal

    # Renewal

    async def _renew(self, error: AuthError) -> None:
        if await self._adopt(error.token_used):
            return
        challenge = token_challenge(error.challenge)
        if error.status == 403 and (self._ask is None or not challenge.scopes):
            await self._remember(challenge.scopes)
            raise error
        if self._ask is None and not (self._tokens and self._tokens.refresh_token):
            # Before anything is looked for that would be of no use.
            raise self._nobody_to_ask(says_where=bool(challenge.resource_metadata))
        found = await self._discover(challenge)
        if error.status == 403:
            await self._login(found, self._more_scopes(error, found))
            return
        issuer, asked = self._asked
        # With the scopes of another process, nobody knows before it was tried.
        enough = issuer != found.issuer or set(challenge.scopes) <= set(asked)
        worth_it = enough and not self._is_useless(error.token_used)
        if worth_it and await self._refresh(found, error.token_used):
            return
        before = asked if issuer == found.issuer else ()
        await self._login(found, scopes_to_ask(challenge, found, before, self._scopes))

    async def _renew_expired(self) -> None:
        tokens = self._tokens
        if tokens is not None and tokens.refresh_token:
            await self._refresh(discovery_from(tokens), tokens.access_token)

    async def _refresh(self, found: Discovery, refused: str) -> bool:
        """Get new tokens for the refresh token, if there is one and it is still good."""
        async with self._store.lock(self._place):
            if await self._adopt(refused):
                return True
            tokens = self._tokens
            if tokens is None or not tokens.refresh_token:
                return False
            if (tokens.issuer, tokens.resource) != (found.issuer, found.resource):
                return False
            client = await identity_of(
                tokens,
                found,
                server_url=self._server_url,
                client=self._client,
                store=self._store,
            )
            if client is None:
                return False
            grant = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
            key = self._key or new_key(found)
            refusal = await run_to_completion(
                self._redeem(found, client, grant, tokens.scope, key, tokens.lacks)
            )
            if refusal is None:
                if self._asked[0] != found.issuer:
                    self._asked = found.issuer, split_scopes(tokens.scope)
                self._refreshed = self._tokens
                return True
            if refusal.code == "invalid_grant":
                await self._keep(replace(tokens, refresh_token=""))
            elif refusal.code == "invalid_client":
                await retire(found.issuer, self._server_url, self._store)
            return False

    def _is_useless(self, refused: str) -> bool:
        """Whether a refresh has just given the token that was refused: no other will be better."""
        last = self._refreshed
        if last is None or last.access_token != refused:
            return False
        return time() - last.received_at < REFRESH_PATIENCE

    async def _remember(self, needed: tuple[str, ...]) -> None:
        """Keep the scopes that are needed for the next login, in whatever program that is."""
        tokens = self._tokens
        if tokens is None or remember(tokens.lacks, needed) == tokens.lacks:
            return
        with suppress(StoreError):
            async with self._store.lock(self._place):
                await self._load()
                if self._tokens is not None:
                    lacks = remember(self._tokens.lacks, needed)
                    await self._keep(replace(self._tokens, lacks=lacks))

    # With a person

    async def _login_anew(self, challenge: Challenge) -> None:
        with suppress(StoreError):
            await self._load()
        found = await self._discover(challenge)
        tokens = self._tokens
        is_for_more = tokens is not None and tokens.lacks and tokens.issuer == found.issuer
        before = split_scopes(f"{tokens.scope} {tokens.lacks}") if tokens and is_for_more else ()
        await self._login(found, scopes_to_ask(challenge, found, before, self._scopes))

    async def _login(self, found: Discovery, scopes: tuple[str, ...]) -> None:
        if self._ask is None:
            raise self._nobody_to_ask()
        if blocked_because := self._obstacle(found, scopes):
            raise LoginRequired(f"no login at {origin(self._server_url)}: {blocked_because}")
        redirect_uri = _checked(self._redirect_uri_of(found.issuer))
        client = await self._identify(found, redirect_uri, scopes)
        key = new_key(found)
        pending = begin(
            found,
            server_url=self._server_url,
            client_id=client.id,
            redirect_uri=redirect_uri,
            scopes=scopes,
            key_thumbprint=key.thumbprint if key is not None else "",
        )
        self._asked = found.issuer, scopes
        try:
            code = pending.code(await self._ask(pending.request))
            await self._exchange(found, client, code, pending, key)
        except Exception as error:
            why = str(error) if isinstance(error, InterlockError) else type(error).__name__
            self._attempts.add(found.issuer, scopes, why, now=monotonic())
            # The browser may have said that we are unknown, which nobody tells us.
            with suppress(StoreError):
                async with self._store.lock(self._place):
                    await retire(found.issuer, self._server_url, self._store)
            raise
        self._attempts.add(found.issuer, scopes, now=monotonic())

    def _nobody_to_ask(self, *, says_where: bool = False) -> LoginRequired:
        server = origin(self._server_url)
        if self._tokens is None:
            what = "a login" if says_where else "a login, or a key in its configuration"
            return LoginRequired(f"{server} needs {what}: interlock servers login")
        return LoginExpired(f"the login at {server} has expired: interlock servers login")

    async def _identify(
        self, found: Discovery, redirect_uri: str, scopes: tuple[str, ...]
    ) -> ClientIdentity:
        try:
            async with self._store.lock(self._place):
                return await identify(
                    found,
                    server_url=self._server_url,
                    client=self._client,
                    client_metadata_url=self._client_metadata_url,
                    client_name=self._client_name,
                    redirect_uri=redirect_uri,
                    scopes=scopes,
                    store=self._store,
                    fetcher=self._fetcher,
                )
        except (AuthError, HttpError) as error:
            raise found.explained(error) from None

    async def _exchange(
        self,
        found: Discovery,
        client: ClientIdentity,
        code: str,
        pending: Pending,
        key: DpopKey | None,
    ) -> None:
        grant = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.request.redirect_uri,
            "code_verifier": pending.verifier,
        }
        scope = " ".join(pending.request.scopes)
        async with self._store.lock(self._place):
            refusal = await run_to_completion(self._redeem(found, client, grant, scope, key))
        if refusal is not None:
            raise refusal.error


def _always(redirect_uri: str) -> Callable[[str], str]:
    return lambda issuer: redirect_uri  # noqa: ARG005 - it is the same for each


def _checked(redirect_uri: str) -> str:
    parts = urlsplit(redirect_uri)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return redirect_uri
    raise ConfigError(f"redirect_uri {redirect_uri!r} must be http on loopback, or https")
