"""The notifications for systemd: see sd_notify(3). `tests/cli/gateway` has those of the program."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

from interlock.gateway.serving.service_manager import ServiceManager
from tests.support.clock import SteppedLoop
from tests.support.rows import each_row


@each_row("watched, seconds", [("", 30.0), (str(os.getpid()), 30.0), ("1", 0.0)])
def test_variables_are_taken_out_of_the_environment(watched: str, seconds: float, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", watched)

    manager = ServiceManager.of_environment()

    assert vars(manager)["_watchdog"] == seconds
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & {*os.environ}


@each_row("is_abstract", [False, True])
def test_socket_is_a_path_or_an_abstract_name(is_abstract: bool, tmp_path: Path):
    place = str(tmp_path / f"notify-{is_abstract}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0{place}" if is_abstract else place)
        ServiceManager(f"@{place}" if is_abstract else place).leaving()
        assert bound.recv(100) == b"STOPPING=1"


@each_row(
    "address", ["", "@", "/missing", "relative", "/" + "x" * 200, "vsock:2:9999", "/dev/null"]
)
def test_socket_that_cannot_be_used_does_no_harm(address: str):
    manager = ServiceManager(address)
    manager.ready()
    manager.reloading()
    manager.leaving()


def test_gateway_that_starts_is_not_ready_and_a_ready_one_is_alive(tmp_path: Path):
    answers = iter([False, False, True])

    async def is_ready() -> bool:
        return next(answers)

    async def follow() -> None:
        manager = ServiceManager(str(tmp_path / "notify"), 3.0)
        manager.reloading()  # too early for systemd
        with suppress(TimeoutError):
            await asyncio.wait_for(manager.follow(is_ready), 4.5)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        with asyncio.Runner(loop_factory=SteppedLoop) as runner:
            runner.run(follow())
        bound.setblocking(False)
        assert [bound.recv(100) for _ in range(5)] == [b"READY=1"] + [b"WATCHDOG=1"] * 4
