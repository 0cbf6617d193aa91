"""The pool of connections to one upstream server, shared by callers with the same key.

Rules:

1. A caller uses only connections with its own key, so data that a server keeps for a connection
   never reaches a caller with another key.
2. All callers that wait for the same key share one start. Cancelling a caller does not stop the
   start; if the connection was for this caller's call alone, it is then closed.
3. There are at most `max` connections. At the limit, the connection that has been idle longest is
   closed; if all are in use, calls wait in turn.
4. A dropped connection gets no new calls, and is closed after its last call.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import count
from time import monotonic

from interlock import aio
from interlock.calls import Caller
from interlock.client import Client
from interlock.config import Pool
from interlock.config.servers import Sharing
from interlock.errors import ServerUnavailable
from interlock.text.redaction import Redactor

Key = tuple[str, ...]  # the purpose, the calls' owner, and further words
SHARED: Key = ()  # the connection that lists the tools; local callers use it as well
WAIT_TIMEOUT = 30.0  # seconds that a call waits while all connections are in use


class PooledClient:
    """An open client in the pool, with its state and use.

    Attributes:
        key: The key of the callers that may use the client.
        redactor: Removes this connection's secrets from texts.
        calls: Number of running calls.
        served: Number of finished calls.
        hangs: Number of consecutive calls without an answer.
        opened_at: The time when the client was opened, by the monotonic clock.
        idle_since: The time when the last call ended, by the monotonic clock.
        is_dropped: Whether the client gets no new calls.
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
    """Opens connections when callers need them, and closes idle ones.

    Args:
        name: The server's name, for errors.
        connect: Opens a connection for a key.
        sharing: Which callers may share a connection.
        limits: The limits on the number of connections and on their lifetimes.
        check: Raises `ServerUnavailable` if no connection with this key may be opened now.
        on_end: Called with each connection when it begins to close.
        caller_values: Returns a caller's values that a connection is made with; None if there are
            none. They become the last words of a key, so that no caller gets a connection that was
            made with another one's values.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[Key], Awaitable[PooledClient]],
        sharing: Sharing,
        limits: Pool,
        check: Callable[[Key], None],
        on_end: Callable[[PooledClient], None],
        caller_values: Callable[[Caller], tuple[str, ...]] | None = None,
    ) -> None:
        self._name = name
        self._connect = connect
        self._sharing = sharing
        self._limits = limits
        self._check = check
        self._on_end = on_end
        self._caller_values = caller_values
        self._open: dict[Key, PooledClient] = {}
        self._starting: dict[Key, asyncio.Task[PooledClient]] = {}
        self._spare: deque[PooledClient] = deque()
        self._dropped: set[PooledClient] = set()  # dropped connections with running calls
        self._ended: set[Key] = set()  # keys whose credential changed during the start
        self._closing: set[asyncio.Task[None]] = set()
        self._waiting: list[asyncio.Event] = []  # calls that wait for room, in order
        self._wanted: Counter[Key] = Counter()  # callers that wait for a connection
        self._numbers = count(1)  # for the keys of `per_call`
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def shared(self) -> PooledClient | None:
        """The connection that lists the tools, if it is open."""
        return self._open.get(SHARED)

    @property
    def size(self) -> int:
        """Number of connections, including those that are being opened."""
        return len(self._open) + len(self._starting) + len(self._spare) + len(self._dropped)

    @property
    def connections(self) -> list[PooledClient]:
        return [*self._open.values(), *self._spare, *self._dropped]

    def key_of(self, caller: Caller) -> Key:
        """Return the key of the connections that a caller may use.

        Raises:
            CallRefused: The caller lacks a value that the server needs.
        """
        if self._sharing == "shared":
            return SHARED
        principal = caller.principal.owner if caller.principal is not None else ""
        values = () if self._caller_values is None else self._caller_values(caller)
        if self._sharing == "per_call":
            return "call", principal, str(next(self._numbers)), *values
        if self._sharing == "per_session" and caller.session:
            return "session", principal, caller.session, *values
        return ("user", principal, *values) if principal else SHARED

    # Acquiring

    def acquire_open(self, caller: Caller) -> PooledClient | None:
        """Return the open connection that `acquire` would return; None if none is open."""
        shares = self._sharing == "shared"
        pooled = self._open.get(SHARED if shares else self.key_of(caller))
        if pooled is not None:
            pooled.calls += 1
        return pooled

    async def acquire(self, caller: Caller) -> PooledClient:
        """Return a connection for one of a caller's calls; call `release` after the call.

        Raises:
            ServerUnavailable: No connection can be opened now, or all are in use.
        """
        key = self.key_of(caller)
        pooled = self._open.get(key)
        if pooled is None:
            self._wanted[key] += 1  # keeps the connection from closing as idle before the call
            try:
                pooled = await self._obtain(key)
            except asyncio.CancelledError:
                unused = self._open.get(key)
                if unused is not None and _is_for_one_call(key):
                    self.drop(unused)
                raise
            finally:
                self._wanted[key] -= 1
                if not self._wanted[key]:
                    del self._wanted[key]
        pooled.calls += 1
        return pooled

    async def _obtain(self, key: Key) -> PooledClient:
        while True:
            if not self._needs_no_room(key) and (self._waiting or not self._has_room()):
                await self._wait_for_room(key)
            if self._spare and _is_for_one_call(key):
                pooled = self._spare.popleft()
                pooled.key = key
                self._open[key] = pooled
                self._fill_spare()
                return pooled
            pooled = self._open.get(key) or await self.start(key)
            # The connection may have been replaced before this caller's turn.
            if not pooled.is_dropped or _is_for_one_call(key):
                return pooled

    def _needs_no_room(self, key: Key) -> bool:
        has_spare = bool(self._spare) and _is_for_one_call(key)
        return has_spare or key in self._open or key in self._starting

    async def start(self, key: Key) -> PooledClient:
        """Open the connection for a key, or wait until a start in progress has opened it.

        Raises:
            ServerUnavailable: The connection cannot be opened, or the back-off has not passed.
        """
        starting = self.begin(key)
        await asyncio.wait({starting})
        if starting.cancelled():
            raise ServerUnavailable(self._name, "the toolbox is closed")
        return starting.result()

    def begin(self, key: Key) -> asyncio.Task[PooledClient]:
        """Begin to open the connection for a key, unless a start is in progress.

        Raises:
            ServerUnavailable: The back-off has not passed.
        """
        starting = self._starting.get(key)
        if starting is None:
            self._check(key)
            starting = self._starting[key] = aio.start_detached(self._start(key))
            starting.add_done_callback(partial(self._started, key))
        return starting

    async def _start(self, key: Key) -> PooledClient:
        pooled = await self._connect(key)
        del self._starting[key]  # so that the connection is not counted twice
        if key in self._ended:
            self._ended.discard(key)
            self.drop(pooled)
        if pooled.is_dropped:  # the connection was lost in the meantime
            return pooled
        if _is_for_one_call(key) and key not in self._wanted:  # the caller was cancelled
            self.drop(pooled)
            return pooled
        self._open[key] = pooled
        if key != SHARED:
            self._sweep_later()  # all callers may have been cancelled, so the connection is idle
        elif self._sharing == "per_call":
            self._fill_spare()
        return pooled

    def _started(self, key: Key, task: asyncio.Task[PooledClient]) -> None:
        if self._starting.get(key) is task:
            del self._starting[key]
        self._ended.discard(key)
        if not task.cancelled():
            task.exception()  # marks the error as retrieved; the server's status reports it
        self._wake()

    def _has_room(self) -> bool:
        if self.size < self._limits.max:
            return True
        idle = self._idle()
        if not idle:
            return False
        self.drop(min(idle, key=lambda each: each.idle_since))
        return True

    async def _wait_for_room(self, key: Key) -> None:
        """Wait for this call's turn and for room; return at once if the call needs no room."""
        turn = asyncio.Event()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                while not self._needs_no_room(key) and (
                    self._waiting[0] is not turn or not self._has_room()
                ):
                    turn.clear()
                    await turn.wait()
        except TimeoutError:
            raise ServerUnavailable(
                self._name,
                f"all {self._limits.max} connections are in use; try again later",
                "queue_timeout",
            ) from None
        finally:
            self._waiting.remove(turn)
            self._wake()

    def _wake(self) -> None:
        """Wake the waiting calls, which check whether they can continue."""
        for turn in self._waiting:
            turn.set()

    # Releasing

    def release(self, pooled: PooledClient) -> None:
        """Mark a call finished; close a connection that is dropped or past its lifetime."""
        pooled.calls -= 1
        pooled.served += 1
        pooled.idle_since = monotonic()
        if not pooled.is_dropped and pooled.key != SHARED and self._is_used_up(pooled):
            self.drop(pooled)
        if pooled.calls:
            return
        if pooled in self._dropped:
            self._dropped.remove(pooled)
            self._close_later(pooled)
        elif not pooled.is_dropped and pooled.key != SHARED:
            self._sweep_later()
        if self._waiting:
            self._wake()
        elif self._sharing == "per_call":
            self._fill_spare()

    def drop(self, pooled: PooledClient) -> None:
        """Send no new calls over a connection, and close it after its last call."""
        if pooled.is_dropped:
            return
        pooled.is_dropped = True
        if self._open.get(pooled.key) is pooled:
            del self._open[pooled.key]
        if pooled in self._spare:
            self._spare.remove(pooled)
        if pooled.calls:
            self._dropped.add(pooled)
        else:
            self._close_later(pooled)
            self._wake()

    def drop_of(self, owner: str) -> None:
        """Drop all of an owner's connections, including connections that are being opened."""
        for pooled in self.connections:
            if owner_of(pooled.key) == owner:
                self.drop(pooled)
        self._ended.update(key for key in self._starting if owner_of(key) == owner)

    def _is_used_up(self, pooled: PooledClient) -> bool:
        calls, life = self._limits.calls, self._limits.life
        return (
            _is_for_one_call(pooled.key)
            or (calls is not None and pooled.served >= calls)
            or pooled.idle_since >= pooled.opened_at + life
        )

    def _idle(self) -> list[PooledClient]:
        return [
            each
            for key, each in self._open.items()
            if not each.calls and key != SHARED and key not in self._wanted
        ]

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweep_in(self._limits.idle)

    def _sweep_in(self, seconds: float) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """Close the connections whose idle time is over."""
        self._sweeper = None
        limit = monotonic() - self._limits.idle
        for pooled in self._idle():
            if pooled.idle_since <= limit:
                self.drop(pooled)
        left = [
            each.idle_since for key, each in self._open.items() if key != SHARED and not each.calls
        ]
        if left:
            self._sweep_in(max(min(left) - limit, 0.01))

    def _close_later(self, pooled: PooledClient) -> None:
        self._on_end(pooled)
        closing = aio.start_detached(pooled.client.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    # Spare connections, for servers with a connection for each call

    def _fill_spare(self) -> None:
        starting = sum(key[:1] == ("spare",) for key in self._starting)
        with suppress(ServerUnavailable):  # the back-off has not passed, or the pool is closed
            for _ in range(self._limits.spare - len(self._spare) - starting):
                if self.size >= self._limits.max:
                    return
                key = "spare", "", str(next(self._numbers))
                self._check(key)
                task = self._starting[key] = aio.start_detached(self._start_spare(key))
                task.add_done_callback(partial(self._started, key))

    async def _start_spare(self, key: Key) -> PooledClient:
        pooled = await self._connect(key)
        del self._starting[key]
        if not pooled.is_dropped:
            self._spare.append(pooled)
        return pooled

    # Closing

    async def close(self) -> None:
        """Close all connections; running calls fail."""
        starting = list(self._starting.values())
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        connections = self.connections
        self._open.clear()
        self._spare.clear()
        self._dropped.clear()
        for pooled in connections:
            pooled.is_dropped = True
            self._close_later(pooled)
        self._wake()  # lets calls that wait for a connection fail
        if self._closing:
            await asyncio.wait(self._closing)


def owner_of(key: Key) -> str:
    """Return the owner of a connection's credentials; "" for the local user."""
    return key[1] if key else ""


def caller_values_of(key: Key, count: int) -> tuple[str, ...] | None:
    """Return the values of the caller at the end of a key; None for the local user's connection."""
    return key[len(key) - count :] if key else None


def _is_for_one_call(key: Key) -> bool:
    return key[:1] == ("call",)
