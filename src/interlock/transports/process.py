"""A child process; when it ends, all processes that it started are ended too.

Rules:

1. A child is started from a list of arguments, without a shell, in its own session.
2. `end` takes at most 5 seconds: end of input, TERM to the group, KILL to the group. The child's
   supervisor then ends all other processes that the child started, in any group or session.
3. If our process is killed, the supervisor ends all of these processes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from interlock.errors import SpawnError
from interlock.transports.reaper import own_mark, reaper

# Seconds for each step of `end`.
EOF_PATIENCE = 2.0
TERM_PATIENCE = 2.0
REST_PATIENCE = 0.8  # for the supervisor, which waits 0.5 s between TERM and KILL
KILL_PATIENCE = 1.0  # when `end` is cancelled; this blocks the event loop


class Process:
    """A child process with pipes to its stdin, stdout and stderr.

    Attributes:
        id: The id of the process, and of its process group.
        stdin, stdout, stderr: Our non-blocking ends of the pipes; `end` closes them.
        exited: Set when the process has exited.
        code: The exit code after the exit; a negative code is the signal that ended the process.
    """

    def __init__(
        self, stdin: int, stdout: int, stderr: int, link: socket.socket, on_exit: Callable[[], None]
    ) -> None:
        self.id = 0
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.exited = asyncio.Event()
        self.code: int | None = None
        self.was_killed = False  # whether `end` had to send KILL
        self._open = {stdin, stdout, stderr}
        for pipe in self._open:
            os.set_blocking(pipe, False)
        self._link = link
        self._link.setblocking(False)
        self._said = b""  # the supervisor's last, incomplete line
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._gone = asyncio.Event()  # set when all its processes have ended
        self._ended = False
        self._loop.add_reader(link, self._read_link)

    # Starting

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        *,
        on_exit: Callable[[], None],
        env: Mapping[str, str],
        cwd: str | None = None,
    ) -> Process:
        """Start a program.

        Args:
            argv: The program and its arguments. A bare name is looked up in the PATH in `env`.
            on_exit: Called once, when `code` is known and the pipes are still open.
            env: The whole environment of the process; `reaper.MARK_VARIABLE` is added to it.
            cwd: The working folder of the process; None for this process's working folder.

        Raises:
            SpawnError: The program or the folder does not exist, or the program is not executable.
        """
        if not argv[0]:
            raise SpawnError("cannot start '': program not found; its name is empty")
        if cwd is not None and not Path(cwd).is_dir():  # noqa: ASYNC240 - fast on a local disk
            raise SpawnError(f"cannot start {argv[0]!r}: its folder {cwd!r} does not exist")
        name, _, value = own_mark().partition("=")
        started = None
        try:
            if not argv[0]:
                raise FileNotFoundError
            started = cls._request(argv, {**env, name: value}, cwd or str(Path.cwd()), on_exit)
            await started._started
        except OSError as error:
            if started is not None:
                await started.end()
            raise spawn_error(argv[0], error) from error
        except asyncio.CancelledError:
            if started is not None:
                started._kill()
                started._close()
            raise
        return started

    @classmethod
    def _request(
        cls, argv: Sequence[str], env: Mapping[str, str], cwd: str, on_exit: Callable[[], None]
    ) -> Process:
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            ends = []
            for _ in range(3):
                ends.append(pipe := os.pipe())
                theirs.callback(os.close, pipe[len(ends) > 1])
                ours.callback(os.close, pipe[len(ends) == 1])
            link, other = socket.socketpair()
            theirs.callback(other.close)
            ours.callback(link.close)
            (stdin, w0), (r1, stdout), (r2, stderr) = ends
            reaper.start(argv, env, cwd, [stdin, stdout, stderr, other.fileno()])
            try:
                started = cls(w0, r1, r2, link, on_exit)
            except BaseException:
                reaper.release()
                raise
            ours.pop_all()
            return started

    def _read_link(self) -> None:
        try:
            data = self._link.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._take_from_link(data)

    def _take_from_link(self, data: bytes) -> None:
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            what, _, detail = line.decode(errors="replace").partition(" ")
            if what == "started":
                self.id = int(detail)
                if not self._started.done():
                    self._started.set_result(None)
            elif what == "failed":
                errno, _, text = detail.partition(" ")
                self._fail_start(OSError(int(errno), text) if errno != "0" else OSError(text))
            else:
                self._set_exited(int(detail))
        if not data:  # the supervisor has exited
            self._loop.remove_reader(self._link)
            self._fail_start(OSError("its supervisor was ended"))
            if self.id and not self.exited.is_set():  # the supervisor was killed
                self._signal_group(signal.SIGKILL)
                self._set_exited(-signal.SIGKILL)
            self._gone.set()

    def _fail_start(self, error: OSError) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    def _set_exited(self, code: int) -> None:
        self.code = code
        self.exited.set()  # before `on_exit`, which may raise: `end` waits for this event
        self._on_exit()

    # Ending

    async def end(self) -> None:
        """End the process, and all processes that it started, within 5 seconds; never fail.

        If `end` is cancelled, the last step (KILL) follows at once.
        """
        try:
            await self._end_gently()
        except asyncio.CancelledError:
            self._kill()
            raise
        finally:
            self._close()

    def end_at_once(self) -> None:
        """Kill all processes and block until they have ended, unless `end` has ended them."""
        if not self._ended:
            self._kill()
            self._close()

    async def _end_gently(self) -> None:
        self._close_pipe(self.stdin)
        if self.id:
            steps = ((EOF_PATIENCE, signal.SIGTERM), (TERM_PATIENCE, signal.SIGKILL))
            for patience, sign in steps:
                if await _is_set_within(self.exited, patience):
                    break
                self.was_killed = sign == signal.SIGKILL
                self._signal_group(sign)
            if not await _is_set_within(self.exited, REST_PATIENCE):
                return  # a process cannot be killed, or the supervisor is stopped
        await _is_set_within(self._gone, REST_PATIENCE)

    def _kill(self) -> None:
        """Make the supervisor kill all processes at once; block until they are killed."""
        with contextlib.suppress(OSError):
            self._link.settimeout(KILL_PATIENCE)
            self._link.send(b"k")
            while not self._gone.is_set():
                self._take_from_link(self._link.recv(4096))

    def _close(self) -> None:
        if self._ended:
            return
        self._ended = True
        for pipe in list(self._open):
            self._close_pipe(pipe)
        self._loop.remove_reader(self._link)
        self._link.close()  # the supervisor kills all remaining processes
        reaper.release()

    def _close_pipe(self, pipe: int) -> None:
        if pipe in self._open:
            self._open.discard(pipe)
            os.close(pipe)

    def _signal_group(self, sign: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.id, sign)


def spawn_error(program: str, error: OSError) -> SpawnError:
    """Return the error for a program that the system did not start."""
    why = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        why = "program not found; is it installed, and is its folder in PATH?"
        if program.split()[1:]:
            why = 'program not found; arguments belong in a list of their own, such as "args"'
    elif isinstance(error, PermissionError):
        why = "it is not executable"
    elif error.errno == errno.ENOEXEC:
        why = "it is neither a program for this machine nor a script that begins with #!"
    return SpawnError(f"cannot start {program!r}: {why}")


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
