"""R-02: every call ends by itself. Progress moves the idle deadline, never the hard one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

import pytest

from interlock.client import Client
from interlock.errors import RequestTimeout
from interlock.protocol import Progress

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]


async def test_a_mute_server_costs_a_call_its_idle_time_and_nothing_else(evil: Evil):
    async with evil() as client:
        started = monotonic()
        with pytest.raises(RequestTimeout, match=r"no answer to tools/call within 0\.2 s"):
            await client.call_tool("mute", timeout=0.2)

        assert 0.2 <= monotonic() - started < 0.7
        assert (await client.call_tool("echo", {"text": "still here"})).text == "still here"


async def test_a_hanging_call_does_not_delay_the_others(evil: Evil):
    async with evil() as client:
        hanging = asyncio.create_task(client.call_tool("mute", timeout=0.3))
        for text in map(str, range(20)):
            assert (await client.call_tool("echo", {"text": text})).text == text
        assert not hanging.done()

        with pytest.raises(RequestTimeout):
            await hanging


async def test_endless_progress_ends_at_the_hard_deadline(evil: Evil):
    seen: list[Progress] = []
    async with evil(hard_timeout=0.4, timeout=0.1) as client:
        started = monotonic()
        with pytest.raises(RequestTimeout, match="hard limit"):
            await client.call_tool("progress", progress=seen.append)

        assert 0.4 <= monotonic() - started < 0.9
        assert (await client.call_tool("echo", {"text": "a"}, timeout=5)).text == "a"
    assert len(seen) > 10


async def test_a_slow_drip_ends_at_the_deadline_and_is_dropped_when_it_is_whole(evil: Evil):
    async with evil() as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("drip", {"every": 0.02}, timeout=0.1)
        with pytest.raises(RequestTimeout):  # the drip leaves half a line, which costs one more
            await client.call_tool("echo", {"text": "lost"}, timeout=0.2)

        assert (await client.call_tool("echo", {"text": "next"})).text == "next"
        assert client._connection.protocol.dropped["garbage"] == 1


async def test_a_mute_server_costs_a_list_its_time(evil: Evil, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("interlock.client.LIST_TIMEOUT", 0.2)
    async with evil("tools/list=mute") as client:
        with pytest.raises(RequestTimeout, match=r"tools/list within 0\.2 s"):
            await client.list_tools()


async def test_connecting_to_a_mute_server_takes_no_longer_than_it_may(evil: Evil):
    started = monotonic()
    with pytest.raises(RequestTimeout):
        await evil("server/discover=mute", "initialize=mute", connect_timeout=0.4).open()

    assert 0.4 <= monotonic() - started < 1.0


async def test_the_defaults_are_finite():
    made = Client.stdio("a-program")

    assert made._timeout == 120
    assert made._hard_timeout == 600
    assert made._connect_timeout == 10
