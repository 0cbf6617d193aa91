"""A child process that leaves nothing behind.

Rules:

1. A child starts from a list of arguments, never through a shell, in a session of its own.
2. `end` takes at most 5 seconds: end of input, TERM to its group, KILL to its group; then the
   same for whatever else carries its mark, in other sessions and orphaned too.
3. If we are killed ourselves, the reaper does it for us.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from interlock.errors import SpawnError
from interlock.transports.reaper import own_mark, reaper

# Seconds for each step of `end`.
EOF_PATIENCE = 2.0
TERM_PATIENCE = 2.0
REST_PATIENCE = 0.5
KILL_PATIENCE = 0.3
_POLL = 0.02
_LOADING = 0.005  # for a program to be loaded by the kernel
_MEMORY, _ENVIRONMENT_END = 20, 48  # which field of /proc/*/stat, counted after the name

_count = itertools.count(1)


class Process:
    """One child with pipes to its stdin, stdout and stderr.

    Attributes:
        id: Its process id, and its group's.
        stdin, stdout, stderr: Our ends of its pipes, non-blocking. Closed by `end`.
        exited: Set when it has been reaped.
        code: Its exit code then; negative is the signal that ended it.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], mark: str, on_exit: Callable[[], None]
    ) -> None:
        self.id = popen.pid
        self.stdin, self.stdout, self.stderr = (
            pipe.fileno() for pipe in (popen.stdin, popen.stdout, popen.stderr) if pipe
        )
        for pipe in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(pipe, False)
        self.exited = asyncio.Event()
        self.code: int | None = None
        self._popen = popen
        self._mark = mark
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._watch_exit()

    # Starting

    @classmethod
    def spawn(
        cls,
        argv: Sequence[str],
        *,
        on_exit: Callable[[], None],
        env: Mapping[str, str],
        cwd: str | None = None,
    ) -> Process:
        """Start a program.

        Args:
            argv: Program and arguments. A bare name is looked up in PATH of `env`.
            on_exit: Called once, when `code` is known and its pipes are still open.
            env: Its whole environment; our mark is added.
            cwd: Its working folder; ours when None.

        Raises:
            SpawnError: Not found, not executable, no such folder. Nothing was started.
        """
        if cwd is not None and not Path(cwd).is_dir():
            raise SpawnError(f"cannot start {argv[0]!r}: its folder {cwd!r} does not exist")
        mark = f"{own_mark()}{next(_count)}"
        name, _, value = mark.partition("=")
        try:
            popen = subprocess.Popen(  # noqa: S603 - the operator's own configuration
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**env, name: value},
                cwd=cwd,
                start_new_session=True,
            )
        except FileNotFoundError:
            hint = "is it installed, and is its folder in PATH?"
            raise SpawnError(f"cannot start {argv[0]!r}: program not found; {hint}") from None
        except PermissionError:
            raise SpawnError(f"cannot start {argv[0]!r}: it is not executable") from None
        except (OSError, ValueError) as error:
            raise SpawnError(f"cannot start {argv[0]!r}: {error}") from error
        try:
            reaper.enter(popen.pid)
        except OSError as error:  # without the reaper it might outlive us
            with contextlib.suppress(OSError):
                os.killpg(popen.pid, signal.SIGKILL)
            popen.communicate()
            reaper.leave(popen.pid)
            raise SpawnError(f"cannot start {argv[0]!r}: {error}") from error
        return cls(popen, mark, on_exit)

    def _watch_exit(self) -> None:
        try:
            self._pidfd: int | None = os.pidfd_open(self.id)
        except (AttributeError, OSError):  # not Linux
            self._pidfd = None
            waiting = self._loop.run_in_executor(None, self._popen.wait)
            waiting.add_done_callback(lambda _: self._reap())
        else:
            self._loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self.code = self._popen.wait()
        self.exited.set()  # first, as `end` waits for it whatever `on_exit` does
        self._on_exit()

    # Ending

    async def end(self) -> None:
        """End it and everything that it started. Takes at most 5 seconds; never fails.

        Cancelled on the way, it takes the last step at once.
        """
        try:
            await self._end_gently()
        except asyncio.CancelledError:
            self._kill()
            raise
        finally:
            self._close(self._popen.stdout)
            self._close(self._popen.stderr)
            reaper.leave(self.id)

    async def _end_gently(self) -> None:
        self._close(self._popen.stdin)
        for patience, sign in ((EOF_PATIENCE, signal.SIGTERM), (TERM_PATIENCE, signal.SIGKILL)):
            if await self._exits_within(patience):
                break
            self._signal_group(sign)
        await self.exited.wait()
        await self._end_rest()

    def _kill(self) -> None:
        for id in [*marked(self._mark), self.id]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(id, signal.SIGKILL)
        self._signal_group(signal.SIGKILL)
        if not self.exited.is_set():
            self._reap()

    async def _end_rest(self) -> None:
        """End what it started, in its group or elsewhere: TERM, and soon after KILL."""
        for patience, sign in ((REST_PATIENCE, signal.SIGTERM), (KILL_PATIENCE, signal.SIGKILL)):
            rest = marked(self._mark)
            if not rest and not self._signal_group(sign):
                return
            for id in rest:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(id, sign)
            deadline = self._loop.time() + patience
            while self._loop.time() < deadline:  # orphans tell nobody when they go
                # After KILL the group may still be there: as dead members that init has not reaped.
                if not marked(self._mark) and (sign == signal.SIGKILL or not self._signal_group(0)):
                    return
                await asyncio.sleep(_POLL)

    async def _exits_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        return self.exited.is_set()

    def _signal_group(self, sign: int) -> bool:
        """Signal its group; False when the group is empty."""
        # The group keeps its number as long as one member lives, so this hits no stranger.
        try:
            os.killpg(self.id, sign)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    @staticmethod
    def _close(pipe: object) -> None:
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[attr-defined]  # Popen's pipes are IO[bytes] | None


def marked(mark: str, *, exactly: bool = True) -> list[int]:
    """List the processes that carry `mark` in their environment, dead ones left out.

    Empty on systems without /proc. With `exactly=False`, `mark` is the beginning of marks.
    """
    wanted = mark.encode()
    try:
        ids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []
    return [id for id in ids if _carries(id, wanted, exactly)]


def _carries(id: int, wanted: bytes, exactly: bool) -> bool:
    try:
        with open(f"/proc/{id}/environ", "rb", 0) as file:  # noqa: PTH123 - runs for every process
            environment = file.read()
            if not environment:
                environment = _when_loaded(id)
    except OSError:  # gone, or somebody else's
        return False
    if wanted not in environment:
        return False
    return any(
        each == wanted if exactly else each.startswith(wanted) for each in environment.split(b"\0")
    )


def _when_loaded(id: int) -> bytes:
    """Read an environment that is empty, maybe only as the process is loading a program."""
    deadline = time.monotonic() + _LOADING
    while True:
        with open(f"/proc/{id}/stat", "rb", 0) as file:  # noqa: PTH123 - as above
            fields = file.read().rpartition(b")")[2].split()
        # Dead processes and the kernel's own have no memory.
        is_loading = fields[_MEMORY] != b"0" and fields[_ENVIRONMENT_END] == b"0"
        with open(f"/proc/{id}/environ", "rb", 0) as file:  # noqa: PTH123 - as above
            environment = file.read()
        if environment or not is_loading or time.monotonic() > deadline:
            return environment
