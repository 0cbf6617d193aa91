"""A gateway that is killed under load: every effect has an intent, and the trail stays whole."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from signal import SIGKILL, SIGTERM
from statistics import median
from time import monotonic
from typing import Any

import msgspec
import pytest

from interlock import Client, Server
from interlock.auth.gateway_key import GatewayKey
from interlock.errors import InterlockError
from interlock.server.http.serve import UvicornServer
from interlock.store import AuditReader, KeyStore
from interlock.store.audit.verification import Verification

CALLERS = 8


class Effects:
    """An upstream server over HTTP, in this process, that remembers every call it got."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.server = Server("crm")

        @self.server.tool
        async def refund(number: int) -> str:
            """Refund an order."""
            self.numbers.append(number)
            await asyncio.sleep(0)
            return "done"

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        import socket

        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            server = UvicornServer(self.server.asgi(), "127.0.0.1", port, handles_signals=False)
            serving = asyncio.create_task(server.serve([listener]))
            yield f"http://127.0.0.1:{port}/mcp"
            server.end()
            server.end()
            await serving


class Gateways:
    """Runs one `interlock serve` after the other on one database."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self.database = folder / "gateway.db"
        self._config = folder / "gateway.json"
        self._config.write_bytes(
            msgspec.json.encode(
                {
                    "mcpServers": {"crm": {"url": upstream}},
                    "gateway": {
                        "database": str(self.database),
                        "audit": {"arguments": "full"},
                        "limits": {"perKey": {"concurrent": 64}},
                    },
                }
            )
        )
        self._process: asyncio.subprocess.Process | None = None
        self._child = 0
        self.url = ""

    async def start(self) -> float:
        """Start a gateway; return the seconds until it serves."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.gateway.forked_gateway", str(self._config)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "INTERLOCK_KEY": bytes(range(32)).hex()},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"start\n")
        self._child = int(await self._process.stdout.readline())
        began = monotonic()
        url = await self._line(rb"serving at (\S+)")
        self.url = url
        return monotonic() - began

    async def end(self, signal: int) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        os.kill(self._child, signal)
        assert await self._process.stdout.readline() == b"ended\n"

    async def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            with suppress(ProcessLookupError):
                os.kill(self._child, SIGKILL)
            await self._process.communicate()

    async def _line(self, pattern: bytes) -> str:
        assert self._process is not None
        assert self._process.stderr is not None
        while True:
            line = await self._process.stderr.readline()
            assert line, "the gateway ended"
            found = re.match(pattern, line)
            if found:
                return found[1].decode()


class Load:
    """Calls with different numbers, as fast as the gateway answers."""

    def __init__(self) -> None:
        self.numbers = count()
        self.acknowledged: set[int] = set()

    async def run(self, url: str, key: str, ready: asyncio.Event) -> None:
        """Call until the gateway is gone."""
        async with Client.http(url, headers={"x-api-key": key}) as client:
            await asyncio.gather(*(self._call(client, ready) for _ in range(CALLERS)))

    async def _call(self, client: Client, ready: asyncio.Event) -> None:
        while True:
            number = next(self.numbers)
            try:
                result = await client.call_tool("crm__refund", {"number": number})
            except InterlockError:
                return
            assert not result.is_error, result
            self.acknowledged.add(number)
            ready.set()


async def kill_under_load(folder: Path, times: int, seed: int) -> list[float]:
    """Kill a gateway again and again; return the seconds that each start has taken."""
    chance, effects, load = random.Random(seed), Effects(), Load()
    starts: list[float] = []
    async with KeyStore.open(folder / "gateway.db") as store:
        _, key = await store.create("anna", scopes=["mcp:*"])
    async with effects.served() as upstream:
        gateways = Gateways(folder, upstream)
        try:
            for _ in range(times):
                starts.append(await gateways.start())
                ready = asyncio.Event()
                calls = asyncio.create_task(load.run(gateways.url, key, ready))
                await asyncio.wait(
                    [calls, asyncio.ensure_future(ready.wait())], return_when="FIRST_COMPLETED"
                )
                await asyncio.sleep(chance.random() * 0.1)
                await gateways.end(SIGKILL)
                with suppress(InterlockError):
                    await calls
            await gateways.start()
            await gateways.end(SIGTERM)
        finally:
            await gateways.close()
    await check(folder / "gateway.db", effects.numbers, load.acknowledged, times)
    return starts


async def check(database: Path, effects: list[int], acknowledged: set[int], times: int) -> None:
    async with AuditReader.open(database) as reader:
        records = [each async for piece in reader.export() for each in piece]
    async with AuditReader.open(database) as reader:
        verification: Verification = await reader.verify(GatewayKey(bytes(range(32))))
    assert verification.problems == []
    assert verification.writers == times + 1

    numbers: dict[str, int] = {}  # by call
    ends: Counter[str] = Counter()
    for record in records:
        call: Any = record.get("call")
        if record["kind"] == "intent":
            assert call not in numbers
            numbers[call] = record["arguments"]["number"]
        elif record["kind"] in ("outcome", "unfinished"):
            assert call in numbers or record["kind"] == "unfinished"
            ends[call] += 1
    assert len(effects) == len(set(effects))
    assert set(effects) <= set(numbers.values())
    assert acknowledged <= set(effects)
    assert len(acknowledged) > times
    assert set(ends) == set(numbers)
    assert set(ends.values()) == {1}


@pytest.mark.slow("starts and kills a gateway twice")
async def test_every_effect_has_an_intent_after_two_kills_under_load(tmp_path: Path):
    await kill_under_load(tmp_path, 2, seed=1)


@pytest.mark.product
@pytest.mark.timeout(1_200)
async def test_every_effect_has_an_intent_after_two_hundred_kills_under_load(tmp_path: Path):
    assert median(await kill_under_load(tmp_path, 200, seed=2)) < 5
