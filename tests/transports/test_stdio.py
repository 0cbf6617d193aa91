from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from interlock.errors import ConnectionClosed, InterlockError, MessageTooLarge, ServerExited
from interlock.transports import process, stdio
from interlock.transports.stdio import StdioTransport, diagnostics
from tests.support.rows import each_row
from tests.transports.support import Uncopied

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Ear:
    """Keeps what it is told, and can be waited for."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost: asyncio.Future[InterlockError] = asyncio.get_running_loop().create_future()
        self.heard = asyncio.Event()

    def frames_received(self, frames: list[bytes]) -> None:
        self.frames += frames
        self.heard.set()

    async def settle(self, timeout: float) -> None:
        pass

    def connection_lost(self, error: InterlockError) -> None:
        self.lost.set_result(error)  # which may be done only once

    async def first(self, count: int) -> list[bytes]:
        while len(self.frames) < count:
            self.heard.clear()
            await self.heard.wait()
        return self.frames


def shell(script: str, **options: int) -> StdioTransport:
    return StdioTransport(["sh", "-c", script], **options)


async def test_frames_are_sent_and_received_as_lines():
    transport, ear = shell("cat"), Ear()
    await transport.open(ear)
    transport.send([b"1", b"2"])
    transport.send([b"3"])

    assert await ear.first(3) == [b"1", b"2", b"3"]
    await transport.close()
    assert not ear.lost.done()


@pytest.mark.slow("starts a program")
async def test_sending_does_not_block_and_keeps_the_order():
    transport, ear = shell("read -r first; exec cat"), Ear()
    await transport.open(ear)
    frames = [b"%d:" % each + b"x" * 300_000 for each in range(40)]
    for frame in [b"go", *frames]:
        transport.send([frame])
    try:
        assert await ear.first(40) == frames
    finally:
        await transport.close()


@pytest.mark.slow("starts a program")
async def test_server_that_never_reads_is_disconnected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "MAX_UNSENT_BYTES", 2 * 2**20)
    transport, ear = shell("exec sleep 100"), Ear()
    await transport.open(ear)
    transport.send([b"x" * 4 * 2**20])  # one message may be as long as it likes
    await asyncio.sleep(0)
    assert not ear.lost.done()
    transport.send([b"y"])
    error = await ear.lost

    assert str(error) == "'sh' does not read its stdin (over 2 MiB are waiting)"
    await transport.close()
    assert not transport._unsent


@pytest.mark.slow("starts a program")
async def test_bytes_that_were_read_do_not_count_for_the_limit(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(stdio, "MAX_UNSENT_BYTES", 2 * 2**20)
    script = f"head -c {8 * 2**20} > /dev/null; echo read; exec sleep 100"
    transport, ear = shell(script), Ear()
    await transport.open(ear)
    transport.send([b"x" * (8 * 2**20 - 1)])
    await ear.first(1)
    transport.send([b"x" * (3 * 2**19)])  # more than the pipe takes
    assert transport._unsent
    transport.send([b"y"])
    await asyncio.sleep(0)
    assert not ear.lost.done()
    await transport.close()


async def test_exit_is_reported_after_the_last_line_with_code_and_stderr():
    transport, ear = shell("echo said; echo why >&2; exit 4"), Ear()
    await transport.open(ear)
    error = await ear.lost

    assert ear.frames == [b"said"]
    assert isinstance(error, ServerExited)
    assert (error.code, error.stderr) == (4, "why\n")
    assert str(error) == "'sh' exited with code 4: why"
    await transport.close()


@each_row(
    ("said", "words"),
    [("no key in KEY", ": no key in KEY"), ('{"jsonrpc":"2.0"}', ""), ("[]", "")],
)
async def test_last_line_of_stdout_is_reported_when_stderr_is_empty(said: str, words: str):
    transport, ear = shell(f"echo '{said}'; exit 4"), Ear()
    await transport.open(ear)
    error = await ear.lost

    assert str(error) == f"'sh' exited with code 4{words}"
    await transport.close()


async def test_incomplete_line_at_the_end_is_dropped():
    transport, ear = shell("echo whole; printf half"), Ear()
    await transport.open(ear)
    await ear.lost

    assert ear.frames == [b"whole"]
    await transport.close()


async def test_no_frames_are_delivered_after_a_line_that_is_too_long():
    transport = shell("echo 12345678901; echo 1; exec cat", max_frame_bytes=10)
    ear = Ear()
    await transport.open(ear)
    error = await ear.lost
    transport.send([b"dropped"])
    await transport.close()

    assert isinstance(error, MessageTooLarge)
    assert ear.frames == []


@pytest.mark.slow("starts a program")
async def test_a_closed_output_is_a_loss_even_if_the_server_lives():
    transport, ear = shell("exec >&-; exec sleep 100"), Ear()
    await transport.open(ear)
    error = await ear.lost

    assert type(error) is ConnectionClosed
    await transport.close()


@pytest.mark.slow("starts a program")
async def test_a_closed_input_is_a_loss_when_something_is_sent():
    transport, ear = shell("exec <&-; echo ready; exec sleep 100"), Ear()
    await transport.open(ear)
    await ear.first(1)
    transport.send([b"x"])
    transport.send([b"y"])
    error = await ear.lost

    assert type(error) is ConnectionClosed
    await transport.close()


async def test_frames_after_close_are_dropped():
    transport, ear = shell("cat"), Ear()
    await transport.open(ear)
    await asyncio.gather(*(transport.close() for _ in range(3)))
    transport.send([b"late"])
    await transport.close()

    assert ear.frames == []
    assert not ear.lost.done()


@pytest.mark.slow("starts a program")
async def test_a_close_that_is_cancelled_still_lets_the_server_leave_by_itself(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(process, "TERM_PATIENCE", 60.0)
    transport, ear = shell("trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done"), Ear()
    await transport.open(ear)
    await ear.first(1)
    closing = asyncio.ensure_future(transport.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    await transport.close()

    assert transport._process is not None
    assert transport._process.code == 9


@pytest.mark.slow("starts a program")
def test_server_is_ended_if_the_event_loop_ends_before_the_closing_has_begun():
    async def begin_to_close() -> asyncio.Future[None]:
        await transport.open(Ear())
        return asyncio.ensure_future(transport.close())

    transport = shell("exec sleep 100")
    closing = asyncio.run(begin_to_close())

    assert closing.cancelled()
    assert transport._process is not None
    assert transport._process.code == -signal.SIGKILL


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize("ignores_term", [False, True])
async def test_server_that_has_to_be_killed_is_logged_as_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ignores_term: bool
):
    monkeypatch.setattr(process, "TERM_PATIENCE", 0.01 if ignores_term else 60.0)
    trap = "trap '' TERM; " if ignores_term else ""
    transport, ear = shell(f"{trap}echo ready; while :; do sleep 0.01; done"), Ear()
    monkeypatch.setattr(process, "EOF_PATIENCE", 0.01)
    await transport.open(ear)
    await ear.first(1)
    await transport.close()

    killed = "'sh' had to be killed: it did not exit when asked to"
    assert [each.message for each in caplog.records] == ([killed] if ignores_term else [])


@pytest.mark.slow("starts a program")
async def test_close_stops_watching_all_pipes():
    transport, ear = shell("echo ready; exec sleep 100"), Ear()
    await transport.open(ear)
    await ear.first(1)
    transport.send([b"x" * 2 * 2**20])
    process, loop = transport._process, asyncio.get_running_loop()
    assert process is not None
    assert transport._unsent
    await transport.close()

    assert not loop.remove_writer(process.stdin)
    assert not loop.remove_reader(process.stdout)
    assert not loop.remove_reader(process.stderr)


async def test_pipe_that_never_empties_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch):
    """A process that the server left may write for ever."""
    reads = 0

    def read(_: int) -> bytes:
        nonlocal reads
        reads += 1
        assert reads < 100
        return b"x" * 1000 + b"\n"

    transport, ear = shell("exec cat"), Ear()
    await transport.open(ear)
    with monkeypatch.context() as patched:
        patched.setattr(transport, "_read_pipe", read)
        transport._on_exit()
    error = await ear.lost

    assert type(error) is ConnectionClosed
    await transport.close()


async def test_a_transport_that_was_never_opened_closes():
    transport = StdioTransport([sys.executable])
    await transport.close()

    assert transport.process_id is None


async def test_only_the_end_of_stderr_is_kept_and_bytes_that_are_no_text_are_marked():
    script = "head -c 1000000 /dev/zero | tr '\\0' e >&2; printf '\\377 end' >&2"
    transport, ear = shell(script), Ear()
    await transport.open(ear)
    await ear.lost

    assert len(transport.stderr) <= 256 * 1024
    assert transport.stderr.endswith("eee\ufffd end")
    await transport.close()


async def test_frames_that_cannot_be_joined_in_memory_are_written_in_order():
    transport, ear = shell("cat"), Ear()
    await transport.open(ear)
    for frames in ([b"first"], Uncopied([b"one", b"two"]), [b"last"]):
        transport.send(frames)

    assert await ear.first(4) == [b"first", b"one", b"two", b"last"]
    await transport.close()


@pytest.mark.parametrize("script", ["echo x; exec cat", "echo x"], ids=["running", "gone"])
async def test_memory_error_while_reading_ends_the_connection(
    script: str, monkeypatch: pytest.MonkeyPatch
):
    transport, ear = shell(script), Ear()

    def feed(data: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(transport._lines, "feed", feed)
    await transport.open(ear)
    assert isinstance(await ear.lost, ConnectionClosed)
    await transport.close()


NODE = """\
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/srv/index.js'
Require stack: none
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at Module._load (node:internal/modules/cjs/loader:1038:27) {
  code: 'MODULE_NOT_FOUND'
}

Node.js v20.20.2
"""
PYTHON = """\
Traceback (most recent call last):
  File "a.py", line 2, in <module>
KeyError: 'token'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 4, in <module>
acme.errors.ConfigError: no token
  in [server]

sys:1: RuntimeWarning: coroutine 'serve' was never awaited
"""
NPM = """\
npm error code E404
npm error 404 Not Found - GET some-server
npm error A complete log of this run can be found in: /root/.npm/_logs/debug-0.log
"""
UV = """\
error: No solution found when resolving tool dependencies
  cause: Because some-server was not found in the package registry
hint: Consider another index
"""
RUST = """\
thread 'main' panicked at src/main.rs:3:5:
no token
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
GO = """\
panic: no token

goroutine 1 [running]:
main.main()
"""


@each_row(
    ("stderr", "words"),
    [
        ("", ""),
        ("\n \n", ""),
        ("starting\ncannot reach it\n\n", "cannot reach it"),
        (NODE, "Error: Cannot find module '/srv/index.js' Require stack: none"),
        (PYTHON, "acme.errors.ConfigError: no token in [server]"),
        ("TypeError [ERR_X]: bad\n    at f\n", "TypeError [ERR_X]: bad"),
        (GO, "panic: no token"),
    ],
)
def test_diagnostics_returns_the_error_without_later_lines(stderr: str, words: str):
    assert diagnostics(stderr) == words


@each_row(
    ("stderr", "words"),
    [
        (NPM, "npm error code E404 npm error 404 Not Found - GET some-server"),
        (UV, "tool dependencies cause: Because some-server was not found"),
        (RUST, "panicked at src/main.rs:3:5: no token"),
    ],
)
def test_diagnostics_joins_an_error_of_several_lines(stderr: str, words: str):
    assert words in diagnostics(stderr)


def test_diagnostics_ignores_an_earlier_error():
    assert diagnostics("ValueError: old\n" + "working\n" * 100) == "working"


def test_diagnostics_has_no_colours():
    assert diagnostics("\x1b[32mINFO\x1b[39m \x1b[1;36mno token\x1b[0m\n") == "INFO no token"
    assert diagnostics("\x1b[31mError: no\x1b[0m\nbye\n") == "Error: no bye"


def test_diagnostics_has_at_most_300_characters():
    assert diagnostics("Error: " + "x" * 1000) == "Error: " + "x" * 293
