"""Shell scripts as servers, for tests of how they end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from interlock.transports.process import Process


@asynccontextmanager
async def shell(
    script: str, *, on_exit: Callable[[], None] = lambda: None
) -> AsyncIterator[Process]:
    """Run a shell script, which has said "ready", and end it."""
    started = await Process.spawn(
        ["sh", "-c", f"echo ready; {script}"], on_exit=on_exit, env={"PATH": os.environ["PATH"]}
    )
    try:
        await readable(started.stdout)
        yield started
    finally:
        await started.end()


async def readable(pipe: int) -> None:
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pipe, event.set)
    await event.wait()
    loop.remove_reader(pipe)
