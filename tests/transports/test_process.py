from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock.errors import SpawnError
from interlock.transports import process
from interlock.transports.process import Process, marked
from interlock.transports.reaper import own_mark, reaper

pytestmark = pytest.mark.usefixtures("nothing_is_left")

# Here, as each test has other ones.
PATIENCE = (
    process.EOF_PATIENCE + process.TERM_PATIENCE + process.REST_PATIENCE + process.KILL_PATIENCE
)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch, nothing_is_left: object) -> None:
    """Let who goes when asked have all the time for it, however busy the machine is."""
    monkeypatch.setattr(process, "EOF_PATIENCE", 60.0)
    monkeypatch.setattr(process, "TERM_PATIENCE", 60.0)


@asynccontextmanager
async def shell(
    script: str, *, on_exit: Callable[[], None] = lambda: None
) -> AsyncIterator[Process]:
    """Run a shell script, which has said "ready", and end it."""
    started = Process.spawn(
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

    Gives also a pipe, which ends when the unmarked process does.
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


async def test_the_exit_code_is_known_when_it_is_told():
    codes: list[int | None] = []
    async with shell("read line; exit 7", on_exit=lambda: codes.append(started.code)) as started:
        os.write(started.stdin, b"\n")
        await started.exited.wait()
        assert codes == [7]


async def test_an_end_does_not_wait_for_a_listener_that_failed(nothing_is_left: list[object]):
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


def test_an_end_takes_at_most_five_seconds():
    assert PATIENCE <= 5


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


async def test_the_guardian_watches_over_a_process_from_its_start_to_its_end():
    async with shell("exec cat") as started:
        assert reaper._groups == {started.id}

    assert reaper._groups == set()


@pytest.mark.usefixtures("patience")
async def test_ending_twice_is_ending_once():
    async with shell("cat") as started:
        await started.end()
        await started.end()

    assert started.code == 0


@pytest.mark.usefixtures("patience")
async def test_what_it_started_goes_gently_if_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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


async def test_a_process_that_starts_more_while_it_is_ended_is_ended_too():
    more = "trap '' TERM HUP; (setsid sleep 100 &); (setsid sleep 100 &); sleep 100"
    async with shell(f"trap '{more}' TERM; while :; do sleep 0.01; done") as started:
        pass

    assert marked(own_mark(), exactly=False) == []
    assert started.code == -signal.SIGKILL


async def test_marks_tell_processes_apart():
    # Neither runs another program: while it is loaded, a process shows no environment.
    async with shell("read -r line") as one, shell("read -r line") as other:
        assert sorted(marked(own_mark(), exactly=False)) == sorted([one.id, other.id])
        assert marked(one._mark) == [one.id]
        assert marked(one._mark[:-1]) == []


async def test_a_process_that_is_loading_a_program_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
):
    """Its environment is empty until then."""
    looks = 0

    def loading(path: str, *args: object) -> io.BytesIO:
        nonlocal looks
        if path.endswith("stat"):
            return io.BytesIO(b"1 (a) b) S " + b"1 " * 47 + (b"0 0" if looks < 3 else b"1 0"))
        looks += 1
        return io.BytesIO(b"A=b\0M=1-2-3\0" if looks > 3 else b"")

    monkeypatch.setattr(process, "open", loading, raising=False)
    assert process._carries(7, b"M=1-2-3", exactly=True)


async def test_a_process_cannot_take_the_mark_of_another_away():
    """Our mark comes last, whatever the configured environment says."""
    name = own_mark().partition("=")[0]
    started = Process.spawn(
        [sys.executable, "-c", "input()"],
        on_exit=lambda: None,
        env={name: "forged"},
    )
    try:
        assert started.id in marked(own_mark(), exactly=False)
    finally:
        await started.end()


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
async def test_what_cannot_be_started_says_why(argv: list[str], cwd: str | None, why: str):
    with pytest.raises(SpawnError, match=why) as raised:
        Process.spawn(argv, on_exit=lambda: None, env={"PATH": os.environ["PATH"]}, cwd=cwd)

    assert str(raised.value).startswith(f"cannot start {argv[0]!r}: ")
