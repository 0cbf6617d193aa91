"""A server in a real process: only protocol on stdout, and an end in time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import Client

NOISY = str(Path(__file__).parents[1] / "servers" / "noisy.py")
# Output from before `run` would reach stdout, where only protocol is allowed.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


class Process:
    """A server process, with lines to and from it."""

    def __init__(self, notes: Path, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._notes = notes
        self._last_id = 0

    def send(self, method: str, params: dict[str, Any] | None = None) -> None:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        self._last_id += 1
        message = {
            "jsonrpc": "2.0",
            "id": self._last_id,
            "method": method,
            "params": {**(params or {}), "_meta": meta},
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> Any:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        return json.loads(line)

    async def refuses(self) -> None:
        """Wait until the server refuses requests."""
        answer: dict[str, Any] = {}
        while "error" not in answer:
            self.send("tools/list")
            answer = await self.receive()

    async def noted(self, event: str) -> None:
        """Wait until the server has noted it."""
        while event not in self.notes():  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.005)

    def notes(self) -> list[str]:
        return self._notes.read_text().split() if self._notes.exists() else []

    async def ended(self) -> int:
        """Wait for the end; return the exit code."""
        return await self.process.wait()

    async def rest(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.read()


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    started: list[Process] = []

    async def start() -> Process:
        notes = tmp_path / "notes"
        with (tmp_path / "stderr").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                NOISY,
                notes,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=BUFFERED,
                limit=8_000_000,
            )
        started.append(Process(notes, process))
        started[-1].send("server/discover")
        await started[-1].receive()
        return started[-1]

    yield start
    for each in started:
        if each.process.returncode is None:
            each.process.kill()
            await each.process.wait()
        each.process._transport.close()  # type: ignore[attr-defined]  # asyncio has no other way


@pytest.mark.slow("works through much data")
async def test_stdout_carries_only_protocol_whatever_writes_to_it(start, tmp_path: Path):
    server = await start()
    server.send("tools/call", {"name": "shout"})
    answer = await server.receive()
    server.process.stdin.close()
    await server.ended()

    assert answer["result"]["content"] == [{"type": "text", "text": "''b''"}]  # stdin is empty, too
    assert await server.rest() == b""
    log = (tmp_path / "stderr").read_text()
    for words in (
        "printed before running",
        "printed by the lifespan",
        "printed\n",
        "written",
        "to the descriptor",
        "by a child",
        "by a C library",
    ):
        assert words in log


@pytest.mark.slow("works through much data")
@pytest.mark.parametrize("tool", ["wait", "block"])
async def test_the_end_of_stdin_ends_the_server_at_once(start, tool):
    server = await start()
    server.send("tools/call", {"name": tool})
    await server.noted("waiting")
    server.process.stdin.close()

    assert await server.ended() == 0
    assert server.notes()[-2:] == ["left", "over"]
    assert ("cancelled" in server.notes()) == (tool == "wait")


@pytest.mark.slow("works through much data")
async def test_sigterm_lets_running_requests_end_and_refuses_new_ones(start, tmp_path):
    server = await start()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert (await server.receive())["method"] == "notifications/subscriptions/acknowledged"
    server.send(
        "tools/call", {"name": "after", "arguments": {"pipe": str(gate), "size": 3_000_000}}
    )
    await server.noted("waiting")
    server.process.send_signal(signal.SIGTERM)
    cancelled, ended = await server.receive(), await server.receive()
    server.send("tools/call", {"name": "shout"})
    refused = await server.receive()
    await asyncio.to_thread(gate.write_bytes, b"go")
    answer = await server.receive()
    code = await server.ended()

    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"] == {"requestId": 2}
    assert (ended["id"], ended["result"]["resultType"]) == (2, "complete")
    assert refused["error"]["message"] == "the server is shutting down; connect again later"
    assert len(answer["result"]["content"][0]["text"]) == 3_000_000
    assert code == 0
    assert server.notes() == ["entered", "waiting", "left", "over"]
    assert await server.rest() == b""


@pytest.mark.slow("works through much data")
@pytest.mark.parametrize("signs", [[signal.SIGTERM] * 2, [signal.SIGINT]], ids=["TERM", "INT"])
async def test_a_second_sigterm_ends_the_server_at_once(start, signs):
    server = await start()
    server.send("tools/call", {"name": "wait"})
    await server.noted("waiting")
    for sign in signs[:-1]:
        server.process.send_signal(sign)
        await server.refuses()
    server.process.send_signal(signs[-1])

    assert await server.ended() == 0
    assert server.notes() == ["entered", "waiting", "cancelled", "left", "over"]
    assert await server.rest() == b""  # cancelled requests are not answered


async def test_server_exits_after_its_client_is_killed(tmp_path: Path):
    client = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE,"
        "stdout=subprocess.PIPE, stderr=subprocess.DEVNULL); print(p.pid, flush=True);"
        "time.sleep(60)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", client, NOISY, str(tmp_path / "notes"), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    server = int(await process.stdout.readline())
    notes = Process(tmp_path / "notes", process)
    await notes.noted("entered")
    process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]  # asyncio has no other way

    await notes.noted("over")
    while is_running(server):  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.005)


def is_running(id: int) -> bool:
    try:
        return Path(f"/proc/{id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_eight_megabytes_go_both_ways_at_once():
    text = "x" * 8_000_000
    async with Client.stdio(sys.executable, NOISY) as client:
        taken, given, mirrored = await asyncio.gather(
            client.call_tool("size", {"text": text}),
            client.call_tool("big", {"size": 8_000_000}),
            client.call_tool("mirror", {"text": text}),
        )

    assert taken.text == "8000000"
    assert len(given.text) == 8_000_000
    assert mirrored.text == text


async def test_text_is_utf8_whatever_the_locale_says():
    text = "Grüezi, 世界 \u2028 \U0001f600"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    async with Client.stdio(sys.executable, NOISY, env=locale) as client:
        assert (await client.call_tool("mirror", {"text": text})).text == text
        assert (await client.call_tool("shout")).text == "''b''"
        assert (await client.call_tool("headers")).structured == []


@pytest.mark.slow("starts a program")
async def test_input_that_ends_right_after_the_requests_is_still_answered():
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        NOISY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=BUFFERED,
    )
    told = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": told},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    out, _ = await process.communicate(
        b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    )

    assert [json.loads(line)["id"] for line in out.splitlines()] == [1, 2]
