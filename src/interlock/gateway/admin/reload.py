"""The configuration: what reading the file again would change, and doing it."""

from __future__ import annotations

from msgspec import Struct

from interlock.config import load
from interlock.gateway.admin.operations import BASE, Operations
from interlock.gateway.planning import plan_of
from interlock.server.http.json_api import ApiRequest, Problem, Route
from interlock.types import JsonObject


class Reload(Struct, frozen=True, forbid_unknown_fields=True):
    """The body: only plan, or apply."""

    plan: bool = False


async def reload(gate: Operations, request: ApiRequest) -> JsonObject:
    """Read the file again; return what changes, and change it unless only a plan is wanted."""
    assembly = gate.assembly
    path = assembly.parts.config.path
    if path is None:
        raise Problem(409, "no_file", "the configuration is not from a file, so it stays")
    config = load(path)
    plan = await plan_of(assembly, config)
    if request.body.plan:
        return plan | {"applied": False}
    hashes = {"before": gate.configuration_hash, "after": gate.hash_of(config)}
    await gate.record(request, {"action": "configuration_reload_started", **hashes})
    try:
        await assembly.reload(config)
    except Exception as error:
        # Only the type: a message may quote the file, and the answer has it anyway.
        failed = {"action": "configuration_reload_failed", "error": type(error).__name__}
        gate.record_soon(request, failed | hashes)
        raise
    # Not awaited: the reload has taken effect, whether the record can be written now or not.
    gate.record_soon(request, {"action": "configuration_reloaded", **hashes})
    return plan | {"applied": True}


ROUTES = (
    Route(
        "POST",
        f"{BASE}/reload",
        "admin:write",
        reload,
        "reads the file again; with plan, only says what would change",
        body=Reload,
    ),
)
