"""The fair queue of a server: its slots are shared among the callers that wait for them.

1. A freed slot goes to the next caller in a ring, for that caller's oldest waiting call. So a
   caller with a thousand waiting calls delays another caller by only one call per round.
2. Every operation takes constant time. Only a call that stops waiting takes longer, at most
   `PER_CALLER` steps.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Mapping

from interlock.calls.call import Call, Outcome
from interlock.calls.handlers import Around, CallHandler
from interlock.errors import LimitExceeded

PER_CALLER = 64  # waiting calls of each caller
TIMEOUT = 30.0  # seconds that a call waits for a slot
RETRY_AFTER = 1.0  # seconds until a retry, when the queue is full

_Waiter = asyncio.Future[None]


class FairQueue:
    """The slots of a server, and the calls that wait for a slot.

    Args:
        server: The server's name, for errors.
        slots: The most calls that run at the same time.
        size: The most calls that wait, for all callers together.

    Attributes:
        free: The number of free slots.
    """

    def __init__(self, server: str, slots: int, size: int) -> None:
        self._server = server
        self.free = slots
        self._size = size
        self._ring: OrderedDict[str, deque[_Waiter]] = OrderedDict()  # empty while a slot is free
        self._waiting = 0

    @property
    def waiting(self) -> int:
        return self._waiting

    async def acquire(self, owner: str) -> None:
        """Wait for a slot; the caller must `release` it afterwards.

        Args:
            owner: The caller. All calls of the same caller share one place in the ring.

        Raises:
            LimitExceeded: Too many calls wait (`overloaded`), or no slot was free in time
                (`queue_timeout`).
        """
        if self.free:
            self.free -= 1
            return
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        self._enter(owner, waiter)
        timer = loop.call_later(TIMEOUT, self._expire, owner, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # cancelled just after it received a slot
                self.release()
            else:
                self._leave(owner, waiter)
            raise
        finally:
            timer.cancel()

    def release(self) -> None:
        """Give a slot to the next caller in the ring, or mark it as free."""
        while self._ring:
            owner, line = self._ring.popitem(last=False)
            waiter = line.popleft()
            if line:
                self._ring[owner] = line  # at the end of the ring
            self._waiting -= 1
            if not waiter.done():  # a cancelled call may still be in the ring
                waiter.set_result(None)
                return
        self.free += 1

    def _enter(self, owner: str, waiter: _Waiter) -> None:
        line = self._ring.get(owner)
        if line is not None and len(line) >= PER_CALLER:
            text = f"too many of your calls wait for server {self._server!r} (limit {PER_CALLER})"
            raise LimitExceeded(f"{text}; wait until one has ended", "overloaded", RETRY_AFTER)
        if self._waiting >= self._size:
            text = f"too many calls wait for server {self._server!r} (limit {self._size})"
            raise LimitExceeded(f"{text}; retry later", "overloaded", RETRY_AFTER)
        if line is None:
            line = self._ring[owner] = deque()
        line.append(waiter)
        self._waiting += 1

    def _leave(self, owner: str, waiter: _Waiter) -> None:
        line = self._ring.get(owner)
        if line is None or waiter not in line:  # `release` has already removed the waiter
            return
        line.remove(waiter)
        self._waiting -= 1
        if not line:
            del self._ring[owner]

    def _expire(self, owner: str, waiter: _Waiter) -> None:
        if waiter.done():
            return
        self._leave(owner, waiter)
        text = f"server {self._server!r} is busy (no free slot for {TIMEOUT:g} s); retry later"
        waiter.set_exception(LimitExceeded(text, "queue_timeout", RETRY_AFTER))


def queued(queues: Mapping[str, FairQueue]) -> Around:
    """Return a layer in which each call waits for a slot of its server.

    Args:
        queues: The queues by the server's name. Calls to servers without a queue do not wait.
    """

    def around(handle: CallHandler) -> CallHandler:
        async def call_in_turn(call: Call) -> Outcome:
            queue = queues.get(call.entry.server)
            if queue is None:
                return await handle(call)
            if queue.free:  # `acquire` inlined, to save creating a coroutine
                queue.free -= 1
            else:
                await queue.acquire(call.caller.owner)
            release = queue.release
            if call.slots is not None:
                release = call.slots.hold(release)
            try:
                return await handle(call)
            finally:
                release()

        return call_in_turn

    return around
