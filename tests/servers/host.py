"""A program that uses a server, to be measured, run in odd surroundings, or killed.

    python host.py ended SERVER [ARGUMENT ...]      give up on a line of 100 MB; report the cost
    python host.py endless SERVER [ARGUMENT ...]    the same for a line that does not end
    python host.py hold SERVER [ARGUMENT ...]       report the server's processes; wait for ever
    python host.py echo SERVER [ARGUMENT ...]       report whether a text comes back unchanged

The report is one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from time import monotonic

from interlock.client import Client
from interlock.errors import InterlockError

TEXT = "gr\u00fc\u00df \u20ac \U0001f600 \u2028 \x85"


async def ended(client: Client, *, end: str = "\n") -> None:
    """Report how a line of 100 MB fails: error, seconds, bytes of memory."""
    before = peak_memory()
    started = monotonic()
    try:
        await client.call_tool("say", {"lines": [[["x", 100_000_000]]], "end": end})
    except InterlockError as error:
        seconds = monotonic() - started
        grown = peak_memory() - before
        report({"error": type(error).__name__, "seconds": seconds, "grown": grown})


async def endless(client: Client) -> None:
    """Report how 100 MB without a newline fail."""
    await ended(client, end="")


async def hold(client: Client) -> None:
    """Report the server's surroundings, and keep it until we are killed."""
    print((await client.call_tool("surroundings")).text, flush=True)
    await asyncio.Event().wait()


async def echo(client: Client) -> None:
    """Report whether a text with all kinds of characters comes back unchanged."""
    report({"same": (await client.call_tool("echo", {"text": TEXT})).text == TEXT})


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    # Not `getrusage`: its figure begins with that of the process that has started us.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def report(facts: dict[str, object]) -> None:
    """Print values as one line of JSON."""
    print(json.dumps(facts), flush=True)


async def main() -> None:
    """Run the function of the first argument with the server that the other arguments start."""
    async with Client.stdio(*sys.argv[2:]) as client:
        tasks = {"ended": ended, "endless": endless, "hold": hold, "echo": echo}
        await tasks[sys.argv[1]](client)


if __name__ == "__main__":
    asyncio.run(main())
