"""Users' logins to servers in a browser.

        GET /connect/ID         a page where the user authenticates
        POST /connect/ID        stores values, and returns the URL for the login to the server
        GET /oauth/callback     completes the login

1. A link works only for the user it was created for. The link does not authenticate the user; a
   key, a token or a session of the pages does.
2. A login must be completed in the browser that began it: besides `state`, the callback needs the
   login's cookie. Otherwise another person who received the URL could log in for the user.
3. `state` is valid once, and each issuer has its own callback path.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from interlock.auth.principal import Principal
from interlock.config import HttpServer, ServerConfig, resolve
from interlock.errors import (
    AuthError,
    InterlockError,
    InvalidArguments,
    StoreCorrupt,
    StoreError,
)
from interlock.gateway.logins.vault import Vault
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.store.credentials import LOGIN
from interlock.toolbox.connect import client_identity, login_challenge
from interlock.toolbox.user_credentials import Needs, without_users

if TYPE_CHECKING:
    from interlock.oauth import AuthorizationRequest, OAuth
    from interlock.oauth.login import Ask
    from interlock.oauth.storage import TokenStore

CALLBACK_PATH = "/oauth/callback"
BEGIN_TIMEOUT = 30.0  # seconds to obtain the URL of a login
LOGIN_TTL = 600.0  # seconds that a user has to complete a login
FINISH_TIMEOUT = 30.0  # seconds for the token request after a login
MAX_LOGINS = 1_000  # unfinished logins

_Key = tuple[str, str]  # owner and server
_log = logging.getLogger("interlock.gateway")


class _Login:
    """A user's unfinished login to a server."""

    def __init__(self, owner: str, server: str) -> None:
        self.owner = owner
        self.server = server
        self.cookie = secrets.token_urlsafe(32)
        self.work: asyncio.Task[None]
        loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[AuthorizationRequest] = loop.create_future()
        self.answer: asyncio.Future[Mapping[str, str]] = loop.create_future()

    async def ask(self, request: AuthorizationRequest) -> Mapping[str, str]:
        """Wait for the callback, and return its query parameters."""
        self.asked.set_result(request)
        try:
            async with asyncio.timeout(LOGIN_TTL):
                return await self.answer
        except TimeoutError:
            raise AuthError(f"the login was not finished within {LOGIN_TTL:g} s") from None


class BegunServerLogin(Struct, frozen=True):
    """The data that a browser needs to continue a login.

    Attributes:
        url: The URL where the user logs in.
        cookie: The name and value of the cookie that the browser must send to the callback.
    """

    url: str
    cookie: tuple[str, str]


class Logins:
    """Begins and completes users' logins to servers.

    Args:
        vault: Stores the users' logins.
        servers: Returns the configured servers, keyed by their name in addresses.
        environ: The environment variables for `${VAR}`.
    """

    def __init__(
        self,
        vault: Vault,
        servers: Callable[[], Mapping[str, ServerConfig]],
        environ: Mapping[str, str],
    ) -> None:
        self.vault = vault
        self._servers = servers
        self._environ = environ
        self._under_way: dict[_Key, _Login] = {}

    def needs(self, server: str) -> Needs:
        """Return the credentials that each user needs for a server; none if it is unknown."""
        upstream = self.vault.upstreams().get(server)
        return upstream.needs if upstream is not None else Needs()

    async def begin(self, owner: str, server: str) -> BegunServerLogin:
        """Begin a user's login, and cancel the user's earlier unfinished login to the server.

        Raises:
            InterlockError: The authorization server cannot be used.
        """
        earlier = self._under_way.pop((owner, server), None)
        if earlier is not None:
            earlier.work.cancel()
        if len(self._under_way) >= MAX_LOGINS:
            raise Problem(503, "overloaded", "too many unfinished logins; try again later")
        login = self._under_way[owner, server] = _Login(owner, server)
        login.work = asyncio.create_task(self._log_in(login))
        login.work.add_done_callback(lambda _: self._ended(login))
        either: set[asyncio.Future[Any]] = {login.work, login.asked}
        await asyncio.wait(either, timeout=BEGIN_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if not login.asked.done():
            if login.work.done():
                login.work.result()
            login.work.cancel()
            raise AuthError(f"the authorization server of {server!r} does not answer", 503)
        request = login.asked.result()
        return BegunServerLogin(request.url, (_cookie_name(request.state), login.cookie))

    def _ended(self, login: _Login) -> None:
        if self._under_way.get((login.owner, login.server)) is login:
            del self._under_way[login.owner, login.server]
        if not login.work.cancelled():
            login.work.exception()  # avoids asyncio's warning about an exception that is never read

    async def _log_in(self, login: _Login) -> None:
        config = self._servers().get(login.server)
        challenge = ""
        if isinstance(config, HttpServer):
            challenge = await _challenge(resolve(without_users(config), self._environ))
        store = self.vault.tokens(login.owner, login.server)
        oauth = await self._oauth(login.server, store, login.ask)
        await oauth.login(challenge)
        if oauth.save_error is not None:
            raise oauth.save_error
        await self.vault.logged_in(login.owner, login.server)

    @property
    def _callback(self) -> str:
        return f"{self.vault.public_url()}{CALLBACK_PATH}"

    async def _oauth(self, server: str, store: TokenStore, ask: Ask | None) -> OAuth:
        """Return the OAuth login of a user to a server.

        Args:
            server: The server's name.
            store: Stores the tokens.
            ask: Sends the user to the authorization server; None if the user cannot be reached.

        Raises:
            InterlockError: The server does not use logins, or its OpenAPI document cannot be read.
        """
        from interlock.oauth import OAuth  # loads aiohttp

        config = self._servers().get(server)
        fixed = self._callback
        if not isinstance(config, HttpServer):
            return await self._api_login(server, store=store, ask=ask, redirect_uri=fixed)
        config = resolve(without_users(config), self._environ)
        return OAuth(
            config.url,
            redirect_uri=fixed,
            redirect_uri_of=lambda issuer: _callback(fixed, issuer),
            ask=ask,
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
            problem = (await (await self._oauth(server, store, None)).log_out()).problem
        except (InterlockError, Problem) as error:
            problem = str(error)
        if problem:
            _log.warning("a deleted login to server %r is not revoked: %s", server, problem)
        self.vault.note("not_revoked" if problem else "revoked", owner, server)

    async def finish(self, path: str, query: Mapping[str, str], cookies: Mapping[str, str]) -> str:
        """Complete a login after the callback; return the server's name.

        Args:
            path: The path of the callback's URL.
            query: The query parameters of the callback's URL.
            cookies: The cookies in the callback request.

        Raises:
            InterlockError: The login is unknown, began in another browser, or failed.
        """
        state = query.get("state", "")
        login = next((each for each in self._under_way.values() if _is_of(each, state)), None)
        unknown = AuthError("this login has ended, or began in another browser; begin again")
        if login is None or login.answer.done():
            raise unknown
        cookie = cookies.get(_cookie_name(state), "")
        redirect = urlsplit(login.asked.result().redirect_uri).path
        if not hmac.compare_digest(cookie.encode(), login.cookie.encode()) or path != redirect:
            raise unknown
        login.answer.set_result(query)
        done, _ = await asyncio.wait({login.work}, timeout=FINISH_TIMEOUT)
        if not done:
            raise AuthError(f"server {login.server!r} did not send tokens in time; begin again")
        if login.work.cancelled():
            raise unknown
        try:
            login.work.result()
        except InterlockError:
            self.vault.note("login_failed", login.owner, login.server)
            raise
        return login.server

    async def close(self) -> None:
        tasks = [each.work for each in self._under_way.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _challenge(server: HttpServer) -> str:
    with suppress(InterlockError):
        return await login_challenge(server) or ""
    return ""


def _is_of(login: _Login, state: str) -> bool:
    if not login.asked.done() or login.asked.cancelled():
        return False
    return hmac.compare_digest(login.asked.result().state.encode(), state.encode())


def _callback(fixed: str, issuer: str) -> str:
    return f"{fixed}/{sha256(issuer.encode()).hexdigest()[:16]}"


def _cookie_name(state: str) -> str:
    return f"interlock-connect-{sha256(state.encode()).hexdigest()[:16]}"


# The route


class Connect(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to connect: the user's values by name, if the server needs values."""

    values: dict[str, str] = {}


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
        return JsonReply({"server": server, "connected": True})
    try:
        begun = await logins.begin(owner, server)
    except (Problem, StoreError):
        raise
    except InterlockError as error:  # a problem at the server, not of the caller
        raise Problem(502, "login_unavailable", str(error)) from None
    return JsonReply(
        {"server": server, "location": begun.url}, headers=(_set_cookie(logins, *begun.cookie),)
    )


def _set_cookie(logins: Logins, name: str, value: str) -> tuple[bytes, bytes]:
    is_secure = logins.vault.public_url().startswith("https:")
    parts = [f"{name}={value}", f"Path={CALLBACK_PATH}", "HttpOnly", "SameSite=Lax"]
    parts += ["Secure"] * is_secure + [f"Max-Age={LOGIN_TTL:.0f}"]
    return b"set-cookie", "; ".join(parts).encode()


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
