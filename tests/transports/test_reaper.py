from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from interlock.transports.process import Process
from interlock.transports.reaper import MARK_VARIABLE, own_mark, reaper
from tests.support.rows import each_row

nothing_is_left = pytest.mark.usefixtures("nothing_is_left")

HOST = """
import asyncio, os, signal
from interlock.transports.process import Process

async def main():
    started = await Process.spawn(["sh", "-c", SCRIPT], on_exit=print, env={"PATH": PATH})
    os.set_blocking(started.stdout, True)
    with open(started.stdout) as lines:
        print(started.id, lines.readline(), end="", flush=True)
    input()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def cat() -> Process:
    return await Process.spawn(["cat"], on_exit=lambda: None, env={"PATH": os.environ["PATH"]})


@nothing_is_left
async def test_all_servers_share_one_supervisor_process():
    assert reaper._process is None
    first = await cat()
    helper = reaper._process
    second = await cat()
    assert reaper._process is helper is not None
    await first.end()
    assert helper.poll() is None
    await second.end()
    assert helper.poll() is not None  # it exits by itself, or is killed
    assert reaper._process is None


@nothing_is_left
async def test_supervisor_started_early_starts_all_servers():
    with reaper.running():
        helper = reaper._process
        for _ in range(2):
            server = await cat()
            assert reaper._process is helper is not None
            await server.end()
    assert reaper._process is None


@nothing_is_left
async def test_supervisor_has_no_terminal_and_no_environment(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("API_KEY", "secret")
    server = await cat()
    assert reaper._process is not None
    helper = reaper._process.pid
    assert os.getsid(helper) == helper
    environment = Path(f"/proc/{helper}/environ").read_bytes()  # noqa: ASYNC240 - not a disk
    assert environment == f"PATH={os.defpath}\0".encode()
    await server.end()


@pytest.mark.slow("starts a program")
@nothing_is_left
async def test_killed_supervisor_is_replaced_and_servers_continue():
    first = await cat()
    assert reaper._process is not None
    reaper._process.kill()
    reaper._process.wait()
    second = await cat()
    for server in (second, first):
        await server.end()
        assert server.code == 0


@pytest.mark.slow("starts a program")
@each_row(
    "script",
    [
        "echo $$; exec cat",
        "trap '' TERM HUP; (env -i setsid sh -c 'echo $$; exec sleep 1000' &) ; cat",
    ],
    ids=["server", "daemon"],
)
def test_kill_of_our_process_leaves_no_server_and_no_daemon(script: str):
    """R-34."""
    source = HOST.replace("SCRIPT", repr(script)).replace("PATH}", f"{os.environ['PATH']!r}}}")
    with subprocess.Popen([sys.executable, "-c", source], stdin=PIPE, stdout=PIPE) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        pidfds = [os.pidfd_open(int(id)) for id in host.stdout.readline().split()]
        host.stdin.write(b"\n")
    assert host.returncode == -signal.SIGKILL
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], 20)[0]
        os.close(pidfd)


@pytest.mark.slow("starts a program")
def test_marker_variable_differs_between_processes():
    source = "from interlock.transports.reaper import own_mark; print(own_mark())"
    other = subprocess.run([sys.executable, "-c", source], stdout=PIPE, check=True)
    assert own_mark().startswith(f"{MARK_VARIABLE}={os.getpid()}-")
    assert own_mark() != other.stdout.decode().strip()


@nothing_is_left
async def test_forked_process_does_not_end_the_supervisor_of_its_parent():
    server = await cat()
    helper = reaper._process
    assert helper is not None
    child = os.fork()
    if not child:
        reaper.release()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - it exits at once
    assert helper.poll() is None
    await server.end()
