"""How servers end: R-33 and R-34 (none survives), R-35 and R-26 (one that dies says why)."""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

import pytest

from interlock.client import Client
from interlock.errors import InterlockError, ServerExited
from interlock.transports import process

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]
SERVERS = Path(__file__).parents[1] / "servers"


async def processes_of(client: Client) -> list[int]:
    """Ask the server for its id and those of its grandchildren."""
    ids: list[int] = json.loads((await client.call_tool("surroundings")).text)["processes"]
    return ids


def alive(ids: Iterable[int]) -> list[int]:
    return [id for id in ids if _state(id) not in ("", "Z")]


def gone_within(seconds: float, watched: dict[int, int]) -> bool:
    """Wait for the end of processes, by id and pidfd; the kernel takes a moment for it."""
    deadline = monotonic() + seconds
    for pidfd in watched.values():
        select.select([pidfd], [], [], max(0, deadline - monotonic()))
        os.close(pidfd)
    return alive(watched) == []


def _state(id: int) -> str:
    try:
        return Path(f"/proc/{id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


# Closing


async def test_grandchildren_go_with_a_server_that_goes_by_itself(evil: Evil):
    client = evil("grandchildren")
    await client.open()
    ids = await processes_of(client)
    await client.close()

    assert alive(ids) == []


async def test_a_server_that_honours_the_end_of_input_is_not_kept_waiting(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "EOF_PATIENCE", 60.0)
    client = evil()
    await client.open()
    started = monotonic()
    await client.close()

    assert monotonic() - started < 30


async def test_cancelling_everything_kills_at_once(evil: Evil, monkeypatch: pytest.MonkeyPatch):
    """What a program's end does to all of its tasks, the one that ends the server included."""
    monkeypatch.setattr(process, "EOF_PATIENCE", 60.0)
    client = evil("stay", "grandchildren")
    await client.open()
    watched = {id: os.pidfd_open(id) for id in await processes_of(client)}
    before = asyncio.all_tasks()
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0.05)
    ending = asyncio.all_tasks() - before - {closing}
    for task in ending:
        task.cancel()
    await asyncio.gather(closing, *ending, return_exceptions=True)

    assert gone_within(20, watched)


# Dying


async def test_what_a_server_said_before_it_died_counts(evil: Evil):
    """The answer and the exit may come together."""
    answer = '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"last"}]}}'
    async with evil() as client:
        first = asyncio.create_task(client.call_tool("mute"))
        await asyncio.sleep(0)
        said = asyncio.create_task(client.call_tool("say", {"lines": [answer]}))
        died = asyncio.create_task(client.call_tool("exit", {"code": 0}))
        await asyncio.gather(said, died, return_exceptions=True)

        assert (await first).text == "last"
        assert isinstance(said.exception(), ServerExited)


async def test_the_loss_is_told_once_and_not_when_we_close(evil: Evil):
    losses: list[InterlockError] = []
    async with evil(on_loss=losses.append) as client:
        pass
    assert losses == []

    async with evil(on_loss=losses.append) as client:
        with pytest.raises(ServerExited):
            await client.call_tool("exit", {"code": 1})
    assert [type(loss) for loss in losses] == [ServerExited]


async def test_after_a_death_the_same_client_opens_again(evil: Evil):
    """R-26, as far as it is the client's part."""
    client = evil()
    async with client:
        with pytest.raises(ServerExited):
            await client.call_tool("exit", {"code": 1})
    async with client:
        assert (await client.call_tool("echo", {"text": "again"})).text == "again"


# Starting
