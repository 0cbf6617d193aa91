"""Several gateways on one PostgreSQL database, behind HAProxy, as real processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL
from time import monotonic
from typing import IO, Any

import aiohttp
import asyncpg

from interlock.auth.gateway_key import GatewayKey
from interlock.store import AuditReader, KeyStore
from tests.deploy.test_proxies import FILES, PORTS
from tests.docs.page import ROOT
from tests.server.conftest import modern_meta

KEY = GatewayKey(bytes(range(32)))
# What HAProxy writes about each request, besides the shipped configuration
REQUESTS = """\
    http-request set-var(txn.session) req.hdr(mcp-session-id)
    log-format "request %HM %ST %[var(txn.session)]"
"""
LEGACY, MODERN = "2025-06-18", "2026-07-28"


def free_port() -> int:
    """Return a port that no outgoing connection takes while a gateway restarts."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that other processes decide."""
    while not await holds():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def _started(command: list[str], output: int | IO[bytes] = DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=output, stderr=DEVNULL)


class Replica:
    """One gateway, with a file of the ids that its server has executed."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.port, self.admin = free_port(), free_port()
        self.home = fleet.folder / f"home{number}"
        self.home.mkdir()
        self.executed = self.home / "executed"
        self._fleet = fleet
        self._log = fleet.folder / f"log{number}"
        self.program: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        server = Path(__file__).with_name("counting_server.py")
        file = self.home / "gateway.json"
        entry = {"command": sys.executable, "args": [str(server)], "required": True}
        settings = {"database": self._fleet.url, **self._fleet.settings}
        file.write_text(json.dumps({"mcpServers": {"c": entry}, "gateway": settings}))
        own = {"HOME": str(self.home), "INTERLOCK_KEY": bytes(range(32)).hex(), **environment}
        listeners = ["--http", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        with self._log.open("ab") as log:
            self.program = subprocess.Popen(
                [sys.executable, "-m", "interlock", "serve", "--config", file, *listeners],
                env={**os.environ, **own},
                stdout=log,
                stderr=log,
            )

    async def ready(self) -> None:
        """Wait until the replica is ready."""

        async def is_ready() -> bool:
            assert self.program is not None
            assert self.program.poll() is None, self.log
            return await self.readiness() == 200

        await until(is_ready)

    async def readiness(self) -> int:
        """Return the status of /readyz; 0 if it is not answered."""
        with suppress(aiohttp.ClientError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=3)
            async with self._fleet.http.get(
                f"http://127.0.0.1:{self.admin}/readyz", timeout=timeout
            ) as reply:
                return reply.status
        return 0

    def signal(self, number: signal.Signals) -> None:
        assert self.program is not None
        self.program.send_signal(number)

    async def ended(self) -> int:
        assert self.program is not None
        return await asyncio.to_thread(self.program.wait)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


class Fleet:
    """Replicas and their balancer.

    Attributes:
        url: The database.
        settings: The member `gateway` of their configuration, besides the database.
        keys: One key for each caller.
    """

    def __init__(
        self, folder: Path, url: str, http: aiohttp.ClientSession, settings: dict[str, Any]
    ) -> None:
        self.folder, self.url, self.http, self.settings = folder, url, http, settings
        self.replicas: list[Replica] = []
        self.keys: list[str] = []
        self.key_ids: list[str] = []
        self.port = free_port()
        self.balancer: subprocess.Popen[bytes] | None = None
        self._requests = folder / "requests"

    async def make_keys(self, count: int) -> None:
        async with KeyStore.open(self.url) as store:
            for number in range(count):
                stored, key = await store.create(f"caller{number}", scopes=("mcp:*",))
                self.keys.append(key)
                self.key_ids.append(stored.id)

    async def start(self, count: int) -> None:
        """Start all at once, and a balancer in front of them."""
        self.replicas = [Replica(self, number) for number in range(count)]
        for each in self.replicas:
            each.start()
        await asyncio.gather(*(each.ready() for each in self.replicas))

    async def balance(self) -> None:
        shipped = (ROOT / "deploy" / "proxies" / "haproxy.cfg").read_text()
        config, _, _ = shipped.partition("    server gateway-1")
        bind = f"bind 127.0.0.1:{self.port}\n{REQUESTS}"
        config = config.replace("bind 127.0.0.1:8443", bind)
        for number, each in enumerate(self.replicas):
            config += f"    server r{number} 127.0.0.1:{each.port}\n"
        file = self.folder / "haproxy.cfg"
        file.write_text(config)
        with self._requests.open("wb") as log:  # `-q` would close it
            self.balancer = _started(["haproxy", "-db", "-f", str(file)], log)
        await until(self._is_answered)

    def requests(self) -> list[tuple[str, str, str]]:
        """Return method, status and session (or "-") of each request that HAProxy has answered."""
        lines = map(str.split, self._requests.read_text().splitlines())
        return [(line[1], line[2], line[3]) for line in lines if line[:1] == ["request"]]

    async def behind(self, proxy: Callable[[Path, str], list[str]]) -> subprocess.Popen[bytes]:
        """Run a shipped balancer in front of the first replica, on a new port."""
        self.port = free_port()
        text = (ROOT / "deploy" / "proxies" / FILES[proxy]).read_text()
        for port in PORTS:
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{self.replicas[0].port}")
        command = proxy(self.folder, text.replace("127.0.0.1:8443", f"127.0.0.1:{self.port}"))
        self.balancer = _started(command)
        await until(self._is_answered)
        return self.balancer

    async def _is_answered(self) -> bool:
        return (await self.call(self.balanced, self.keys[0], "first"))[0] == 200

    @property
    def balanced(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def call(
        self, url: str, key: str, id: str, seconds: float = 0.0, method: str = "tools/call"
    ) -> tuple[int, Any]:
        """Make a modern call; return the status and the body, or 0 and the error."""
        params: dict[str, Any] = {"_meta": modern_meta()}
        headers = {
            "authorization": f"Bearer {key}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
        }
        if method == "tools/call":
            arguments = {"id": id, **({"seconds": seconds} if seconds else {})}
            params |= {"name": "c__put", "arguments": arguments}
            headers["mcp-name"] = "c__put"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            async with self.http.post(url, json=body, headers=headers) as reply:
                return reply.status, await reply.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, repr(error)

    async def legacy(self, key: str, method: str, session: str = "") -> tuple[int, str]:
        """Send a request of a legacy client; return the status, and the session's id."""
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {
            "authorization": f"Bearer {key}",
            "accept": "application/json, text/event-stream",
        }
        if session:
            headers["mcp-session-id"] = session
        async with self.http.post(self.balanced, json=body, headers=headers) as reply:
            await reply.read()
            return reply.status, reply.headers.get("mcp-session-id", session)

    def executed(self) -> Counter[str]:
        ids: list[str] = []
        for each in self.replicas:
            if each.executed.exists():
                ids += each.executed.read_text().splitlines()
        return Counter(ids)

    async def problems(self) -> list[Any]:
        """Return what `audit verify` reports."""
        async with AuditReader.open(self.url) as reader:
            return list((await reader.verify(KEY, None)).problems)

    async def records(self) -> str:
        """Return the audit trail as text."""
        async with AuditReader.open(self.url) as reader:
            return str([each async for piece in reader.export() for each in piece])

    async def open_chains(self) -> int:
        connection = await asyncpg.connect(self.url)
        try:
            query = "SELECT count(*) FROM audit_heads WHERE ended IS NULL"
            return int(await connection.fetchval(query))
        finally:
            await connection.close()

    async def close(self) -> None:
        programs = [each.program for each in self.replicas] + [self.balancer]
        for each in programs:
            if each is not None and each.poll() is None:
                each.send_signal(signal.SIGCONT)
                each.kill()
                await asyncio.to_thread(each.wait)


@asynccontextmanager
async def fleet(
    folder: Path, url: str, settings: dict[str, Any] | None = None, *, callers: int = 8
) -> AsyncIterator[Fleet]:
    """Yield a fleet without replicas; end it and its balancer at the end."""
    timeout = aiohttp.ClientTimeout(total=30)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        made = Fleet(folder, url, http, settings or {})
        try:
            await made.make_keys(callers)
            yield made
        finally:
            await made.close()


class Load:
    """Calls at a steady rate by all callers, with counters of its own."""

    def __init__(self, fleet: Fleet, rate: float) -> None:
        self._fleet = fleet
        self._rate = rate
        self.acknowledged: list[str] = []
        self.failed: list[tuple[float, str, int, Any]] = []  # time, id, status, body
        self._calls: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task, *self._calls})

    async def _run(self) -> None:
        began, number = monotonic(), 0
        while True:
            number += 1
            call = asyncio.create_task(self._call(number))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            await asyncio.sleep(max(0.0, began + number / self._rate - monotonic()))

    async def _call(self, number: int) -> None:
        id, key = f"n{number}", self._fleet.keys[number % len(self._fleet.keys)]
        status, body = await self._fleet.call(self._fleet.balanced, key, id)
        if status == 200 and b'"isError":true' not in body and b'"error"' not in body:
            self.acknowledged.append(id)
        else:
            self.failed.append((monotonic(), id, status, body))

    async def make(self, count: int) -> None:
        """Wait until this many more calls have been answered."""
        wanted = len(self.acknowledged) + count

        async def are_made() -> bool:
            return len(self.acknowledged) >= wanted

        await until(are_made)

    @property
    def sent(self) -> int:
        return len(self.acknowledged) + len(self.failed)

    @property
    def window(self) -> float:
        """The seconds from the first to the last error."""
        times = [each[0] for each in self.failed]
        return max(times) - min(times) if times else 0.0

    def check(self) -> None:
        """Check that no acknowledged call is lost, and that none was executed twice."""
        executed = self._fleet.executed()
        assert [id for id in self.acknowledged if not executed[id]] == []
        assert [id for id, count in executed.items() if count > 1 and id != "first"] == []

    def report(self, name: str) -> None:
        executed = self._fleet.executed()
        ran = sum(executed[id] for _, id, _, _ in self.failed)
        print(
            f"{name}: sent {self.sent}, acknowledged {len(self.acknowledged)}, failed"
            f" {len(self.failed)}, failed but executed {ran}, window {self.window:.2f} s"
        )


def reasons(failed: Sequence[tuple[float, str, int, Any]]) -> Counter[str]:
    return Counter(f"{status} {body!r:.160}" for _, _, status, body in failed)
