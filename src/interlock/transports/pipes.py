"""Our own stdin and stdout as a connection: the server's end of stdio.

Only the protocol may use stdout. Descriptor 1 is duplicated first and then points to stderr, so
that `print`, C libraries and child processes write to the log.
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

# Unsent bytes at which a client that does not read is disconnected.
MAX_UNSENT_BYTES = 16 * MAX_FRAME_BYTES
WRITE_PATIENCE = 2.0  # seconds for which `close` waits until the client has read the rest
_READ_BYTES = 128 * 1024
_LOOP_CHECK = 0.5  # seconds between checks whether the event loop was closed


def take_standard_streams() -> tuple[int, int]:
    """Reserve stdin and stdout for the protocol; return (read, write) descriptors.

    Afterwards descriptor 0 is empty and descriptor 1 is stderr.
    """
    source, target = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - only the descriptor is used
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout.flush()  # sends buffered output to stderr as well
    return source, target


class PipeTransport:
    """A pair of descriptors, one to read lines from and one to write them to.

    Args:
        source: The descriptor to read from. A thread reads a descriptor that the event loop
            cannot watch, such as a file.
        target: The descriptor to write to.
        max_frame_bytes: The largest accepted message.
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
        """Handle `data` that the thread has read, or read it here."""
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
            # In the next turn, so that this turn's replies are sent first: a shell's pipe may end
            # right after its last request.
            self._loop.call_soon(self.abort, ConnectionClosed("the client closed the connection"))
            return
        try:
            frames = self._lines.feed(data)
            if frames:
                self._receiver.frames_received(frames)
        except MessageTooLarge as error:
            self.abort(error)
        except MemoryError:
            self._disconnect(_out_of_memory())

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
            # Wait, because a file can be read faster than its requests are answered.
            while not taken.wait(_LOOP_CHECK) and not self._loop.is_closed():
                pass

    def _read_from_thread(self, data: bytes, taken: threading.Event) -> None:
        taken.set()
        self._read(data)

    # Sending

    def send(self, frames: list[bytes]) -> None:
        """Write frames: now as far as the pipe has room, the rest later."""
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
        """Stop reading, write the rest for at most `WRITE_PATIENCE` seconds, and stop.

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
