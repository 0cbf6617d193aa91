"""Many faults in any order, from a seeded script: each call ends, and the client stays usable.

Add each seed that fails to `SEEDS`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.client import Client
from interlock.errors import InterlockError
from tests.servers.chaos import ChaosProxy, Weather, script
from tests.servers.evil_http import LEGACY, MODERN, EvilHttp
from tests.servers.evil_memory import EvilMemory

pytestmark = pytest.mark.usefixtures("nothing_is_left")

SEEDS = (1, 2, 3)


async def ends(call: Any) -> str:
    """Wait up to 20 seconds for a call; return its text or the name of its error."""
    try:
        return (await call).text
    except InterlockError as error:
        return type(error).__name__


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_random_faults_of_an_http_server_fail_only_the_calls_they_hit(
    revision: str, seed: int
):
    async with EvilHttp(revision, "json" if seed % 2 else "stream", seed=seed) as server:
        client = Client.http(server.url, timeout=0.1, hard_timeout=0.3)
        async with client:
            for _ in range(5):
                calls = [asyncio.ensure_future(client.call_tool("anything")) for _ in range(8)]
                victim = calls.pop()
                endings = asyncio.gather(*map(ends, calls))
                await asyncio.sleep(0)
                victim.cancel()
                await endings
                await asyncio.gather(victim, return_exceptions=True)
            assert client._connection.protocol.pending == 0
            answer = await client.call_tool("echo", {"text": "fine"}, idempotent=True, timeout=100)
            assert answer.text == "fine"


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_faults_of_a_stdio_server_leave_no_pending_request(evil: Any, seed: int):
    for run in range(3):
        async with evil(f"seed={seed}{run}", timeout=0.1) as client:
            for _ in range(3):
                calls = [client.call_tool("anything") for _ in range(5)]
                await asyncio.gather(*map(ends, calls))
            assert client._connection.protocol.pending == 0


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_faults_of_a_memory_server_fail_only_the_calls_they_hit(seed: int):
    for run in range(5):
        server = EvilMemory(seed=seed * 10 + run)
        async with Client.memory(server, timeout=0.05) as client:
            for _ in range(3):
                calls = [client.call_tool("anything") for _ in range(6)]
                told = await asyncio.gather(*map(ends, calls))
                gone = {"ConnectionClosed", "MessageTooLarge"} & set(told)
            assert client._connection.protocol.pending == 0
            if not gone:
                assert await ends(client.call_tool("echo", {"text": "fine"}, timeout=100)) == "fine"


@pytest.mark.parametrize("seed", SEEDS)
async def test_client_works_again_after_random_network_faults(seed: int):
    async with EvilHttp(form="stream") as server:
        port = int(server.url.split(":")[2].split("/")[0])
        calm_then_storm = ChaosProxy(port, iter([Weather(), *_first(script(seed), 30)]))
        async with calm_then_storm as proxy:
            client = Client.http(f"http://127.0.0.1:{proxy.port}/mcp", timeout=0.2)
            async with client:
                for _ in range(8):
                    calls = (client.call_tool("echo", {"text": "x" * 500}) for _ in range(6))
                    told = await asyncio.gather(*map(ends, calls))
                    assert set(told) <= {"x" * 500, "StreamEnded", "RequestTimeout"}
                assert client._connection.protocol.pending == 0
                while len(proxy.weathers) < 31:  # the storm has an end
                    await ends(client.call_tool("cut"))
                assert await ends(client.call_tool("echo", {"text": "fine"}, timeout=100)) == "fine"


def _first(weather: Any, count: int) -> list[Weather]:
    return [next(weather) for _ in range(count)]
