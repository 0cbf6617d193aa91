"""A context that the first holder enters, and that the last holder exits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any


class Lifespan:
    """A context that stays open as long as a connection or application holds it.

    One task enters and exits the context, because some contexts must be exited by the task that
    entered them. Holders may begin and end in any order.

    Args:
        make: Returns a new context.

    Attributes:
        value: The object that the context has returned; None while it is not entered.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self.value: Any = None
        self._make = make
        self._holders = 0
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None]
        self._stop: asyncio.Event

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None, None]:
        """Hold the context open. If entering it fails, all waiting holders get the error."""
        self._holders += 1
        try:
            await self._enter()
            yield
        finally:
            self._holders -= 1
            if not self._holders and self._owner is not None:
                self._stop.set()
                await asyncio.shield(self._owner)

    async def _enter(self) -> None:
        while self._owner is not None and self._stop.is_set():
            await asyncio.wait([self._owner])  # wait until the context has been exited
        if self._owner is None:
            loop = asyncio.get_running_loop()
            self._ready, self._stop = loop.create_future(), asyncio.Event()
            self._owner = loop.create_task(self._own(self._ready, self._stop))
        await asyncio.shield(self._ready)

    async def _own(self, ready: asyncio.Future[None], stop: asyncio.Event) -> None:
        try:
            async with self._make() as self.value:
                ready.set_result(None)
                await stop.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            self._owner = self.value = None
