"""Tells in the log what keeps an event loop from turning, and with it everybody who waits."""

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

INTERVAL = 0.25  # seconds between two looks
PATIENCE = 4  # looks without a sign of life until it is told

_log = logging.getLogger("interlock.server")
_watched: dict[asyncio.AbstractEventLoop, Watchdog] = {}


@contextmanager
def watched() -> Iterator[None]:
    """Watch the running loop. Those who want it watched at the same time share one thread."""
    loop = asyncio.get_running_loop()
    dog = _watched.get(loop)
    if dog is None:
        try:
            dog = _watched[loop] = Watchdog(loop)
        except RuntimeError as error:  # the system has no more threads
            _log.warning("nobody is told if the event loop is blocked: %s", error)
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
    """A thread that asks a loop for a sign of life again and again.

    Looks are counted instead of seconds, so that a stopped or suspended process is not taken
    for a blocked loop. Each blockage is told once.
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
        """Watch no more; the thread has ended when this returns."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        self._alive.set()
        looks = 0
        while not self._stop.wait(INTERVAL):
            if not self._alive.is_set():
                looks += 1
                if looks == PATIENCE:
                    self._tell()
                continue
            looks = 0
            self._alive.clear()
            try:
                self._loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:  # the loop has been closed
                return

    def _tell(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None or not _log.isEnabledFor(logging.WARNING):
            return
        tool = _tool_in(frame)
        text = (
            "%s has blocked the event loop for over %g s; what blocks belongs into a plain "
            "function, which runs in a thread"
        )
        words = (f"tool {tool}" if tool else "something", PATIENCE * INTERVAL)
        stack = "".join(traceback.format_stack(frame)).rstrip()
        # By hand, because it is not our own thread's stack that is to be told.
        record = _log.makeRecord(
            _log.name, logging.WARNING, __file__, 0, text, words, None, sinfo=stack
        )
        _log.handle(record)


def _tool_in(frame: FrameType | None) -> str | None:
    """Find the tool whose call is on this stack."""
    while frame is not None:
        if frame.f_code is FunctionTool.call.__code__:
            tool: FunctionTool = frame.f_locals["self"]
            return tool.definition.name
        frame = frame.f_back
    return None
