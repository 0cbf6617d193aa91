from __future__ import annotations

import asyncio

import pytest

from interlock.errors import ConnectionClosed, InterlockError
from interlock.transports.memory import MemoryTransport


class Ear:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.losses: list[InterlockError] = []

    def frames_received(self, frames: list[bytes]) -> None:
        self.frames += frames

    async def settle(self, timeout: float) -> None:
        pass

    def connection_lost(self, error: InterlockError) -> None:
        self.losses.append(error)


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_frames_arrive_in_order_and_at_the_client_in_the_same_turn():
    server, client = MemoryTransport.pair()
    at_server, at_client = Ear(), Ear()
    await server.open(at_server)
    await client.open(at_client)
    for end in (server, client):
        end.send([b"1", b"2"])
        end.send([b"3"])
    assert (at_server.frames, at_client.frames) == ([], [b"1", b"2", b"3"])
    await turn()

    assert at_server.frames == [b"1", b"2", b"3"]


async def test_frames_before_open_are_delivered_later():
    one, other = MemoryTransport.pair()
    await one.open(Ear())
    one.send([b"early"])
    await turn()
    ear = Ear()
    await other.open(ear)

    assert ear.frames == [b"early"]


async def test_close_notifies_the_other_end_once():
    one, other = MemoryTransport.pair()
    ours, theirs = Ear(), Ear()
    await one.open(ours)
    await other.open(theirs)
    one.send([b"last words"])
    await one.close()
    await one.close()
    await turn()

    assert theirs.frames == [b"last words"]
    assert [type(loss) for loss in theirs.losses] == [ConnectionClosed]
    assert ours.losses == []


async def test_frames_sent_after_the_end_are_dropped():
    one, other = MemoryTransport.pair()
    ours, theirs = Ear(), Ear()
    await one.open(ours)
    await other.open(theirs)
    await one.close()
    one.send([b"too late"])
    other.send([b"nobody is here"])
    await turn()

    assert (ours.frames, theirs.frames) == ([], [])


async def test_open_fails_when_the_other_end_is_closed():
    one, other = MemoryTransport.pair()
    await one.close()
    await turn()
    with pytest.raises(ConnectionClosed):
        await other.open(Ear())
