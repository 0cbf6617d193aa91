"""The login to the pages: a key or a one-time code opens a session, and a logout ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from interlock.auth import Authenticator, Principal
from interlock.auth.page_session import PAGE_KEY, PageSessions, SessionCookie
from interlock.config.gateway import Issuer
from interlock.errors import AuthRequired
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.types import JsonObject


class Pages(Struct, frozen=True):
    """The objects that the login routes need.

    Attributes:
        cookie: The session cookie of this listener.
        keys: Verifies keys and tokens in a header; None if only one-time codes open sessions.
        issuers: Returns the issuers that users can log in at.
    """

    sessions: PageSessions
    cookie: SessionCookie
    keys: Authenticator | None = None
    issuers: Callable[[], Sequence[Issuer]] = tuple


class Login(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a login: either an API key or a one-time code."""

    key: str | None = None
    code: str | None = None


async def log_in(pages: Pages, request: ApiRequest) -> JsonReply:
    """Open a session; return its page key, and set its cookie."""
    opened = await pages.sessions.open(await _owner(pages, request))
    stored = opened.stored
    body = stored.as_json() | {"pageKey": opened.page_key}
    return JsonReply(body, headers=(pages.cookie.header(opened.cookie),))


async def _owner(pages: Pages, request: ApiRequest) -> Principal:
    given: Login = request.body
    if (given.key is None) == (given.code is None):
        raise Problem(400, "bad_request", "body: send either key or code")
    if given.code is not None:
        owner = await pages.sessions.redeem(given.code)
        if owner is None:
            raise AuthRequired("the credential is not valid", 401, reason="bad_credential")
        return owner
    if pages.keys is None:
        raise AuthRequired("the credential is not valid", 401, reason="bad_credential")
    key = (given.key or "").encode("latin-1", "replace")
    headers = [(b"authorization", b"Bearer " + key)]
    return await pages.keys.authenticate(headers, request.http.address or None)


async def list_issuers(pages: Pages, request: ApiRequest) -> JsonObject:  # noqa: ARG001
    """List the issuers that an organisation's users can log in at."""
    return {
        "issuers": [
            {"issuer": each.issuer, "name": urlsplit(each.issuer).netloc}
            for each in pages.issuers()
        ]
    }


async def log_out(pages: Pages, request: ApiRequest) -> JsonReply:
    """End the session that sent the request, and delete its cookie."""
    page_key = request.http.header(PAGE_KEY) or ""
    for cookie in pages.cookie.values(request.http.scope["headers"]):
        await pages.sessions.close(cookie, page_key)
    return JsonReply(headers=(pages.cookie.header("", max_age=0),))


async def list_sessions(pages: Pages, request: ApiRequest) -> object:
    """List the caller's open sessions, newest first."""
    return [each.as_json() for each in await pages.sessions.of(request.principal)]


async def end_session(pages: Pages, request: ApiRequest) -> None:
    """End one of the caller's sessions."""
    if not await pages.sessions.revoke(request.principal, request.path["id"]):
        raise not_found("no such session")


ROUTES = (
    Route(
        "GET", "/api/login", "", list_issuers, "the issuers where an organisation's users log in"
    ),
    Route(
        "POST",
        "/api/login",
        "",
        log_in,
        "opens a session with a key or a one-time code; returns a cookie and a page key",
        body=Login,
    ),
    Route("POST", "/api/logout", "any", log_out, "ends the session of the request"),
    Route("GET", "/me/sessions", "any", list_sessions, "the caller's open sessions"),
    Route("DELETE", "/me/sessions/{id}", "any", end_session, "ends one of the caller's sessions"),
)
