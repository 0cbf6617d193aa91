"""The route for the board's overview: figures, a chart, and problems that need attention."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from interlock.gateway.admin.operations import BASE, Operations
from interlock.gateway.admin.status import gateways, server
from interlock.gateway.definitions.decisions import Definitions, as_json
from interlock.server.http.json_api import ApiRequest, Route
from interlock.store.audit.rollup_series import Series
from interlock.store.pins import PinStore
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

HOUR = 3_600 * 1_000_000  # microseconds
RANGES = {"1h": HOUR, "24h": 24 * HOUR, "7d": 168 * HOUR, "30d": 720 * HOUR}
BUCKETS = 48
SOON = 7 * 24 * HOUR  # how long before its expiry a key is shown
MAX_SHOWN = 20  # items shown for each kind of problem
_REFUSED = ("refused", "limited", "held")


class OverviewQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The time span of the figures and the chart."""

    range: Literal["1h", "24h", "7d", "30d"] = "24h"


async def show(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return the figures, the chart, the servers, and the problems that need attention."""
    now = now_micros()
    async with gate.reading_audit() as reader:
        series = await reader.series(
            "outcome", now - RANGES[request.query.range], now, buckets=BUCKETS
        )
    approvals = gate.services.approvals
    pins = await Definitions(PinStore(gate.services.database), by="").list()
    held = [each for each in pins if each.waits]
    statuses = gate.server.toolbox.status.values()
    servers = [server(gate, each) for each in statuses]
    return {
        "range": request.query.range,
        "figures": _figures(gate, series),
        "series": series.as_json(),
        "servers": servers,
        "gateways": await gateways(gate),
        "needs": {
            "servers": [each for each in servers if each["state"] not in ("ok", "disabled")],
            "approvals": [approvals.shown(each) for each in await approvals.oldest(MAX_SHOWN)],
            "definitions": [as_json(each) for each in held[:MAX_SHOWN]],
            "keys": _ending_keys(gate, now),
        },
        "waiting": {"approvals": await approvals.pending(), "definitions": len(held)},
    }


def _figures(gate: Operations, series: Series) -> JsonObject:
    calls = {each.name: sum(each.calls) for each in series.lines}
    return {
        "calls": sum(calls.values()),
        "failed": calls.get("failed", 0),
        "refused": sum(calls.get(each, 0) for each in _REFUSED),
        "p50": series.total.total["p50"],
        "p95": series.total.total["p95"],
        "ownP95": gate.services.metrics.own_share(95),
    }


def _ending_keys(gate: Operations, now: int) -> list[JsonObject]:
    """Return active keys that expire soon and are not yet replaced, ordered by expiry."""
    ending = sorted(
        (stored.expires, stored.id, stored.user)
        for stored in (each.stored for each in gate.services.keys.active())
        if stored.expires is not None and stored.expires - now < SOON and not stored.replaced_by
    )
    return [
        {"id": id, "user": f"user:{user}", "expires": rfc3339(expires)}
        for expires, id, user in ending[:MAX_SHOWN]
    ]


ROUTES = (
    Route(
        "GET",
        f"{BASE}/overview",
        "admin:read",
        show,
        "figures, a chart, the servers, and what needs attention",
        query=OverviewQuery,
    ),
)
