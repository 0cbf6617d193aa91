"""Where a scenario takes place: evil servers and clients of them on one transport."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from interlock.client import Client
from interlock.connection import Connection
from interlock.errors import InterlockError
from interlock.transports.http_pool import HttpPool
from tests.faults.matrix import HTTP, JSON, MEMORY, OLDEST, SESSION, SSE, STDIO
from tests.servers import evil_http
from tests.servers.evil_http import EvilHttp
from tests.servers.evil_memory import EvilMemory
from tests.support.clock import ClockLoop

SERVERS = Path(__file__).parents[1] / "servers"
EVIL = [sys.executable, "-I", "-S", str(SERVERS / "evil.py")]

# Given to servers in headers, in the URL and in the environment; never to be seen again.
CANARY = "canary-2f9c41d7"

_T = TypeVar("_T")

# What the transports are for an evil server over HTTP.
_FORMS = {
    JSON: (evil_http.MODERN, "json"),
    SSE: (evil_http.MODERN, "stream"),
    SESSION: (evil_http.LEGACY, "stream"),
    OLDEST: (evil_http.OLDEST, "stream"),
}
_PATIENT = {"timeout": 100.0, "connect_timeout": 100.0}
DEFAULTS: dict[str, Any] = dict.fromkeys(_PATIENT)  # for `Ground.client`


class Told:
    """The outcome of `Ground.promise`: `error` is the promised error, once it was raised."""

    error: Any = None


class Ground:
    """The servers, clients and measurements of one scenario; `close` closes them all.

    Args:
        transport: One of those in `matrix`.
        folder: Where the scenario may write files.

    Attributes:
        kept: Seconds and outcome of each promise that was kept.
        server: The evil server, if it runs in this process.
        expected_reports: Messages that may reach the event loop's exception handler.
    """

    def __init__(self, transport: str, folder: Path) -> None:
        self.transport = transport
        self.folder = folder
        self.kept: list[tuple[float, str]] = []
        self.server: EvilHttp | EvilMemory
        self.expected_reports: set[str] = set()
        self.clients: list[Client] = []
        self.stack = AsyncExitStack()
        self._pool: HttpPool | None = None
        self._bystander: Client | None = None

    # Evil servers

    async def open(self, *told: str, **options: Any) -> Client:
        """Open a client of an evil server: see `client`."""
        client = await self.client(*told, **options)
        await self.stack.enter_async_context(client)
        return client

    async def client(self, *told: str, **options: Any) -> Client:
        """Return a client of an evil server.

        Args:
            told: How it misbehaves, such as "METHOD=mute" or "pages=endless".
            options: Of the client.
        """
        chosen = {**_PATIENT, **options}
        options = {name: value for name, value in chosen.items() if value is not None}
        if self.transport == STDIO:
            client = Client.stdio(*EVIL, *told, env={"EVIL_KEY": CANARY}, **options)
        elif self.transport == MEMORY:
            self.server = EvilMemory()
            client = Client.memory(self.server, **options)
        else:
            client = Client.http(await self.url(), **self.secrets(), pool=self.pool, **options)
            if self._bystander is None:
                await self._open_bystander()
        if self.transport != STDIO:
            for method, _, how in (each.partition("=") for each in told):
                if method == "pages":
                    self.server.tell("tools/list", "pages")
                else:
                    self.server.tell(method, how)
        self.clients.append(client)
        return client

    async def url(self, transport: str = "", **options: Any) -> str:
        """Start an evil server over HTTP; return its URL, which has a secret in its query."""
        revision, form = _FORMS[transport or self.transport]
        self.server = EvilHttp(revision, form, **options)
        await self.stack.enter_async_context(self.server)
        return f"{self.server.url}?key={CANARY}"

    @staticmethod
    def secrets() -> dict[str, Any]:
        """Return options for an HTTP client that sends a secret in a header."""
        return {"headers": {"X-Api-Key": CANARY}}

    @property
    def http(self) -> EvilHttp:
        """The evil server over HTTP."""
        assert isinstance(self.server, EvilHttp)
        return self.server

    @property
    def pool(self) -> HttpPool:
        """The connection pool that all HTTP clients share."""
        if self._pool is None:
            self._pool = HttpPool()
        return self._pool

    async def _open_bystander(self) -> None:
        # An honest server beside the evil one, on the same pool: it must not notice anything.
        honest = await self.stack.enter_async_context(EvilHttp())
        self._bystander = Client.http(honest.url, pool=self.pool)
        await self.stack.enter_async_context(self._bystander)

    # Time

    def flying_time(self, grace: float = 0.01) -> AbstractContextManager[None]:
        """Skip all waiting inside this context: see `Clock.flying`."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        return loop.clock.flying(grace)

    # Promises

    @contextmanager
    def promise(
        self, kind: type[InterlockError] | None = None, words: str = "", outcome: str = "as usual"
    ) -> Iterator[Told]:
        """Assert that the body raises this error, or none, and measure how long it takes.

        Args:
            kind: The error; None for no error.
            words: A pattern that the error's text must match.
            outcome: The outcome reported in the table if there is no error.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        told = Told()
        try:
            yield told
        except InterlockError as error:
            if type(error) is not kind:
                raise
            told.error = error
        else:
            assert kind is None, f"no {kind.__name__ if kind else ''}"
            self.keep(loop.time() - started, outcome)
            return
        self.keep(loop.time() - started, f"{kind.__name__}: {told.error}")
        self._check_words(told.error, words)

    def _check_words(self, error: InterlockError, words: str) -> None:
        text = str(error)
        assert re.search(words, text), f"{text} says nothing of {words!r}"
        assert "\n" not in text
        assert CANARY not in "".join(traceback.format_exception(error))
        if self.transport in HTTP:
            named = re.search(r"127\.0\.0\.1:\d+|example\.com|\bevil\b", text)
            assert named, f"{text} names no server"

    def keep(self, seconds: float, outcome: str) -> None:
        """Keep a measurement."""
        self.kept.append((seconds, outcome))

    @contextmanager
    def little_memory(self, mib: int) -> Iterator[None]:
        """Assert that the peak memory of this process grows by less than `mib` in this context."""
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak
        before = _memory("VmRSS")
        yield
        grown = (_memory("VmHWM") - before) / 2**20
        assert grown < mib, f"{grown:.0f} MiB of memory, of {mib}"

    @staticmethod
    def check_nothing_pends() -> None:
        """Assert that no connection has a pending request, except subscriptions."""
        for connection in living(Connection):
            waiting = {id: each.method for id, each in connection.protocol._pending.items()}
            assert set(waiting.values()) <= {"subscriptions/listen"}, waiting
            assert connection._waiting.keys() == waiting.keys()
            assert connection._progress == {}

    # The end

    async def close(self) -> None:
        """Assert that the bystander still works, then close everything."""
        try:
            if self._bystander is not None:
                await good(self._bystander)
        finally:
            await self.stack.aclose()
            if self._pool is not None:
                await self._pool.close()
            for _ in range(5):  # what was cancelled needs a turn to notice
                await asyncio.sleep(0)


def living(kind: type[_T]) -> list[_T]:
    """Return all objects of a type that were created during the case."""
    return [each for each in gc.get_objects() if isinstance(each, kind)]


def _memory(figure: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{figure}:")[2].split()[0]) * 1024


async def good(client: Client) -> None:
    """Assert that a client still works. The timeout is longer than the client's own."""
    answer = await client.call_tool("echo", {"text": "still here"}, timeout=100.0)
    assert answer.text == "still here"


async def all_of(*calls: Awaitable[Any]) -> list[Any]:
    """Wait for all calls; return their results and exceptions."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    while not condition():  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.002)


def alive(id: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def ended(pidfds: list[int]) -> None:
    """Wait until processes have exited, and close their pidfds."""
    loop = asyncio.get_running_loop()
    for pidfd in pidfds:
        has_ended = asyncio.Event()
        loop.add_reader(pidfd, has_ended.set)
        try:
            await has_ended.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
