"""Requests that a server is to hold for as long as it runs: its log level and subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from interlock.context import LEVELS
from interlock.errors import CapabilityError, InterlockError
from interlock.revisions import MODERN
from interlock.toolbox.pool import SHARED, PooledClient
from interlock.types import LogLevel

LOG_LEVEL_TIMEOUT = 1.0  # seconds to wait until a server accepts a log level

_log = logging.getLogger("interlock.toolbox")


class StandingRequests:
    """Keeps a server's log level and subscriptions, and requests them over each new connection.

    Args:
        name: The server's name in the toolbox.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._followed: set[str] = set()  # URIs of the subscribed resources
        self._log_level: LogLevel | None = None  # the lowest level that a client requested

    async def restore(self, pooled: PooledClient) -> None:
        """Request the log level and subscriptions over a new connection; log refusals."""
        await self._set_log_level(pooled)
        if pooled.key == SHARED and self._followed:
            uris = sorted(self._followed)
            ends = await asyncio.gather(*map(pooled.client.subscribe, uris), return_exceptions=True)
            for uri, end in zip(uris, ends, strict=True):
                if isinstance(end, InterlockError):
                    _log.warning("server %r: %s is not followed any more: %s", self._name, uri, end)

    async def follow(self, pooled: PooledClient, uri: str) -> None:
        """Subscribe to a resource now, and again over each new connection.

        Raises:
            CapabilityError: The server does not support subscriptions.
            InterlockError: The server refuses the subscription.
        """
        if not (pooled.client.capabilities.resources or {}).get("subscribe"):
            raise CapabilityError(f"server {self._name!r} has no subscriptions to resources")
        await pooled.client.subscribe(uri)
        self._followed.add(uri)

    def unfollow(self, uri: str) -> None:
        """Stop subscribing to a resource over new connections."""
        self._followed.discard(uri)

    async def want_log_level(self, level: LogLevel, connections: Iterable[PooledClient]) -> None:
        """Set a legacy server's log level, unless it already logs at a lower one."""
        if self._log_level is None or LEVELS.index(level) < LEVELS.index(self._log_level):
            self._log_level = level
            await asyncio.gather(*map(self._set_log_level, connections))

    async def _set_log_level(self, pooled: PooledClient) -> None:
        client = pooled.client
        if self._log_level is None or client.revision in MODERN:
            return  # a modern server receives the level in each request
        if client.capabilities.logging is not None:
            try:
                async with asyncio.timeout(LOG_LEVEL_TIMEOUT):
                    await client.set_log_level(self._log_level)
            except (InterlockError, TimeoutError) as error:
                _log.info("server %r: log level not set: %s", self._name, error)
