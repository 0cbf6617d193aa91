"""A helper process that ends our servers when we are killed and cannot do it ourselves.

A pipe runs from us to a shell that waits for its end. While we live nothing happens; when we
die, however that comes about, the kernel closes the pipe, and the shell kills what carries our
mark. It is one shell for all servers, of about one megabyte, in a session of its own so that
signals of a terminal do not reach it, and it goes when the last server has gone.
"""

from __future__ import annotations

import os
import shutil
import subprocess

# Every server, and what it starts, inherits this variable. Its value begins with a mark of
# our process that is never used again: the id and the time of start.
MARK_VARIABLE = "INTERLOCK_CHILD"

# Lines on the pipe are process groups, for systems without /proc: "+12" came, "-12" went.
# Servers have seen the end of their input by then; they get a second to leave by themselves.
_SCRIPT = """
groups=" "
while read -r line; do
  case $line in
    +*) groups="$groups${line#+} " ;;
    -*) groups="${groups%% ${line#-} *} ${groups#* ${line#-} }" ;;
  esac
done
sleep 1
if [ -r /proc/self/environ ]; then
  for round in 1 2; do
    for file in $(grep -laF -- "$0" /proc/[0-9]*/environ 2>/dev/null); do
      id=${file#/proc/}
      kill -KILL "${id%/environ}" 2>/dev/null
    done
  done
else
  for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
fi
"""


class Reaper:
    """Holds the pipe. `enter` with each server's process group, `leave` when it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._groups: set[int] = set()

    def enter(self, group: int) -> None:
        """Watch over this process group; starts the helper for the first one."""
        if self._owner != os.getpid():  # a fork has no part in its parent's servers
            self._process, self._groups, self._owner = None, set(), os.getpid()
        if self._process is None:
            self._process = _start(own_mark())
        self._groups.add(group)
        self._tell(b"+%d\n" % group)

    def leave(self, group: int) -> None:
        """Forget this process group; ends the helper with the last one."""
        if group not in self._groups or self._owner != os.getpid():
            return
        self._groups.discard(group)
        self._tell(b"-%d\n" % group)
        if not self._groups and self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def _tell(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                os.write(self._process.stdin.fileno(), line)
            except OSError:  # somebody ended the helper; servers still see the end of stdin
                self._process.wait()
                self._process.stdin.close()
                self._process = None


def own_mark() -> str:
    """Name this process so that no other ever has the same name: "id-start-"."""
    try:
        with open("/proc/self/stat") as file:  # noqa: PTH123 - once per server, no Path needed
            started = file.read().rpartition(")")[2].split()[19]
    except OSError:
        started = "0"
    return f"{MARK_VARIABLE}={os.getpid()}-{started}-"


def _start(mark: str) -> subprocess.Popen[bytes] | None:
    shell = shutil.which("sh")
    if shell is None:
        return None
    return subprocess.Popen(  # noqa: S603 - our own text, our own mark
        [shell, "-c", _SCRIPT, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
        env={"PATH": os.defpath},
    )


reaper = Reaper()
