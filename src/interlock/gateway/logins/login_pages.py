"""The login of an organisation's users to the web pages.

        GET /login/begin?issuer=URL&to=PATH     redirects the browser to a configured issuer
        GET /login/callback                     opens a page session, and redirects to PATH

1. The state of a login is encrypted in a cookie; see `AttemptCookies`.
2. The page key is sent in the body of the last response, never in a URL.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from interlock.auth.gateway_auth import RefusedCredential
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.page_session import PageSessions, SessionCookie
from interlock.auth.principal import Principal
from interlock.config.gateway import Issuer
from interlock.errors import InterlockError, StoreError
from interlock.gateway.logins.login_attempt import Attempt, AttemptCookies, unknown_login
from interlock.gateway.logins.plain_page import HTML, cookies_of, headers_for, path_here, plain_page
from interlock.server.http.guard import Guard
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.proxies import stated_origin
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Header, HttpRefusal, Receive, Scope, Send, refuse, reply
from interlock.text.quoting import clip, visible
from interlock.text.urls import is_loopback, origin

if TYPE_CHECKING:
    from interlock.gateway.logins.organisation_login import OidcLogin, SignedIn

BEGIN_PATH = "/login/begin"
CALLBACK_PATH = "/login/callback"
MAX_QUERY = 16_384  # bytes of a query string
MAX_ERROR = 400  # characters of an error on a page
_SCRIPT = """
const {key, to} = JSON.parse(document.getElementById("data").textContent);
localStorage.setItem("interlock-key", key);
location.replace(to);
"""


class _Sealed(Struct, frozen=True):
    """The encrypted content of a login's cookie."""

    issuer: str
    attempt: Attempt
    to: str


class LoginPages:
    """An ASGI application that serves the login of an organisation's users.

    Args:
        beside: The application that serves all other paths.
        sessions: Opens the page sessions.
        cookie: The session cookie of this listener.
        secret: Encrypts the state of a login.
        issuers: Returns the issuers that users can log in at.
        hosts: The allowed values of the `Host` header; see `Guard`.
        public_url: The pages' URL for browsers; "" if it is the listener's address.
        on_refused: Called for each refused login.
        on_signed_in: Stores a person who has logged in, for the OAuth front door; None without one.
    """

    def __init__(
        self,
        beside: AsgiApp,
        sessions: PageSessions,
        cookie: SessionCookie,
        secret: GatewayKey,
        issuers: Callable[[], Sequence[Issuer]],
        *,
        hosts: Sequence[str] | None,
        public_url: str,
        on_refused: Callable[[RefusedCredential], None] = lambda _: None,
        on_signed_in: Callable[[SignedIn], Awaitable[None]] | None = None,
    ) -> None:
        self._on_signed_in = on_signed_in
        self._beside = beside
        self._sessions = sessions
        self._cookie = cookie
        self._attempts = AttemptCookies(secret, _Sealed, "login", CALLBACK_PATH)
        self._issuers = issuers
        self._public_url = public_url
        self._on_refused = on_refused
        # Not `PageGuard`: the callback comes from the issuer's site, which `PageGuard` would
        # refuse.
        self._guard = Guard(hosts, (), ())
        self._logins: dict[str, OidcLogin] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and scope["path"] in (BEGIN_PATH, CALLBACK_PATH)
        if not is_ours or scope["method"] != "GET":
            await self._beside(scope, receive, send)
            return
        request = HttpRequest(scope, receive, send)
        raw: bytes = scope.get("query_string", b"")
        query = dict(parse_qsl(raw[:MAX_QUERY].decode("latin-1"), keep_blank_values=True))
        try:
            self._guard.check(request)
            if scope["path"] == BEGIN_PATH:
                await self._begin(request, query)
            else:
                await self._end(request, query)
        except HttpRefusal as refusal:
            await refuse(send, refusal)

    # Beginning a login

    async def _begin(self, request: HttpRequest, query: dict[str, str]) -> None:
        found = [each for each in self._issuers() if each.issuer == query.get("issuer")]
        if not found:
            text = "<p>This issuer is not configured. The configuration may have changed.</p>"
            await self._answer(request, 404, text)
            return
        try:
            begun = await self._login(found[0]).begin(self._origin(request) + CALLBACK_PATH)
            kept = _Sealed(found[0].issuer, begun.attempt, path_here(query.get("to", "")))
            is_secure = self._cookie.is_secure
            cookie = self._attempts.sealed(begun.attempt.state, kept, is_secure=is_secure)
        except InterlockError as error:
            await self._answer(request, 502, f"<p>{escape(clip(str(error)))}.</p>{_AGAIN}")
            return
        headers = (cookie, (b"location", begun.url.encode()))
        await reply(request.send, 302, b"", [*headers_for(), *headers], kind=HTML)

    def _login(self, issuer: Issuer) -> OidcLogin:
        found = self._logins.get(issuer.issuer)
        if found is None or found.issuer != issuer:  # the configuration has changed
            from interlock.gateway.logins.organisation_login import OidcLogin  # loads aiohttp

            is_kept = self._on_signed_in is not None
            found = self._logins[issuer.issuer] = OidcLogin(issuer, is_kept=is_kept)
        return found

    def _origin(self, request: HttpRequest) -> str:
        if self._public_url:
            return origin(self._public_url)
        if stated := stated_origin(request.scope):
            return stated
        host = request.header(b"host") or ""  # already checked by the guard
        is_local = is_loopback(urlsplit(f"//{host}").hostname or "")
        return f"{'http' if is_local else 'https'}://{host}"

    # Completing a login

    async def _end(self, request: HttpRequest, query: dict[str, str]) -> None:
        state = query.get("state", "")
        over = self._attempts.deleted(state, is_secure=self._cookie.is_secure)
        try:
            kept = self._attempts.opened(cookies_of(request), state)
            self._attempts.use(state)
            issuer = next((each for each in self._issuers() if each.issuer == kept.issuer), None)
            if issuer is None or kept.attempt.redirect_uri != self._origin(request) + CALLBACK_PATH:
                raise unknown_login()
            signed_in = await self._login(issuer).finish(kept.attempt, query)
            principal = signed_in.principal
            if not principal.scopes:
                self._on_refused(RefusedCredential("insufficient_scope", request.address or ""))
                await self._answer(request, 403, _no_rights(principal), over)
                return
            if self._on_signed_in is not None:
                await self._on_signed_in(signed_in)
            opened = await self._sessions.open(principal)
        except StoreError:
            await self._answer(request, 503, f"<p>The database does not answer.</p>{_AGAIN}", over)
            return
        except InterlockError as error:
            self._on_refused(RefusedCredential("bad_credential", request.address or ""))
            text = f"<p>{escape(visible(str(error))[:MAX_ERROR])}.</p>{_AGAIN}"
            await self._answer(request, _status(error), text, over)
            return
        data = json.dumps({"key": opened.page_key, "to": kept.to}).replace("<", "\\u003c")
        body = f'<script type="application/json" id="data">{data}</script>'
        page = plain_page("Signed in", body, _SCRIPT)
        headers = [*headers_for(_SCRIPT), over, self._cookie.header(opened.cookie)]
        await reply(request.send, 200, page.encode(), headers, kind=HTML)

    async def _answer(self, request: HttpRequest, status: int, body: str, *headers: Header) -> None:
        page = plain_page("Not signed in", body)
        await reply(request.send, status, page.encode(), [*headers_for(), *headers], kind=HTML)


_AGAIN = '<p><a href="/login">Sign in again</a></p>'


def _status(error: InterlockError) -> int:
    status = getattr(error, "status", None)
    return status if status in (400, 403) else 502


def _no_rights(principal: Principal) -> str:
    groups = ", ".join(sorted(principal.groups)) or "none"
    return (
        f"<p>You are <b>{escape(clip(principal.id))}</b>, and none of your groups may use this"
        f" gateway (groups: {escape(clip(groups))}).</p>"
        "<p>Ask the operator, who grants rights by <code>auth.issuers[].scopes</code>.</p>"
    )
