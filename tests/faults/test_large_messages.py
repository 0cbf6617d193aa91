"""Sizes: R-03, a message over the limit is refused; R-04, one within it always passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.client import Client
from interlock.errors import MessageTooLarge
from interlock.transports import MAX_FRAME_BYTES, process

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]
KIB, MIB = 1024, 1024 * 1024
SERVERS = Path(__file__).parents[1] / "servers"


async def test_message_over_the_limit_fails_every_call(evil: Evil):
    client = evil(max_frame_bytes=MIB)
    async with client:
        waiting = asyncio.create_task(client.call_tool("mute"))
        with pytest.raises(MessageTooLarge, match=r"over 1\.0 MiB \(limit 1 MiB\)"):
            await client.call_tool("frame", {"size": MIB + 1})
        with pytest.raises(MessageTooLarge):
            await waiting
        with pytest.raises(MessageTooLarge):
            await client.call_tool("echo", {"text": "after it"})


async def test_messages_up_to_the_limit_are_received_and_sent(evil: Evil):
    sizes = [63 * KIB, 64 * KIB - 1, 64 * KIB, 65 * KIB, MIB - 1, MIB, MIB + 1, 15 * MIB]
    async with evil() as client:
        for size in [*sizes, MAX_FRAME_BYTES]:
            result = await client.call_tool("frame", {"size": size})
            assert size - 200 < len(result.text) < size
        for size in sizes:
            text = "x" * size
            assert (await client.call_tool("echo", {"text": text})).text == text


async def test_client_reads_while_it_writes(evil: Evil):
    """R-14: if both sides wrote 8 MB before they read, they would deadlock."""
    notification = '{"jsonrpc":"2.0","method":"notifications/x"}\n'
    text = "x" * 8_000_000
    async with evil() as client:
        writes_first = asyncio.create_task(
            client.call_tool("say", {"lines": [[[notification, 180_000]]]})
        )
        assert (await client.call_tool("echo", {"text": text})).text == text
        writes_first.cancel()


async def test_close_reads_the_output_of_a_server_that_still_writes(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "EOF_PATIENCE", 3600.0)
    client = evil()
    await client.open()
    writing = asyncio.create_task(client.call_tool("frame", {"size": 15 * MIB}))
    await asyncio.sleep(0)
    await client.close()  # it exits by itself once its output has been read

    assert isinstance((await asyncio.gather(writing, return_exceptions=True))[0], Exception)
