"""The client's side of stdio: a server as a child process, with one message per line.

Spec 2026-07-28: basic/transports/stdio. Linux and macOS.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import shlex
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from interlock.errors import (
    MAX_WORDS,
    ConnectionClosed,
    InterlockError,
    MessageTooLarge,
    ServerExited,
)
from interlock.text.redaction import redact_arguments
from interlock.transports import MAX_FRAME_BYTES, Receiver
from interlock.transports.lines import LineSplitter, separately
from interlock.transports.process import Process
from interlock.transports.trace import Trace
from interlock.types import RequestId

# Environment variables that a server inherits, besides LC_*; all others must be configured.
INHERITED = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "TZ"),
    # Paths of certificates, not secrets. Behind some proxies, npx and uvx fail without them.
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
)

STDERR_BYTES = 256 * 1024
# A server that does not read its stdin is disconnected at this many unsent bytes: a message of the
# largest size for each concurrent call from a toolbox.
MAX_UNSENT_BYTES = 16 * MAX_FRAME_BYTES
_READ_BYTES = 128 * 1024
_PIPE_BYTES = 1024 * 1024
# Seconds to wait for the exit code after stdout was closed.
_EXIT_GRACE = 0.075
_log = logging.getLogger("interlock.client")


class StdioTransport:
    """Starts a server program and exchanges messages with it.

    Args:
        argv: The program and its arguments; no shell is used.
        env: Environment variables for the server, besides the variables in `INHERITED`.
        cwd: The server's working folder; None for this process's working folder.
        max_frame_bytes: The size of the largest accepted message.
        trace: Records the server's start, stderr and exit; None to record nothing.

    Attributes:
        process_id: The server's process id; None before its start.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        trace: Trace | None = None,
    ) -> None:
        self._trace = trace
        self._argv = list(argv)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name in INHERITED or name.startswith("LC_")
        }
        self._env = {**inherited, **(env or {})}
        self._cwd = cwd
        self._lines = LineSplitter(max_frame_bytes)
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._stderr: deque[bytes] = deque()
        self._stderr_size = 0
        self.process_id: int | None = None
        self._last_line = b""  # the beginning of the last line on stdout
        self._process: Process
        self._receiver: Receiver | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def stderr(self) -> str:
        """The last 256 KiB of the server's stderr."""
        return b"".join(self._stderr).decode(errors="replace")

    # Opening

    async def open(self, receiver: Receiver) -> None:
        """Start the program.

        Raises:
            SpawnError: The program cannot be started.
        """
        self._loop = loop = asyncio.get_running_loop()
        process = await Process.spawn(
            self._argv, on_exit=self._on_exit, env=self._env, cwd=self._cwd
        )
        self._process, self.process_id, self._receiver = process, process.id, receiver
        if self._trace is not None:
            # Redact before quoting, because quoting changes a secret that has a quotation mark.
            shown = redact_arguments(self._argv, self._trace.redactor)
            self._trace.noted("spawn", f"{shlex.join(shown)} (pid {process.id})")
        if self._closed:
            await self.close()
            raise ConnectionClosed("the connection was closed while it was being opened")
        for pipe in (process.stdin, process.stdout):
            # With a larger pipe, large messages need fewer turns of the event loop. Only Linux can
            # enlarge a pipe, and may refuse to.
            with contextlib.suppress(AttributeError, OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        loop.add_reader(process.stdout, self._read)
        loop.add_reader(process.stderr, self._read_stderr)
        if process.exited.is_set():
            self._on_exit()

    # Receiving

    def _read(self) -> None:
        try:
            data = self._read_pipe(self._process.stdout)
        except MemoryError:
            self._disconnect(self._out_of_memory())
            return
        if data is None or (data and self._receiver is None):
            return
        if not data:
            # The server closed its stdout. Wait shortly for its exit, because an exit code explains
            # more.
            self._loop.remove_reader(self._process.stdout)
            self._receive_last_line()
            self._loop.call_later(_EXIT_GRACE, self._disconnect, None)
            return
        try:
            frames = self._lines.feed(data)
            if frames and self._receiver is not None:
                self._last_line = frames[-1][:MAX_WORDS]
                self._receiver.frames_received(frames)
        except MessageTooLarge as error:
            self._disconnect(error)
        except MemoryError:
            self._disconnect(self._out_of_memory())

    def _out_of_memory(self) -> ConnectionClosed:
        return ConnectionClosed(f"out of memory while receiving from {self._argv[0]!r}")

    def _read_stderr(self) -> None:
        data = self._read_pipe(self._process.stderr)
        if data:
            self._keep_stderr(data)
        elif data is not None:
            self._loop.remove_reader(self._process.stderr)

    def _keep_stderr(self, data: bytes) -> None:
        self._stderr.append(data)
        self._stderr_size += len(data)
        if self._trace is not None:
            self._trace.noted("stderr", data.decode(errors="replace"))
        while self._stderr_size > STDERR_BYTES and len(self._stderr) > 1:
            self._stderr_size -= len(self._stderr.popleft())

    @staticmethod
    def _read_pipe(pipe: int) -> bytes | None:
        try:
            return os.read(pipe, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    # Sending

    def send(self, frames: list[bytes]) -> None:
        if self._receiver is None:
            return
        waiting = bool(self._unsent)
        try:
            data = b"\n".join([*frames, b""])
            written = 0 if waiting else self._write_some(data)
            if written == len(data):
                return
            pieces = [memoryview(data)[written:]]
        except MemoryError:
            pieces = separately(frames)
        self._unsent.extend(pieces)
        self._unsent_size += sum(map(len, pieces))
        if waiting and self._unsent_size > MAX_UNSENT_BYTES:
            limit = MAX_UNSENT_BYTES / 2**20
            error = f"{self._argv[0]!r} does not read its stdin (over {limit:g} MiB are waiting)"
            self._loop.call_soon(self._disconnect, ConnectionClosed(error))
        if not waiting and self._write():
            self._loop.add_writer(self._process.stdin, self._write_more)

    def _write(self) -> bool:
        """Write as much as the pipe has room for; return True if unsent bytes are left."""
        while self._unsent:
            data = self._unsent[0]
            written = self._write_some(data)
            if not written:
                return True
            if not self._unsent:  # cleared, because the server closed its stdin
                return False
            self._unsent_size -= written
            if written < len(data):
                self._unsent[0] = data[written:]
            else:
                self._unsent.popleft()
        return False

    def _write_some(self, data: bytes | memoryview) -> int:
        """Write as much as the pipe has room for; return the number of bytes that are done."""
        try:
            return os.write(self._process.stdin, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # the server closed its stdin
            self._clear_unsent()
            self._loop.call_later(_EXIT_GRACE, self._disconnect, None)
            return len(data)

    def _write_more(self) -> None:
        if not self._write():
            self._loop.remove_writer(self._process.stdin)

    def _clear_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_size = 0

    # Closing

    def forget(self, id: RequestId) -> None:
        """Do nothing: a late response is dropped."""

    def diagnostics(self) -> str:
        """Return the error at the end of the server's stderr, or else the last line of stderr.

        If stderr is empty, return the last line of stdout, unless this line is a message.
        """
        return diagnostics(self.stderr) or stdout_text(self._last_line)

    def abort(self, error: InterlockError) -> None:
        """Notify the receiver at once, and end the server in the background."""
        self._disconnect(error)

    async def close(self) -> None:
        """End the server within 5 seconds; see `Process.end` for the steps."""
        self._receiver, self._closed = None, True
        if self.process_id is None:
            return
        # Cancelling `close` must not stop the task that ends the server.
        await asyncio.shield(self._start_ending())

    def _start_ending(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
            # If the event loop ends now, it cancels the task before `_end` has begun.
            self._ending.add_done_callback(lambda _: self._process.end_at_once())
        return self._ending

    async def _end(self) -> None:
        process = self._process
        self._clear_unsent()
        self._loop.remove_writer(process.stdin)
        try:
            # Keep reading both pipes, because a full pipe would block the server's exit.
            await process.end()
        finally:
            self._loop.remove_reader(process.stdout)
            self._loop.remove_reader(process.stderr)
            if process.was_killed:
                _log.warning("%r had to be killed: it did not exit when asked to", self._argv[0])
            if self._trace is not None:
                self._trace.noted("exit", f"exit code {process.code}")

    def _on_exit(self) -> None:
        if self.process_id is None:  # `open` has not finished
            return
        # Read the output before the exit, then notify the receiver.
        with contextlib.suppress(MemoryError):
            self._read_rest()
            self._read_stderr_rest()
        self._disconnect(None)

    def _read_rest(self) -> None:
        # Read one full pipe at most: processes that the server started may keep writing.
        for _ in range(_PIPE_BYTES // _READ_BYTES + 1):
            data = self._read_pipe(self._process.stdout)
            if data == b"":
                self._receive_last_line()
            if not data or self._receiver is None:
                return
            try:
                frames = self._lines.feed(data)
            except MessageTooLarge as error:
                self._disconnect(error)
                return
            if frames:
                self._last_line = frames[-1][:MAX_WORDS]
                self._receiver.frames_received(frames)

    def _receive_last_line(self) -> None:
        """Receive a last message without a newline; drop one that the server has not finished."""
        line = self._lines.rest()
        if line and self._receiver is not None:
            self._last_line = line[:MAX_WORDS]
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                msgspec.json.decode(line, type=msgspec.Raw)
                self._receiver.frames_received([line])

    def _read_stderr_rest(self) -> None:
        # Read one full pipe at most: processes that the server started may keep writing.
        for _ in range(STDERR_BYTES // _READ_BYTES + 4):
            data = self._read_pipe(self._process.stderr)
            if not data:
                return
            self._keep_stderr(data)

    def _disconnect(self, error: InterlockError | None) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        self._start_ending()
        receiver.connection_lost(error or self._why_ended())

    def _why_ended(self) -> ConnectionClosed:
        program, process = repr(self._argv[0]), self._process
        words = self.diagnostics()
        because = f": {words}" if words else ""
        if process.code is None:
            return ConnectionClosed(f"{program} closed its stdout but did not exit{because}")
        code = process.code
        how = f"was ended by signal {-code}" if code and code < 0 else f"exited with code {code}"
        return ServerExited(f"{program} {how}{because}", code, self.stderr)


_LINES = 100  # how many last lines are searched: enough for a usage text after the error

# "ValueError: …", "module.Error: …", "TypeError [ERR_INVALID_ARG_TYPE]: …"; the last one counts.
_RAISED = re.compile(r"(?:[\w$]+\.)*\w*(?:Error|Exception)(?: \[\w+\])?: ")
# "error: …", "npm error …", "panic: …", "thread 'main' panicked at …"; the first one counts.
_SAID = re.compile(r"(?:npm )?(?:error|err!|fatal|panic)\b|thread '.*' panicked at ", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"\s+at ")  # a frame of a stack trace


def diagnostics(stderr: str) -> str:
    """Return the error at the end of `stderr`, or else its last line; at most 300 characters."""
    lines = [_COLOUR.sub("", line) for line in stderr.rstrip().splitlines()[-_LINES:]]
    raised = [at for at, line in enumerate(lines) if _RAISED.match(line)][-1:]
    said = [at for at, line in enumerate(lines) if _SAID.match(line)][:1]
    for begin in raised or said:
        return " ".join(_paragraph(lines[begin:]).split())[:MAX_WORDS]
    return lines[-1].strip()[:MAX_WORDS] if lines else ""


def stdout_text(line: bytes) -> str:
    """Return a line from stdout as text; "" if the line is a protocol message."""
    if line[:1] in (b"{", b"["):
        return ""
    return " ".join(_COLOUR.sub("", line.decode(errors="replace")).split())


def _paragraph(lines: list[str]) -> str:
    """Join the lines before the first blank line or stack trace."""
    ends = (at for at, line in enumerate(lines) if not line.strip() or _FRAME.match(line))
    return " ".join(lines[: next(ends, len(lines))])
