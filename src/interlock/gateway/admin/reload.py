"""The route that reloads the configuration, or plans a reload."""

from __future__ import annotations

from msgspec import Struct

from interlock.gateway.admin.operations import BASE, Operations
from interlock.gateway.planning import plan_of
from interlock.server.http.json_api import ApiRequest, Problem, Route
from interlock.types import JsonObject


class Reload(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a reload; with `plan`, the changes are only returned."""

    plan: bool = False


async def reload(gate: Operations, request: ApiRequest) -> JsonObject:
    """Read the file again, and return the changes; apply them unless only a plan is requested.

    All gateways of a shared database then read their own files again.
    """
    assembly = gate.assembly
    if assembly.parts.config.path is None:
        raise Problem(
            409, "no_file", "the configuration did not come from a file; restart to change it"
        )
    config = assembly.read()
    plan = await plan_of(assembly, config)
    if request.body.plan:
        return plan | {"applied": False}
    hashes = {"before": gate.configuration_hash, "after": gate.hash_of(config)}
    await gate.record(request, {"action": "configuration_reload_started", **hashes})
    try:
        await assembly.reload(config)
    except Exception as error:
        # Record only the error's type, because its text may quote the file; the response has the
        # text.
        failed = {"action": "configuration_reload_failed", "error": type(error).__name__}
        gate.record_soon(request, failed | hashes)
        raise
    # Do not wait for the record, because the reload has already taken effect.
    gate.record_soon(request, {"action": "configuration_reloaded", **hashes})
    if assembly.replicas is None:
        return plan | {"applied": True}
    return plan | {"applied": True, "gateways": await assembly.replicas.reload_others()}


ROUTES = (
    Route(
        "POST",
        f"{BASE}/reload",
        "admin:write",
        reload,
        "reads the file again, in all gateways of a database; with plan, only returns the changes",
        body=Reload,
    ),
)
