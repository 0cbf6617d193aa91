"""The admin API's routes for plugins, and for the users who installed them."""

from __future__ import annotations

from interlock.auth.principal import principal_id
from interlock.gateway.admin.operations import BASE, EmptyBody, Operations, PageQuery, page_of
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.store.database.recorded import Record
from interlock.store.plugins import Installation, PluginStore
from interlock.types import JsonObject


async def list_plugins(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return a page of plugins, with their tools, users and manifest problems."""
    installed = await PluginStore(gate.services.database).list()
    found = [
        {
            "name": each.name,
            "version": each.version,
            "tools": [tool.name for tool in each.tools],
            "users": [one.user for one in installed if one.plugin == each.name],
            "problems": dict(each.problems),
        }
        for each in gate.parts.plugins.found
    ]
    return page_of(found, request.query, request, lambda each: each["name"])


async def show(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return when a user's plugin was installed, and by whom."""
    return (await _installation(gate, request)).as_json()


async def install(gate: Operations, request: ApiRequest) -> JsonReply:
    """Install a plugin for a user."""
    name, user = request.path["name"], _user(request)
    if name not in {each.name for each in gate.parts.plugins.found}:
        raise not_found("no plugin has this name")
    store = PluginStore(gate.services.database)
    record = _recording(gate, request, "plugin_installed")
    made = await store.install(name, user, by=request.principal.id, record=record)
    if made is not None:
        return JsonReply(made.as_json(), 201)
    return JsonReply((await _installation(gate, request)).as_json())


async def remove(gate: Operations, request: ApiRequest) -> None:
    """Remove a plugin from a user."""
    store, record = PluginStore(gate.services.database), _recording(gate, request, "plugin_removed")
    if not await store.remove(request.path["name"], _user(request), record=record):
        raise _not_installed()


async def _installation(gate: Operations, request: ApiRequest) -> Installation:
    store = PluginStore(gate.services.database)
    found = await store.find(request.path["name"], _user(request))
    if found is None:
        raise _not_installed()
    return found


def _recording(gate: Operations, request: ApiRequest, action: str) -> Record | None:
    def described(before: Installation | None, after: Installation | None) -> JsonObject:
        rows = {"before": before, "after": after}
        shown = {name: each.as_json() for name, each in rows.items() if each is not None}
        return {"action": action, "id": request.path["name"], **shown}

    return gate.recording(request, described)


def _not_installed() -> Problem:
    return not_found("the user has not installed this plugin")


def _user(request: ApiRequest) -> str:
    user = request.path["user"]
    if not user.isprintable() or user != user.strip():
        raise not_found("no user has this name")
    return principal_id(user)


_ONE = f"{BASE}/plugins/{{name}}/users/{{user*}}"
ROUTES = (
    Route(
        "GET",
        f"{BASE}/plugins",
        "admin:read",
        list_plugins,
        "plugins with their tools and users",
        query=PageQuery,
    ),
    Route("GET", _ONE, "admin:read", show, "when a user's plugin was installed, and by whom"),
    Route(
        "POST",
        _ONE,
        "admin:write",
        install,
        "installs a plugin for a user",
        body=EmptyBody,
    ),
    Route("DELETE", _ONE, "admin:write", remove, "removes a plugin from a user"),
)
