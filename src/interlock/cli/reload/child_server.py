"""A process that serves a file until the file changes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import sleep

import msgspec
from msgspec import Struct

from interlock.errors import InterlockError
from interlock.server.debugging import is_of_author
from interlock.transports.pipes import PipeTransport
from interlock.types import RequestId

PATIENCE = 2.0  # seconds that `end` waits before it kills
ORPHAN_PATIENCE = 35.0  # seconds that running calls may take when the parent has been killed


class ChildReport(Struct, frozen=True):
    """A message from the process to its parent.

    Attributes:
        files: The files that it has imported.
        error: Why it cannot serve; "" if it can.
        url: The URL at which it accepts connections; "" before it does, and on stdio.
        closed: Whether it accepts no more connections.
    """

    files: tuple[str, ...] = ()
    error: str = ""
    url: str = ""
    closed: bool = False


class ChildServer:
    """A running process; its stderr is that of this process.

    Args:
        on_report: Called with each report.
        on_frames: Called with the frames that the process writes to stdout; None over HTTP.

    Attributes:
        exited: Set when the process has exited, or has closed its stdout.
        error: Why the process cannot serve; "" if it has reported no error.
    """

    def __init__(
        self,
        on_report: Callable[[ChildServer, ChildReport], None],
        on_frames: Callable[[ChildServer, list[bytes]], None] | None,
    ) -> None:
        self.exited = asyncio.Event()
        self.error = ""
        self._on_report = on_report
        self._on_frames = on_frames
        self._pipes: list[int] = []
        self._transport: PipeTransport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None

    async def start(self, arguments: Sequence[str], listener: socket.socket | None) -> None:
        """Start `interlock run` with these arguments.

        Args:
            arguments: The file and the options.
            listener: The socket to serve on; None for stdio.
        """
        ours, theirs = socket.socketpair()
        stdin: int = asyncio.subprocess.DEVNULL
        stdout: int | None = None
        given = [theirs.fileno()]
        try:
            if listener is None:
                stdin, to_child = os.pipe()
                from_child, stdout = os.pipe()
                self._pipes = [from_child, to_child]
            else:
                given.append(listener.fileno())
            # -B: Python would not notice two changes within a second if it kept compiled files.
            command = [sys.executable, "-P", "-B", "-m", "interlock", "run", *arguments]
            self._process = await asyncio.create_subprocess_exec(
                *command,
                f"--child={','.join(map(str, given))}",
                stdin=stdin,
                stdout=stdout,
                pass_fds=given,
                start_new_session=True,  # Ctrl-C ends it through this process only
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if stdout is not None:
                os.close(stdin)
                os.close(stdout)
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=2**24)
        reading = asyncio.create_task(self._read_reports(reader))
        self._tasks = [reading, asyncio.create_task(self._wait(self._process, reading))]
        if self._pipes:
            self._transport = PipeTransport(*self._pipes)
            await self._transport.open(self)

    async def _read_reports(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            report = msgspec.json.decode(line, type=ChildReport)
            self.error = report.error or self.error
            self._on_report(self, report)

    async def _wait(self, process: asyncio.subprocess.Process, reading: asyncio.Task[None]) -> None:
        await process.wait()
        await asyncio.wait([reading])  # wait for the process's last report
        self.exited.set()

    @property
    def reason(self) -> str:
        """Why the process does not serve."""
        code = self._process.returncode if self._process is not None else None
        return self.error or (f"it exited with code {code}" if code is not None else "it closed")

    # The receiver of its frames

    def send(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.send([frame])

    def frames_received(self, frames: list[bytes], _request: RequestId | None = None) -> None:
        if self._on_frames is not None:
            self._on_frames(self, frames)

    def awaits(self, _id: RequestId) -> bool:
        return False

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        """Do nothing: this is for HTTP."""

    async def settle(self, timeout: float) -> None:
        """Return at once: an answer after the end of the output cannot arrive."""

    def connection_lost(self, _error: InterlockError) -> None:
        """Wait for the exit, which follows."""

    # Ending

    def drain(self) -> None:
        """Let running calls finish, then exit."""
        self._signal(signal.SIGTERM)

    async def end(self) -> None:
        """End the process and all processes in its session."""
        try:
            if self._transport is not None:
                await self._transport.close()
            for pipe in self._pipes:
                os.close(pipe)
            self._pipes = []
            if self._writer is not None:
                self._writer.close()  # the process exits when this connection closes
            if self._process is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.exited.wait(), PATIENCE)
        finally:
            self._signal(signal.SIGKILL)
            for task in self._tasks:
                task.cancel()
            if self._process is not None:
                await self._process.wait()

    def _signal(self, sign: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, sign)


def report_to(number: int) -> Callable[[ChildReport], None]:
    """Return a function that reports to the parent, in the process that serves.

    The process ends itself when the parent has ended.
    """
    import threading

    link = socket.socket(fileno=number)

    def watch() -> None:
        with suppress(OSError):
            link.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(ORPHAN_PATIENCE)
        os._exit(1)  # its event loop is blocked

    threading.Thread(target=watch, daemon=True).start()

    def report(report: ChildReport) -> None:
        with suppress(OSError):
            link.sendall(msgspec.json.encode(report) + b"\n")

    return report


def imported_files() -> tuple[str, ...]:
    """Return the files of the author's modules that this process has imported."""
    files: set[str] = {getattr(each, "__file__", None) or "" for each in [*sys.modules.values()]}
    return tuple(each for each in sorted(files) if is_of_author(each) and each.isprintable())
