"""Running one coroutine as the whole program, so that every way out closes what was opened.

Ctrl-C, a polite kill and a terminal that goes away cancel the coroutine, and its servers end as
they would otherwise. A second signal does not wait for that; the servers' reaper ends them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_T = TypeVar("_T")
_stops: list[Callable[[], object]] = []  # what Ctrl-C does instead; the last one counts


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` to its end and return its result.

    Raises:
        SystemExit: A signal ended it; the code is 128 + its number.
        ConfigError: The log cannot be written where INTERLOCK_LOG says.
    """
    import asyncio  # a third of a start that `--help` can do without

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
    """Let Ctrl-C call `stop` instead of ending the program."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


async def _until_signal(work: Coroutine[Any, Any, _T], received: list[int]) -> _T:
    import asyncio

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)

    def leave(sign: int) -> None:
        if sign == signal.SIGINT and _stops:
            _stops[-1]()
            return
        received.append(sign)
        for each in handled:
            loop.remove_signal_handler(each)
        task.cancel()

    # What our parent ignores for us (nohup, a job in the background) stays ignored.
    handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    for each in handled:
        loop.add_signal_handler(each, leave, each)
    return await task
