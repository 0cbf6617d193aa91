"""How long a large result takes, from the call to the decoded result, and what is over the cap.

Run: python benchmarks/large_results.py

Time must grow in step with the size, and a message over the limit must fail quickly.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from time import perf_counter

from interlock import Client
from interlock.errors import MessageTooLarge

SERVER = [sys.executable, "-I", str(Path(__file__).with_name("bare_server.py"))]
SIZES = (100, 64 * 1024, 1024 * 1024, 10_000_000, 50_000_000)


async def main() -> None:
    async with Client.stdio(*SERVER, max_frame_bytes=64 * 1024 * 1024) as client:
        print(f"{'bytes':>12} {'seconds':>9} {'MB/s':>8}")
        for size in SIZES:
            await client.call_tool("add", {"size": size})
            seconds = []
            for _ in range(3):
                started = perf_counter()
                result = await client.call_tool("add", {"size": size})
                seconds.append(perf_counter() - started)
                assert len(result.text) == size
            print(f"{size:12,} {min(seconds):9.4f} {size / min(seconds) / 1e6:8.1f}")
    async with Client.stdio(*SERVER) as client:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = perf_counter()
        try:
            await client.call_tool("add", {"size": 100_000_000})
        except MessageTooLarge as error:
            seconds = perf_counter() - started
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            print(f"100 MB over a cap of 16 MiB: {error}, after {seconds:.3f} s, +{grown:.0f} MiB")


if __name__ == "__main__":
    asyncio.run(main())
