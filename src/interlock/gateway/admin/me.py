"""The route that returns a user's own rights and limits."""

from __future__ import annotations

from interlock import __version__
from interlock.gateway.admin.operations import Operations
from interlock.server.http.json_api import ApiRequest, Route
from interlock.types import JsonObject

ROLES = (("admin", "admin:write"), ("operator", "admin:approve"), ("auditor", "admin:read"))


async def show(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return the caller, the rights of the credential, and the gateway's features."""
    principal = request.principal
    settings = gate.parts.settings
    role = next((name for name, scope in ROLES if scope in principal.scopes), "user")
    shown: JsonObject = {
        "user": principal.id,
        "key": principal.key_id or None,
        "scopes": sorted(principal.scopes),
        "role": role,
        "groups": sorted(gate.parts.policy.groups_of(principal)),
        "view": principal.view or None,
        "usage": gate.parts.limiter.usage(principal.counted),
        "features": {"chat": settings.chat is not None, "plugins": settings.plugins is not None},
        "version": __version__,
    }
    if settings.telemetry.link and "admin:read" in principal.scopes:
        shown["traces"] = settings.telemetry.link
    return shown


ROUTES = (Route("GET", "/me", "any", show, "the caller, their scopes and their limits"),)
