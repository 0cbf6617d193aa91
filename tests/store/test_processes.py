"""Several processes at one database, and processes that die at any moment."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic

from interlock.messages import AssistantMessage, ToolMessage
from interlock.store import Store

CROWD = Path(__file__).with_name("crowd.py")


def crowd(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, CROWD, *map(str, arguments)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


async def test_eight_processes_start_at_one_new_database(place: str):
    crowd("start", place, 8)

    async with Store.open(place) as store:
        assert len(await store.list()) == 8


async def test_eight_processes_upgrade_one_old_database(old_place: str):
    crowd("start", old_place, 8)

    async with Store.open(old_place) as store:
        assert len(await store.list()) == 9


async def test_eight_processes_append_to_one_conversation(place: str):
    async with Store.open(place) as store:
        made = await store.create()
        crowd("append", place, made.id, 8, 25)
        messages = await store.messages(made.id)
        closed = await store.resume(made.id)

    assert messages == closed  # so each pair is together
    seen = [message.content for message in messages if isinstance(message, ToolMessage)]
    assert len(seen) == 200
    for writer in range(8):
        own = [content for content in seen if content.startswith(f"{writer}-")]
        assert own == [f"{writer}-{index}" for index in range(25)]


@contextmanager
def mortals(place: str, id: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(CROWD), "mortal", place, id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        yield parent
        parent.stdin.close()
        assert parent.wait(10) == 0


def kill_one(parent: subprocess.Popen[bytes], dice: random.Random) -> set[str]:
    """Start a child, kill it at some moment of its work, return what was acknowledged."""
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    output = parent.stdout.fileno()
    pid = int(_line(output))
    acknowledged = [_line(output) for _ in range(dice.randrange(5))]
    moment = monotonic() + dice.random() * 0.004
    while (left := moment - monotonic()) > 0 and select.select([output], [], [], left)[0]:
        acknowledged.append(_line(output))
    os.kill(pid, signal.SIGKILL)
    return {f"{pid}-{index}" for index in acknowledged}


def _line(output: int) -> str:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(output, 1)
    return line.decode().strip()


async def test_twenty_kills_lose_nothing_that_was_acknowledged(place: str):
    async with Store.open(place) as store:
        made = await store.create()
    acknowledged: set[str] = set()
    dice = random.Random(1)

    with mortals(place, made.id) as parent:
        for _ in range(20):
            acknowledged |= kill_one(parent, dice)

    async with Store.open(place) as store:
        messages = await store.messages(made.id)
        assert messages == await store.resume(made.id)  # pairs are whole or absent
    kept = {message.content for message in messages if isinstance(message, ToolMessage)}
    assert acknowledged <= kept
    if "://" not in place:
        with closing(sqlite3.connect(place)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


ASK_AND_WAIT = """
import asyncio, sys
from interlock.messages import AssistantMessage, ToolCall, UserMessage
from interlock.store import Store

async def main(place, id):
    async with Store.open(place) as store:
        calls = ToolCall("1", "clock__now"), ToolCall("2", "git__log", {"count": 3})
        await store.append(id, UserMessage("time?"), AssistantMessage("", calls))
        print("acknowledged", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


def killed_when_it_says_so(*command: str) -> None:
    with subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"acknowledged\n"
        process.kill()


async def test_a_conversation_killed_in_a_tool_call_goes_on(place: str):
    async with Store.open(place) as store:
        made = await store.create()
        killed_when_it_says_so(ASK_AND_WAIT, place, made.id)

        _, asked, *answers = await store.resume(made.id)

        assert isinstance(asked, AssistantMessage)
        assert [answer.tool_call_id for answer in answers] == [call.id for call in asked.tool_calls]
        assert all(answer.is_error for answer in answers)
        assert all(answer.content.startswith("interrupted: ") for answer in answers)
        assert await store.messages(made.id) == await store.resume(made.id)
