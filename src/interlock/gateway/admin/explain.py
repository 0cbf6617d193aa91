"""The route that explains whether a call would be made, and why."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from interlock.gateway.admin.operations import BASE, Operations
from interlock.gateway.explain.explainer import explainer_for
from interlock.server.http.json_api import ApiRequest, Route
from interlock.types import JsonObject


class ExplainBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body: the caller, and the call's address and arguments; without address, all tools."""

    key: str = ""
    user: str = ""
    view: str = ""
    address: str = ""
    arguments: dict[str, Any] | None = None


async def explain(gate: Operations, request: ApiRequest) -> JsonObject:
    """Explain the checks of a call; without an address, explain which tools are listed."""
    asked: ExplainBody = request.body
    caller, key = await gate.caller(asked.key, asked.user, asked.view)
    explainer = await explainer_for(caller, gate.assembly)
    if asked.address:
        explained = await explainer.explain_call(caller, asked.address, asked.arguments, key=key)
        return explained.as_json()
    found = []
    for address, each in explainer.all_tools(caller, key=key):
        row = {"tool": address, "effect": each.effect, "reason": each.reason, "state": each.state}
        found.append({name: value for name, value in row.items() if value})
    return {"tools": found}


ROUTES = (
    Route(
        "POST",
        f"{BASE}/explain",
        "admin:read",
        explain,
        "whether a call would be made, and why; without an address, for all tools",
        body=ExplainBody,
    ),
)
