"""The JSON routes of the consent page, and of the page of what a person has allowed."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.auth.page_session import PAGE_KEY
from interlock.errors import AuthRequired
from interlock.gateway.front_door.consent import AskedQuery, Consent, ConsentDecision
from interlock.gateway.front_door.request import OAuthError
from interlock.server.http.json_api import ApiRequest, Problem, Route, not_found
from interlock.types import JsonObject


async def show(consent: Consent, request: ApiRequest) -> JsonObject:
    """Return what an authorization request asks of the person who has signed in."""
    _check_session(request)
    try:
        return await consent.show(request.body.query, request)
    except OAuthError as error:
        raise Problem(400, error.error, error.text) from None


async def decide(consent: Consent, request: ApiRequest) -> JsonObject:
    """Allow or deny an authorization request."""
    _check_session(request)
    try:
        return await consent.decide(request.body, request)
    except OAuthError as error:
        raise Problem(400, error.error, error.text) from None


def _check_session(request: ApiRequest) -> None:
    if request.http.header(PAGE_KEY) is None:
        raise AuthRequired("only a session of the pages can decide", 401, reason="no_credential")


async def list_mine(consent: Consent, request: ApiRequest) -> JsonObject:
    """List the clients that the caller has allowed."""
    return {"clients": await consent.allowed_by(request.principal)}


async def disconnect(consent: Consent, request: ApiRequest) -> None:
    """End one of the caller's authorizations."""
    if not await consent.disconnect(request.principal, request.path["id"]):
        raise not_found("no such authorization")


ROUTES: Sequence[Route] = (
    Route(
        "POST",
        "/api/authorize",
        "any",
        show,
        "what an OAuth client asks of the caller, for the page that decides about it",
        body=AskedQuery,
    ),
    Route(
        "POST",
        "/api/authorize/decide",
        "any",
        decide,
        "allows or denies what an OAuth client asks for; returns where the browser goes",
        body=ConsentDecision,
    ),
    Route("GET", "/me/clients", "any", list_mine, "the OAuth clients that the caller has allowed"),
    Route(
        "DELETE", "/me/clients/{id}", "any", disconnect, "ends what the caller allowed to a client"
    ),
)
