"""Many faults in any order, from a seeded script: each call ends, and what is left works.

Who finds a seed that fails adds it to the list.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from interlock.client import Client
from interlock.errors import InterlockError

from ..servers.chaos import ChaosProxy, Weather, script
from ..servers.evil_http import LEGACY, MODERN, EvilHttp

pytestmark = pytest.mark.usefixtures("nothing_is_left")

SEEDS = (1, 2, 3)


def faults(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Choose what a server on HTTP does with a call."""
    code = chance.choice([400, 401, 403, 404, 405, 429, 500, 503])
    return chance.choice(
        [
            *[("echo", {"text": "hi"})] * 3,
            ("status", {"code": code, "headers": {"Retry-After": "600"}}),
            ("status", {"code": 200, "body": "<html>", "type": "text/html"}),
            ("cut", {"at": chance.choice(["start", "headers", "body", "event"])}),
            ("cut", {"at": "event", "reset": True}),
            ("quiet", {}),
            ("garbage", {}),
            ("half_close", {}),
            ("mute", {}),
            ("mute_stream", {}),
            ("die_at_reuse", {"text": "hi"}),
            ("lose_sessions", {}),
            ("say", {"lines": ["\xff", "[]", '{"jsonrpc":"2.0","id":99,"result":{}}']}),
            ("bomb", {"size": 20 * 2**20}),
        ]
    )


def faults_of_a_program(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Choose what a server on stdio does with a call."""
    garbage = ["\xff", "[]", '{"jsonrpc":"2.0","id":99,"result":{}}', '{"jsonrpc":"2.0","id":']
    return chance.choice(
        [
            *[("echo", {"text": "hi"})] * 6,
            ("say", {"lines": garbage}),
            ("mute", {}),
            ("frame", {"size": 10 ** chance.randint(3, 6)}),
            ("flood_stderr", {"size": 10 ** chance.randint(3, 6)}),
            ("drip", {"every": 0.001}),
            ("close_stdout", {}),
            ("exit", {"code": 3, "stderr": "out of cheese\n"}),
        ]
    )


async def ends(call: Any) -> str:
    """Wait for a call, which has to end soon; give the text or the kind of error."""
    async with asyncio.timeout(10):
        try:
            return (await call).text
        except InterlockError as error:
            return type(error).__name__


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_a_server_that_does_anything_harms_only_its_own_calls(revision: str, seed: int):
    chance = random.Random(seed)
    form = chance.choice(["json", "stream"])
    async with EvilHttp(revision, form) as server:
        client = Client.http(server.url, timeout=0.1, hard_timeout=0.3)
        async with client:
            for _ in range(10):
                calls = [client.call_tool(*faults(chance)) for _ in range(8)]
                victim = asyncio.ensure_future(calls.pop())
                endings = asyncio.gather(*map(ends, calls))
                await asyncio.sleep(0)
                victim.cancel()
                await endings
                await asyncio.gather(victim, return_exceptions=True)
            assert client._connection.protocol.pending == 0
            server.behave()
            assert (
                await client.call_tool("echo", {"text": "fine"}, idempotent=True)
            ).text == "fine"


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_program_that_does_anything_harms_only_its_own_calls(evil: Any, seed: int):
    chance = random.Random(seed)
    for _ in range(6):
        async with evil(timeout=0.1) as client:
            for _ in range(3):
                calls = [client.call_tool(*faults_of_a_program(chance)) for _ in range(5)]
                await asyncio.gather(*map(ends, calls))
            assert client._connection.protocol.pending == 0


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_network_that_does_anything_harms_only_what_goes_over_it(seed: int):
    async with EvilHttp(form="stream") as server:
        port = int(server.url.split(":")[2].split("/")[0])
        calm_then_storm = ChaosProxy(port, iter([Weather(), *_first(script(seed), 30)]))
        async with calm_then_storm as proxy:
            client = Client.http(f"http://127.0.0.1:{proxy.port}/mcp", timeout=0.2)
            async with client:
                for _ in range(12):
                    calls = (client.call_tool("echo", {"text": "x" * 500}) for _ in range(6))
                    told = await asyncio.gather(*map(ends, calls))
                    assert set(told) <= {"x" * 500, "StreamEnded", "RequestTimeout"}
                assert client._connection.protocol.pending == 0
                while len(proxy.weathers) < 31:  # the storm has an end
                    await ends(client.call_tool("cut"))
                assert await ends(client.call_tool("echo", {"text": "fine"})) == "fine"


def _first(weather: Any, count: int) -> list[Weather]:
    return [next(weather) for _ in range(count)]
