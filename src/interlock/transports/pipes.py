"""Our own stdin and stdout as a connection: the server's end of stdio.

stdout carries nothing but protocol. Before anything else runs, file descriptor 1 is moved away
and points to stderr from then on, so that a `print`, a C library's output or a child process
writes to the log.
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

# What may wait to be written to a client that does not read.
MAX_UNSENT_BYTES = 16 * MAX_FRAME_BYTES
WRITE_PATIENCE = 2.0  # seconds that a client gets at the end to read what waits for it
_READ_BYTES = 128 * 1024
_LOOK = 0.5  # seconds between two looks whether there still is an event loop


def take_standard_streams() -> tuple[int, int]:
    """Take stdin and stdout for the protocol; returns (read, write) descriptors.

    Afterwards descriptor 0 is empty and descriptor 1 is stderr.
    """
    source, target = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout.flush()  # what was printed before and is still held back goes to stderr, too
    return source, target


class PipeTransport:
    """A pair of descriptors, one to read lines from and one to write them to.

    Args:
        source: Descriptor to read from. What cannot be waited for, such as a file, is read in
            a thread.
        target: Descriptor to write to.
        max_frame_bytes: Longest message accepted.
    """

    def __init__(self, source: int, target: int, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._source = source
        self._target = target
        self._lines = LineSplitter(max_frame_bytes)
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._written = asyncio.Event()  # is all of it, or will it never be
        self._receiver: Receiver | None = None
        self._in_thread = False

    async def open(self, receiver: Receiver) -> None:
        """Begin to read."""
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._target, False)
        try:
            self._loop.add_reader(self._source, self._read)
            os.set_blocking(self._source, False)
        except (OSError, NotImplementedError):  # a file: always ready, so not to be waited for
            self._in_thread = True
            threading.Thread(target=self._read_in_thread, daemon=True).start()

    # Receiving

    def _read(self, data: bytes | None = None) -> None:
        """Take what there is to read, or what the thread has read."""
        if data is None:
            try:
                data = os.read(self._source, _READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            except MemoryError:
                self._lose(_no_memory())
                return
        if self._receiver is None:
            return
        if not data:
            # What this turn has answered is sent first: a shell's pipe ends with the requests.
            self._loop.call_soon(self.abort, ConnectionClosed("the client closed the connection"))
            return
        try:
            frames = self._lines.feed(data)
            if frames:
                self._receiver.frames_received(frames)
        except MessageTooLarge as error:
            self.abort(error)
        except MemoryError:
            self._lose(_no_memory())

    def _read_in_thread(self) -> None:
        data = b"-"
        while data:
            try:
                data = os.read(self._source, _READ_BYTES)
            except (OSError, MemoryError):
                data = b""
            taken = threading.Event()
            try:
                self._loop.call_soon_threadsafe(self._take, data, taken)
            except RuntimeError:  # the loop has been closed meanwhile
                return
            # A file is read faster than it is answered.
            while not taken.wait(_LOOK) and not self._loop.is_closed():
                pass

    def _take(self, data: bytes, taken: threading.Event) -> None:
        taken.set()
        self._read(data)

    # Sending

    def send(self, frames: list[bytes]) -> None:
        """Write frames, as far as the pipe takes them now; the rest as it empties."""
        if self._receiver is None:
            return
        if self._unsent_size > MAX_UNSENT_BYTES:
            limit = f"{MAX_UNSENT_BYTES:,} bytes"
            self._lose(ConnectionClosed(f"the client does not read: over {limit} wait for it"))
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
                self._lose(ConnectionClosed("the client reads no more"))
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
                self._lose(ConnectionClosed("the client reads no more"))
                return
            self._unsent_size -= written
            if written < len(data):
                self._unsent[0] = data[written:]
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._target)
        self._written.set()

    def _lose(self, error: InterlockError) -> None:
        self._unsent.clear()
        self._unsent_size = 0
        self._written.set()
        self._loop.call_soon(self.abort, error)

    # Closing

    def forget(self, id: RequestId) -> None:
        """Nothing: the answer comes where all answers come."""

    def diagnostics(self) -> str:
        """Nothing: there is only the protocol."""
        return ""

    def abort(self, error: InterlockError) -> None:
        """Stop reading and writing; the receiver is told why."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._stop()
            receiver.connection_lost(error)

    async def close(self) -> None:
        """Stop reading, and writing when all is written or after `WRITE_PATIENCE` seconds.

        The descriptors stay open: they are the caller's.
        """
        if self._receiver is not None:
            self._receiver = None
            if not self._in_thread:
                self._loop.remove_reader(self._source)
            if self._unsent:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._written.wait(), WRITE_PATIENCE)
            self._stop()

    def _stop(self) -> None:
        if not self._in_thread:
            self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._target)
        # What is left is written if the client takes it now; nobody waits for it.
        self._write_rest()

    def _write_rest(self) -> None:
        for data in self._unsent:
            with contextlib.suppress(OSError):
                os.write(self._target, data)
        self._unsent.clear()


def _no_memory() -> ConnectionClosed:
    return ConnectionClosed("there is no memory for what the client sends")
