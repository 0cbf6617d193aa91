"""A gateway's gauges: metrics that are read only when the metrics page is requested."""

from __future__ import annotations

from interlock.gateway.forwarding.server import ForwardingServer
from interlock.gateway.front import GatewayFront
from interlock.gateway.parts import Parts, sharing_of
from interlock.gateway.services import GatewayServices
from interlock.layers.metrics import Gauge, Samples, by_label


def gauges_of(
    parts: Parts, services: GatewayServices, server: ForwardingServer, front: GatewayFront
) -> dict[str, Gauge]:
    """Return a running gateway's gauges by name, each with its help text and samples."""
    waiting = {name: queue.waiting for (name, *_), queue in parts.queues.items()}
    instances: Samples = {
        (("server", name), ("sharing", sharing_of(parts.config, name))): float(each.connections)
        for name, each in server.toolbox.status.items()
    }
    states, approvals = services.pins.states, services.approvals.counts
    gauges: dict[str, Gauge] = {
        "interlock_kept_bytes": (
            "Bytes of large results that are kept for their users.",
            _one(services.kept.bytes),
        ),
        "interlock_queue_depth": ("Calls that wait for a server.", by_label("server", waiting)),
        "interlock_instances": ("Open connections to servers.", instances),
        "interlock_pins": (
            "Definitions of tools, prompts and servers.",
            by_label("state", states),
        ),
        "interlock_parked": (
            "Calls that wait for answers of their client.",
            _one(server.parked),
        ),
        "interlock_approvals": (
            "Approvals of calls that are kept.",
            by_label("state", approvals),
        ),
        "interlock_dropped_total": (
            "Messages and requests that were dropped.",
            by_label("reason", {**server.dropped, "result_not_kept": services.kept.refused}),
        ),
        "interlock_sessions": ("Open sessions.", _one(front.open_sessions)),
    }
    return gauges | _of_audit(services)


def _of_audit(services: GatewayServices) -> dict[str, Gauge]:
    writer = services.writer
    if writer is None:
        return {}
    return {
        "interlock_audit_lag_seconds": (
            "Age of the oldest record that is not on the disk yet.",
            _one(writer.lag),
        ),
        "interlock_audit_rows_total": ("Audit records written.", _one(writer.rows)),
        "interlock_audit_lost_total": ("Audit records that were lost.", _one(writer.dropped)),
    }


def _one(value: float) -> Samples:
    return {(): float(value)}
