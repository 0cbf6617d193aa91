"""How servers end: R-33 and R-34 (none survives), R-35 and R-26 (one that dies says why)."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

import pytest

from interlock.client import Client
from interlock.errors import ConnectionClosed, InterlockError, ServerExited, SpawnError
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


async def test_closing_takes_at_most_five_seconds_and_leaves_nothing(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    """R-33, with its real times: a server and two grandchildren that ignore all they may."""
    monkeypatch.setattr(process, "EOF_PATIENCE", 2.0)
    monkeypatch.setattr(process, "TERM_PATIENCE", 2.0)
    monkeypatch.setattr(process, "REST_PATIENCE", 0.5)
    client = evil("stay", "grandchildren")
    await client.open()
    ids = await processes_of(client)
    assert len(alive(ids)) == 3
    assert len({os.getsid(id) for id in ids}) == 2  # one left the session
    started = monotonic()
    await client.close()

    assert 4 <= monotonic() - started <= 5
    assert alive(ids) == []


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

    assert monotonic() - started < 5


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

    assert gone_within(1, watched)


def test_killing_us_kills_servers_and_their_grandchildren_within_three_seconds():
    """R-34: kill -9 of a program leaves it no chance to tidy up."""
    host = [sys.executable, SERVERS / "host.py", "hold"]
    server = [sys.executable, "-I", "-S", SERVERS / "evil.py", "stay", "grandchildren"]
    with subprocess.Popen([*host, *server], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        ids = json.loads(running.stdout.readline())["processes"]
        watched = {id: os.pidfd_open(id) for id in ids}
        assert len(alive(ids)) == 3
        running.send_signal(signal.SIGKILL)

        assert gone_within(3, watched)


# Dying


async def test_a_death_fails_all_calls_at_once_with_code_and_last_words(evil: Evil):
    """R-35."""
    async with evil() as client:
        waiting = [asyncio.create_task(client.call_tool("mute")) for _ in range(10)]
        started = monotonic()
        dying = client.call_tool("exit", {"code": 3, "stderr": "starting\nout of cheese\n"})
        ended = await asyncio.gather(dying, *waiting, return_exceptions=True)

        assert monotonic() - started < 0.2  # two turns of the server's process included
        for error in ended:
            assert isinstance(error, ServerExited)
            assert (error.code, error.stderr) == (3, "starting\nout of cheese\n")
            assert str(error).endswith("exited with code 3: out of cheese")
        with pytest.raises(ServerExited):
            await client.call_tool("echo", {"text": "after"})


async def test_a_killed_server_is_told_by_its_signal(evil: Evil):
    async with evil() as client:
        waiting = asyncio.create_task(client.call_tool("mute"))
        os.kill((await processes_of(client))[0], signal.SIGKILL)
        with pytest.raises(ServerExited, match="was ended by signal 9") as told:
            await waiting

        assert told.value.code == -9


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


@pytest.mark.parametrize("descriptor", [1, 2])
async def test_an_heir_that_writes_for_ever_does_not_hold_us(evil: Evil, descriptor: int):
    """The server exits, its child floods the same pipe."""
    async with evil() as client:
        started = monotonic()
        with pytest.raises(ServerExited, match="exited with code 3"):
            await client.call_tool("exit_with_heir", {"descriptor": descriptor})

        assert monotonic() - started < 1


async def test_a_server_that_closes_stdout_is_ended(evil: Evil):
    async with evil() as client:
        (id,) = await processes_of(client)
        started = monotonic()
        with pytest.raises(ConnectionClosed, match="closed its pipes but did not exit"):
            await client.call_tool("close_stdout")
        assert monotonic() - started < 0.2
    assert alive([id]) == []


async def test_a_server_that_closes_stdin_is_ended(evil: Evil):
    async with evil() as client:
        (id,) = await processes_of(client)
        await client.call_tool("close_stdin")
        started = monotonic()
        with pytest.raises(ConnectionClosed):
            await client.call_tool("echo", {"text": "x" * 100_000})
        assert monotonic() - started < 0.2
    assert alive([id]) == []


# Starting


async def test_a_server_that_exits_at_once_says_why(evil: Evil):
    started = monotonic()
    with pytest.raises(ServerExited, match="exited with code 2: no key in EVIL_KEY") as told:
        await evil("exit=2", "stderr=no key in EVIL_KEY\n").open()

    assert told.value.code == 2
    assert monotonic() - started < 2


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-program-anywhere", "program not found; is it installed"),
        ("./no/such/path", "program not found"),
        (str(SERVERS / "evil.py"), "is not executable"),
        (str(SERVERS), "is not executable"),
        ("a\0b", "embedded null byte"),
        ("", "program not found|is not executable"),
    ],
)
async def test_what_cannot_be_started_is_refused_at_once(command: str, reason: str):
    started = monotonic()
    with pytest.raises(SpawnError, match=reason):
        await Client.stdio(command).open()

    assert monotonic() - started < 0.2


async def test_a_missing_folder_is_named():
    with pytest.raises(SpawnError, match=r"its folder '/no/such/folder' does not exist"):
        await Client.stdio(sys.executable, cwd="/no/such/folder").open()


async def test_stderr_is_drained_and_only_its_end_is_kept(evil: Evil):
    """R-13: 10 MB in the middle of a call."""
    async with evil() as client:
        assert (await client.call_tool("flood_stderr", {"size": 10_000_000})).text == "done"
        with pytest.raises(ServerExited) as told:
            await client.call_tool("exit", {"code": 1, "stderr": "\nthe end\n"})

        assert 200_000 < len(told.value.stderr) <= 256 * 1024
        assert str(told.value).endswith("exited with code 1: the end")
