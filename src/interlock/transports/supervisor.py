"""A helper program that starts servers and ends all of their processes.

`reaper` runs this file in a process of its own, the spawner, which forks a supervisor for each
server. It imports nothing of this package, so that a supervisor takes little time and memory.

Rules:

1. A supervisor is the parent of its server. On Linux it is also a subreaper: a process whose
   parent exits becomes its child, whatever session, group or environment that process has.
2. When the server has exited, the supervisor ends all remaining processes: TERM, then KILL. It
   exits only when it has no more children.
3. It also ends the server and the remaining processes when its link to our process is closed, for
   example because our process was killed. If it receives a byte on the link, it uses KILL at once.

The supervisor writes lines to the link: "started ID" or "failed ERRNO TEXT", then "exited CODE".
"""

from __future__ import annotations

import marshal
import os
import select
import sys
import time
from _signal import (  # type: ignore[import-not-found]  # `signal` would take longer to import
    SIG_IGN,
    SIGCHLD,
    SIGHUP,
    SIGINT,
    SIGKILL,
    SIGPIPE,
    SIGTERM,
    SIGXFSZ,
    set_wakeup_fd,
    signal,
)
from _socket import CMSG_LEN, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TERM_PATIENCE = 0.5  # seconds between TERM and KILL for the remaining processes of a server
ORPHAN_PATIENCE = 1.0  # seconds for a server to exit by itself after our process has exited
_POLL = 0.02
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_LENGTH = 4  # bytes in which a request's length is encoded
_FDS = 4  # descriptors in a request: the server's stdin, stdout and stderr, and the link


def main() -> None:
    """Start a supervisor for each request on descriptor 0, until descriptor 0 is closed."""
    signal(SIGCHLD, SIG_IGN)  # so that no supervisor becomes a zombie
    requests = socket(fileno=0)
    become_subreaper, spawner = _subreaper(), os.getpid()
    while True:
        fds, request = _receive(requests)
        if not request:
            return
        try:
            if len(fds) == _FDS and os.fork() == 0:  # fewer if descriptors ran out
                requests.close()
                become_subreaper()
                Supervisor(fds[-1]).run(fds[:-1], *marshal.loads(request))  # noqa: S302 - ours
                os._exit(0)
        except OSError as error:  # out of processes or descriptors
            os.write(fds[-1], b"failed %d %b\n" % (error.errno or 0, str(error.strerror).encode()))
        finally:
            if os.getpid() != spawner:
                os._exit(1)
        for fd in fds:
            os.close(fd)


def _receive(requests: socket) -> tuple[list[int], bytes]:
    try:
        data, control, _, _ = requests.recvmsg(2**16, CMSG_LEN(4 * _FDS))
        fds = [fd for _, _, packed in control for fd in memoryview(packed).cast("i")]
        for fd in fds:
            os.set_inheritable(fd, False)
        missing = _LENGTH + int.from_bytes(data[:_LENGTH], "big") - len(data)
        while data and missing > 0:  # not into the next request
            more = requests.recv(min(missing, 2**20))
            data, missing = data + more if more else b"", missing - len(more)
    except OSError:
        return [], b""
    return fds, data[_LENGTH:]


class Supervisor:
    """The parent process of one server.

    Args:
        link: The descriptor of the link to our process.
    """

    def __init__(self, link: int) -> None:
        self._link = socket(fileno=link)
        self._server = 0
        self._wake, writes = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(writes, False)
        set_wakeup_fd(writes, warn_on_full_buffer=False)
        signal(SIGCHLD, lambda *_: None)
        for sign in (SIGTERM, SIGINT, SIGHUP):
            signal(sign, SIG_IGN)

    def run(self, pipes: list[int], argv: list[str], env: dict[str, str], cwd: str) -> None:
        """Start the server; return when the server and all its processes have ended."""
        try:
            os.chdir(cwd)
            os.environ["PATH"] = env.get("PATH", os.defpath)  # `posix_spawnp` searches our PATH
            self._server = os.posix_spawnp(
                argv[0],
                argv,
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(pipes)],
                setsid=True,
                setsigdef=[SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGXFSZ],
            )
        except OSError as error:
            self._tell(f"failed {error.errno} {error.strerror}")
            return
        except ValueError as error:
            self._tell(f"failed 0 {error}")
            return
        for fd in pipes:
            os.close(fd)
        self._tell(f"started {self._server}")
        self._wait()

    def _wait(self) -> None:
        kill_at: float | None = None  # when to send KILL
        is_linked = True
        while True:
            timeout = None if kill_at is None else _POLL
            links = [self._link.fileno()] if is_linked else []
            ready, _, _ = select.select([self._wake, *links], [], [], timeout)
            if self._wake in ready:
                os.read(self._wake, 4096)
            has_exited, has_children = self._reap()
            if not has_children:
                return
            if has_exited:
                self._signal_all(SIGTERM)
                kill_at = time.monotonic() + TERM_PATIENCE
            if links and links[0] in ready:
                is_linked = False
                patience = 0.0 if self._received() else ORPHAN_PATIENCE
                kill_at = time.monotonic() + patience
            if kill_at is not None and time.monotonic() >= kill_at:
                self._signal_all(SIGKILL)

    def _reap(self) -> tuple[bool, bool]:
        """Reap exited children; return whether the server was among them, and if any remain."""
        has_exited = False
        while True:
            try:
                id, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return has_exited, False
            if id == 0:
                return has_exited, True
            if id == self._server:
                has_exited = True
                self._tell(f"exited {os.waitstatus_to_exitcode(status)}")

    def _received(self) -> bytes:
        try:
            return self._link.recv(1)
        except OSError:
            return b""

    def _tell(self, line: str) -> None:
        try:  # noqa: SIM105 - `contextlib` would have to be imported
            self._link.send(line.encode(errors="replace") + b"\n")
        except OSError:  # our process has exited
            pass

    def _signal_all(self, sign: int) -> None:
        found = _descendants()
        for id in [-self._server] if found is None else found:
            try:  # noqa: SIM105 - as above
                os.kill(id, sign)
            except OSError:  # the process has exited, or belongs to another user
                pass


def _subreaper() -> Callable[[], object]:
    """Return a function that makes its process a subreaper, or does nothing if not on Linux."""
    if sys.platform != "linux":
        return lambda: None
    import ctypes  # slow, so it is imported once for all supervisors

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_SUBREAPER, 1, 0, 0, 0)


def _descendants() -> list[int] | None:
    """List the ids of all descendants of this process; None on systems without /proc."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - `pathlib` would have to be imported
    except OSError:
        return None
    for name in filter(str.isdecimal, names):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:  # the process has exited
            continue
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    parents = [os.getpid()]
    while parents:
        inner = children.get(parents.pop(), [])
        found += inner
        parents += inner
    return found


if __name__ == "__main__":
    main()
