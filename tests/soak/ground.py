"""What runs during a soak: servers of every kind in one toolbox, and who calls them."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from interlock import Client, Toolbox
from interlock.config import HttpServer, StdioServer
from interlock.errors import InterlockError
from tests.soak.gauges import children
from tests.soak.server import server

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests" / "servers"

# A minute; a run of 20 minutes makes a million calls, 100,000 connects and 10,000 starts.
CALLS = {
    "memory": 20_000,
    "stdio": 15_000,
    "old_stdio": 5_000,
    "http": 6_000,
    "mortal_http": 2_000,
    "evil_http": 1_000,
    "evil_session": 1_000,
}
CONNECTS = {"memory": 4_000, "http": 1_000}
STARTS = 500

CALLERS = 8  # at once, of each server
TIMEOUT = 5.0  # seconds of a call
HUNG = 20.0  # seconds; a call that has not ended by then never will
TAKEN_BACK = 0.01  # of the calls are cancelled soon

_ANY = {"type": "object"}
_EVIL_TOOLS = ("echo", "say", "exit", "mute", "progress", "close_stdout", "flood_stderr")
_LISTED = msgspec.json.encode(
    {"tools": [{"name": name, "inputSchema": _ANY} for name in _EVIL_TOOLS]}
).decode()


class Ground:
    """Opens everything, keeps it busy, and counts what came of it.

    Args:
        minutes: How long.
        chance: Where all chance comes from.
    """

    def __init__(self, minutes: float, chance: random.Random) -> None:
        self.end = monotonic() + minutes * 60
        self.chance = chance
        self.began = monotonic()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.unexpected: list[str] = []
        self.toolbox: Toolbox
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self.server_tasks = 0.0  # of the HTTP server, when it was asked last
        self.breaking = asyncio.Lock()  # held while a fault lasts
        self.may_begin = asyncio.Event()
        self.may_begin.set()
        self._numbers = itertools.count()
        self._open: dict[int, tuple[str, float, asyncio.Task[Any] | None]] = {}

    @property
    def calls(self) -> int:
        """How many calls, connects and starts have ended."""
        return self.outcomes.total()

    async def open(self) -> None:
        """Start all servers."""
        for name in ("http", "mortal_http"):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.ports[name] = free.getsockname()[1]
            await self.serve(name)
        evil = self._evil("evil_http"), self._evil("evil_session", "revision=2025-11-25")
        self.toolbox = Toolbox(
            {
                "memory": server,
                "stdio": stdio("lane=stdio"),
                "old_stdio": stdio("lane=old_stdio", "revision=2025-11-25"),
                "http": HttpServer(url=self.url("http")),
                "mortal_http": HttpServer(url=self.url("mortal_http")),
                "evil_http": HttpServer(url=evil[0]),
                "evil_session": HttpServer(url=evil[1]),
            }
        )
        await self.toolbox.open()
        for name, status in self.toolbox.status.items():
            assert status.state == "ok", f"{name}: {status.reason}"

    def url(self, name: str) -> str:
        """Where an honest server is, whether it runs or not."""
        return f"http://127.0.0.1:{self.ports[name]}/mcp"

    async def serve(self, name: str) -> None:
        """Start an honest server over HTTP, at its port."""
        port = self.ports[name]
        command = [sys.executable, "-m", "tests.soak.server", str(port)]
        self.processes[name] = subprocess.Popen(  # noqa: ASYNC220 - it takes no time
            command, cwd=ROOT, stderr=subprocess.DEVNULL
        )
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)

    def _evil(self, name: str, *told: str) -> str:
        command = [sys.executable, str(SERVERS / "evil_http.py"), *told]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes[name] = process
        assert process.stdout is not None
        return process.stdout.readline().decode().strip()

    def process_id(self, name: str) -> int | None:
        """Find the process of a server, also of one that a toolbox has started."""
        if name in self.processes:
            return self.processes[name].pid
        for id in children():
            with suppress(OSError):
                if f"lane={name}".encode() in Path(f"/proc/{id}/cmdline").read_bytes().split(b"\0"):
                    return id
        return None

    async def close(self) -> None:
        """Close the toolbox, and kill the servers."""
        await self.toolbox.close()
        for process in self.processes.values():
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()

    # Work

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Begin and break nothing in here; what ran has ended, unless it takes too long."""
        async with self.breaking:
            self.may_begin.clear()
            try:
                patience = monotonic() + 2 * TIMEOUT
                while self._open and monotonic() < patience:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.02)
                for name in CALLS:  # so that each is up, if it can be
                    await self.one(name, self._call(name))
                yield
            finally:
                self.may_begin.set()

    async def work(self) -> None:
        """Call, connect and start until the time is over."""
        async with asyncio.TaskGroup() as group:
            for name, rate in CALLS.items():
                pace = Pace(rate, self.end)
                for _ in range(CALLERS):
                    group.create_task(self._keep(pace, name, self._call(name)))
            for name, rate in CONNECTS.items():
                pace = Pace(rate, self.end)
                for _ in range(CALLERS // 2):
                    group.create_task(self._keep(pace, f"connect {name}", self._connect(name)))
            pace = Pace(STARTS, self.end)
            for _ in range(CALLERS // 2):
                group.create_task(self._keep(pace, "start", self._start))

    def _call(self, name: str) -> Callable[[str], Awaitable[str]]:
        async def call(text: str) -> str:
            result = await self.toolbox.call(f"{name}:echo", {"text": text}, timeout=TIMEOUT)
            return result.text

        return call

    def _connect(self, name: str) -> Callable[[str], Awaitable[str]]:
        async def connect(text: str) -> str:
            client = Client.memory(server) if name == "memory" else Client.http(self.url(name))
            async with client:
                result = await client.call_tool("echo", {"text": text}, timeout=TIMEOUT)
            return result.text

        return connect

    async def _start(self, text: str) -> str:
        started = stdio()
        async with Client.stdio(started.command, *started.args) as client:
            result = await client.call_tool("echo", {"text": text}, timeout=TIMEOUT)
        return result.text

    async def _keep(self, pace: Pace, what: str, act: Callable[[str], Awaitable[str]]) -> None:
        while await pace.turn():
            await self.may_begin.wait()
            if not await self.one(what, act):
                await asyncio.sleep(0.05)

    async def one(self, what: str, act: Callable[[str], Awaitable[str]]) -> bool:
        """Do something once, and count how it ended. It may fail, with an error of ours."""
        number = next(self._numbers)
        text = f"{what} {number}"
        self._open[number] = (what, monotonic(), asyncio.current_task())
        soon = self.chance.random() / 500 if self.chance.random() < TAKEN_BACK else None
        try:
            async with asyncio.timeout(soon) as limit:
                came = await act(text)
            outcome = "ok" if came in (text, "") else "WRONG ANSWER"
        except InterlockError as error:
            outcome = type(error).__name__
        except TimeoutError:
            outcome = "taken back" if limit.expired() else "TimeoutError"
        except Exception:
            outcome = "UNEXPECTED"
            self.unexpected.append(traceback.format_exc())
        del self._open[number]
        self.outcomes[what, outcome] += 1
        return outcome == "ok"

    async def ask_for_tasks(self) -> None:
        """Ask the HTTP server how many tasks it has."""
        with suppress(InterlockError):
            result = await self.toolbox.call("http:tasks", timeout=TIMEOUT)
            self.server_tasks = float(result.text)

    def check_hung(self) -> None:
        """Count what has not ended for long, and tell where it waits."""
        for number, (what, since, task) in list(self._open.items()):
            if monotonic() - since > HUNG and task is not None:
                self._open[number] = (what, float("inf"), task)
                self.outcomes[what, "HUNG"] += 1
                stack = "".join(f"  {frame}\n" for frame in task.get_stack())
                self.unexpected.append(f"{what} hangs:\n{stack}")


class Pace:
    """Turns for many tasks, evenly over the time."""

    def __init__(self, per_minute: float, end: float) -> None:
        self._began = monotonic()
        self._end = end
        self._rate = per_minute / 60
        self._taken = 0

    async def turn(self) -> bool:
        """Wait for the next turn; False when the time is over."""
        while self._taken >= (monotonic() - self._began) * self._rate:
            await asyncio.sleep(0.02)
            if monotonic() > self._end:
                return False
        self._taken += 1
        return monotonic() < self._end


def stdio(*told: str) -> StdioServer:
    """A server on stdio that can misbehave."""
    evil = str(SERVERS / "evil.py")
    return StdioServer(
        command=sys.executable, args=("-I", "-S", evil, f"tools/list={_LISTED}", *told)
    )


def belongings() -> dict[str, object]:
    """What is there before the beginning, and must be all that is there after the end."""
    return {
        "tasks": len(asyncio.all_tasks()),
        "descriptors": sorted(os.listdir("/proc/self/fd"), key=int),  # noqa: PTH208
        "children": children(),
    }
