"""Our stdio client beside the least that a client can do, against the same bare server.

Run: python benchmarks/stdio_client.py [--calls N] [--rounds N]

Each round measures both, one after the other; the ratio is taken within the round and its
median is quoted, so that a machine whose speed drifts does not matter.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Raw, Struct

from interlock import Client
from interlock.types import CallToolResult

SERVER = [sys.executable, "-I", str(Path(__file__).with_name("bare_server.py"))]
Call = Callable[[int], Awaitable[Any]]


class Reply(Struct):
    id: int
    result: Raw


class BareClient:
    """asyncio's own streams, one future a call, no deadline, no check, no cancellation."""

    async def __aenter__(self) -> BareClient:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *SERVER, stdin=pipe, stdout=pipe, limit=1 << 26
        )
        self.waiting: dict[int, asyncio.Future[Raw]] = {}
        self.last = 0
        self.reading = asyncio.create_task(self.read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.process.stdin.close()
        await self.reading
        await self.process.wait()

    async def read(self) -> None:
        decode = msgspec.json.Decoder(Reply).decode
        while line := await self.process.stdout.readline():
            reply = decode(line)
            self.waiting.pop(reply.id).set_result(reply.result)

    async def call(self, number: int) -> CallToolResult:
        self.last += 1
        self.waiting[self.last] = future = asyncio.get_running_loop().create_future()
        params = {"name": "add", "arguments": {"a": number, "b": 1}}
        self.process.stdin.write(
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}\n'
            % (self.last, msgspec.json.encode(params))
        )
        return DECODE_RESULT(await future)


DECODE_RESULT = msgspec.json.Decoder(CallToolResult).decode


async def in_sequence(call: Call, calls: int) -> float:
    started = perf_counter()
    for number in range(calls):
        await call(number)
    return calls / (perf_counter() - started)


async def at_once(call: Call, calls: int, width: int) -> float:
    async def worker(share: int) -> None:
        for number in range(share):
            await call(number)

    started = perf_counter()
    await asyncio.gather(*(worker(calls // width) for _ in range(width)))
    return calls / (perf_counter() - started)


async def main(calls: int, rounds: int) -> None:
    rates: dict[tuple[str, int], list[float]] = {}
    async with BareClient() as bare, Client.stdio(*SERVER) as client:

        def ours(number: int) -> Awaitable[CallToolResult]:
            return client.call_tool("add", {"a": number, "b": 1})

        for _ in range(rounds):
            for width in (1, 32, 64, 128):
                for name, call in (("bare", bare.call), ("interlock", ours)):
                    if width == 1:
                        rate = await in_sequence(call, calls)
                    else:
                        rate = await at_once(call, calls * 4, width)
                    rates.setdefault((name, width), []).append(rate)
    print(f"{'at once':>8} {'bare calls/s':>14} {'interlock':>12} {'ratio':>7}   spread")
    for width in (1, 32, 64, 128):
        bare_rates, our_rates = rates["bare", width], rates["interlock", width]
        ratios = [one / other for one, other in zip(our_rates, bare_rates, strict=True)]
        print(
            f"{width:8} {statistics.median(bare_rates):14,.0f} "
            f"{statistics.median(our_rates):12,.0f} {statistics.median(ratios):7.2f}"
            f"   {min(ratios):.2f}-{max(ratios):.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(main(options.calls, options.rounds))
