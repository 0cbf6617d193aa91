"""The server's end of stdio: lines on descriptors, whatever these are."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.errors import ConnectionClosed, InterlockError, MessageTooLarge
from interlock.transports import pipes
from interlock.transports.pipes import PipeTransport
from tests.transports.support import Uncopied


class Receiver:
    """Keeps what comes, and lets a test wait for it."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.lost: asyncio.Future[InterlockError] = asyncio.get_running_loop().create_future()

    def frames_received(self, frames: list[bytes]) -> None:
        for frame in frames:
            self.frames.put_nowait(frame)

    async def settle(self, timeout: float) -> None:
        pass

    def connection_lost(self, error: InterlockError) -> None:
        self.lost.set_result(error)

    async def next(self) -> bytes:
        return await self.frames.get()

    async def end(self) -> InterlockError:
        return await asyncio.shield(self.lost)


class Ends:
    """A transport between two pipes, and the client's ends of them."""

    def __init__(self) -> None:
        self.source, self.write = os.pipe()
        self.read, self.target = os.pipe()
        self.transport = PipeTransport(self.source, self.target, max_frame_bytes=1_000_000)

    def close(self, *names: str) -> None:
        for name in names or ("source", "write", "read", "target"):
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    def read_all(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += os.read(self.read, 1 << 20)
        return data


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


async def test_lines_are_received_and_sent(ends: Ends):
    receiver = Receiver()
    await ends.transport.open(receiver)
    os.write(ends.write, b'{"a":1}\r\n\n{"b"')
    assert await receiver.next() == b'{"a":1}'
    os.write(ends.write, b":2}\n")
    assert await receiver.next() == b'{"b":2}'
    ends.transport.send([b"one", b"two"])
    await ends.transport.close()

    assert os.read(ends.read, 100) == b"one\ntwo\n"


async def test_end_of_input_is_reported_once(ends: Ends):
    receiver = Receiver()
    await ends.transport.open(receiver)
    ends.close("write")

    assert isinstance(await receiver.end(), ConnectionClosed)
    ends.transport.send([b"late"])  # dropped
    await ends.transport.close()
    await ends.transport.close()


async def test_a_line_over_the_limit_ends_the_connection(ends: Ends):
    receiver = Receiver()
    await ends.transport.open(receiver)
    # The rest after the limit fits into the pipe, so the writing ends.
    writing = asyncio.to_thread(os.write, ends.write, b"x" * 1_001_000)

    _, error = await asyncio.gather(writing, receiver.end())

    assert isinstance(error, MessageTooLarge)


async def test_large_output_is_written_while_reading_continues(ends: Ends):
    receiver = Receiver()
    await ends.transport.open(receiver)
    frames = [b"%d" % number * 1_000_00 for number in range(1, 9)]
    size = sum(map(len, frames)) + len(frames)

    for frame in frames:
        ends.transport.send([frame])  # far more than a pipe holds
    os.write(ends.write, b"meanwhile\n")
    assert await receiver.next() == b"meanwhile"
    data = await asyncio.to_thread(ends.read_all, size)

    assert data == b"".join(frame + b"\n" for frame in frames)
    await ends.transport.close()


async def test_closed_output_is_a_loss(ends: Ends):
    receiver = Receiver()
    await ends.transport.open(receiver)
    ends.close("read")
    ends.transport.send([b"into nothing"])

    assert "closed its end of stdout" in str(await receiver.end())


async def test_output_closed_with_unsent_data_is_a_loss(ends: Ends):
    receiver = Receiver()
    await ends.transport.open(receiver)
    ends.transport.send([b"x" * 1_000_000])
    ends.close("read")

    assert "closed its end of stdout" in str(await receiver.end())


async def test_client_that_does_not_read_is_disconnected_at_a_limit(ends: Ends, monkeypatch):
    monkeypatch.setattr(pipes, "MAX_UNSENT_BYTES", 500_000)
    receiver = Receiver()
    await ends.transport.open(receiver)
    for _ in range(10):
        ends.transport.send([b"x" * 200_000])

    error = await receiver.end()

    assert str(error) == "the client does not read (500,000 bytes are waiting)"


async def test_written_bytes_do_not_count_for_the_limit(ends: Ends, monkeypatch):
    monkeypatch.setattr(pipes, "MAX_UNSENT_BYTES", 500_000)
    receiver = Receiver()
    await ends.transport.open(receiver)
    for _ in range(10):
        ends.transport.send([b"x" * 400_000])
        await asyncio.to_thread(ends.read_all, 400_001)

    assert not receiver.lost.done()
    await ends.transport.close()


async def test_close_waits_until_all_is_written(ends: Ends):
    await ends.transport.open(Receiver())
    ends.transport.send([b"x" * 1_000_000])
    closing = asyncio.create_task(ends.transport.close())
    os.write(ends.write, b"not read any more\n")
    data = await asyncio.to_thread(ends.read_all, 1_000_001)
    await closing

    assert data == b"x" * 1_000_000 + b"\n"
    ends.transport.send([b"late"])  # dropped
    ends.close("target")
    assert os.read(ends.read, 100) == b""
    assert os.read(ends.source, 100) == b"not read any more\n"


@pytest.mark.parametrize("leaves", [True, False])
async def test_close_waits_a_limited_time_for_a_client_that_does_not_read(
    ends: Ends, leaves: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pipes, "WRITE_PATIENCE", 60.0 if leaves else 0.01)
    await ends.transport.open(Receiver())
    ends.transport.send([b"x" * 1_000_000])
    closing = asyncio.create_task(ends.transport.close())
    await asyncio.sleep(0)
    if leaves:
        ends.close("read")

    await closing
    assert not ends.transport._unsent


async def test_a_cancelled_close_stops_writing(ends: Ends):
    await ends.transport.open(Receiver())
    ends.transport.send([b"x" * 1_000_000])
    closing = asyncio.create_task(ends.transport.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])

    assert closing.cancelled()
    assert not asyncio.get_running_loop().remove_writer(ends.target)


async def test_input_from_a_file_is_read_to_its_end(tmp_path: Path, ends: Ends):
    file = tmp_path / "input"
    file.write_bytes(b"one\ntwo\nwithout newline")
    source = os.open(file, os.O_RDONLY)
    receiver = Receiver()
    transport = PipeTransport(source, ends.target)
    try:
        await transport.open(receiver)
        assert await receiver.next() == b"one"
        assert await receiver.next() == b"two"
        assert isinstance(await receiver.end(), ConnectionClosed)
        await transport.close()
    finally:
        os.close(source)


@pytest.mark.slow("works through much data")
async def test_input_file_is_read_no_faster_than_its_messages_are_handled(
    tmp_path: Path, ends: Ends
):
    """R-118."""
    file = tmp_path / "input"
    file.write_bytes(b"line\n" * 1_000_000)
    source = os.open(file, os.O_RDONLY)
    receiver = Receiver()
    transport = PipeTransport(source, ends.target)
    before = set(threading.enumerate())
    try:
        await transport.open(receiver)
        (reading,) = set(threading.enumerate()) - before
        while not os.lseek(source, 0, os.SEEK_CUR):
            reading.join(0.001)  # it has not begun
        reading.join(0.1)  # nothing is taken in this time
        assert os.lseek(source, 0, os.SEEK_CUR) == pipes._READ_BYTES
        assert isinstance(await receiver.end(), ConnectionClosed)
        assert receiver.frames.qsize() == 1_000_000
    finally:
        os.close(source)


async def test_output_to_a_file_is_written(tmp_path: Path, ends: Ends):
    file = tmp_path / "output"
    target = os.open(file, os.O_WRONLY | os.O_CREAT)
    transport = PipeTransport(ends.source, target)
    try:
        await transport.open(Receiver())
        transport.send([b"x" * 1_000_000])
        await transport.close()
    finally:
        os.close(target)

    assert file.stat().st_size == 1_000_001


async def test_frames_that_cannot_be_joined_in_memory_are_written_in_order(ends: Ends):
    await ends.transport.open(Receiver())
    ends.transport.send([b"first"])
    ends.transport.send(Uncopied([b"one", b"two"]))
    ends.transport.send([b"last"])
    await ends.transport.close()

    assert os.read(ends.read, 100) == b"first\none\ntwo\nlast\n"


async def test_memory_error_while_reading_ends_the_connection(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
):
    receiver = Receiver()
    await ends.transport.open(receiver)

    def feed(data: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(ends.transport._lines, "feed", feed)
    os.write(ends.write, b"x\n")
    error = await receiver.end()
    assert str(error) == "out of memory while receiving from the client"
    assert isinstance(error, ConnectionClosed)
