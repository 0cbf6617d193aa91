"""Routes for tools: operators see any caller's tools, and callers see their own."""

from __future__ import annotations

from interlock.calls import Caller
from interlock.gateway.admin.operations import BASE, Limit, Operations, PageQuery, page_of
from interlock.gateway.forwarding.search_tools import MAX_FOUND
from interlock.server.http.json_api import ApiRequest, JsonReply, Route
from interlock.types import JsonObject


class ToolQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """The filter for a list of tools: a key or a user, a view, and a text `q` to look for.

    With `search`, only the tools that a model would find with this query are listed, best first.
    """

    key: str = ""
    user: str = ""
    view: str = ""
    q: str = ""
    search: str = ""


class OwnToolQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """The filter for the caller's own tools: `q` is part of a name, title or description."""

    q: str = ""
    limit: Limit = 500


async def list_tools(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return the tools that a key or user sees, the missing tools, and the denied tools."""
    wanted: ToolQuery = request.query
    caller, _ = await gate.caller(wanted.key, wanted.user, wanted.view)
    tools, missing = await gate.server.tools_of(caller)
    if wanted.search:
        return JsonReply({"tools": await _found(gate, caller, wanted, tools), "missing": missing})
    seen = {each["address"] for each in (*tools, *missing)}
    there = (each.address for each in gate.server.toolbox.tools)
    denied = sorted(each for each in there if each not in seen and wanted.q.lower() in each.lower())
    return _listed(request, tools, missing, denied=denied[: wanted.limit])


async def _found(
    gate: Operations, caller: Caller, wanted: ToolQuery, tools: list[JsonObject]
) -> list[JsonObject]:
    """Return the tools that a model would find, each with the words that match."""
    limit = min(wanted.limit, MAX_FOUND)
    found = await gate.server.searching.explained(wanted.search, limit, caller)
    seen = {each["address"]: each for each in tools}
    return [seen[each.tool.entry.address] | {"matches": each.matches} for each in found]


async def list_own(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return the tools that the caller sees, and the missing tools."""
    return _listed(request, *await gate.server.tools_of(Caller(request.principal)))


def _listed(
    request: ApiRequest, tools: list[JsonObject], missing: list[JsonObject], **more: list[str]
) -> JsonReply:
    wanted = request.query.q
    if wanted:
        tools = [each for each in tools if _has(each, wanted.lower())]
    reply = page_of(tools, request.query, request, lambda each: each["address"])
    found: JsonObject = {"tools": reply.body, "missing": missing, **more}
    if not tools:
        found["reason"] = "no_match" if wanted else "nothing_granted"
    return JsonReply(found, headers=reply.headers)


def _has(tool: JsonObject, text: str) -> bool:
    members = ("address", "name", "title", "description")
    return any(text in (tool.get(each) or "").lower() for each in members)


ROUTES = (
    Route(
        "GET",
        f"{BASE}/tools",
        "admin:read",
        list_tools,
        "the tools that a key or a user sees, the tools that are missing, and the tools that it may"
        " not call",
        query=ToolQuery,
    ),
)
OWN_ROUTES = (
    Route(
        "GET",
        "/me/tools",
        "mcp:",
        list_own,
        "the tools that the caller sees, and the tools that are missing",
        query=OwnToolQuery,
    ),
)
