"""Runs the helper program that starts servers; see `supervisor` for the helper's rules.

One helper starts all servers. It runs from the start of the first server to the end of the last
server, and during `running`. Processes that other code in this program starts are not descendants
of the helper, so the helper cannot end them.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from socket import send_fds as send_with_descriptors
from socket import socket, socketpair

from interlock.errors import SpawnError

# Servers and their child processes inherit this variable, by which `interlock doctor` lists them.
# Its value begins with the id and the start time of our process, which are unique together.
MARK_VARIABLE = "INTERLOCK_CHILD"

_PROGRAM = Path(__file__).with_name("supervisor.py")


class Reaper:
    """Starts the helper for the first server, and ends it after the last server."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket
        self._owner = 0
        self._holders = 0

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, descriptors: Sequence[int]
    ) -> None:
        """Make the helper start a server, whose supervisor answers on the link.

        Call `release` when the server has ended.

        Args:
            argv: The program and its arguments.
            env: The server's whole environment.
            cwd: The server's working folder.
            descriptors: The server's stdin, stdout and stderr, and the supervisor's link.

        Raises:
            SpawnError: The helper cannot be started.
        """
        content = marshal.dumps((list(argv), dict(env), cwd))
        request = len(content).to_bytes(4, "big") + content
        self._hold()
        try:
            try:
                self._send(request, descriptors)
            except OSError:  # the helper has ended, so start another helper
                self._stop_helper()
                self._start_helper()
                self._send(request, descriptors)
        except OSError as error:
            self.release()
            raise _not_started(error) from error

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keep the helper running until the end of the block, so that servers start faster.

        Raises:
            SpawnError: The helper cannot be started.
        """
        self._hold()
        try:
            yield
        finally:
            self.release()

    def _hold(self) -> None:
        if self._owner != os.getpid():  # a forked process does not own its parent's servers
            self._process, self._holders, self._owner = None, 0, os.getpid()
        self._holders += 1
        try:
            if self._process is None:
                self._start_helper()
        except OSError as error:
            self.release()
            raise _not_started(error) from error

    def release(self) -> None:
        """Record that a server and all its processes have ended."""
        if self._owner != os.getpid():
            return
        self._holders -= 1
        if self._holders == 0:
            self._stop_helper()

    def _send(self, request: bytes, descriptors: Sequence[int]) -> None:
        sent = send_with_descriptors(self._requests, [request], list(descriptors))
        self._requests.sendall(memoryview(request)[sent:])

    def _start_helper(self) -> None:
        ours, theirs = socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [_interpreter(), "-I", "-S", str(_PROGRAM)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # so that signals from a terminal do not reach it
                    cwd="/",
                    env={"PATH": os.defpath},
                )
            except BaseException:
                ours.close()
                raise
        self._requests = ours

    def _stop_helper(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._requests.close()
            process.kill()
            process.wait()


def _not_started(error: OSError) -> SpawnError:
    return SpawnError(f"cannot start the helper process: {error}")


def _interpreter() -> str:
    # In a frozen program, `sys.executable` is that program and not a Python interpreter.
    found = None if getattr(sys, "frozen", False) else sys.executable
    found = found or shutil.which("python3")
    if found is None:
        raise FileNotFoundError("it needs a Python interpreter: put python3 in PATH")
    return found


def own_mark() -> str:
    """Return the beginning of this process's mark: "INTERLOCK_CHILD=id-start-"."""
    started = "0"
    with contextlib.suppress(OSError), open("/proc/self/stat") as file:  # noqa: PTH123 - short
        started = file.read().rpartition(")")[2].split()[19]
    return f"{MARK_VARIABLE}={os.getpid()}-{started}-"


def marked(mark: str) -> list[int]:
    """List the processes with a variable that begins with `mark`; [] without /proc."""
    wanted = b"\0" + mark.encode()
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208 - fast
        with contextlib.suppress(OSError):  # exited, or another user's
            if name.isdecimal() and wanted in b"\0" + Path("/proc", name, "environ").read_bytes():
                found.append(int(name))
    return found


reaper = Reaper()
