"""The connections of one upstream server, and which callers may share them.

Rules:

1. A caller gets a connection of its own key only, so nothing that a server keeps for one
   connection reaches a caller with another key.
2. One start serves all callers that wait for the same key; a caller that stops waiting does not
   stop the start.
3. There are at most `max` connections. Beyond it the one that has been idle for longest is closed;
   if all are in use, calls wait in turn.
4. A dropped connection takes no new call and is closed after its last one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic

from interlock.calls import Caller
from interlock.client import Client
from interlock.config import Pool
from interlock.config.servers import Sharing
from interlock.errors import ServerUnavailable
from interlock.redaction import Redactor

Key = tuple[str, ...]
SHARED: Key = ()  # the connection that lists the tools; local callers use it as well
WAIT_TIMEOUT = 30.0  # seconds that a call waits for a connection while all are in use


class PooledClient:
    """An open client, and how it is used.

    Attributes:
        key: Of the callers that may use it.
        client: The client.
        redactor: Removes this connection's secrets from texts.
        calls: How many calls are under way.
        served: How many calls have ended.
        hangs: How many calls in a row got no answer.
        opened_at: When it was opened, by the monotonic clock.
        idle_since: When its last call ended.
        is_dropped: It takes no new calls.
    """

    def __init__(self, key: Key, client: Client, redactor: Redactor) -> None:
        self.key = key
        self.client = client
        self.redactor = redactor
        self.calls = 0
        self.served = 0
        self.hangs = 0
        self.opened_at = self.idle_since = monotonic()
        self.is_dropped = False


class ConnectionPool:
    """Opens connections when callers need them, and closes them when they are no longer used.

    Args:
        name: Of the server, for errors.
        connect: Opens a connection for a key.
        sharing: Who may share a connection.
        limits: How many there may be, and for how long.
        check: Raises `ServerUnavailable` if a connection for a key must not be opened now.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[Key], Awaitable[PooledClient]],
        sharing: Sharing,
        limits: Pool,
        check: Callable[[Key], None],
    ) -> None:
        self._name = name
        self._connect = connect
        self._sharing = sharing
        self._limits = limits
        self._check = check
        self._open: dict[Key, PooledClient] = {}
        self._starting: dict[Key, asyncio.Task[PooledClient]] = {}
        self._spare: deque[PooledClient] = deque()
        self._dropped: set[PooledClient] = set()  # their last calls have not ended
        self._closing: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wanted: Counter[Key] = Counter()  # callers that wait for a connection
        self._calls = 0  # numbers the keys of `per_call`
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def shared(self) -> PooledClient | None:
        """The connection that lists the tools, if it is open."""
        return self._open.get(SHARED)

    @property
    def size(self) -> int:
        """How many connections there are, those that are being opened included."""
        return len(self._open) + len(self._starting) + len(self._spare) + len(self._dropped)

    def key_of(self, caller: Caller) -> Key:
        """Return the key of the connections that a caller may use."""
        if self._sharing == "shared":
            return SHARED
        if self._sharing == "per_call":
            self._calls += 1
            return "call", str(self._calls)
        principal = caller.principal.owner if caller.principal is not None else ""
        if self._sharing == "per_session" and caller.session:
            return "session", principal, caller.session
        return ("user", principal) if principal else SHARED

    # Acquiring

    async def acquire(self, caller: Caller) -> PooledClient:
        """Return a connection for one call of a caller; `release` it afterwards.

        Raises:
            ServerUnavailable: It cannot be opened, or not yet again, or all are in use.
        """
        key = self.key_of(caller)
        pooled = self._open.get(key)
        if pooled is None:
            self._wanted[key] += 1  # so that it is not taken for idle before its first call
            try:
                pooled = await self._obtain(key)
            finally:
                self._wanted[key] -= 1
                if not self._wanted[key]:
                    del self._wanted[key]
        pooled.calls += 1
        return pooled

    async def _obtain(self, key: Key) -> PooledClient:
        if key[:1] == ("call",) and self._spare:
            pooled = self._spare.popleft()
            pooled.key = key
            self._open[key] = pooled
            self._fill_spare()
            return pooled
        while True:
            if key in self._open:
                return self._open[key]
            if key not in self._starting and not self._has_room():
                await self._wait_for_room()
                continue
            return await self.start(key)

    async def start(self, key: Key) -> PooledClient:
        """Open the connection of a key, or wait for the start that is under way.

        Raises:
            ServerUnavailable: It cannot be opened, or not yet again.
        """
        starting = self.begin(key)
        await asyncio.wait({starting})
        if starting.cancelled():
            raise ServerUnavailable(self._name, "the toolbox is closed")
        return starting.result()

    def begin(self, key: Key) -> asyncio.Task[PooledClient]:
        """Begin to open the connection of a key, unless that has begun.

        Raises:
            ServerUnavailable: Not yet again.
        """
        starting = self._starting.get(key)
        if starting is None:
            self._check(key)
            self._is_closed = False
            starting = self._starting[key] = asyncio.create_task(self._start(key))
            starting.add_done_callback(partial(self._started, key))
        return starting

    async def _start(self, key: Key) -> PooledClient:
        pooled = await self._connect(key)
        if not pooled.is_dropped:
            self._open[key] = pooled
            if key == SHARED:
                self._fill_spare()
        return pooled

    def _started(self, key: Key, task: asyncio.Task[PooledClient]) -> None:
        if self._starting.get(key) is task:
            del self._starting[key]
        if not task.cancelled():
            task.exception()  # the upstream's status has it, even if no caller waits any more
        self._wake()

    def _has_room(self) -> bool:
        if self.size < self._limits.max:
            return True
        idle = self._idle()
        if not idle:
            return False
        self.drop(min(idle, key=lambda each: each.idle_since))
        return True

    async def _wait_for_room(self) -> None:
        room = asyncio.get_running_loop().create_future()
        self._waiting.append(room)
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                await room
        except TimeoutError:
            raise ServerUnavailable(
                self._name,
                f"all {self._limits.max} connections are in use; try again later",
            ) from None
        finally:
            if room in self._waiting:
                self._waiting.remove(room)

    def _wake(self) -> None:
        while self._waiting:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)
                return

    # Releasing

    def release(self, pooled: PooledClient) -> None:
        """Mark a call finished; close the connection if it is dropped, or its time is over."""
        pooled.calls -= 1
        pooled.served += 1
        pooled.idle_since = monotonic()
        if pooled.calls:
            return
        if pooled in self._dropped:
            self._dropped.remove(pooled)
            self._close_later(pooled)
        elif pooled.is_dropped:
            pass  # the pool was closed
        elif pooled.key != SHARED:
            if self._is_used_up(pooled):
                self.drop(pooled)
            elif self._sweeper is None:
                self._sweep_in(self._limits.idle)
        if self._waiting:
            self._wake()

    def drop(self, pooled: PooledClient) -> None:
        """Give a connection no new calls, and close it after its last one."""
        if pooled.is_dropped:
            return
        pooled.is_dropped = True
        if self._open.get(pooled.key) is pooled:
            del self._open[pooled.key]
        if pooled.calls:
            self._dropped.add(pooled)
        else:
            self._close_later(pooled)

    def _is_used_up(self, pooled: PooledClient) -> bool:
        calls, life = self._limits.calls, self._limits.life
        return (
            pooled.key[0] == "call"
            or (calls is not None and pooled.served >= calls)
            or pooled.idle_since >= pooled.opened_at + life
        )

    def _idle(self) -> list[PooledClient]:
        return [
            each
            for key, each in self._open.items()
            if not each.calls and key != SHARED and key not in self._wanted
        ]

    def _sweep_in(self, seconds: float) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that have been idle for too long."""
        self._sweeper = None
        limit = monotonic() - self._limits.idle
        idle = self._idle()
        for pooled in idle:
            if pooled.idle_since <= limit:
                self.drop(pooled)
        left = [each.idle_since for each in idle if not each.is_dropped]
        if left:
            self._sweep_in(max(min(left) - limit, 0.01))

    def _close_later(self, pooled: PooledClient) -> None:
        closing = asyncio.create_task(pooled.client.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self._wake()

    # Spare connections, for calls that get one each

    def _fill_spare(self) -> None:
        if self._sharing != "per_call" or self._is_closed:
            return
        missing = self._limits.spare - len(self._spare)
        for number in range(missing):
            key = "spare", str(number)
            if key not in self._starting and self.size < self._limits.max:
                task = self._starting[key] = asyncio.create_task(self._start_spare(key))
                task.add_done_callback(partial(self._started, key))

    async def _start_spare(self, key: Key) -> PooledClient:
        pooled = await self._connect(key)
        self._spare.append(pooled)
        return pooled

    # Closing

    async def close(self) -> None:
        """Close all connections; calls that are under way fail."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        starting = list(self._starting.values())
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        for pooled in [*self._open.values(), *self._spare, *self._dropped]:
            pooled.is_dropped = True
            self._close_later(pooled)
        self._open.clear()
        self._spare.clear()
        self._dropped.clear()
        if self._closing:
            await asyncio.wait(self._closing)
