"""R-28: no task owns a connection; any task may open, call, cancel and close."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from interlock.client import Client
from interlock.errors import ConnectionClosed
from interlock.transports.memory import MemoryTransport

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]


class Peer:
    """A server in this event loop that does not answer every third request."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport
        self._asked = 0

    def frames_received(self, frames: list[bytes], request: object = None) -> None:
        for frame in frames:
            message = json.loads(frame)
            if message.get("method") == "server/discover":
                self._answer(message, {"supportedVersions": ["2026-07-28"], "capabilities": {}})
            elif "id" in message:
                self._asked += 1
                if self._asked % 3:
                    self._answer(message, {"content": []})

    def connection_lost(self, error: Exception) -> None:
        pass

    def _answer(self, message: dict[str, Any], result: dict[str, Any]) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self._transport.send([json.dumps(answer).encode()])


async def memory_client() -> Client:
    ours, theirs = MemoryTransport.pair()
    await theirs.open(Peer(theirs))
    return Client(lambda: ours)


@pytest.mark.slow("opens a thousand clients")
async def test_thousand_clients_can_be_opened_used_and_closed_by_different_tasks():
    chance = random.Random(28)
    for _ in range(1_000):
        client = await memory_client()
        await asyncio.create_task(client.open())
        calls = [asyncio.create_task(client.call_tool("x")) for _ in range(5)]
        victims = chance.sample(calls, chance.randint(0, 4))
        for _ in range(chance.randint(0, 8)):
            await asyncio.sleep(0)
        for victim in victims:
            victim.cancel()
        for _ in range(chance.randint(0, 3)):
            await asyncio.sleep(0)
        await asyncio.create_task(client.close())
        for call in calls:
            call_ended = (await asyncio.gather(call, return_exceptions=True))[0]
            if isinstance(call_ended, BaseException):
                assert isinstance(call_ended, ConnectionClosed | asyncio.CancelledError)
        assert client._connection.protocol.pending == 0


async def test_open_cancelled_at_any_turn_leaks_nothing():
    for turns in range(12):
        client = await memory_client()
        opening = asyncio.create_task(client.open())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await client.close()


@pytest.mark.parametrize("server", ["server/discover=mute", "slow=30", "server/discover=exit"])
async def test_cancelled_open_ends_the_server_program(evil: Evil, server: str):
    opening = asyncio.create_task(evil(server, "initialize=mute").open())
    await asyncio.sleep(0.1)
    opening.cancel()

    assert isinstance((await asyncio.gather(opening, return_exceptions=True))[0], BaseException)


@pytest.mark.parametrize("server", ["server/discover=mute", "slow=30", "server/discover=exit"])
async def test_close_while_opening_ends_it_and_restarts_no_server(evil: Evil, server: str):
    client = evil(server, "initialize=mute")
    opening = asyncio.create_task(client.open())
    await asyncio.sleep(0.1)
    await client.close()

    with pytest.raises(ConnectionClosed):
        await opening


async def test_close_from_many_tasks_ends_all_calls_once(evil: Evil):
    client = evil()
    await client.open()
    waiting = asyncio.create_task(client.call_tool("mute"))
    await asyncio.sleep(0)
    await asyncio.gather(*(client.close() for _ in range(5)))
    await client.close()

    with pytest.raises(ConnectionClosed):
        await waiting
    with pytest.raises(ConnectionClosed):
        await client.call_tool("echo", {"text": ""})


async def test_close_continues_after_its_caller_is_cancelled(evil: Evil):
    client = evil("stay")
    await client.open()
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert closing.cancelled()

    await client.close()  # waits for the same ending


async def test_server_works_after_a_thousand_cancelled_calls(evil: Evil):
    """R-24: cancelled before, while and after they are sent and answered."""
    chance = random.Random(24)
    calls = [("mute", {}), ("echo", {"text": "a"}), ("frame", {"size": 100_000})]
    async with evil() as client:
        for _ in range(1_000):
            call = asyncio.create_task(client.call_tool(*chance.choice(calls)))
            for _ in range(chance.randint(0, 5)):
                await asyncio.sleep(0)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
        assert client._connection.protocol.pending == 0
        assert (await client.call_tool("echo", {"text": "fine"})).text == "fine"
