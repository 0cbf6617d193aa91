"""Signals to a gateway's process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from interlock.aio import end_interrupted_line


@contextmanager
def on_signals(end: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Call `end` on SIGTERM and SIGINT, and `reload` on SIGHUP, while the context is open."""
    loop = asyncio.get_running_loop()

    def end_on_interrupt() -> None:
        end_interrupted_line()
        end()

    handled = {signal.SIGTERM: end, signal.SIGINT: end_on_interrupt, signal.SIGHUP: reload}
    for number, handle in handled.items():
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
