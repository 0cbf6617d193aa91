"""How many functions of some packages run, and how often the event loop turns.

    python -m benchmarks.counting PACKAGE,PACKAGE PROGRAM [ARGUMENT ...]

runs a program and writes both numbers to its stderr, as the last line, when it ends. A coroutine
that goes on counts again. uvloop cannot be counted.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import runpy
import sys
import threading
from asyncio.base_events import BaseEventLoop
from pathlib import Path
from types import FrameType


class Counter:
    """Counts between `start` and `stop`, in all threads begun meanwhile.

    Args:
        packages: Whose functions count.
    """

    def __init__(self, packages: list[str]) -> None:
        self._folders = tuple(str(_folder_of(package)) + "/" for package in packages)
        self.functions = 0
        self.turns = 0
        self._run_once = BaseEventLoop._run_once  # type: ignore[attr-defined]

    def start(self) -> None:
        def count_turn(loop: asyncio.AbstractEventLoop) -> None:
            self.turns += 1
            self._run_once(loop)

        def count_call(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(self._folders):
                self.functions += 1

        BaseEventLoop._run_once = count_turn  # type: ignore[attr-defined]
        threading.setprofile(count_call)
        sys.setprofile(count_call)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        BaseEventLoop._run_once = self._run_once  # type: ignore[attr-defined]


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent


def main() -> None:
    packages, program = sys.argv[1:3]
    del sys.argv[:2]
    counter = Counter(packages.split(","))
    atexit.register(lambda: print(counter.functions, counter.turns, file=sys.stderr))
    counter.start()
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
