"""The server's side of stdio: this process's stdin and stdout as a connection.

Only the protocol may write to stdout. So descriptor 1 is duplicated for the protocol and then
redirected to stderr, where output from `print`, C libraries and child processes does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque

from interlock.errors import ConnectionClosed, InterlockError, MessageTooLarge
from interlock.transports import MAX_FRAME_BYTES, Receiver
from interlock.transports.lines import LineSplitter, separately
from interlock.types import RequestId

# A client that does not read is disconnected at this many unsent bytes.
MAX_UNSENT_BYTES = 16 * MAX_FRAME_BYTES
# Seconds for which requests may still run when the input has ended, as after `printf … | server`. A
# client that quits waits for a server's exit, so this must be short.
END_PATIENCE = 0.5
WRITE_PATIENCE = 2.0  # seconds that `close` waits until the client has read the remaining output
_READ_BYTES = 128 * 1024
_LOOP_CHECK = 0.5  # seconds between checks of whether the event loop was closed


def take_standard_streams() -> tuple[int, int]:
    """Reserve stdin and stdout for the protocol; return the descriptors to read and write.

    Afterwards, descriptor 0 is empty and descriptor 1 writes to stderr.
    """
    source, target = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - only the descriptor is used
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout.flush()  # sends buffered output to stderr as well
    return source, target


class PipeTransport:
    """A connection over two descriptors, one for reading lines and one for writing lines.

    Args:
        source: The descriptor to read from. If the event loop cannot watch the descriptor, as with
            a file, a thread reads it.
        target: The descriptor to write to.
        max_frame_bytes: The size of the largest accepted message.
    """

    def __init__(self, source: int, target: int, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._source = source
        self._target = target
        self._lines = LineSplitter(max_frame_bytes)
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._written = asyncio.Event()  # set when no more bytes will be written
        self._receiver: Receiver | None = None
        self._in_thread = False
        self._ending: asyncio.Task[None] | None = None  # the reference keeps the task alive

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._target, False)
        try:
            self._loop.add_reader(self._source, self._read)
            os.set_blocking(self._source, False)
        except (OSError, NotImplementedError):  # the event loop cannot watch files
            self._in_thread = True
            threading.Thread(target=self._read_in_thread, daemon=True).start()

    # Receiving

    def _read(self, data: bytes | None = None) -> None:
        """Handle `data` from the reading thread; if it is None, read from the descriptor here."""
        if data is None:
            try:
                data = os.read(self._source, _READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            except MemoryError:
                self._disconnect(_out_of_memory())
                return
        if self._receiver is None:
            return
        if not data:
            if not self._in_thread:
                self._loop.remove_reader(self._source)
            self._ending = self._loop.create_task(self._end(self._receiver))
            return
        try:
            frames = self._lines.feed(data)
            if frames:
                self._receiver.frames_received(frames)
        except MessageTooLarge as error:
            self.abort(error)
        except MemoryError:
            self._disconnect(_out_of_memory())

    async def _end(self, receiver: Receiver) -> None:
        await receiver.settle(END_PATIENCE)
        self.abort(ConnectionClosed("the client closed the connection"))

    def _read_in_thread(self) -> None:
        data = b"-"
        while data:
            try:
                data = os.read(self._source, _READ_BYTES)
            except (OSError, MemoryError):
                data = b""
            taken = threading.Event()
            try:
                self._loop.call_soon_threadsafe(self._read_from_thread, data, taken)
            except RuntimeError:  # the event loop was closed
                return
            # Wait, because a file is read faster than its requests are answered.
            while not taken.wait(_LOOP_CHECK) and not self._loop.is_closed():
                pass

    def _read_from_thread(self, data: bytes, taken: threading.Event) -> None:
        taken.set()
        self._read(data)

    # Sending

    def send(self, frames: list[bytes]) -> None:
        """Write as much of the frames as the pipe has room for; write the remainder later."""
        if self._receiver is None:
            return
        if self._unsent_size > MAX_UNSENT_BYTES:
            limit = f"{MAX_UNSENT_BYTES:,} bytes"
            self._disconnect(ConnectionClosed(f"the client does not read ({limit} are waiting)"))
            return
        try:
            data = memoryview(b"\n".join([*frames, b""]))
        except MemoryError:
            self._queue(separately(frames))
            return
        if not self._unsent:
            try:
                written = os.write(self._target, data)
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError:
                self._disconnect(ConnectionClosed("the client closed its end of stdout"))
                return
            if written == len(data):
                return
            data = data[written:]
        self._queue([data])

    def _queue(self, pieces: list[memoryview]) -> None:
        if not self._unsent:
            self._written.clear()
            self._loop.add_writer(self._target, self._write_more)
        self._unsent.extend(pieces)
        self._unsent_size += sum(map(len, pieces))

    def _write_more(self) -> None:
        while self._unsent:
            data = self._unsent[0]
            try:
                written = os.write(self._target, data)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._disconnect(ConnectionClosed("the client closed its end of stdout"))
                return
            self._unsent_size -= written
            if written < len(data):
                self._unsent[0] = data[written:]
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._target)
        self._written.set()

    def _disconnect(self, error: InterlockError) -> None:
        self._unsent.clear()
        self._unsent_size = 0
        self._written.set()
        self._loop.call_soon(self.abort, error)

    # Closing

    def forget(self, id: RequestId) -> None:
        """Do nothing: a late response is dropped."""

    def diagnostics(self) -> str:
        return ""

    def abort(self, error: InterlockError) -> None:
        """Stop reading and writing, and notify the receiver."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._stop()
            receiver.connection_lost(error)

    async def close(self) -> None:
        """Stop reading, and write the remaining output for at most `WRITE_PATIENCE` seconds.

        The descriptors stay open, because they belong to the caller.
        """
        if self._receiver is not None:
            self._receiver = None
            if not self._in_thread:
                self._loop.remove_reader(self._source)
            try:
                if self._unsent:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._written.wait(), WRITE_PATIENCE)
            finally:
                self._stop()

    def _stop(self) -> None:
        if not self._in_thread:
            self._loop.remove_reader(self._source)
        self._write_more()  # writes only as much as the pipe has room for
        self._loop.remove_writer(self._target)
        self._unsent.clear()


def _out_of_memory() -> ConnectionClosed:
    return ConnectionClosed("out of memory while receiving from the client")
