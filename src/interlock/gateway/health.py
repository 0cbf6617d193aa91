"""The health checks `/healthz` (the gateway is running) and `/readyz` (it can make calls)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from msgspec import Struct

from interlock import aio
from interlock.errors import InterlockError
from interlock.gateway.assembly import Assembly
from interlock.gateway.parts import servers_by_name
from interlock.protocol.envelope import encode
from interlock.server.http.responses import Page
from interlock.toolbox import ServerStatus

# A balancer cuts the calls of a server that is down (503), but not of one that leaves (404).
READY, UNREADY, LEAVING = 200, 503, 404
PROBE_DEADLINE = 1.0  # seconds that a check waits for a write to the database
PROBE_EVERY = 1.0  # seconds between two test writes


class Readiness(Struct, frozen=True):
    """Whether the gateway can make calls, and the names of failed parts, without reasons."""

    status: int
    degraded: tuple[str, ...] = ()


class Health:
    """Answers the health checks of a gateway.

    Args:
        probe: Writes to the database, as a test.
        is_answered: Returns whether the database answers regular queries.
        is_proven: Returns whether the last write to the database succeeded a short time ago.
        servers: Returns the servers' statuses.
        required: Returns the names of servers that must be available for the gateway to be ready.
        is_draining: Returns whether the gateway is shutting down.
        start: Starts a server again, unless its back-off time has not passed yet.
    """

    def __init__(
        self,
        probe: Callable[[], Awaitable[None]],
        is_answered: Callable[[], bool],
        is_proven: Callable[[], bool],
        servers: Callable[[], list[ServerStatus]],
        required: Callable[[], frozenset[str]],
        is_draining: Callable[[], bool],
        start: Callable[[str], None],
    ) -> None:
        self._probe = probe
        self._is_answered = is_answered
        self._is_proven = is_proven
        self._servers = servers
        self._required = required
        self._is_draining = is_draining
        self._start = start
        self._probing: asyncio.Task[bool] | None = None  # the last probe, running or finished
        self._probed_at = float("-inf")

    async def alive(self) -> Page:
        """Return the response for `/healthz`, without any check."""
        return Page(b'{"alive":true}')

    async def ready(self) -> Page:
        """Return the response for `/readyz`, without the servers' names."""
        found = await self._readiness()
        kinds = dict.fromkeys(each.partition(" ")[0] for each in found.degraded)
        return _page(Readiness(found.status, tuple(kinds)))

    async def ready_in_detail(self) -> Page:
        """Return the response for `/readyz` with the servers' names, for operators."""
        return _page(await self._readiness())

    async def is_ready(self) -> bool:
        """Return whether the gateway can make calls."""
        return (await self._readiness()).status == READY

    async def _readiness(self) -> Readiness:
        writes = await self._can_write()
        down = [each.name for each in self._servers() if each.state not in ("ok", "disabled")]
        degraded = [f"server {name}" for name in down]
        if not writes:
            degraded.insert(0, "database")
        if self._is_draining():
            degraded.insert(0, "draining")
        missing = self._required().intersection(down)
        for name in missing:  # if not ready, the gateway gets no calls that would start the server
            self._start(name)
        status = READY if writes and not missing else UNREADY
        return Readiness(LEAVING if self._is_draining() else status, tuple(degraded))

    async def _can_write(self) -> bool:
        """Return whether the database can be written to.

        The audit trail's own writes show this. If there was none for a minute, or the last one
        failed, a test write does, at most once a second. A hanging write is not cancelled, because
        the database would finish it anyway. Until it ends, no other write begins.
        """
        if not self._is_answered():
            return False
        if self._is_proven():
            return True
        probing = self._probing
        if probing is None or (probing.done() and monotonic() - self._probed_at > PROBE_EVERY):
            self._probed_at = monotonic()
            probing = self._probing = aio.start_detached(self._write())
        await asyncio.wait({probing}, timeout=PROBE_DEADLINE)
        return probing.done() and probing.result() and self._is_proven()

    async def _write(self) -> bool:
        try:
            await self._probe()
        except InterlockError:
            return False
        return True


def health_of(gateway: Assembly, is_draining: Callable[[], bool]) -> Health:
    """Return the health checks of a gateway.

    Args:
        is_draining: Returns whether the gateway is shutting down; see `Health`.
    """
    feed, writer, server = gateway.services.feed, gateway.services.writer, gateway.server

    async def probe() -> None:
        if writer is not None:
            await writer.prove()

    def is_proven() -> bool:
        return writer is None or writer.is_proven

    def required() -> frozenset[str]:
        servers = servers_by_name(gateway.parts.config).items()
        return frozenset(name for name, each in servers if each.required)

    return Health(
        probe,
        lambda: feed.is_answered,
        is_proven,
        lambda: list(server.toolbox.status.values()),
        required,
        is_draining,
        lambda name: server.toolbox.upstreams[name].start_again(),
    )


def _page(found: Readiness) -> Page:
    body = encode({"ready": found.status == READY, "degraded": found.degraded})
    return Page(body, found.status)
