"""The channel from a forwarded call back to its client, over the client's current request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic

import msgspec
from msgspec import Raw, Struct

from interlock.context import LEVELS, Context
from interlock.protocol import Progress

PROGRESS_GAP = 0.05  # seconds between two notifications of a call's progress

# Asks a modern client: method and params of the question -> the answer.
Park = Callable[[str, bytes], Awaitable[Raw]]


class _Level(Struct):
    level: str = ""


class CallLink(Struct, eq=False):
    """The `BackChannel` of a forwarded call.

    Log messages are filtered by the client's level. Progress is limited to one notification in
    `PROGRESS_GAP`: the latest one is sent when the gap has passed.

    Attributes:
        context: The client's request.
        park: Asks a modern client; None if the client cannot be asked that way.
        end_if_abandoned: Ends the call if its client has left a question unanswered for long.
        latest: Progress that has not been sent yet; `flush` sends it.
    """

    context: Context
    park: Park | None = None
    end_if_abandoned: Callable[[], None] = lambda: None
    latest: Progress | None = None
    _sent_at: float = -PROGRESS_GAP
    _timer: asyncio.TimerHandle | None = None

    @property
    def caller(self) -> Hashable:
        """Same as `caller` of the client's back channel."""
        return self.context.link.caller

    def notify(self, method: str, params: bytes) -> None:
        """Forward a log message that passes the client's level, and any other notification."""
        context = self.context
        if context.finished:
            return
        if method == "notifications/message" and not _is_wanted(params, context.log_level):
            return
        context.link.notify(method, params)

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        """Ask a legacy client by a request, a modern one by the answer to its own request."""
        if self.park is None:
            return await self.context.link.ask(method, params, timeout=timeout)
        return await self.park(method, params)

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: the streams of the two connections are independent."""

    def progress(self, progress: Progress) -> None:
        """Forward progress, at most once in `PROGRESS_GAP`."""
        wait = self._sent_at + PROGRESS_GAP - monotonic()
        if wait <= 0:
            self._send_progress(progress)
            return
        self.latest = progress
        if self._timer is None:
            self._timer = self.context.loop.call_later(wait, self._send_latest)

    def _send_latest(self) -> None:
        self._timer = None
        if self.latest is not None and not self.context.finished:
            self._send_progress(self.latest)

    def _send_progress(self, progress: Progress) -> None:
        self.latest, self._sent_at = None, monotonic()
        self.context.progress(progress.progress, progress.total, progress.message)

    def flush(self) -> None:
        """Send the latest progress before the result."""
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
