"""Streams of server-sent events, and the messages kept for clients that reconnect."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from interlock.auth.principal import Principal
from interlock.errors import OutOfMemory
from interlock.revisions import INTERNAL_ERROR
from interlock.server.http.responses import (
    LATER,
    Header,
    HttpRefusal,
    Message,
    Receive,
    Send,
    disconnected,
)

SEND_DEADLINE = 30.0  # seconds within which a client must read enough for the next write
MAX_QUEUED = 1024 * 1024  # bytes of a stream that wait because the client does not read them
MAX_EACH = 100  # open streams of one principal
MAX_KEPT = 64 * 1024 * 1024  # bytes kept for all clients that may reconnect
_TICKS = 15  # how often each stream is checked during the longest allowed silence

_HEADERS: list[Header] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE = b": \n\n"
_LINES = bytes.maketrans(b"\r\n", b"  ")
_log = logging.getLogger("interlock.server.http")


def event(frame: bytes, id: str = "") -> bytes:
    """Return a message as an event. Encoded JSON has no line breaks inside strings."""
    if b"\n" in frame or b"\r" in frame:
        frame = frame.translate(_LINES)
    if id:
        return b"id: %b\ndata: %b\n\n" % (id.encode(), frame)
    return b"data: %b\n\n" % frame


def too_large_to_send() -> OutOfMemory:
    """Return the error that is sent instead of an answer that does not fit into memory."""
    return OutOfMemory("the answer does not fit into memory")


class EventWriter:
    """Writes an HTTP response that is a stream: any code queues events, and one task sends them.

    Args:
        send: The ASGI function that sends the response.
        headers: Additional response headers.
        keep_alive: Adds comments to the stream while no events are sent.
        dropped: Counts the streams that are cut because their client does not read.
    """

    def __init__(
        self,
        send: Send,
        headers: Iterable[Header],
        *,
        keep_alive: KeepAlive,
        dropped: Counter[str],
    ) -> None:
        self._send = send
        self._dropped = dropped
        self._headers = [*_HEADERS, *headers]
        self._keep_alive = keep_alive
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._silence = 0  # ticks since the last data was queued
        self._more = asyncio.Event()
        self._task: asyncio.Task[object] | None = None
        self.ended = False
        self.was_cut = False

    def put(self, data: bytes) -> None:
        """Queue whole events. If more than `MAX_QUEUED` bytes are waiting, cut the stream."""
        if self.ended:
            return
        if self._size > MAX_QUEUED:
            _log.warning("cut a stream: over %d bytes wait for its client", MAX_QUEUED)
            self._dropped["stream that is not read"] += 1
            self.cut()
            return
        self._queue.append(data)
        self._size += len(data)
        self._more.set()

    def tick(self) -> None:
        """Queue a comment if the stream has been silent for `_TICKS` ticks."""
        self._silence += 1
        if self._silence == _TICKS and not self._queue:
            self.put(_KEEP_ALIVE)

    def end(self) -> None:
        """End the response after everything in the queue has been sent."""
        self.ended = True
        self._more.set()

    def cut(self) -> None:
        if not self.was_cut:
            self.was_cut = True
            self._queue.clear()
            self.end()
            if self._task is not None and self._task is not asyncio.current_task():
                self._task.cancel()

    async def run(self) -> None:
        """Send the queue until the stream ends. Call this only once."""
        self._task = task = asyncio.current_task()
        try:
            if not self.was_cut:
                with self._keep_alive.of(self):
                    await self._run()
        except asyncio.CancelledError:
            if not self.was_cut:
                raise
            if task is not None:
                task.uncancel()
        except (OSError, TimeoutError, MemoryError):
            self.cut()  # the client disconnected or does not read, or memory is full
        finally:
            self._task = None
            self.ended = True

    async def _run(self) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self._headers}
        await self._send_in_time(start)
        if not self._queue:
            self.put(_KEEP_ALIVE)  # some hosts and proxies hold the headers until a byte follows
        while True:
            data = b"".join(self._queue)
            self._queue.clear()
            self._size = 0
            self._more.clear()
            if data:
                await self._send_part(data)
            elif self.ended:
                break
            else:
                await self._more.wait()
        await self._send_in_time({"type": "http.response.body", "body": b""})

    async def _send_part(self, data: bytes) -> None:
        await self._send_in_time({"type": "http.response.body", "body": data, "more_body": True})
        self._silence = 0

    async def _send_in_time(self, message: Message) -> None:
        async with asyncio.timeout(SEND_DEADLINE):
            await self._send(message)


class KeepAlive:
    """Adds comments to silent streams. One timer serves all streams, so the process wakes less.

    Args:
        seconds: The longest silence of a stream.
    """

    def __init__(self, seconds: float) -> None:
        self._every = seconds / _TICKS
        self._writers: set[EventWriter] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def of(self, writer: EventWriter) -> Iterator[None]:
        """Add comments to a stream when it is silent, until the end of the block."""
        self._writers.add(writer)
        try:
            if self._timer is None:
                self._schedule()
            yield
        finally:
            self._writers.remove(writer)
            if not self._writers and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)

    def _tick(self) -> None:
        self._schedule()  # before the rest, which may raise MemoryError
        for writer in self._writers:
            writer.tick()


async def run_until_gone(writer: EventWriter, receive: Receive) -> None:
    """Send a stream until it ends or its client disconnects."""
    watch = asyncio.ensure_future(disconnected(receive))
    watch.add_done_callback(lambda _: writer.cut())
    try:
        await writer.run()
    finally:
        watch.cancel()


def _too_many(what: str) -> HttpRefusal:
    return HttpRefusal(503, f"too many {what}", INTERNAL_ERROR, headers=LATER)


class Budget:
    """Limits that all streams of an endpoint share.

    Args:
        max_streams: The most open streams of subscribers; such streams do not end with an answer.
        dropped: Counts dropped messages and streams, keyed by the reason.
        max_each: The most open streams of one principal.
        keep_alive: The longest silence of a stream, in seconds.

    Attributes:
        max_bytes: The most bytes kept for clients that may reconnect. Above this limit, messages
            are dropped, first from the stream whose newest message is the oldest.
    """

    def __init__(
        self,
        max_streams: int,
        dropped: Counter[str],
        *,
        max_each: int = MAX_EACH,
        keep_alive: float = 5.0,
    ) -> None:
        self.dropped = dropped
        self._keep_alive = KeepAlive(keep_alive)
        self.max_bytes = MAX_KEPT
        self.bytes = 0
        self._max_streams = max_streams
        self._max_each = max_each
        self._streams: Counter[str | None] = Counter()
        self._kept: OrderedDict[ReplayStream, None] = OrderedDict()  # newest message last

    def writer(self, send: Send, headers: Iterable[Header]) -> EventWriter:
        return EventWriter(send, headers, keep_alive=self._keep_alive, dropped=self.dropped)

    def keep(self, stream: ReplayStream) -> None:
        """Record that a stream keeps a new message; drop other streams' messages to make room."""
        self._kept[stream] = None
        self._kept.move_to_end(stream)
        while self.bytes > self.max_bytes and (oldest := next(iter(self._kept))) is not stream:
            oldest.lose_all()

    def forget(self, stream: ReplayStream) -> None:
        """Record that a stream no longer keeps messages."""
        self._kept.pop(stream, None)

    @contextmanager
    def stream(self, principal: Principal | None) -> Iterator[None]:
        """Count a stream as open until the end of the block.

        Raises:
            HttpRefusal: 503: too many streams are open.
        """
        owner = None if principal is None else principal.owner
        if owner is not None and self._streams[owner] >= self._max_each:
            raise _too_many(f"streams of one principal (limit {self._max_each}); end some first")
        if self._streams.total() >= self._max_streams:
            raise _too_many(f"streams (limit {self._max_streams}); try again later")
        self._streams[owner] += 1
        try:
            yield
        finally:
            self._streams[owner] -= 1
            if not self._streams[owner]:
                del self._streams[owner]


class ReplayStream:
    """The numbered messages of one stream in a legacy session, and the client that reads them.

    The reader may disconnect, and reconnect with the number of the last message that it received.
    Only the newest messages are kept; a reader that reconnects late misses older ones.

    Args:
        number: The stream's number in its session, which is part of its event ids.
        budget: The limits that all streams share.
        numbered: Whether events have ids; without ids a reader cannot reconnect.
        primed: Whether to begin with an event that has only an id, as clients since 2025-11-25
            expect.
        is_batch: Whether the stream is the reply to a batch, whose answers are all kept until a
            client reads the stream.
    """

    def __init__(
        self,
        number: int,
        budget: Budget,
        *,
        numbered: bool = True,
        primed: bool = False,
        is_batch: bool = False,
    ) -> None:
        self.number = number
        self.ended = False
        self.primed = primed
        self.retry_ms: int | None = None  # the next reader must disconnect and reconnect after this
        self.last = 0
        self.seen = 0  # the number of the last message that was queued for a reader
        self.frames: deque[tuple[int, bytes]] = deque()
        self._answers: set[int] = set()  # the numbers of kept messages that are responses
        self._others = 0  # kept messages that are not responses
        self._size = 0
        self._budget = budget
        self._numbered = numbered
        self._keeps_all = is_batch
        self._changed = asyncio.Event()
        self._writer: EventWriter | None = None

    @property
    def needs_reader(self) -> bool:
        """Whether there are messages other than answers, so that JSON is not enough."""
        return self.retry_ms is not None or self._others > 0

    @property
    def has_reader(self) -> bool:
        return self._writer is not None

    def put(self, frame: bytes, *, is_answer: bool = False) -> None:
        if self.ended:
            return
        self.last += 1
        self._others += not is_answer
        if not self._numbered and self._writer is not None:
            self._writer.put(event(frame))  # not kept, because the reader cannot reconnect
            return
        if is_answer:
            self._answers.add(self.last)
        self.frames.append((self.last, frame))
        self._size += len(frame)
        self._budget.bytes += len(frame)
        if not self._keeps_all:
            self._limit()
        if self._writer is not None:
            self.seen = self.last
            self._writer.put(event(frame, self._id(self.last)))
        self._changed.set()

    def _limit(self) -> None:
        budget = self._budget
        while len(self.frames) > 1 and (self._size > MAX_QUEUED or budget.bytes > budget.max_bytes):
            self._lose_oldest()
        budget.keep(self)

    def end(self) -> None:
        """Accept no more messages; end the response once all messages have been sent."""
        self.ended = True
        if self._writer is not None:
            self._writer.end()
        self._changed.set()

    def clear(self) -> None:
        while self.frames:
            self._drop_oldest()
        self._budget.forget(self)

    def lose_all(self) -> None:
        """Drop all kept messages, even if a client may reconnect for them."""
        while self.frames:
            self._lose_oldest()
        self._budget.forget(self)

    def dismiss_reader(self, retry_ms: int) -> None:
        """End the response, so that the reader reconnects after `retry_ms` milliseconds."""
        if self._writer is None:
            self.retry_ms = retry_ms  # for the next reader
        else:
            self._writer.put(b"retry: %d\n\n" % retry_ms)
            self._writer.end()
        self._changed.set()

    async def changed(self) -> None:
        """Wait for a new message or the end."""
        await self._changed.wait()
        self._changed.clear()

    def answer_frames(self) -> list[bytes]:
        return [frame for number, frame in self.frames if number in self._answers]

    def attach(self, writer: EventWriter, after: int) -> None:
        """Send a reader all kept messages after number `after`, and then all new messages."""
        if self._writer is not None:
            self._writer.cut()
        self._writer = writer
        parts = [event(frame, self._id(number)) for number, frame in self.frames if number > after]
        if self.primed and (self.frames or not self.ended):
            parts.insert(0, b"id: %b\ndata: \n\n" % self._id(after).encode())
        self.seen = self.last
        if self.retry_ms is not None:
            parts.append(b"retry: %d\n\n" % self.retry_ms)
        if parts:
            writer.put(b"".join(parts))
        if self.retry_ms is not None:
            self.retry_ms = None
            writer.end()
        if self.ended:
            writer.end()
        if self._keeps_all:
            self._keeps_all = False
            self._limit()

    def detach(self, writer: EventWriter) -> None:
        """Remove a reader, unless another reader has replaced it."""
        if self._writer is writer:
            self._writer = None

    def _id(self, number: int) -> str:
        return f"{self.number}-{number}" if self._numbered else ""

    def _lose_oldest(self) -> None:
        if self._drop_oldest() > self.seen:  # no reader has received the dropped message
            self._budget.dropped["message for a client that is away"] += 1

    def _drop_oldest(self) -> int:
        number, frame = self.frames.popleft()
        self._answers.discard(number)
        size = len(frame)
        self._size -= size
        self._budget.bytes -= size
        return number
