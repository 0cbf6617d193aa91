"""Checks of the login of OAuth clients: discovery, sign-in page, issuers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from interlock.config.gateway import GatewaySettings
from interlock.errors import InterlockError
from interlock.gateway.deployment.check_result import CheckResult, error, ok
from interlock.gateway.serving.listeners import DEFAULT
from interlock.text import urls
from interlock.types import JsonObject

_SERVER, _RESOURCE = (
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-protected-resource",
)


async def check_front_door(settings: GatewaySettings) -> AsyncIterator[CheckResult]:
    """Request what a client requests; yield nothing without a front door."""
    if settings.oauth is None:
        return
    from interlock.oauth.fetcher import Fetcher  # loads aiohttp

    public = settings.public_url or f"http://{settings.listen or DEFAULT}/mcp"
    origin = urls.origin(public)
    try:
        fetcher = Fetcher(origin)
        server = (await fetcher.get(origin + _SERVER)).json(JsonObject)
        resource = (await fetcher.get(f"{origin}{_RESOURCE}/mcp")).json(JsonObject)
        page = await fetcher.get(f"{origin}/authorize")
        named = resource.get("authorization_servers")
        if server.get("issuer") != origin:
            yield error("frontDoor", _wrong(origin + _SERVER, "issuer", origin))
        elif not isinstance(named, list) or origin not in named:
            yield error("frontDoor", _wrong(origin + _RESOURCE, "authorization_servers", origin))
        elif page.status != 400:  # the page for a request that names no client
            text = f"{origin}/authorize answers {page.status}; let the proxy pass it on"
            yield error("frontDoor", text)
        else:
            yield ok("frontDoor", f"clients find the login at {origin}")
    except (InterlockError, msgspec.MsgspecError) as found:
        text = f"clients do not find the login: {found}; start the gateway, and check the proxy"
        yield error("frontDoor", text)
    async for each in check_issuers(settings):
        yield each


async def check_issuers(settings: GatewaySettings) -> AsyncIterator[CheckResult]:
    """Begin a login at each issuer, as a person's browser does."""
    from interlock.gateway.logins.organisation_login import OidcLogin  # loads aiohttp

    for issuer in settings.issuers:
        if not issuer.client_id:
            continue
        try:
            await OidcLogin(issuer).begin(f"{urls.origin(settings.public_url)}/login/callback")
            yield ok("issuer", issuer.issuer)
        except InterlockError as found:
            yield error("issuer", f"{issuer.issuer}: {found}")


def _wrong(url: str, member: str, origin: str) -> str:
    return f"{url} does not state {origin} as {member}; set publicUrl to the URL that clients use"
