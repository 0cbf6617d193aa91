"""The gateways of a shared database: their configurations, and the reload of all of them.

1. Each gateway has a row with the hash of its configuration.
2. A common reload is a row of the table `changes`. Each gateway then reads its own file. If it
   cannot be used, the gateway keeps its configuration, and its row states the kind of error. The
   text is only in its log, because it may quote the file.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from interlock import __version__
from interlock.errors import InterlockError
from interlock.store.database.changes import ChangeFeed, ChangeReader
from interlock.store.replicas import Replica, ReplicaStore
from interlock.text.timestamps import rfc3339
from interlock.types import JsonObject

PATIENCE = 5.0  # seconds for which a common reload waits for the other gateways
_LOOK_EVERY = 0.2  # seconds

_log = logging.getLogger("interlock.gateway")


class Replicas:
    """This gateway and the others of its database.

    Args:
        feed: Reports common reloads.
        writer: The id of this gateway's audit chain.
        configuration: Returns the hash of the current configuration, and when it was loaded.
        reread: Reads the file again, and applies it.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        writer: str,
        configuration: Callable[[], tuple[str, int]],
        reread: Callable[[], Awaitable[object]],
    ) -> None:
        self._feed = feed
        self._writer = writer
        self._configuration = configuration
        self._reread = reread
        self._store = ReplicaStore(feed.database)
        self._reader = ChangeReader("config")
        self._reloaded = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Replicas, None]:
        """Follow common reloads until the end of the block.

        Raises:
            StoreError: The database is unavailable.
        """
        await self._feed.set_clock()
        self._reloaded = self._feed.now()
        await self._store.put(self._own())
        try:
            async with self._feed.follow("config", self._step, _log, "common reloads"):
                yield self
        finally:
            with suppress(InterlockError):
                await self._store.remove(self._writer)

    async def note(self, error: str = "") -> None:
        """Store the configuration after a reload, or the kind of error because of which it stays.

        If the database is unavailable, only a warning is logged, because the reload has been made.
        """
        try:
            await self._store.put(self._own(error))
        except InterlockError as failure:
            _log.warning("other gateways do not see this configuration: %s", failure)

    async def reload_others(self) -> list[JsonObject]:
        """Let all other gateways read their files again; return the states of all gateways.

        Raises:
            StoreError: The database is unavailable.
        """
        self._reloaded = at = max(self._feed.now(), self._reloaded + 1)
        await self._store.put(self._own(), reload=at)
        found: list[Replica] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not found or any(each.reloaded < at for each in found):
                    await asyncio.sleep(_LOOK_EVERY if found else 0)
                    found = await self._store.running()
        return [self._shown(each, at) for each in found]

    async def list(self) -> list[JsonObject]:
        """Return the states of all gateways.

        Raises:
            StoreError: The database is unavailable.
        """
        return [self._shown(each) for each in await self._store.running()]

    def _own(self, error: str = "") -> Replica:
        configuration, loaded = self._configuration()
        return Replica(
            writer=self._writer,
            host=socket.gethostname(),
            version=__version__,
            configuration=configuration,
            loaded=loaded,
            reloaded=self._reloaded,
            error=error,
        )

    def _shown(self, replica: Replica, at: int = 0) -> JsonObject:
        error = "no answer" if replica.reloaded < at else replica.error
        return {
            "id": replica.writer,
            "host": replica.host,
            "version": replica.version,
            "hash": replica.configuration,
            "loaded": rfc3339(replica.loaded),
            "error": error or None,
            "isThis": replica.writer == self._writer,
            "differs": replica.configuration != self._configuration()[0],
        }

    async def _step(self, has_changed: bool) -> None:
        if not has_changed:
            return
        asked = map(int, await self._feed.database.read(self._reader.read))
        newest = max(asked, default=0)
        if newest <= self._reloaded:
            return
        self._reloaded = newest
        try:
            await self._reread()
        except InterlockError as error:
            _log.error("not reloaded, the old configuration is served: %s", error)
            await self.note(type(error).__name__)
        else:
            _log.warning("reloaded, because another gateway was asked to reload all")
