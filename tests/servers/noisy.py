"""A server made with interlock whose tools write wherever they can, wait and block.

    python noisy.py [FILE [http]]

It gives running requests an hour when it ends: what does not end at once hangs in a test.

FILE gets a line for each thing that happens: entered, waiting, cancelled, left.
With `http` it serves on a free port and not on stdio.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from interlock import Context, Server
from interlock.server import server_connection

server_connection.DRAIN = 3600.0


def note(event: str) -> None:
    if len(sys.argv) > 1:
        with open(sys.argv[1], "a") as file:  # noqa: PTH123 - quicker to import
            file.write(event + "\n")


@asynccontextmanager
async def lifespan(_: Server) -> AsyncIterator[None]:
    print("printed by the lifespan")
    note("entered")
    try:
        yield
    finally:
        note("left")


server = Server("noisy", lifespan=lifespan)


@server.tool
def headers(context: Context) -> list[str]:
    return [*context.headers]


@server.tool
def shout() -> str:
    """Write to stdout in every way there is."""
    print("printed")
    sys.stdout.write("written")
    sys.stdout.flush()
    os.write(1, b"to the descriptor\n")
    subprocess.run(["echo", "by a child"], check=True)
    libc = ctypes.CDLL(None)
    libc.puts(b"by a C library")
    libc.fflush(None)
    return repr(sys.stdin.read()) + repr(os.read(0, 10))


@server.tool
async def big(size: int) -> str:
    """Return a large result."""
    return "x" * size


@server.tool
async def size(text: str) -> str:
    """Accept large arguments."""
    return str(len(text))


@server.tool
async def mirror(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def wait() -> str:
    """Wait for ever."""
    note("waiting")
    try:
        await asyncio.Event().wait()
    finally:
        note("cancelled")
    return ""


@server.tool
async def nap(seconds: float) -> str:
    """Wait for so long."""
    note("waiting")
    await asyncio.sleep(seconds)
    return "rested"


@server.tool
def after(pipe: str, size: int) -> str:
    """Return a large result once something was written to this pipe."""
    note("waiting")
    Path(pipe).read_bytes()
    return "x" * size


@server.tool
def block() -> str:
    """Hold a worker for an hour."""
    note("waiting")
    time.sleep(3600)
    return ""


if __name__ == "__main__":
    print("printed before running")
    if sys.argv[2:] == ["http"]:
        server.run_http(port=0)
    else:
        server.run()
        note("over")
