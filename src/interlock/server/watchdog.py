"""A watchdog that logs code which blocks an event loop, and so delays all calls."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, get_ident
from types import FrameType

from interlock.server.tools import FunctionTool

INTERVAL = 0.25  # seconds between two checks
PATIENCE = 4  # checks without a response after which the blockage is logged

_log = logging.getLogger("interlock.server")
_watched: dict[asyncio.AbstractEventLoop, Watchdog] = {}


@contextmanager
def watched() -> Iterator[None]:
    """Watch the running event loop. Several servers on one loop share one thread."""
    loop = asyncio.get_running_loop()
    dog = _watched.get(loop)
    if dog is None:
        try:
            dog = _watched[loop] = Watchdog(loop)
        except RuntimeError as error:  # the system has no more threads
            _log.warning("a blocked event loop will not be logged: %s", error)
            yield
            return
    dog.users += 1
    try:
        yield
    finally:
        dog.users -= 1
        if not dog.users:
            del _watched[loop]
            dog.stop()


class Watchdog:
    """A thread that regularly checks whether an event loop still runs callbacks.

    It counts checks and not seconds, so that a process that was stopped or suspended does not
    look like a blocked loop. Each blockage is logged once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.users = 0
        self._loop = loop
        self._loop_thread = get_ident()
        self._alive = Event()
        self._stop = Event()
        self._thread = Thread(target=self._watch, name="interlock-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        self._alive.set()
        missed = 0
        while not self._stop.wait(INTERVAL):
            if not self._alive.is_set():
                missed += 1
                if missed == PATIENCE:
                    self._report()
                continue
            missed = 0
            self._alive.clear()
            try:
                self._loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:  # the event loop has been closed
                return

    def _report(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None or not _log.isEnabledFor(logging.WARNING):
            return
        tool, depth = _tool_in(frame)
        text = (
            "%s has blocked the event loop for over %g s; move the blocking work to a plain "
            "function, which runs in a thread"
        )
        words = (f"tool {tool}" if tool else "something", PATIENCE * INTERVAL)
        stack = "".join(traceback.format_stack(frame, depth)).rstrip()
        # Not `_log.warning`, because the logged stack must be the blocked thread's.
        record = _log.makeRecord(
            _log.name, logging.WARNING, __file__, 0, text, words, None, sinfo=stack
        )
        _log.handle(record)


def _tool_in(frame: FrameType | None) -> tuple[str | None, int | None]:
    """Return the name of the tool whose call is on the stack, and the number of frames in it.

    Both are None without such a call.
    """
    depth = 0
    while frame is not None:
        if frame.f_code is FunctionTool.call.__code__:
            tool: FunctionTool = frame.f_locals["self"]
            return tool.definition.name, depth
        frame, depth = frame.f_back, depth + 1
    return None, None
