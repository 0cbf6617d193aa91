"""A gateway's gauges: metrics that are read only when the metrics page is requested."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from interlock import __version__, build, observing
from interlock.gateway.parts import sharing_of
from interlock.gateway.services import GatewayServices, RunningGateway
from interlock.layers.exposition import Gauge, Labels, by_label, one
from interlock.store.audit.group_commit import GroupCommit
from interlock.store.audit.writer import Added
from interlock.store.database.database import Database
from interlock.text.timestamps import now_micros

if TYPE_CHECKING:
    from interlock.gateway.front_door.door import FrontDoor

EXPIRING = 7 * 86_400 * 1_000_000  # microseconds before a key's end at which it is counted
SPAN_STATES = ("exported", "dropped", "failed")
_PROCESS = Path("/proc/self")
_MEMORY_LIMITS = (  # of a container: version 2 of control groups, and version 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def gauges_of(gateway: RunningGateway, services: GatewayServices) -> dict[str, Gauge]:
    """Return a running gateway's gauges by name, each with its help text and samples."""
    parts, server = gateway.parts, gateway.server
    waiting = {name: float(queue.waiting) for (name, *_), queue in parts.queues.items()}
    instances: Mapping[Labels, float] = {
        (("server", name), ("sharing", sharing_of(parts.config, name))): float(each.connections)
        for name, each in server.toolbox.status.items()
    }
    dropped = {**server.dropped, "result_not_kept": services.kept.refused}
    gauges: dict[str, Gauge] = {
        "interlock_kept_bytes": (
            "Bytes of large results that are kept for their users.",
            one(services.kept.bytes),
        ),
        "interlock_queue_depth": ("Calls that wait for a server.", by_label("server", waiting)),
        "interlock_instances": ("Open connections to servers.", instances),
        "interlock_pins": (
            "Definitions of tools, prompts and servers.",
            by_label("state", services.pins.states),
        ),
        "interlock_parked": ("Calls that wait for answers of their client.", one(server.parked)),
        "interlock_approvals": (
            "Approvals of calls that are kept.",
            by_label("state", services.approvals.changes.counts),
        ),
        "interlock_dropped_total": (
            "Messages and requests that were dropped.",
            by_label("reason", dropped),
        ),
        "interlock_sessions": ("Open sessions.", one(gateway.front.open_sessions)),
        "interlock_listeners": (
            "Clients that are notified of changes.",
            one(len(server.subscribers.principals())),
        ),
        "interlock_keys_expiring": (
            "Keys that end within seven days.",
            one(_expiring(services)),
        ),
    }
    if observing.span_counts is not None:
        counts = {each: float(observing.span_counts[each]) for each in SPAN_STATES}
        gauges["interlock_spans_total"] = ("Spans to export.", by_label("state", counts))
    of_database = _of_database(services)
    if services.front_door is not None:
        gauges |= _of_front_door(services.front_door)
    return gauges | of_database | _of_servers(gateway) | _of_program(gateway) | _of_audit(services)


def _of_front_door(door: FrontDoor) -> dict[str, Gauge]:
    requests: Mapping[Labels, float] = {
        (("endpoint", endpoint), ("outcome", outcome)): float(count)
        for (endpoint, outcome), count in door.counts.items()
    }
    return {
        "interlock_oauth_requests_total": ("Requests to the OAuth front door.", requests),
        "interlock_authorizations": (
            "What people have allowed to clients that were used lately.",
            one(len(door.ring)),
        ),
    }


def _of_database(services: GatewayServices) -> dict[str, Gauge]:
    parts: dict[str, Database | GroupCommit[Added]] = {"gateway": services.database}
    if services.writer is not None:
        parts["audit"] = services.writer.group
    seconds = {(("part", name),): each.seconds for name, each in parts.items()}
    errors = {name: float(each.errors) for name, each in parts.items()}
    return {
        "interlock_database_seconds": ("Time of a read or a transaction.", seconds),
        "interlock_database_errors_total": (
            "Reads and transactions that failed.",
            by_label("part", errors),
        ),
    }


def _of_servers(gateway: RunningGateway) -> dict[str, Gauge]:
    toolbox = gateway.server.toolbox
    up = {
        name: float(each.state == "ok")
        for name, each in toolbox.status.items()
        if each.state != "disabled"
    }
    again = {name: float(each.restarts) for name, each in toolbox.upstreams.items()}
    return {
        "interlock_upstream_up": ("Whether a server can be called.", by_label("server", up)),
        "interlock_upstream_restarts_total": (
            "Starts after a failed start or a lost connection.",
            by_label("server", again),
        ),
    }


def _of_program(gateway: RunningGateway) -> dict[str, Gauge]:
    about = (
        ("version", __version__),
        ("commit", build.commit()),
        ("python", platform.python_version()),
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    gauges: dict[str, Gauge] = {
        "interlock_build_info": ("The running program.", {about: 1.0}),
        "interlock_reload_ok": ("Whether the last reload succeeded.", one(gateway.is_reloaded)),
        "interlock_reload_timestamp_seconds": (
            "When the configuration was read, in seconds since 1970.",
            one(gateway.loaded_at / 1_000_000),
        ),
        "process_cpu_seconds_total": (
            "Processor time that the process has used.",
            one(used.ru_utime + used.ru_stime),
        ),
    }
    if not _PROCESS.exists():  # as on macOS
        return gauges
    page, ticks = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    resident = int((_PROCESS / "statm").read_text().split()[1]) * page
    # The name of the program may contain spaces, so the fields are counted from its end.
    files = len([*(_PROCESS / "fd").iterdir()])
    after_boot = int((_PROCESS / "stat").read_text().rpartition(")")[2].split()[19]) / ticks
    return gauges | {
        "process_resident_memory_bytes": ("Memory of the process.", one(resident)),
        "interlock_memory_limit_bytes": (
            "The memory that the process may use.",
            one(_memory_limit(page)),
        ),
        "process_open_fds": (
            "Open files of the process.",
            one(files),
        ),
        "process_max_fds": (
            "The limit on open files.",
            one(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ),
        "process_start_time_seconds": (
            "When the process started, in seconds since 1970.",
            one(_boot_time() + after_boot),
        ),
    }


def _memory_limit(page: int) -> int:
    """Return the limit on memory, in bytes."""
    limits = [os.sysconf("SC_PHYS_PAGES") * page]
    for place in _MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # "max" states none
            limits.append(int(place.read_text()))
    return min(limits)


def _boot_time() -> float:
    """Return when the machine started, in seconds since 1970."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next((float(each.split()[1]) for each in lines if each.startswith("btime ")), 0.0)


def _expiring(services: GatewayServices) -> int:
    until = now_micros() + EXPIRING
    ends = (each.stored.expires for each in services.keys.active())
    return sum(end is not None and end <= until for end in ends)


def _of_audit(services: GatewayServices) -> dict[str, Gauge]:
    writer = services.writer
    if writer is None:
        return {}
    return {
        "interlock_audit_lag_seconds": (
            "Age of the oldest record that is not on the disk yet.",
            one(writer.lag),
        ),
        "interlock_audit_rows_total": ("Audit records written.", one(writer.rows)),
        "interlock_audit_lost_total": ("Audit records that were lost.", one(writer.dropped)),
    }
