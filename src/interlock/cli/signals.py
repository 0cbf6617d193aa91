"""Runs a coroutine as the whole program, so that servers are closed however it ends.

SIGINT, SIGTERM and SIGHUP cancel the coroutine, which then closes its servers as usual. A second
signal ends the program at once; then a separate reaper process ends the servers.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_T = TypeVar("_T")
_stops: list[
    Callable[[], object]
] = []  # the last function is called on Ctrl-C, instead of ending the program


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in a new event loop and return its result.

    Raises:
        SystemExit: A signal ended the coroutine; the code is 128 + the signal's number.
        ConfigError: The file in INTERLOCK_LOG cannot be written.
    """
    import asyncio  # costs a third of the start-up time, and `--help` does not need it

    from interlock.cli.log import open_log

    try:
        open_log()
    except BaseException:
        work.close()
        raise
    received: list[int] = []
    with asyncio.Runner() as runner:
        try:
            result = runner.run(_until_signal(work, received))
        except asyncio.CancelledError:
            if not received:
                raise
    if received:
        raise SystemExit(128 + received[0])
    return result


@contextmanager
def on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on Ctrl-C, instead of ending the program."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


def interrupt() -> None:
    """Act as if SIGINT arrived; for a line editor that reads Ctrl-C as a key."""
    if _stops:
        _stops[-1]()
    else:
        signal.raise_signal(signal.SIGINT)


async def _until_signal(work: Coroutine[Any, Any, _T], received: list[int]) -> _T:
    import asyncio

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)

    def leave(number: int) -> None:
        if number == signal.SIGINT and _stops:
            _stops[-1]()
            return
        received.append(number)
        for each in handled:
            loop.remove_signal_handler(each)
        task.cancel()

    # Keep ignoring signals that the parent process ignores, as nohup does.
    handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    for each in handled:
        loop.add_signal_handler(each, leave, each)
    return await task
