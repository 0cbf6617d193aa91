"""The helper that ends a server together with all that it started, and nothing else."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from interlock.transports import process
from interlock.transports.reaper import marked, own_mark
from tests.faults.ground import until
from tests.support.rows import each_row
from tests.transports.shells import readable, shell

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.mark.slow("starts a program")
@pytest.mark.usefixtures("patience")
async def test_daemon_gets_sigterm_and_can_clean_up(
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


@pytest.mark.slow("starts a program")
@each_row("is_killed", [False, True], ids=["closed", "cancelled"])
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


@pytest.mark.slow("starts a program")
async def test_exit_of_a_server_ends_its_daemons():
    daemon = "trap '' HUP; echo $$; exec sleep 1000"
    async with shell(f'(env -i setsid sh -c "{daemon}" &); read line') as started:
        os.read(started.stdout, 6)
        await readable(started.stdout)
        pidfd = os.pidfd_open(int(os.read(started.stdout, 100)))
        os.write(started.stdin, b"\n")
        await readable(pidfd)
        os.close(pidfd)
    assert started.code == 0


@pytest.mark.slow("starts a program")
async def test_end_leaves_other_children_of_this_process_running():
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


@pytest.mark.slow("starts a program")
async def test_a_process_that_starts_more_while_it_is_ended_is_ended_too():
    more = "trap '' TERM HUP; (setsid sleep 100 &); (setsid sleep 100 &); sleep 100"
    async with shell(f"trap '{more}' TERM; while :; do sleep 0.01; done") as started:
        pass

    assert marked(own_mark()) == []
    assert started.code == -signal.SIGKILL
