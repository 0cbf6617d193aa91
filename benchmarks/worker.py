"""A client's program: it does what the harness asks for on stdin, and tells how long it took.

Each client has a process and an event loop of its own, so that none pays for what another one
imports. `NAME_client.py` gives `work` a function that connects; the rest is the same for all.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from time import perf_counter
from typing import Any, Protocol

from benchmarks.counting import Counter

# How to reach a server, or several: {"argv": [...]}, {"url": "..."}, {"memory": True},
# {"servers": {NAME: {"argv": ...} or {"url": ...}}} or {"agent": ROUNDS}.
Target = dict[str, Any]


class Session(Protocol):
    """A client that is connected. Each has what the benchmarks ask of it."""

    async def call(self, number: int) -> object:
        """Add 1 to a number. One with many servers asks another one each time."""

    async def text(self, size: int) -> int:
        """Fetch a text, and give its length."""

    async def list(self) -> int:
        """Ask for all tools anew, and give their number."""


Connect = Callable[[Target], AbstractAsyncContextManager[Session]]


class Worker:
    """Answers the harness. `packages`: whose functions are this client's own."""

    def __init__(self, connect: Connect, packages: list[str]) -> None:
        self._connect = connect
        self._packages = packages
        self._stack = AsyncExitStack()
        self._session: Session

    async def open(self, target: Target) -> float:
        """Connect; give the seconds that took."""
        started = perf_counter()
        self._session = await self._stack.enter_async_context(self._connect(target))
        return perf_counter() - started

    async def close(self) -> float:
        started = perf_counter()
        await self._stack.aclose()
        return perf_counter() - started

    async def rate(self, width: int, seconds: float) -> float:
        """Call for some seconds, `width` at once; give the calls a second."""
        session, done = self._session, 0
        started = perf_counter()
        end = started + seconds

        async def call_on() -> None:
            nonlocal done
            number = 0
            while perf_counter() < end:
                await session.call(number)
                number += 1
            done += number

        if width == 1:
            await call_on()
        else:
            await asyncio.gather(*(call_on() for _ in range(width)))
        return done / (perf_counter() - started)

    async def text(self, size: int) -> float:
        """Fetch a text; give the seconds."""
        started = perf_counter()
        length = await self._session.text(size)
        seconds = perf_counter() - started
        assert length == size, length
        return seconds

    async def list(self, count: int) -> float:
        """List the tools; give the seconds."""
        started = perf_counter()
        length = await self._session.list()
        seconds = perf_counter() - started
        assert length >= count, length
        return seconds

    async def path(self, calls: int) -> tuple[float, float]:
        """Give own functions and turns of the loop for a call."""
        counter = Counter(self._packages)
        counter.start()
        for number in range(calls):
            await self._session.call(number)
        counter.stop()
        return counter.functions / calls, counter.turns / calls


def work(connect: Connect, *packages: str) -> None:
    """Do what the harness asks for, until the end of input."""

    async def serve() -> None:
        worker = Worker(connect, list(packages))
        # In a thread, so that the loop can see connections end between two samples.
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *arguments = json.loads(line)
            print(json.dumps(await getattr(worker, name)(*arguments)), flush=True)

    asyncio.run(serve())
