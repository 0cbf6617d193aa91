from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock.errors import SpawnError
from interlock.transports import process
from interlock.transports.process import Process
from interlock.transports.reaper import marked, own_mark
from tests.support.rows import each_row
from tests.transports.shells import readable, shell

pytestmark = pytest.mark.usefixtures("nothing_is_left")


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


async def test_server_process_leads_its_own_session():
    async with shell("cat") as started:
        assert os.getsid(started.id) == os.getpgid(started.id) == started.id


@pytest.mark.slow("starts a program")
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


@pytest.mark.slow("starts a program")
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
async def test_signals_to_end_a_process_are_sent_only_when_needed(
    script: str, code: int, in_vain: list[str], monkeypatch: pytest.MonkeyPatch
):
    for name in in_vain:
        monkeypatch.setattr(process, name, 0.1)
    async with shell(script) as started:
        pass

    assert started.code == code


@pytest.mark.slow("starts a program")
@pytest.mark.usefixtures("patience")
async def test_processes_of_the_server_group_are_ended_even_without_the_marker_variable(
    tmp_path: Path,
):
    async with unmarked(tmp_path, "exec cat") as (started, pipe):
        await started.end()
        await readable(pipe)

        assert started.code == 0
        assert os.read(pipe, 100) == b""


@pytest.mark.slow("starts a program")
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
        await readable(pipe)

        assert os.read(pipe, 100) == b""


@pytest.mark.slow("starts a program")
async def test_end_of_a_process_whose_supervisor_hangs_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("EOF_PATIENCE", "TERM_PATIENCE", "REST_PATIENCE"):
        monkeypatch.setattr(process, name, 0.1)
    async with shell("cat") as started:
        stat = Path(f"/proc/{started.id}/stat").read_text()  # noqa: ASYNC240 - not on a disk
        supervisor = int(stat.rpartition(")")[2].split()[1])
        os.kill(supervisor, signal.SIGSTOP)
        try:
            await started.end()
        finally:
            os.kill(supervisor, signal.SIGCONT)

    assert started.code is None


@pytest.mark.slow("starts a program")
@pytest.mark.usefixtures("patience")
async def test_second_end_of_a_process_has_no_effect():
    async with shell("cat") as started:
        await started.end()
        await started.end()

    assert started.code == 0


async def test_process_has_the_marker_variable_despite_its_configuration():
    name = own_mark().partition("=")[0]
    started = await Process.spawn(
        [sys.executable, "-c", "print(flush=True); input()"],
        on_exit=lambda: None,
        env={name: "forged"},
    )
    try:
        await readable(started.stdout)  # a program that is being loaded shows no environment
        assert marked(own_mark()) == [started.id]
    finally:
        await started.end()


@pytest.mark.slow("works through much data")
@each_row(
    ("argv", "cwd", "why"),
    [
        (["no-such-program --zone UTC"], None, "arguments belong in a list of their own, such as"),
        (["no-such-program"], None, "program not found; is it installed, and is its folder in"),
        (["sh"], "/no/such/folder", "its folder '/no/such/folder' does not exist"),
        ([__file__], None, "it is not executable"),
        (["sh", "a\0b"], None, "embedded null byte"),
        (["sh", "x" * 10_000_000], None, "Argument list too long"),
    ],
    ids=[
        "program with arguments",
        "unknown program",
        "unknown folder",
        "no program",
        "no argument",
        "too long",
    ],
)
async def test_spawn_error_names_the_reason(argv: list[str], cwd: str | None, why: str):
    with pytest.raises(SpawnError, match=why) as raised:
        await Process.spawn(argv, on_exit=lambda: None, env={"PATH": os.environ["PATH"]}, cwd=cwd)

    assert str(raised.value).startswith(f"cannot start {argv[0]!r}: ")
