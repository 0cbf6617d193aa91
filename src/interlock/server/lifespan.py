"""What is open while a server serves: opened for its first user, closed after the last one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager


class Lifespan:
    """Counts who uses a server, such as connections and applications.

    A task of its own opens and closes: what is opened may have to be closed by the task that
    opened it, and users come and go in any order.

    Args:
        opened: Makes the context in which users are served.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._opened = opened
        self._users = 0
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None]
        self._stop: asyncio.Event

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None, None]:
        """Be a user. What opening raises, each user gets that waits for it."""
        self._users += 1
        try:
            await self._open()
            yield
        finally:
            self._users -= 1
            if not self._users and self._owner is not None:
                self._stop.set()
                await asyncio.shield(self._owner)

    async def _open(self) -> None:
        while self._owner is not None and self._stop.is_set():
            await asyncio.wait([self._owner])  # who came before is still leaving
        if self._owner is None:
            loop = asyncio.get_running_loop()
            self._ready, self._stop = loop.create_future(), asyncio.Event()
            self._owner = loop.create_task(self._own(self._ready, self._stop))
        await asyncio.shield(self._ready)

    async def _own(self, ready: asyncio.Future[None], stop: asyncio.Event) -> None:
        try:
            async with self._opened():
                ready.set_result(None)
                await stop.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            self._owner = None
