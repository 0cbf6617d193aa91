"""Users' logins to servers in a browser.

        GET /connect/ID         a page where the user authenticates
        POST /connect/ID        stores values, and returns the URL for the login to the server
        GET /oauth/callback     completes the login

1. A link works only for the user it was created for. The link does not authenticate the user; a
   key, a token or a session of the pages does.
2. A login must be completed in the browser that began it, which has it in a cookie; see
   `AttemptCookies`. Otherwise another person who received the URL could log in for the user.
3. Each issuer has its own callback path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.principal import Principal
from interlock.config import HttpServer, ServerConfig, resolve
from interlock.errors import AuthError, InterlockError, InvalidArguments, StoreCorrupt, StoreError
from interlock.gateway.logins.login_attempt import AttemptCookies, unknown_login
from interlock.gateway.logins.plain_page import path_here
from interlock.gateway.logins.vault import Vault
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.server.http.responses import Header
from interlock.store.credentials import LOGIN
from interlock.toolbox.connect import client_identity, login_challenge
from interlock.toolbox.user_credentials import Needs, without_users
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.oauth import OAuth
    from interlock.oauth.storage import TokenStore

CALLBACK_PATH = "/oauth/callback"
BEGIN_TIMEOUT = 30.0  # seconds to obtain the URL of a login
_log = logging.getLogger("interlock.gateway")


class _Begun(Struct, frozen=True):
    """The encrypted content of a login's cookie.

    Attributes:
        owner: The user, as `Principal.owner`.
        server: The server's name.
        login: A `BegunLogin`; its module is loaded only when it is needed.
        to: The path that the browser goes to at the end; "" for none.
    """

    owner: str
    server: str
    login: msgspec.Raw
    to: str = ""


class BegunServerLogin(Struct, frozen=True):
    """The data that a browser needs to continue a login.

    Attributes:
        url: The URL where the user logs in.
        cookie: The header that stores the login in the browser.
    """

    url: str
    cookie: Header


class Logins:
    """Begins and completes users' logins to servers.

    Args:
        vault: Stores the users' logins.
        secret: The gateway's key, which encrypts unfinished logins.
        servers: Returns the configured servers, keyed by their name in addresses.
        environ: The environment variables for `${VAR}`.
    """

    def __init__(
        self,
        vault: Vault,
        secret: GatewayKey,
        servers: Callable[[], Mapping[str, ServerConfig]],
        environ: Mapping[str, str],
    ) -> None:
        self.vault = vault
        self._servers = servers
        self._environ = environ
        self._begun = AttemptCookies(secret, _Begun, "connect", CALLBACK_PATH)

    def needs(self, server: str) -> Needs:
        """Return the credentials that each user needs for a server; none if it is unknown."""
        upstream = self.vault.upstreams().get(server)
        return upstream.needs if upstream is not None else Needs()

    async def begin(self, owner: str, server: str, to: str = "") -> BegunServerLogin:
        """Begin a user's login, at whose end the browser goes to a path; "" for none.

        Raises:
            InterlockError: The authorization server cannot be used.
        """
        try:
            async with asyncio.timeout(BEGIN_TIMEOUT):
                config, challenge = self._servers().get(server), ""
                if isinstance(config, HttpServer):
                    challenge = await _challenge(resolve(without_users(config), self._environ))
                oauth = await self._oauth(server, self.vault.tokens(owner, server))
                begun = await oauth.begin_login(challenge)
        except TimeoutError:
            text = f"the authorization server of {server!r} does not answer"
            raise AuthError(text, 503) from None
        request = begun.pending.request
        pending = replace(begun.pending, request=replace(request, url=""))
        login = msgspec.Raw(msgspec.json.encode(replace(begun, pending=pending)))
        cookie = self._begun.sealed(
            request.state, _Begun(owner, server, login, to), is_secure=self._is_secure
        )
        return BegunServerLogin(request.url, cookie)

    @property
    def _is_secure(self) -> bool:
        return self.vault.public_url().startswith("https:")

    @property
    def _callback(self) -> str:
        return f"{self.vault.public_url()}{CALLBACK_PATH}"

    async def _oauth(self, server: str, store: TokenStore) -> OAuth:
        """Return the OAuth login of a user to a server, given the store of the tokens.

        Raises:
            InterlockError: The server does not use logins, or its OpenAPI document cannot be read.
        """
        from interlock.oauth import OAuth  # loads aiohttp

        config = self._servers().get(server)
        fixed = self._callback
        if not isinstance(config, HttpServer):
            return await self._api_login(server, store=store, ask=None, redirect_uri=fixed)
        config = resolve(without_users(config), self._environ)
        return OAuth(
            config.url,
            redirect_uri=fixed,
            redirect_uri_of=lambda issuer: _callback(fixed, issuer),
            ask=None,
            client=client_identity(config),
            issuer=config.oauth.issuer,
            client_metadata_url=config.oauth.client_metadata_url,
            scopes=config.oauth.scopes,
            store=store,
        )

    async def _api_login(self, server: str, **options: Any) -> OAuth:
        """Return the OAuth login that an HTTP API's OpenAPI document describes."""
        upstream = self.vault.upstreams().get(server)
        api = upstream.api if upstream is not None else None
        if api is None:
            raise not_found()
        await api.load()
        return api.tools.identity.login(**options)

    async def delete(self, owner: str, server: str, name: str, *, by: Principal) -> bool:
        """Delete a value or a login; return whether it existed.

        A login is first deleted here. Then it is revoked at the authorization server, if possible.

        Raises:
            StoreError: The value or login cannot be deleted.
        """
        store: TokenStore | None = None
        if name == LOGIN:
            with suppress(StoreCorrupt):  # an unreadable login cannot be revoked
                store = await self.vault.tokens(owner, server).copied()
        was_there = await self.vault.delete(owner, server, name, by=by)
        if was_there and store is not None:
            await self._revoke(owner, server, store)
        return was_there

    async def _revoke(self, owner: str, server: str, store: TokenStore) -> None:
        try:
            problem = (await (await self._oauth(server, store)).log_out()).problem
        except (InterlockError, Problem) as error:
            problem = str(error)
        if problem:
            _log.warning("a deleted login to server %r is not revoked: %s", server, problem)
        self.vault.note("not_revoked" if problem else "revoked", owner, server)

    async def finish(
        self, path: str, query: Mapping[str, str], cookies: Mapping[str, str]
    ) -> tuple[str, str]:
        """Complete a login after the callback; return the server's name, and the path to go to.

        Args:
            path: The path of the callback's URL.
            query: The query parameters of the callback's URL.
            cookies: The cookies in the callback request.

        Raises:
            InterlockError: The login is unknown, began in another browser, or failed.
        """
        from interlock.oauth.login import BegunLogin  # loads aiohttp

        state = query.get("state", "")
        kept = self._begun.opened(cookies, state)
        login = msgspec.json.decode(kept.login, type=BegunLogin)
        is_here = path == urlsplit(login.pending.request.redirect_uri).path
        if not is_here or kept.server not in self._servers():
            raise unknown_login()
        self._begun.use(state)
        owner, server = kept.owner, kept.server
        try:
            oauth = await self._oauth(server, self.vault.tokens(owner, server))
            await oauth.complete_login(login, query)
            if oauth.save_error is not None:
                raise oauth.save_error
            await self.vault.logged_in(owner, server)
        except InterlockError:
            self.vault.note("login_failed", owner, server)
            raise
        return server, kept.to

    def ended(self, state: str) -> Header:
        """Return the header that deletes a login in the browser, after its callback."""
        return self._begun.deleted(state, is_secure=self._is_secure)


async def _challenge(server: HttpServer) -> str:
    with suppress(InterlockError):
        return await login_challenge(server) or ""
    return ""


def _callback(fixed: str, issuer: str) -> str:
    return f"{fixed}/{sha256(issuer.encode()).hexdigest()[:16]}"


# The route


class Connect(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to connect.

    Attributes:
        values: The user's values by name, if the server needs values.
        to: The path that the browser goes to after the login; "" for none.
    """

    values: dict[str, str] = {}
    to: str = ""


async def connect(logins: Logins, request: ApiRequest) -> JsonReply:
    """Store the user's values, and begin the login to the server if a login is needed."""
    vault = logins.vault
    try:
        owner, server = vault.opened_link(request.path["id"])
    except InvalidArguments:
        text = "this link is no longer valid; call the tool again for a new one"
        raise not_found(text) from None
    if owner != request.principal.owner:
        raise Problem(
            403, "other_user", "this link belongs to another user; call the tool to get your own"
        )
    needs, given = logins.needs(server), request.body.values
    if unknown := given.keys() - needs.names:
        raise Problem(
            400,
            "bad_request",
            f"server {server!r} does not use a credential {sorted(unknown)[0]!r}",
        )
    for name, value in given.items():
        await vault.set(owner, server, name, value, by=request.principal)
    if not needs.login:
        done: JsonObject = {"server": server, "connected": True}
        return JsonReply(done | ({"to": path_here(request.body.to)} if request.body.to else {}))
    try:
        begun = await logins.begin(owner, server, request.body.to and path_here(request.body.to))
    except (Problem, StoreError):
        raise
    except InterlockError as error:  # a problem at the server, not of the caller
        raise Problem(502, "login_unavailable", str(error)) from None
    return JsonReply({"server": server, "location": begun.url}, headers=(begun.cookie,))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/connect/{id}",
        "any",
        connect,
        "stores the caller's values for a server, and returns the URL where the caller logs in",
        body=Connect,
    ),
)
