from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock.errors import SpawnError
from interlock.transports import process
from interlock.transports.process import Process
from interlock.transports.reaper import marked, own_mark
from tests.faults.ground import until

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch, nothing_is_left: object) -> None:
    """Wait long enough for processes that exit by themselves, even on a busy machine."""
    monkeypatch.setattr(process, "EOF_PATIENCE", 60.0)
    monkeypatch.setattr(process, "TERM_PATIENCE", 60.0)


@asynccontextmanager
async def shell(
    script: str, *, on_exit: Callable[[], None] = lambda: None
) -> AsyncIterator[Process]:
    """Run a shell script, which has said "ready", and end it."""
    started = await Process.spawn(
        ["sh", "-c", f"echo ready; {script}"], on_exit=on_exit, env={"PATH": os.environ["PATH"]}
    )
    try:
        await readable(started.stdout)
        yield started
    finally:
        await started.end()


async def readable(pipe: int) -> None:
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pipe, event.set)
    await event.wait()
    loop.remove_reader(pipe)


@asynccontextmanager
async def unmarked(folder: Path, script: str) -> AsyncIterator[tuple[Process, int]]:
    """Run a shell script and, in its group, a process without our mark.

    Yields also a pipe, which ends when the unmarked process does.
    """
    path = folder / "pipe"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        member = f"env -i sh -c 'echo; exec sleep 100' > '{path}' &"
        async with shell(f"{member} {script}") as started:
            await readable(pipe)
            assert os.read(pipe, 100) == b"\n"
            yield started, pipe
    finally:
        os.close(pipe)


async def test_a_process_leads_a_session_of_its_own():
    async with shell("cat") as started:
        assert os.getsid(started.id) == os.getpgid(started.id) == started.id


async def test_exit_code_is_set_when_on_exit_is_called():
    codes: list[int | None] = []
    async with shell("read line; exit 7", on_exit=lambda: codes.append(started.code)) as started:
        os.write(started.stdin, b"\n")
        await started.exited.wait()
        assert codes == [7]


async def test_end_works_after_on_exit_has_failed(nothing_is_left: list[object]):
    def fail() -> None:
        raise ValueError("no")

    async with shell("exit 0", on_exit=fail) as started:
        await started.exited.wait()
    assert len(nothing_is_left) == 1
    nothing_is_left.clear()


@pytest.mark.parametrize(
    ("script", "code", "in_vain"),
    [
        ("cat", 0, []),  # leaves at the end of input
        ("trap 'exit 9' TERM; while :; do sleep 0.01; done", 9, ["EOF_PATIENCE"]),
        ("exec sleep 100", -signal.SIGTERM, ["EOF_PATIENCE"]),
        (
            "trap '' TERM; while :; do sleep 0.01; done",
            -signal.SIGKILL,
            ["EOF_PATIENCE", "TERM_PATIENCE"],
        ),
    ],
)
@pytest.mark.usefixtures("patience")
async def test_each_step_of_the_end_is_taken_only_when_needed(
    script: str, code: int, in_vain: list[str], monkeypatch: pytest.MonkeyPatch
):
    for name in in_vain:
        monkeypatch.setattr(process, name, 0.1)
    async with shell(script) as started:
        pass

    assert started.code == code


@pytest.mark.usefixtures("patience")
async def test_members_of_its_group_are_ended_even_without_our_mark(tmp_path: Path):
    async with unmarked(tmp_path, "exec cat") as (started, pipe):
        await started.end()
        async with asyncio.timeout(20):
            await readable(pipe)

        assert started.code == 0
        assert os.read(pipe, 100) == b""


async def test_an_end_that_is_cancelled_kills_the_whole_group_before_it_is_over(tmp_path: Path):
    codes: list[int | None] = []

    async def end(started: Process) -> None:
        try:
            await started.end()
        finally:
            codes.append(started.code)

    async with unmarked(tmp_path, "exec sleep 100") as (started, pipe):
        ending = asyncio.ensure_future(end(started))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait({ending})
        assert ending.cancelled()
        assert codes == [-signal.SIGKILL]
        async with asyncio.timeout(20):
            await readable(pipe)

        assert os.read(pipe, 100) == b""


@pytest.mark.usefixtures("patience")
async def test_ending_twice_is_ending_once():
    async with shell("cat") as started:
        await started.end()
        await started.end()

    assert started.code == 0


@pytest.mark.usefixtures("patience")
async def test_daemon_gets_a_term_and_can_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An orphan in another session gets a TERM and may tidy up before it goes."""
    monkeypatch.setattr(process, "REST_PATIENCE", 20.0)
    tidied = tmp_path / "tidied"
    orphan = f"trap 'echo > {tidied}; exit' TERM; echo; while :; do sleep 0.01; done"
    async with shell(f'read -r line; (setsid sh -c "{orphan}" &); exec cat') as started:
        os.read(started.stdout, 100)
        os.write(started.stdin, b"\n")
        await readable(started.stdout)
    assert started.code == 0
    assert tidied.exists()


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "cancelled"])
async def test_end_leaves_no_daemon_without_environment_in_its_own_session(is_killed: bool):
    """R-33. A daemon shares nothing with the server that started it."""
    daemon = "trap '' HUP; echo $$; exec sleep 1000 <&- 2>&-"
    async with shell(f'(env -i setsid sh -c "{daemon}" &); exec cat') as started:
        os.read(started.stdout, 6)
        await readable(started.stdout)
        pidfd = os.pidfd_open(int(os.read(started.stdout, 100)))
        if is_killed:
            ending = asyncio.ensure_future(started.end())
            await asyncio.sleep(0)
            ending.cancel()
            await asyncio.wait({ending})
        else:
            await started.end()
        assert select.select([pidfd], [], [], 0)[0]  # it has exited
        os.close(pidfd)


async def test_exit_of_a_server_ends_its_daemons():
    daemon = "trap '' HUP; echo $$; exec sleep 1000"
    async with shell(f'(env -i setsid sh -c "{daemon}" &); read line') as started:
        os.read(started.stdout, 6)
        await readable(started.stdout)
        pidfd = os.pidfd_open(int(os.read(started.stdout, 100)))
        os.write(started.stdin, b"\n")
        async with asyncio.timeout(20):
            await readable(pidfd)
        os.close(pidfd)
    assert started.code == 0


async def test_end_harms_no_other_child_of_this_process():
    """Other libraries start processes too: these stay, and can be waited for."""
    own = subprocess.Popen(  # noqa: ASYNC220 - as a program without asyncio does
        ["sh", "-c", "read line; exit 3"], stdin=subprocess.PIPE
    )
    async with shell("exec cat"):
        daemon = subprocess.Popen(  # noqa: ASYNC220 - as above
            ["sh", "-c", "(setsid sh -c 'echo $$; exec sleep 1000' &)"], stdout=subprocess.PIPE
        )
        assert daemon.stdout is not None
        other = int(daemon.stdout.readline())
    try:
        os.kill(other, 0)  # raises when it has exited
        own.communicate(b"\n")
        assert own.returncode == 3
    finally:
        os.kill(other, signal.SIGKILL)
        daemon.communicate()


async def test_server_whose_supervisor_is_killed_is_killed_too():
    async with shell("exec cat") as started:
        stat = Path(f"/proc/{started.id}/stat").read_text()  # noqa: ASYNC240 - not a disk
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        await started.exited.wait()
        assert started.code == -signal.SIGKILL
        # The kernel kills the server when its supervisor has died; that may take a moment longer.
        await until(lambda: not marked(own_mark()))


async def test_a_process_that_starts_more_while_it_is_ended_is_ended_too():
    more = "trap '' TERM HUP; (setsid sleep 100 &); (setsid sleep 100 &); sleep 100"
    async with shell(f"trap '{more}' TERM; while :; do sleep 0.01; done") as started:
        pass

    assert marked(own_mark()) == []
    assert started.code == -signal.SIGKILL


async def test_process_has_our_mark_whatever_is_configured():
    name = own_mark().partition("=")[0]
    started = await Process.spawn(
        [sys.executable, "-c", "input()"],
        on_exit=lambda: None,
        env={name: "forged"},
    )
    try:
        assert marked(own_mark()) == [started.id]
    finally:
        await started.end()


@pytest.mark.slow("works through much data")
@pytest.mark.parametrize(
    ("argv", "cwd", "why"),
    [
        (["no-such-program"], None, "program not found; is it installed, and is its folder in"),
        (["sh"], "/no/such/folder", "its folder '/no/such/folder' does not exist"),
        ([__file__], None, "it is not executable"),
        (["sh", "a\0b"], None, "embedded null byte"),
        (["sh", "x" * 10_000_000], None, "Argument list too long"),
    ],
    ids=["unknown program", "unknown folder", "no program", "no argument", "too long"],
)
async def test_spawn_error_names_the_reason(argv: list[str], cwd: str | None, why: str):
    with pytest.raises(SpawnError, match=why) as raised:
        await Process.spawn(argv, on_exit=lambda: None, env={"PATH": os.environ["PATH"]}, cwd=cwd)

    assert str(raised.value).startswith(f"cannot start {argv[0]!r}: ")
