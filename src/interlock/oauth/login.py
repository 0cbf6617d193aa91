"""Logins: a user grants access in a browser, and refresh tokens renew it later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, time
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
from interlock.oauth.authorization import AuthorizationRequest, Pending, begin
from interlock.oauth.challenges import Challenge, split_scopes, token_challenge
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.identity import auth_method, identify, identity_of, retire
from interlock.oauth.login_throttle import LoginThrottle
from interlock.oauth.logout import LoggedOut, logout
from interlock.oauth.scopes import add_missing, scopes_to_request
from interlock.oauth.storage import Tokens, TokenStore
from interlock.oauth.token_source import (
    TokenSource,
    discovery_from,
    key_from,
    new_key,
    run_to_completion,
)
from interlock.text.redaction import Redacted
from interlock.text.urls import display, is_loopback, origin

FRESH = 60.0  # seconds; a token that is refused within them was never accepted
# Error codes after which the same refresh token may work later
_TEMPORARY = ("server_error", "temporarily_unavailable", "slow_down", "use_dpop_nonce")

Ask = Callable[[AuthorizationRequest], Awaitable[Mapping[str, str]]]


class BegunLogin(Redacted, frozen=True, kw_only=True):
    """A login that has begun, with everything that any process needs to complete it.

    Attributes:
        pending: The request that the user must approve.
        tokens: The data for the token request, still without tokens.
        is_guessed: Whether the endpoints are guessed; see `Discovery`.
    """

    public = ("pending",)

    pending: Pending
    tokens: Tokens
    is_guessed: bool


class OAuth(TokenSource):
    """Authorization for one server by a user who logs in: authorization code with PKCE.

    Args:
        server_url: The URL of the MCP endpoint, as the client connects to it.
        redirect_uri: The URL to which the browser is redirected at the end: http on loopback, or
            https. Clients that the operator has registered, and those with a metadata document, use
            it unchanged.
        redirect_uri_of: Returns a different URL for each issuer, for clients that this program
            registers. This protects against issuers that do not identify themselves in the redirect
            (RFC 9207). If None, these clients use `redirect_uri`.
        ask: Shows `request.url` to a user or a browser, and returns the query with which the
            browser arrives at `redirect_uri`. If None, `LoginRequired` is raised instead.
        client: The client that the operator has registered at the authorization server, if any.
        issuer: The authorization server to use, even if the server names another. If "", the one
            of `client` is used, or else one that the server names.
        client_metadata_url: The https URL at which this client's metadata is published. It is used
            with authorization servers that support it.
        client_name: The client's name in registrations, which authorization servers show to users.
        scopes: The scopes to request, instead of all scopes that the server supports.
        store: The store of tokens and registrations.
        fetcher: Sends requests to URLs from servers; None for a new fetcher for `server_url`.

    Raises:
        ConfigError: The URL of the server, the redirect or the client metadata is not allowed.
    """

    def __init__(
        self,
        server_url: str,
        *,
        redirect_uri: str,
        ask: Ask | None,
        store: TokenStore,
        redirect_uri_of: Callable[[str], str] | None = None,
        client: ClientIdentity | None = None,
        issuer: str = "",
        client_metadata_url: str = "",
        client_name: str = "interlock",
        scopes: Sequence[str] = (),
        fetcher: Fetcher | None = None,
    ) -> None:
        super().__init__(server_url, store, scopes, fetcher, client, issuer)
        metadata = urlsplit(client_metadata_url)
        if client_metadata_url and (metadata.scheme != "https" or metadata.path in ("", "/")):
            raise ConfigError(
                f"client_metadata_url {client_metadata_url!r} must be https, with a path"
            )
        self._redirect_uri = _check_redirect(redirect_uri)
        self._redirect_uri_of = redirect_uri_of
        self._ask = ask
        self._client_metadata_url = client_metadata_url
        self._client_name = client_name
        self._identity: ClientIdentity | None = None  # the client that this process used last
        self._retired = ""  # the id of a registered client that the issuer no longer accepts
        self._refreshed: Tokens | None = None  # the tokens from the last refresh
        self._logged_in: Tokens | None = None  # the tokens from the last login, perhaps refreshed
        self._rejected: Tokens | None = None  # these tokens, if the server never accepted them
        self._unrefreshed: Tokens | None = None  # the tokens whose refresh was refused last
        self._unrefreshed_at = 0.0  # when it was refused, by the monotonic clock

    async def login(self, challenge: str = "") -> None:
        """Let a user log in now, even if there are valid tokens.

        Args:
            challenge: The server's `WWW-Authenticate` header; "" if unknown.

        Raises:
            InterlockError: The login was refused, or took too long.
        """
        self._throttle, self._logged_in = LoginThrottle(), None
        while not await self._share(partial(self._log_in_again, token_challenge(challenge))):
            pass  # a different renewal was running and has ended, so try again

    async def log_out(self) -> LoggedOut:
        """Revoke the tokens at the authorization server, and delete them; see `logout`.

        Raises:
            StoreError: The store cannot be read or written.
        """
        return await logout(self._server_url, self._store, client=self._client)

    # Renewal

    async def _renew(self, error: AuthError) -> None:
        if await self._reload(error.token_used):
            return
        challenge = token_challenge(error.challenge)
        if error.status == 403 and (self._ask is None or not challenge.scopes):
            await self._note_missing(challenge.scopes)
            raise error
        if self._ask is None and not (self._tokens and self._tokens.refresh_token):
            # Raise before sending requests to URLs from the server, because they could not help.
            raise self._login_required(has_metadata=bool(challenge.resource_metadata))
        found = await self._discover(challenge)
        if error.status == 403:
            await self._log_in(found, self._step_up_scopes(error, found))
            return
        issuer, requested = self._requested
        # If another process stored new tokens, try them: their scopes may be sufficient.
        is_enough = issuer != found.issuer or set(challenge.scopes) <= set(requested)
        may_help = is_enough and not self._is_useless(error.token_used)
        if may_help and await self._refresh(found, error.token_used):
            return
        before = requested if issuer == found.issuer else ()
        scopes = scopes_to_request(challenge, found, before, self._scopes)
        if self._is_rejected(error.token_used, found, scopes):
            raise LoginRequired(
                f"no login at {origin(self._server_url)}: it refuses the token that "
                f"{display(found.issuer)} has just issued; if it needs other scopes, request them "
                "with --scope or as scopes in the configuration"
            )
        await self._log_in(found, scopes)

    async def _renew_expired(self) -> None:
        tokens = self._tokens
        if tokens is not None and tokens.refresh_token:
            await self._refresh(discovery_from(tokens), tokens.access_token)

    async def _refresh(self, found: Discovery, refused: str) -> bool:
        """Get new tokens with the refresh token; return whether this succeeded."""
        async with self._store.lock(self._key):
            if await self._reload(refused):
                return True
            tokens = self._tokens
            if tokens is None or not tokens.refresh_token:
                return False
            if (tokens.issuer, tokens.resource) != (found.issuer, found.resource):
                return False
            last = self._unrefreshed
            is_same = last is not None and last.refresh_token == tokens.refresh_token
            if is_same and monotonic() - self._unrefreshed_at < FRESH:
                return False
            client = await self._client_of(tokens, found)
            if client is None:
                return False
            grant = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
            key = self._dpop_key or new_key(found)
            refusal = await run_to_completion(
                self._request_tokens(found, client, grant, tokens.scope, key, tokens.missing_scopes)
            )
            if refusal is None:
                if self._requested[0] != found.issuer:
                    self._requested = found.issuer, split_scopes(tokens.scope)
                self._refreshed = self._tokens
                if self._is_unproven(tokens.access_token):
                    self._logged_in = self._tokens
                return True
            if refusal.code == "invalid_client":
                self._retired = client.id
                await retire(found.issuer, self._server_url, self._store)
            if refusal.code in ("", "invalid_client"):  # the refresh token may still be valid
                self._unrefreshed, self._unrefreshed_at = tokens, monotonic()
            elif refusal.code not in _TEMPORARY:
                await self._save(replace(tokens, refresh_token=""))
            return False

    async def _client_of(self, tokens: Tokens, found: Discovery) -> ClientIdentity | None:
        """Return the client that received the tokens; None if it can no longer authenticate."""
        if self._client is not None:
            if self._client.id != tokens.client_id:
                return None
            return await self._check_issuer(self._client, found)
        own = self._identity  # more recent than the store, if the store could not be written
        if own is not None and (own.id, own.issuer) == (tokens.client_id, found.issuer):
            return own
        return await identity_of(tokens, found, server_url=self._server_url, store=self._store)

    def _is_useless(self, refused: str) -> bool:
        """Return whether the refused token was obtained by a refresh a moment ago."""
        last = self._refreshed
        if last is None or last.access_token != refused:
            return False
        return time() - last.received_at < FRESH

    def _is_rejected(self, refused: str, found: Discovery, scopes: tuple[str, ...]) -> bool:
        """Return whether the server refuses the token of a login that another would only repeat."""
        last, (issuer, requested) = self._logged_in, self._requested
        if last is None or not self._is_unproven(refused):
            return False
        if issuer != found.issuer or not set(scopes) <= set(requested):
            return False
        if time() - last.received_at < FRESH:
            self._rejected = last
        return last is self._rejected

    def _is_unproven(self, token: str) -> bool:
        """Return whether a token comes from the last login, and the server never accepted it."""
        last, accepted = self._logged_in, self._accepted
        if last is None or last.access_token != token:
            return False
        return accepted is None or accepted.access_token != token

    async def _note_missing(self, required: tuple[str, ...]) -> None:
        """Store missing scopes, so that the next login by any program requests them."""
        tokens = self._tokens
        if tokens is None:
            return
        if add_missing(tokens.missing_scopes, required) == tokens.missing_scopes:
            return
        with suppress(StoreError):
            async with self._store.lock(self._key):
                await self._load()
                if self._tokens is not None:
                    missing = add_missing(self._tokens.missing_scopes, required)
                    await self._save(replace(self._tokens, missing_scopes=missing))

    # With a user

    async def begin_login(self, challenge: str = "") -> BegunLogin:
        """Begin a login that `complete_login` completes, perhaps in another process.

        Args:
            challenge: The server's `WWW-Authenticate` header; "" if unknown.

        Raises:
            InterlockError: The authorization server cannot be used.
        """
        return await self._begin(*await self._wanted(token_challenge(challenge)))

    async def complete_login(self, begun: BegunLogin, answer: Mapping[str, str]) -> None:
        """Exchange the authorization code for tokens, and store them.

        Args:
            begun: The login, from `begin_login`.
            answer: The query with which the browser arrived at the redirect URI.

        Raises:
            InterlockError: The login was refused, or the answer belongs to another login.
        """
        found = replace(discovery_from(begun.tokens), is_guessed=begun.is_guessed)
        pending = begun.pending
        if pending.request.server_url != self._server_url:
            raise AuthError("the server's URL was changed during the login; log in again")
        try:
            code = pending.code(answer)
            client = await self._client_of(begun.tokens, found)
            if client is None:
                raise AuthError(
                    f"the registration at {display(found.issuer)} is lost; log in again"
                )
            grant = {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": pending.request.redirect_uri,
                "code_verifier": pending.verifier,
            }
            key = key_from(begun.tokens)
            async with self._store.lock(self._key):
                refusal = await run_to_completion(
                    self._request_tokens(found, client, grant, begun.tokens.scope, key)
                )
            if refusal is not None:
                raise refusal.error
        except Exception:
            # If the authorization server has deleted the client, only the user sees that, in the
            # browser.
            self._retired = begun.tokens.client_id
            with suppress(StoreError):
                async with self._store.lock(self._key):
                    await retire(found.issuer, self._server_url, self._store)
            raise

    async def _log_in_again(self, challenge: Challenge) -> None:
        await self._log_in(*await self._wanted(challenge))

    async def _wanted(self, challenge: Challenge) -> tuple[Discovery, tuple[str, ...]]:
        """Return the authorization server and the scopes of a login, whatever tokens there are."""
        with suppress(StoreError):
            await self._load()
        found = await self._discover(challenge)
        tokens, before = self._tokens, ""
        if tokens is not None and tokens.missing_scopes and tokens.issuer == found.issuer:
            before = f"{tokens.scope} {tokens.missing_scopes}"
        return found, scopes_to_request(challenge, found, split_scopes(before), self._scopes)

    async def _log_in(self, found: Discovery, scopes: tuple[str, ...]) -> None:
        if self._ask is None:
            raise self._login_required()
        if reason := self._blocked_because(found, scopes):
            raise LoginRequired(f"no login at {origin(self._server_url)}: {reason}")
        begun = await self._begin(found, scopes)
        self._requested = found.issuer, scopes
        try:
            await self.complete_login(begun, await self._ask(begun.pending.request))
        except Exception as error:
            why = str(error) if isinstance(error, InterlockError) else type(error).__name__
            self._throttle.add(found.issuer, scopes, why, now=monotonic())
            raise
        self._throttle.add(found.issuer, scopes, now=monotonic())
        self._logged_in = self._tokens

    async def _begin(self, found: Discovery, scopes: tuple[str, ...]) -> BegunLogin:
        redirect_uri = self._redirect_uri_at(found)
        client = self._identity = await self._identify(found, redirect_uri, scopes)
        key = new_key(found)
        pending = begin(
            found,
            server_url=self._server_url,
            client_id=client.id,
            redirect_uri=redirect_uri,
            scopes=scopes,
            key_thumbprint=key.thumbprint if key is not None else "",
        )
        tokens = Tokens(
            access_token="",
            scope=" ".join(scopes),
            issuer=found.issuer,
            resource=found.resource,
            client_id=client.id,
            token_endpoint=found.server.token_endpoint or "",
            auth_method=auth_method(client, found),
            dpop_key=key.pem if key is not None else "",
        )
        return BegunLogin(pending=pending, tokens=tokens, is_guessed=found.is_guessed)

    def _redirect_uri_at(self, found: Discovery) -> str:
        has_document = found.server.client_id_metadata_document_supported
        is_fixed = self._client is not None or (self._client_metadata_url and has_document)
        if is_fixed or self._redirect_uri_of is None:
            return self._redirect_uri
        return _check_redirect(self._redirect_uri_of(found.issuer))

    def _login_required(self, *, has_metadata: bool = False) -> LoginRequired:
        server = origin(self._server_url)
        if self._tokens is None:
            what = "a login" if has_metadata else "a login, or a key in its configuration"
            return LoginRequired(f"{server} needs {what}: interlock servers login")
        return LoginExpired(f"the login at {server} has expired: interlock servers login")

    async def _identify(
        self, found: Discovery, redirect_uri: str, scopes: tuple[str, ...]
    ) -> ClientIdentity:
        try:
            async with self._store.lock(self._key):
                if self._client is not None:
                    return await self._check_issuer(self._client, found)
                return await identify(
                    found,
                    server_url=self._server_url,
                    client_metadata_url=self._client_metadata_url,
                    client_name=self._client_name,
                    redirect_uri=redirect_uri,
                    fixed_redirect_uri=self._redirect_uri,
                    scopes=scopes,
                    retired=self._retired,
                    store=self._store,
                    fetcher=self._fetcher,
                )
        except (AuthError, HttpError) as error:
            raise found.explained(error) from None


def _check_redirect(redirect_uri: str) -> str:
    parts = urlsplit(redirect_uri)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return redirect_uri
    raise ConfigError(f"redirect_uri {redirect_uri!r} must be http on loopback, or https")
