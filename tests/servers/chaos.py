"""A proxy between a client and a server that spoils what goes through it. Raw TCP.

    python chaos.py PORT [seed=N]

listens on a port of its own, prints it, and passes everything on to PORT on loopback until its
stdin ends. What it does to the Nth connection is in the script of its seed: the same every time.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

NEVER = 10**12  # bytes


@dataclass(frozen=True)
class Weather:
    """The faults of one connection. By default: none.

    Attributes:
        delay: Seconds that each piece waits before it goes on, in either direction.
        rate: Bytes a second, in either direction; 0 for no limit.
        cut_after: Bytes from the server after which both ends are closed.
        reset: They are reset instead.
        freeze_after: Bytes from the server after which nothing goes on any more, in either
            direction, and nobody is told.
    """

    delay: float = 0.0
    rate: float = 0.0
    cut_after: int = NEVER
    reset: bool = False
    freeze_after: int = NEVER


CALM = Weather()
Script = Iterator[Weather]


def script(seed: int) -> Script:
    """Yield random faults for successive connections; half of the connections have none."""
    chance = random.Random(seed)
    while True:
        size = int(10 ** chance.uniform(0, 4))
        yield chance.choice(
            [
                *[CALM] * 4,
                Weather(delay=chance.uniform(0, 0.02)),
                Weather(cut_after=size),
                Weather(cut_after=size, reset=True),
                Weather(rate=10 ** chance.uniform(4, 6)),
                Weather(freeze_after=size),
            ]
        )


class ChaosProxy:
    """The proxy. Use it as an async context manager.

    Args:
        port: Of the server, on loopback.
        weather: For each connection in turn; calm when it ends.

    Attributes:
        port: Where it listens.
        weathers: Of the connections so far.
    """

    def __init__(self, port: int, weather: Script) -> None:
        self.port = 0
        self.weathers: list[Weather] = []
        self._server_port = port
        self._weather = weather
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.weathers.append(next(self._weather, CALM))
        task = asyncio.ensure_future(self._pass_on(reader, writer, self.weathers[-1]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, weather: Weather
    ) -> None:
        writers = [writer]
        try:
            with suppress(ConnectionError):
                there = await asyncio.open_connection("127.0.0.1", self._server_port)
                writers.append(there[1])
                frozen = asyncio.Event()
                spoil = Spoiler(weather, frozen, lambda: _close(writers, reset=weather.reset))
                await asyncio.wait(
                    {
                        asyncio.ensure_future(spoil.move(reader, there[1], counted=False)),
                        asyncio.ensure_future(spoil.move(there[0], writer, counted=True)),
                    },
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            _close(writers, reset=False)


class Spoiler:
    """Forwards the bytes of one connection, with the faults of its weather."""

    def __init__(self, weather: Weather, frozen: asyncio.Event, close: Callable[[], None]) -> None:
        self._weather = weather
        self._frozen = frozen
        self._close = close

    async def move(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        """Move what comes until it ends; only what is `counted` brings the cut nearer."""
        weather, moved = self._weather, 0
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if counted and moved + len(data) >= weather.freeze_after:
                    self._frozen.set()
                if self._frozen.is_set():
                    continue  # what comes is swallowed, an end as well
                if counted and moved + len(data) >= weather.cut_after:
                    writer.write(data[: weather.cut_after - moved])
                    await writer.drain()
                    self._close()
                    return
                if weather.delay or weather.rate:
                    late = len(data) / weather.rate if weather.rate else 0.0
                    await asyncio.sleep(weather.delay + late)
                writer.write(data)
                await writer.drain()
                moved += len(data)


def _close(writers: list[asyncio.StreamWriter], *, reset: bool) -> None:
    for writer in writers:
        raw = writer.get_extra_info("socket")
        if reset and raw is not None and not writer.is_closing():
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        writer.close()


async def main() -> None:
    """Forward connections until stdin is closed."""
    told = dict(argument.partition("=")[::2] for argument in sys.argv[2:])
    proxy = ChaosProxy(int(sys.argv[1]), script(int(told.get("seed", 0))))
    async with proxy:
        print(proxy.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
