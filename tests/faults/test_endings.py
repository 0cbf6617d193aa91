"""How server processes end: R-33 and R-34 (none survives), R-35 and R-26 (errors name causes)."""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from interlock.client import Client
from interlock.errors import InterlockError, ServerExited
from interlock.transports import process

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]
SERVERS = Path(__file__).parents[1] / "servers"


async def processes_of(client: Client) -> list[int]:
    """Return the process ids of the server and its grandchildren, as it reports them."""
    ids: list[int] = json.loads((await client.call_tool("surroundings")).text)["processes"]
    return ids


def alive(ids: Iterable[int]) -> list[int]:
    return [id for id in ids if _state(id) not in ("", "Z")]


def wait_for_end(pidfds: Iterable[int]) -> None:
    """Wait until processes have exited, and close their pidfds."""
    for pidfd in pidfds:
        select.select([pidfd], [], [])
        os.close(pidfd)


def _state(id: int) -> str:
    try:
        return Path(f"/proc/{id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


# Closing


async def test_close_ends_the_grandchildren_of_a_server_that_exits_itself(evil: Evil):
    client = evil("grandchildren")
    await client.open()
    ids = await processes_of(client)
    await client.close()

    assert alive(ids) == []


async def test_close_returns_early_if_the_server_exits_at_end_of_input(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "EOF_PATIENCE", 3600.0)
    client = evil()
    await client.open()
    await client.close()


async def test_cancelling_close_kills_the_server_and_its_children_at_once(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    """A program that exits cancels all of its tasks, also the one that stops the server."""
    monkeypatch.setattr(process, "EOF_PATIENCE", 3600.0)
    waits, is_set_within = asyncio.Event(), process._is_set_within

    async def noted(*arguments: Any) -> bool:
        waits.set()
        return await is_set_within(*arguments)

    monkeypatch.setattr(process, "_is_set_within", noted)
    client = evil("stay", "grandchildren")
    await client.open()
    pidfds = [os.pidfd_open(id) for id in await processes_of(client)]
    before = asyncio.all_tasks()
    closing = asyncio.create_task(client.close())
    await waits.wait()
    ending = asyncio.all_tasks() - before - {closing}
    for task in ending:
        task.cancel()
    await asyncio.gather(closing, *ending, return_exceptions=True)

    wait_for_end(pidfds)


# Exits


async def test_answer_sent_before_the_server_exits_is_received(evil: Evil):
    """The client may receive the answer and the exit at the same time."""
    answer = '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"last"}]}}'
    async with evil() as client:
        first = asyncio.create_task(client.call_tool("mute"))
        await asyncio.sleep(0)
        said = asyncio.create_task(client.call_tool("say", {"lines": [answer]}))
        died = asyncio.create_task(client.call_tool("exit", {"code": 0}))
        await asyncio.gather(said, died, return_exceptions=True)

        assert (await first).text == "last"
        assert isinstance(said.exception(), ServerExited)


async def test_loss_is_reported_once_and_not_on_close(evil: Evil):
    losses: list[InterlockError] = []
    async with evil(on_loss=losses.append) as client:
        pass
    assert losses == []

    async with evil(on_loss=losses.append) as client:
        with pytest.raises(ServerExited):
            await client.call_tool("exit", {"code": 1})
    assert [type(loss) for loss in losses] == [ServerExited]


async def test_client_can_be_reopened_after_its_server_exited(evil: Evil):
    """R-26, for a client."""
    client = evil()
    async with client:
        with pytest.raises(ServerExited):
            await client.call_tool("exit", {"code": 1})
    async with client:
        assert (await client.call_tool("echo", {"text": "again"})).text == "again"


# Starting
