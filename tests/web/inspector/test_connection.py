"""The connection of an inspection: eras, restarts, changed files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from interlock import Server
from interlock.config import StdioServer
from interlock.errors import ServerExited
from interlock.web.inspector.connection import InspectedConnection
from interlock.web.inspector.wire import InspectedWire

ECHO = Path(__file__).parents[2] / "servers" / "echo.py"


def connection_to(script: Path, wire: InspectedWire) -> InspectedConnection:
    server = StdioServer(command=sys.executable, args=("-I", "-S", str(script)))
    return InspectedConnection("echo", server, environ={}, wire=wire, on_change=lambda: None)


@pytest.mark.slow
async def test_changed_file_restarts_the_program_and_lists_again(tmp_path: Path):
    script = tmp_path / "server.py"
    script.write_text(ECHO.read_text())
    wire = InspectedWire()
    connection = connection_to(script, wire)
    await connection.ready()
    assert not await connection.restart_if_changed()
    script.write_text(ECHO.read_text().replace('"Give the arguments back', '"Changed'))
    os.utime(script, (1, 1))

    assert await connection.restart_if_changed()
    await connection.ready()
    found = connection.entry("echo")
    await connection.close()

    assert found is not None
    assert found.tool.description.startswith("Changed")
    kinds = [each.kind for each in wire.entries()]
    assert kinds.count("spawn") == 3  # two starts, and the reason between them
    assert kinds[-1] == "exit"


async def test_program_that_reloads_itself_is_not_restarted(tmp_path: Path):
    script = tmp_path / "server.py"
    script.write_text("")
    server = StdioServer(command="interlock", args=("run", str(script), "--reload"))
    wire = InspectedWire()
    connection = InspectedConnection("s", server, environ={}, wire=wire, on_change=lambda: None)
    connection.state = "ok"
    script.write_text("changed = True")

    assert not await connection.restart_if_changed()


@pytest.mark.slow
async def test_program_that_exits_is_down_with_the_reason_and_started_by_the_next_call():
    wire = InspectedWire()
    connection = connection_to(ECHO, wire)
    client = await connection.ready()
    with pytest.raises(ServerExited):
        await client.call_tool("exit")
    state, reason = connection.state, connection.reason
    await connection.ready()
    now = connection.state
    await connection.close()

    assert (state, now) == ("down", "ok")
    assert "exited with code 3" in reason
    kinds = [each.kind for each in wire.entries()]
    assert kinds.count("spawn") == kinds.count("exit") == 2


async def test_era_is_detected_and_switched_when_the_server_changes():
    connection = InspectedConnection(
        "x", Server("x"), environ={}, wire=InspectedWire(), on_change=lambda: None
    )
    modern = (await connection.ready()).revision
    await connection.restart("legacy")
    legacy = (await connection.ready()).revision
    await connection.close()

    assert (modern, legacy) == ("2026-07-28", "2025-11-25")


async def test_program_that_cannot_be_started_is_failed_with_the_reason():
    server = StdioServer(command="/nowhere/program")
    connection = InspectedConnection(
        "x", server, environ={}, wire=InspectedWire(), on_change=lambda: None
    )
    with pytest.raises(Exception, match="/nowhere/program"):
        await connection.ready()

    assert connection.state == "failed"
    await connection.close()
