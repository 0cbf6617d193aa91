from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.transports import reaper as module
from interlock.transports.reaper import MARK_VARIABLE, Reaper, own_mark


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    made = Reaper()
    yield made
    for group in list(made._groups):
        made.leave(group)


def sleeper(mark: str) -> subprocess.Popen[bytes]:
    """Start a process of its own session that carries a mark and ignores what it may."""
    script = "trap '' TERM HUP INT; echo ready; exec sleep 100"
    environment = {"PATH": os.environ["PATH"], MARK_VARIABLE: mark.partition("=")[2]}
    started = subprocess.Popen(
        ["sh", "-c", script], env=environment, stdout=subprocess.PIPE, start_new_session=True
    )
    assert started.stdout is not None
    started.stdout.readline()
    return started


def echo() -> subprocess.Popen[bytes]:
    """Start a process of its own session that says what it is told."""
    pipe = subprocess.PIPE
    return subprocess.Popen(["cat"], bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True)


def test_there_is_one_helper_from_the_first_server_to_the_last(reaper: Reaper):
    assert reaper._process is None
    reaper.enter(10_000_001)
    helper = reaper._process
    reaper.enter(10_000_002)
    assert reaper._process is helper is not None
    reaper.leave(10_000_001)
    assert helper.poll() is None
    reaper.leave(10_000_002)
    reaper.leave(10_000_002)

    assert helper.poll() == -signal.SIGKILL
    assert reaper._process is None


def test_the_helper_is_out_of_reach_of_a_terminal(reaper: Reaper):
    reaper.enter(10_000_001)

    assert reaper._process is not None
    assert os.getsid(reaper._process.pid) == reaper._process.pid


def test_the_helper_is_told_nothing_of_our_environment(
    reaper: Reaper, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(MARK_VARIABLE, "1-1-1")  # of somebody who started us
    reaper.enter(10_000_001)

    assert reaper._process is not None
    path = Path(f"/proc/{reaper._process.pid}/environ")
    while not (environment := path.read_bytes()):
        pass  # the shell is being loaded
    assert environment == f"PATH={os.defpath}\0".encode()


def test_without_proc_the_groups_that_have_not_left_are_ended(monkeypatch: pytest.MonkeyPatch):
    script = module._SCRIPT.replace("/proc/self", "/nowhere").replace("sleep 1", ":")
    monkeypatch.setattr(module, "_SCRIPT", script)
    reaper = Reaper()
    with echo() as left, echo() as stays:
        for group in (left.pid, stays.pid):
            reaper.enter(group)
        reaper.leave(left.pid)
        helper = reaper._process
        assert helper is not None
        assert helper.stdin is not None
        helper.stdin.close()
        helper.wait()

        assert stays.wait(10) == -signal.SIGKILL
        assert left.stdin is not None
        assert left.stdout is not None
        left.stdin.write(b"there\n")
        assert left.stdout.readline() == b"there\n"


def test_a_helper_that_somebody_ended_harms_nobody(reaper: Reaper):
    reaper.enter(10_000_001)
    assert reaper._process is not None
    reaper._process.kill()
    reaper._process.wait()
    reaper.enter(10_000_002)  # notices
    reaper.enter(10_000_003)  # and starts another one

    assert reaper._process is not None
    assert reaper._process.poll() is None


def test_the_end_of_the_pipe_ends_what_carries_the_mark_and_nothing_else():
    mark = f"{MARK_VARIABLE}=1-{os.getpid()}-"  # no process has this one
    ours, other = sleeper(mark + "1"), sleeper(mark.replace("=1-", "=2-") + "1")
    try:
        script = (
            "import sys; from interlock.transports import reaper as g; "
            f"g.own_mark = lambda: {mark!r}; g.reaper.enter({ours.pid}); input()"
        )
        host = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
        with host, ours, other:
            pidfd = os.pidfd_open(ours.pid)
            assert host.stdin is not None
            host.stdin.close()  # it ends without `leave`
            assert select.select([pidfd], [], [], 60)[0]
            os.close(pidfd)
            assert other.poll() is None
            other.kill()
    finally:
        ours.kill()
        other.kill()


def test_a_mark_names_this_process_only():
    name, _, value = own_mark().partition("=")
    there = subprocess.run(
        [
            sys.executable,
            "-c",
            "from interlock.transports.reaper import own_mark; print(own_mark())",
        ],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )

    assert name == MARK_VARIABLE
    assert value.startswith(f"{os.getpid()}-")
    assert own_mark() != there.stdout.strip()


def test_a_fork_has_no_part_in_its_parents_servers(reaper: Reaper, monkeypatch: pytest.MonkeyPatch):
    reaper.enter(10_000_001)
    helper = reaper._process
    assert helper is not None
    child = os.fork()
    if not child:
        monkeypatch.setattr(helper, "kill", lambda: os._exit(1))
        reaper.leave(10_000_001)
        os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
    assert helper.poll() is None
