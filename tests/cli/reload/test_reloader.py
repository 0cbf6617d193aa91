"""`interlock run --reload`: what a client and the author see when the file changes."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import Client
from interlock.errors import InterlockError, RemoteError
from interlock.text.redaction import Redactor
from interlock.transports.trace import Note

pytestmark = pytest.mark.slow("starts programs")
INTERLOCK = str(Path(sys.executable).with_name("interlock"))
SERVER = """
import os
import words
from interlock import Server

server = Server("live")

@server.tool
async def version() -> int:
    return VERSION

@server.tool
async def word() -> str:
    return words.WORD

@server.tool
async def leave() -> None:
    os._exit(3)

@server.tool
def processes() -> list[int]:
    return [os.getpid(), os.getppid()]
"""


class Live:
    """A file that is served, and its client.

    Attributes:
        changes: What the client was notified of.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "live.py"
        self.words = folder / "words.py"
        self.words.write_text("WORD = 'first'\n")
        self.changes: asyncio.Queue[str] = asyncio.Queue()
        self.redactor = Redactor()
        self.stderr: asyncio.Queue[str] = asyncio.Queue()
        self.write(1)

    def write(self, version: int, more: str = "") -> None:
        self.path.write_text(SERVER.replace("VERSION", str(version)) + more)

    def client(self, revision: str = "auto") -> Client:
        command = (INTERLOCK, "run", "--reload", str(self.path))
        return Client.stdio(
            *command, revision=revision, on_list_changed=self.changes.put_nowait, trace=self
        )

    def sent(self, frame: bytes) -> None:
        """Do nothing: only stderr is read."""

    received = sent

    def noted(self, kind: Note, text: str) -> None:
        if kind == "stderr":
            self.stderr.put_nowait(text)

    async def printed(self, end: str) -> str:
        """Return what is printed until a text that ends with `end`."""
        text = ""
        while not text.endswith(end):
            text += await self.stderr.get()
        return text

    async def changed(self) -> None:
        """Wait for a notification of the tools."""
        while await self.changes.get() != "tools":
            pass


@pytest.fixture
def live(home: Path) -> Live:
    return Live(home)


async def value(client: Client, tool: str) -> str:
    return (await client.call_tool(tool)).text


@pytest.mark.parametrize("revision", ["auto", "2025-11-25"])
async def test_changed_file_is_served_on_the_same_connection_and_a_wrong_one_is_not(
    live: Live, revision: str
):
    async with live.client(revision) as client:
        assert await value(client, "version") == "1"
        live.write(2, "@server.tool\ndef added() -> str:\n    return 'new'\n")
        await live.changed()

        assert "added" in [each.name for each in await client.list_tools()]
        assert [await value(client, "version"), await value(client, "added")] == ["2", "new"]

        live.write(3, "def wrong(:\n")
        printed = await live.printed(
            "is not reloaded; the server from before the change stays up\n"
        )
        assert re.search(rf"error: {live.path}, line \d+: invalid syntax", printed)
        assert [await value(client, "version"), await value(client, "added")] == ["2", "new"]

        live.write(4)
        await live.changed()
        assert [await value(client, "version"), await value(client, "word")] == ["4", "first"]

        live.words.write_text("WORD = 'other'\n")  # of the same length, within the same second
        await live.changed()
        assert await value(client, "word") == "other"


async def test_server_that_exits_is_started_again_and_its_calls_fail_with_the_reason(live: Live):
    async with live.client() as client:
        with pytest.raises(RemoteError, match="ended during the request: it exited with code 3"):
            await client.call_tool("leave")
        assert await value(client, "version") == "1"


async def test_file_that_is_wrong_from_the_start_is_refused_with_its_line(live: Live):
    live.write(1, "def wrong(:\n")
    with pytest.raises(InterlockError, match=r"live.py, line \d+: invalid syntax"):
        await live.client().open()


async def test_address_over_http_stays_and_is_served_until_sigint(
    live: Live, program: Callable[..., subprocess.Popen[str]]
):
    ran = program("run", live.path, "--reload", "--http", "127.0.0.1:0")
    assert ran.stderr is not None
    url = ran.stderr.readline().split()[-1]
    async with Client(url) as client:
        assert await value(client, "version") == "1"
    live.write(2)
    assert ran.stderr.readline() == f"reloaded {live.path}\n"
    async with Client(url) as client:
        assert await value(client, "version") == "2"
        [server, _] = (await client.call_tool("processes")).structured
        last = os.pidfd_open(server)
    ran.send_signal(signal.SIGINT)

    assert ran.wait() == 128 + signal.SIGINT
    select.select([last], [], [])  # returns once the process has ended
    os.close(last)


async def test_killed_parent_takes_the_server_with_it(live: Live):
    client = live.client()
    await client.open()
    [server, parent] = (await client.call_tool("processes")).structured
    last = os.pidfd_open(server)
    os.kill(parent, signal.SIGKILL)

    await asyncio.to_thread(select.select, [last], [], [])
    os.close(last)
    await client.close()
