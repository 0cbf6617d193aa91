"""The admin API's routes for the gateway's state, its servers, and the use of limits."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from interlock import __version__
from interlock.gateway.admin.operations import BASE, EmptyBody, Operations
from interlock.gateway.parts import sharing_of
from interlock.server.http.json_api import ApiRequest, Route, not_found
from interlock.text.surrogates import path_text
from interlock.text.timestamps import rfc3339
from interlock.toolbox import ServerStatus
from interlock.types import JsonObject


class UsageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The key whose limits are requested; "" for the limits on all calls."""

    key: str = ""


async def show(gate: Operations, request: ApiRequest) -> JsonObject:  # noqa: ARG001
    """Return the gateway's version, configuration, servers and audit state."""
    parts = gate.parts
    return {
        "version": __version__,
        "uptime": round(gate.uptime, 1),
        "configuration": {
            "file": path_text(parts.config.path or "") or None,
            "hash": gate.configuration_hash,
            "loaded": rfc3339(gate.assembly.loaded_at),
            "warnings": list(parts.config.warnings),
        },
        "servers": [server(gate, each) for each in gate.server.toolbox.status.values()],
        "audit": _audit_state(gate),
        "calls": parts.limiter.usage(),
        "gateways": await gateways(gate),
    }


async def gateways(gate: Operations) -> list[JsonObject]:
    """Return the gateways of a shared database; an empty list for a SQLite file."""
    return [] if gate.assembly.replicas is None else await gate.assembly.replicas.list()


def _audit_state(gate: Operations) -> JsonObject:
    """Return the audit trail's mode, and how far its writer has come."""
    state: JsonObject = {"mode": gate.assembly.started.audit.mode}
    writer = gate.services.writer
    if writer is None:
        return state
    return state | {
        "writer": writer.id,
        "head": {"seq": writer.head.seq, "hash": writer.head.hash.hex()},
        "records": writer.rows,
        "lost": writer.dropped,
        "lag": round(writer.lag, 3),
    }


def server(gate: Operations, status: ServerStatus) -> JsonObject:
    """Return a server's entry for lists."""
    parts = gate.parts
    queues = {name: queue for (name, *_), queue in parts.queues.items()}
    return {
        "name": status.name,
        "state": status.state,
        "reason": status.reason or None,
        "revision": status.revision or None,
        "tools": status.tools,
        "instances": status.connections,
        "calls": gate.services.metrics.in_flight(status.name),
        "queue": queues[status.name].waiting if status.name in queues else 0,
    }


async def show_server(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return all details about a server."""
    upstream = _upstream(gate, request)
    status = upstream.status
    more = asdict(status)
    shown = {
        "sharing": sharing_of(gate.parts.config, status.name),
        "serverInfo": status.server_info or None,
        "startSeconds": round(status.start_seconds, 3),
        "starts": status.starts,
        "retryIn": round(status.retry_in, 1),
        "missing": list(status.missing),
        "flagged": list(status.flagged),
        "dropped": dict(more["dropped"]),
        "instructions": upstream.instructions,
        "toolList": [
            {"address": each.address, "name": each.wire_name, "stale": each.stale}
            for each in upstream.entries
        ],
        "unusable": [
            {name: getattr(each, name) for name in ("name", "detail", "is_hidden", "reason")}
            for each in upstream.unusable
        ],
    }
    return server(gate, status) | shown


async def restart(gate: Operations, request: ApiRequest) -> JsonObject:
    """End a server's connections and running calls, then start the server again."""
    upstream = _upstream(gate, request)
    before = server(gate, upstream.status)
    about = {"action": "server_restarted", "id": upstream.name, "before": before}
    await gate.record(request, about)
    await upstream.restart()
    return server(gate, upstream.status)


async def test(gate: Operations, request: ApiRequest) -> JsonObject:
    """Send a request to a server; return how long the response took, or the error."""
    seconds, problem = await gate.server.test(_upstream(gate, request).name)
    return {"ok": not problem, "ms": round(seconds * 1_000, 1), "reason": problem or None}


async def stderr(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return the last lines of a server's stderr."""
    return {"text": _upstream(gate, request).stderr}


async def usage(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return how much of the limits is used, and the number of refused requests by reason."""
    key = request.query.key
    if key and gate.services.keys.by_id(key) is None:
        raise not_found("no key has this id")
    metrics = gate.services.metrics
    refusals = metrics.refusals_of.get(key, Counter()) if key else metrics.refusals
    return gate.parts.limiter.usage(key) | {"refusals": dict(refusals)}


def _upstream(gate: Operations, request: ApiRequest) -> Any:
    upstream = gate.server.toolbox.upstreams.get(request.path["name"])
    if upstream is None:
        raise not_found("no server has this name")
    return upstream


_ONE = f"{BASE}/servers/{{name}}"
ROUTES = (
    Route(
        "GET",
        f"{BASE}/status",
        "admin:read",
        show,
        "version, configuration, servers, audit, gateways",
    ),
    Route(
        "GET",
        f"{BASE}/usage",
        "admin:read",
        usage,
        "how much of the limits is used, and refusals by reason, for a key or for all calls",
        query=UsageQuery,
    ),
    Route("GET", _ONE, "admin:read", show_server, "one server, with its tools"),
    Route(
        "POST",
        f"{_ONE}/restart",
        "admin:write",
        restart,
        "ends a server's connections and starts the server again",
        body=EmptyBody,
    ),
    Route(
        "POST",
        f"{_ONE}/test",
        "admin:write",
        test,
        "sends a request to a server, and returns how long the response took",
        body=EmptyBody,
    ),
    Route("GET", f"{_ONE}/stderr", "admin:read", stderr, "the end of a server's stderr"),
)
