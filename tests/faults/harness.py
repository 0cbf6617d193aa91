"""Runs a case of the matrix: the promise in its time, and afterwards nothing is left.

Each case has an event loop of its own. When its scenario is over, and everything it opened still
is, no request may wait and the process must be idle, now and for the next half minute; when all
is closed there must be no task, future, thread, descriptor, child or reported error more than
before. How long a promise took says something only about a machine with nothing else to do, so
`run` does not judge it. `measure` does; it takes the best of a few runs.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time, sleep
from typing import Any
from unittest import mock

from msgspec import Struct

from interlock.transports import process
from interlock.transports.reaper import marked, own_mark, reaper
from tests.faults.ground import CANARY, Ground, living
from tests.faults.matrix import Case
from tests.support.clock import ClockLoop

ATTEMPTS = 5  # of a measurement
MAX_IDLE = 0.01  # of one processor
_LOOK = 0.02  # seconds in which to see whether anything happens
_GOODBYE = 60.0  # seconds for a thread or a process that has been told to end
_REST = 30  # seconds, which fly, in which to see whether anything comes again and again
_PATIENCE = 5.0  # seconds of the processor until nothing may happen
_NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


class Measured(Struct, frozen=True):
    """The result of running a case.

    Attributes:
        seconds: Until the caller had the promised result.
        outcome: What that was, in a few words.
        idle: Share of one processor used after the scenario, before anything was closed.
    """

    seconds: float
    outcome: str
    idle: float


def measure(case: Case) -> Measured:
    """Run a case, up to `ATTEMPTS` times while it takes longer than promised.

    Raises:
        AssertionError: A promise was broken, something leaked, or each run took too long.
    """
    for _ in range(ATTEMPTS):
        measured = run(case)
        if measured.seconds <= case.row.within:
            return measured
    took = f"took {measured.seconds:.3f} s at best of {ATTEMPTS}"
    raise AssertionError(f"{case.name}: {took}; promised are {case.row.within:g} s")


def run(case: Case) -> Measured:
    """Run a case; assert that it has the promised outcome and leaks nothing."""
    gc.collect()
    gc.freeze()  # so that the next collection is fast
    before = _belongings()
    reported: list[dict[str, Any]] = []
    said = _Log()
    loop = ClockLoop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    with (
        TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, XDG_DATA_HOME=folder, **_NO_KEYRING),
        said.kept(),
        loop.everywhere(),
        quick_endings(),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        ground = Ground(case.transport, Path(folder))
        measured = runner.run(_play(case, ground))
        left = asyncio.all_tasks(loop)
        gc.collect()  # reports exceptions that were never retrieved
        waiting = [each for each in living(asyncio.Future) if not each.done()]
    assert left == set(), f"{case.name}: tasks are left: {left}"
    assert waiting == [], f"{case.name}: futures are left: {waiting}"
    unexpected = [each for each in reported if each["message"] not in ground.expected_reports]
    assert unexpected == [], f"{case.name}: the loop was told of {unexpected}"
    assert CANARY not in said.text, f"{case.name}: a secret is in the log"
    deadline = monotonic() + _GOODBYE
    while (processes := marked(own_mark())) and monotonic() < deadline:
        sleep(0.01)  # a supervisor exits after its server
    assert processes == [], f"{case.name}: processes are left"
    assert reaper._process is None, f"{case.name}: the reaper is left"
    for thread in threading.enumerate():
        if _name(thread) not in before["threads"]:
            thread.join(_GOODBYE)
    left_over = {kind: now - before[kind] for kind, now in _belongings().items()}
    assert not any(left_over.values()), f"{case.name}: this is left: {left_over}"
    return measured


@contextmanager
def quick_endings() -> Iterator[None]:
    """Shorten the waits before a server is terminated and killed; `real_patience` restores them.

    The wait after a kill is long, because the row's promise limits it.
    """
    patience = {"EOF_PATIENCE": 0.15, "TERM_PATIENCE": 0.15, "REST_PATIENCE": 100.0}
    with mock.patch.multiple(process, **patience, KILL_PATIENCE=100.0):
        yield


async def _play(case: Case, ground: Ground) -> Measured:
    try:
        await case.row.scenario(ground)
        ground.check_nothing_pends()
        idle = await _idle(ground)
        assert idle < MAX_IDLE, f"{case.name}: {idle:.1%} of a processor when all is over"
    finally:
        await ground.close()
    assert ground.kept, f"{case.name}: nothing was measured"
    seconds = max(seconds for seconds, _ in ground.kept)
    outcome = "; ".join(dict.fromkeys(outcome for _, outcome in ground.kept))
    return Measured(seconds, outcome, idle)


async def _idle(ground: Ground) -> float:
    """Measure the share of a processor that is used while no call runs."""
    deadline = process_time() + _PATIENCE
    while True:
        began, used = monotonic(), process_time()
        await asyncio.sleep(_LOOK)
        share = (process_time() - used) / (monotonic() - began)
        if share < MAX_IDLE:
            break
        if process_time() > deadline:
            return share
    used = process_time()
    with ground.flying_time(grace=0.001):
        for _ in range(_REST):
            await asyncio.sleep(1)
            if process_time() - used > MAX_IDLE * _REST:
                break  # it need not go on
    return max(share, (process_time() - used) / _REST)


def _belongings() -> dict[str, set[str]]:
    """Return this process's threads, descriptors and children."""
    threads = Path("/proc/self/task").iterdir()  # each has the children that it has started
    return {
        "threads": set(map(_name, threading.enumerate())),
        "descriptors": set(map(_descriptor, os.listdir("/proc/self/fd"))),  # noqa: PTH208
        "children": {id for each in threads for id in (each / "children").read_text().split()},
    }


def _name(thread: threading.Thread) -> str:
    return f"{thread.name} {thread.ident}"


def _descriptor(number: str) -> str:
    try:
        return f"{number} {os.readlink(f'/proc/self/fd/{number}')}"  # noqa: PTH115 - many
    except OSError:  # of this very look
        return ""


class _Log(logging.Handler):
    """Collects log records of interlock and of other packages."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.text += self.format(record) + "\n"

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Collect all records of interlock, and the warnings of other packages."""
        root, package = logging.getLogger(), logging.getLogger("interlock")
        level = package.level
        root.addHandler(self)
        package.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            root.removeHandler(self)
            package.setLevel(level)
