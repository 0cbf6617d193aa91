"""The channel from a forwarded call back to its client, through the client's current request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic

import msgspec
from msgspec import Raw, Struct

from interlock.context import LEVELS, Context
from interlock.gateway.forwarding.attribution import attributed, with_logger
from interlock.protocol import Progress

PROGRESS_GAP = 0.05  # seconds between two notifications of a call's progress

# Asks a modern client, given a question's method and params; returns the client's answer.
Park = Callable[[str, bytes], Awaitable[Raw]]


class _Level(Struct):
    level: str = ""


class CallLink(Struct, eq=False):
    """The `BackChannel` that a forwarded call uses.

    Log messages below the client's level are dropped. Progress is sent at most once every
    `PROGRESS_GAP` seconds; if more arrives, the latest progress is sent when the gap has passed.

    Attributes:
        context: The client's current request.
        server: The name of the server that the call goes to.
        park: Asks a modern client while the call waits; None if the client is not asked this way.
        end_if_abandoned: Ends the call if its client has not answered a question for a long time.
        latest: The latest progress that is not sent yet; `flush` sends it.
    """

    context: Context
    server: str
    park: Park | None = None
    end_if_abandoned: Callable[[], None] = lambda: None
    latest: Progress | None = None
    _sent_at: float = -PROGRESS_GAP
    _timer: asyncio.TimerHandle | None = None

    @property
    def caller(self) -> Hashable:
        """The caller of the client's own back channel."""
        return self.context.link.caller

    def notify(self, method: str, params: bytes) -> None:
        """Forward a notification; log messages get the server's name, or are dropped below the
        client's level.
        """
        context = self.context
        if context.finished:
            return
        if method == "notifications/message":
            if not _is_wanted(params, context.log_level):
                return
            params = with_logger(self.server, params)
        context.link.notify(method, params)

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        """Ask a legacy client with a request, or a modern client in the response to its request."""
        params = attributed(self.server, method, params)
        if self.park is None:
            return await self.context.link.ask(method, params, timeout=timeout)
        return await self.park(method, params)

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: the streams of the two connections are independent."""

    def progress(self, progress: Progress) -> None:
        """Forward progress, at most once every `PROGRESS_GAP` seconds."""
        self.latest = progress
        if self._timer is not None:  # it may be due, and would send what follows too soon
            return
        wait = self._sent_at + PROGRESS_GAP - monotonic()
        if wait <= 0:
            self._send_latest()
        else:
            self._timer = self.context.loop.call_later(wait, self._send_latest)

    def _send_latest(self) -> None:
        self._timer = None
        if self.latest is not None and not self.context.finished:
            latest, self.latest, self._sent_at = self.latest, None, monotonic()
            self.context.progress(latest.progress, latest.total, latest.message)

    def flush(self) -> None:
        """Send the latest progress; call this before the result is sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._send_latest()


def _is_wanted(params: bytes, lowest: str | None) -> bool:
    if lowest is None:
        return False
    try:
        level = msgspec.json.decode(params, type=_Level).level
    except (msgspec.DecodeError, RecursionError):
        return False
    return level in LEVELS and LEVELS.index(level) >= LEVELS.index(lowest)
