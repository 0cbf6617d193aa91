"""Faults of server programs, and of our own process."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from interlock.client import Client
from interlock.errors import ConnectionClosed, MessageTooLarge, ServerExited, SpawnError
from interlock.transports import process
from interlock.transports.reaper import reaper
from tests.faults.ground import EVIL, SERVERS, Ground, alive, all_of, ended, good, until
from tests.faults.matrix import STDIO, row


async def processes_of(client: Client) -> list[int]:
    """Return the process ids of a server and its grandchildren, as the server reports them."""
    ids: list[int] = json.loads((await client.call_tool("surroundings")).text)["processes"]
    return ids


def real_patience() -> object:
    """Undo `quick_endings`: use longer waits, as outside of tests."""
    patience = {"EOF_PATIENCE": 2.0, "TERM_PATIENCE": 2.0, "REST_PATIENCE": 20.0}
    return mock.patch.multiple(process, **patience)


@contextmanager
def no_descriptors_left(process: int = 0) -> Iterator[None]:
    """Let a process, by default this one, open no more descriptors inside this context."""
    first_free = len(os.listdir(f"/proc/{process or 'self'}/fd"))  # noqa: PTH208 - not a disk
    limits = resource.prlimit(process, resource.RLIMIT_NOFILE)
    if not process:
        first_free = os.dup(0)
        os.close(first_free)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (first_free, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_NOFILE, limits)


@contextmanager
def failing_fork(reason: int) -> Iterator[None]:
    """Make starting processes fail inside this context."""
    error = OSError(reason, os.strerror(reason))
    with mock.patch("subprocess._fork_exec", side_effect=error):
        yield


# Dying


@row(
    "Server exits mid-call",
    "ServerExited with code and last words, on all its calls",
    STDIO,
    within=0.1,
)
async def exits(ground: Ground) -> None:
    client = await ground.open()
    waiting = [asyncio.create_task(client.call_tool("mute")) for _ in range(10)]
    await asyncio.sleep(0)
    with ground.promise(ServerExited, "exited with code 3: out of cheese"):
        call = client.call_tool("exit", {"code": 3, "stderr": "starting\nout of cheese\n"})
        error, *errors = await all_of(call, *waiting)
        raise error
    for error in (*errors, *await all_of(client.call_tool("echo", {"text": "after"}))):
        assert isinstance(error, ServerExited)
        assert (error.code, error.stderr) == (3, "starting\nout of cheese\n")


@row("Server exits mid-call: killed", "ServerExited with the signal", STDIO, within=0.1)
async def is_killed(ground: Ground) -> None:
    client = await ground.open()
    (id,) = await processes_of(client)
    with ground.promise(ServerExited, "was ended by signal 9"):
        waiting = asyncio.create_task(client.call_tool("mute"))
        os.kill(id, signal.SIGKILL)
        await waiting


@row(
    "Server exits mid-call: its child holds its stdout, or stderr, and floods it",
    "ServerExited with code and last words",
    STDIO,
    within=1.0,
)
async def leaves_an_heir(ground: Ground) -> None:
    for descriptor in (1, 2):
        client = await ground.open()
        with ground.promise(ServerExited, "exited with code 3"):
            await client.call_tool("exit_with_heir", {"descriptor": descriptor})


@row("Closes stdout, stays alive", "ConnectionClosed; its process is ended", STDIO, within=0.1)
async def closes_stdout(ground: Ground) -> None:
    client = await ground.open()
    (id,) = await processes_of(client)
    with ground.promise(ConnectionClosed, "closed its stdout but did not exit"):
        await client.call_tool("close_stdout")
    await client.close()
    assert not alive(id)


@row("Closes stdin early", "ConnectionClosed; its process is ended", STDIO, within=0.1)
async def closes_stdin(ground: Ground) -> None:
    client = await ground.open()
    (id,) = await processes_of(client)
    await client.call_tool("close_stdin")
    with ground.promise(ConnectionClosed, "closed its stdout but did not exit"):
        await client.call_tool("echo", {"text": "x" * 100_000})
    await client.close()
    assert not alive(id)


# Not dying


@row("Ignores EOF and SIGTERM", "`close` returns, the process is gone", STDIO, within=5.0)
async def stays(ground: Ground) -> None:
    client = await ground.open("stay")
    (id,) = await processes_of(client)
    with real_patience(), ground.flying_time(), ground.promise(outcome="gone"):
        await client.close()
    assert not alive(id)


@row(
    "Grandchildren",
    "none survives `close`, in whatever session it is",
    STDIO,
    within=6.0,
)
async def has_grandchildren(ground: Ground) -> None:
    client = await ground.open("stay", "grandchildren")
    ids = await processes_of(client)
    assert len({os.getsid(id) for id in ids}) == 2  # one left the session
    with ground.promise(outcome="all three gone"):
        await client.close()
        await until(lambda: not any(map(alive, ids)))  # their supervisor's time does not fly


@row("kill -9 of us mid-write", "our servers and their children are gone", STDIO, within=3.0)
async def kills_us(ground: Ground) -> None:
    host = [sys.executable, str(SERVERS / "host.py"), "hold", *EVIL, "stay", "grandchildren"]
    with subprocess.Popen(host, stdout=subprocess.PIPE) as running:  # noqa: ASYNC220 - quick
        assert running.stdout is not None
        line = await asyncio.to_thread(running.stdout.readline)
        pidfds = [os.pidfd_open(id) for id in json.loads(line)["processes"]]
        running.kill()
        with ground.promise(outcome="all three gone"):
            await ended(pidfds)


# Talking


@row("stderr flood", "the call is answered; the last 256 KiB are kept", STDIO, within=1.0)
async def floods_stderr(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(outcome="answered"):
        assert (await client.call_tool("flood_stderr", {"size": 10_000_000})).text == "done"
    (error,) = await all_of(client.call_tool("exit", {"code": 1, "stderr": "\nthe end\n"}))
    assert str(error).endswith("exited with code 1: the end")
    assert 200_000 < len(error.stderr) <= 256 * 1024


@row("100 MB line / endless line", "MessageTooLarge; under 48 MiB of memory", STDIO, within=1.0)
async def says_far_too_much(ground: Ground) -> None:
    for line in ("ended", "endless"):
        cost = await report_of(line)
        assert cost["error"] == MessageTooLarge.__name__
        assert cost["grown"] < 48 * 2**20
        ground.keep(cost["seconds"], f"{cost['error']}, {cost['grown'] / 2**20:.0f} MiB")


async def report_of(task: str) -> dict[str, float]:
    """Run a client of an evil server in a process of its own; return its report."""
    host = [sys.executable, str(SERVERS / "host.py"), task, *EVIL]
    ran = await asyncio.to_thread(subprocess.run, host, stdout=subprocess.PIPE, check=True)
    report: dict[str, float] = json.loads(ran.stdout)
    return report


@row(
    "Server hangs: and does not read what it is sent",
    "ConnectionClosed when too much waits (256 MiB; here 4)",
    STDIO,
    within=2.0,
)
async def does_not_read(ground: Ground) -> None:
    with mock.patch("interlock.transports.stdio.MAX_UNSENT_BYTES", 2**22):
        client = await ground.open()
        calls = [asyncio.create_task(client.call_tool("deaf"))]
        with ground.promise(
            ConnectionClosed, r"does not read its stdin \(over 4 MiB are waiting\)"
        ):
            for _ in range(8):
                await asyncio.sleep(0)
                echo = client.call_tool("echo", {"text": "x" * 2**20})
                calls.append(asyncio.create_task(echo))
            await asyncio.gather(*calls)
        assert {type(end) for end in await all_of(*calls)} == {ConnectionClosed}


# Starting


@row(
    "Missing binary / bad path / not executable",
    "SpawnError that says which, and what to do",
    STDIO,
    within=0.3,
)
async def cannot_be_started(ground: Ground) -> None:
    wrong = {
        "no-such-program": "program not found; is it installed",
        "./no/such/path": "program not found",
        str(SERVERS / "evil.py"): "is not executable",
        str(SERVERS): "is not executable",
        "a\0b": "embedded null byte",
        "": "program not found|is not executable",
    }
    for command, words in wrong.items():
        with ground.promise(SpawnError, words):
            await Client.stdio(command).open()
    with ground.promise(SpawnError, "its folder '/no/such/folder' does not exist"):
        await Client.stdio(sys.executable, cwd="/no/such/folder").open()


@row("Server exits mid-call: at the start", "ServerExited that says why", STDIO, within=1.0)
async def exits_at_once(ground: Ground) -> None:
    client = await ground.client("exit=2", "stderr=no key in EVIL_KEY\n")
    with ground.promise(ServerExited, "exited with code 2: no key in EVIL_KEY"):
        await client.open()


@row(
    "fd / memory / pid limit reached: no process can be made",
    "SpawnError, with nothing left of what was started before",
    STDIO,
    within=0.1,
)
async def has_no_processes_left(ground: Ground) -> None:
    for reason in (errno.EAGAIN, errno.ENOMEM):
        with failing_fork(reason), ground.promise(SpawnError, os.strerror(reason)):
            await Client.stdio(*EVIL).open()
    client = await ground.open()
    assert reaper._process is not None
    with no_descriptors_left(reaper._process.pid):
        for _ in range(2):
            with ground.promise(SpawnError, "cannot start"):
                await Client.stdio(*EVIL).open()
    await good(client)
    await good(await ground.open())


@row(
    "fd / memory / pid limit reached",
    "SpawnError; a server that runs goes on",
    STDIO,
    within=0.1,
)
async def has_no_descriptors_left(ground: Ground) -> None:
    client = await ground.open()
    with no_descriptors_left(), ground.promise(SpawnError, "Too many open files"):
        await Client.stdio(*EVIL).open()
    await good(client)
    other = await ground.open()
    await good(other)
