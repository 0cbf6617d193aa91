"""Several processes that use one database, and processes that are killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from interlock.messages import AssistantMessage, ToolMessage
from interlock.store import ConversationStore
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow("each case starts many processes")

PROGRAM = Path(__file__).with_name("many_processes.py").read_text()


def run_processes(*arguments: object) -> str:
    """Run `many_processes.py`; return its output."""
    code, output = run_forked(PROGRAM, *arguments)
    assert code == 0, output
    return output


async def test_eight_processes_can_create_one_database_at_once(new_place: str):
    run_processes("start", new_place, 8)

    async with ConversationStore.open(new_place) as store:
        assert len(await store.list()) == 8


async def test_eight_processes_can_append_to_one_conversation_at_once(place: str):
    async with ConversationStore.open(place) as store:
        made = await store.create()
        run_processes("append", place, made.id, 8, 25)
        messages = await store.messages(made.id)
        closed = await store.resume(made.id)

    assert messages == closed  # each pair is together
    seen = [message.content for message in messages if isinstance(message, ToolMessage)]
    assert len(seen) == 200
    for writer in range(8):
        own = [content for content in seen if content.startswith(f"{writer}-")]
        assert own == [f"{writer}-{index}" for index in range(25)]


async def test_killed_processes_lose_no_acknowledged_message(place: str):
    async with ConversationStore.open(place) as store:
        made = await store.create()

    acknowledged = run_processes("kill", place, made.id, 20, 1).split()

    async with ConversationStore.open(place) as store:
        messages = await store.messages(made.id)
        assert messages == await store.resume(made.id)  # no pair is incomplete
    kept = [message.content for message in messages if isinstance(message, ToolMessage)]
    assert len(set(kept)) == len(kept)
    assert set(acknowledged) <= set(kept)
    assert len(kept) <= len(acknowledged) + 20  # a child may be killed before it reports a message
    if "://" not in place:
        with closing(sqlite3.connect(place)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


ASK_AND_WAIT = """
import asyncio, sys
from interlock.messages import AssistantMessage, ToolCall, UserMessage
from interlock.store import ConversationStore

async def main(place, id):
    async with ConversationStore.open(place) as store:
        calls = ToolCall("1", "clock__now"), ToolCall("2", "git__log", {"count": 3})
        await store.append(id, UserMessage("time?"), AssistantMessage("", calls))
        print("acknowledged", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


def run_until_acknowledged(*command: str) -> None:
    with subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"acknowledged\n"
        process.kill()


async def test_a_conversation_continues_after_a_kill_in_a_tool_call(place: str):
    async with ConversationStore.open(place) as store:
        made = await store.create()
        run_until_acknowledged(ASK_AND_WAIT, place, made.id)

        _, asked, *answers = await store.resume(made.id)

        assert isinstance(asked, AssistantMessage)
        assert [answer.tool_call_id for answer in answers] == [call.id for call in asked.tool_calls]
        assert all(answer.is_error for answer in answers)
        assert all(answer.content.startswith("interrupted: ") for answer in answers)
        assert await store.messages(made.id) == await store.resume(made.id)
