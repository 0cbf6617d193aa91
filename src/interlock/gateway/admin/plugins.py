"""Plugins, and the users who have them."""

from __future__ import annotations

from msgspec import Struct

from interlock.gateway.admin.operations import BASE, Operations, Page, page_of
from interlock.server.http.json_api import ApiRequest, JsonReply, Route, not_found
from interlock.store.plugins import Installation, PluginStore
from interlock.types import JsonObject


class NoMembers(Struct, frozen=True, forbid_unknown_fields=True):
    """The empty body of an installation."""


async def list_plugins(gate: Operations, request: ApiRequest) -> JsonReply:
    """List the plugins with their tools and users, and what is wrong with their manifests."""
    installed = await PluginStore(gate.assembly.database).list()
    found = [
        {
            "name": each.name,
            "version": each.version,
            "tools": [tool.name for tool in each.tools],
            "users": [one.user for one in installed if one.plugin == each.name],
            "problems": dict(each.problems),
        }
        for each in gate.assembly.parts.plugins.found
    ]
    return page_of(found, request.query, request, lambda each: each["name"])


async def show(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return since when a user has a plugin, and by whom."""
    return (await _installation(gate, request)).as_json()


async def install(gate: Operations, request: ApiRequest) -> JsonReply:
    """Give a user the tools of a plugin."""
    name, user = request.path["name"], _user(request)
    if name not in {each.name for each in gate.assembly.parts.plugins.found}:
        raise not_found("no plugin has this name")
    store = PluginStore(gate.assembly.database)
    is_new = await store.install(name, user, by=request.principal.id)
    after = (await _installation(gate, request)).as_json()
    if is_new:
        await gate.record(request, "plugin_installed", id=name, after=after)
    return JsonReply(after, 201 if is_new else 200)


async def remove(gate: Operations, request: ApiRequest) -> None:
    """Take the tools of a plugin from a user."""
    before = await _installation(gate, request)
    if await PluginStore(gate.assembly.database).remove(before.plugin, before.user):
        await gate.record(request, "plugin_removed", id=before.plugin, before=before.as_json())


async def _installation(gate: Operations, request: ApiRequest) -> Installation:
    name, user = request.path["name"], _user(request)
    for each in await PluginStore(gate.assembly.database).list():
        if (each.plugin, each.user) == (name, user):
            return each
    raise not_found("the user does not have such a plugin")


def _user(request: ApiRequest) -> str:
    user = request.path["user"]
    if not user.isprintable() or user != user.strip():
        raise not_found("no user has this name")
    return user if "#" in user or user.startswith("user:") else f"user:{user}"


_ONE = f"{BASE}/plugins/{{name}}/users/{{user*}}"
ROUTES = (
    Route(
        "GET",
        f"{BASE}/plugins",
        "admin:read",
        list_plugins,
        "plugins with their tools and users",
        query=Page,
    ),
    Route("GET", _ONE, "admin:read", show, "since when a user has a plugin"),
    Route(
        "POST",
        _ONE,
        "admin:write",
        install,
        "gives a user the tools of a plugin",
        body=NoMembers,
    ),
    Route("DELETE", _ONE, "admin:write", remove, "takes them from the user"),
)
