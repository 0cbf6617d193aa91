"""How many of our functions a call passes through, and how many turns of the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import FrameType

import interlock
from interlock import Server
from interlock.server.server_connection import ServerConnection
from interlock.transports.pipes import PipeTransport

OURS = str(Path(interlock.__file__).parent)
META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{}}'
)
CALL = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
    b'{"name":"add","arguments":{"a":1,"b":2},' + META + b"}}\n"
)

server = Server("sums")


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def test_a_call_passes_through_at_most_16_functions_and_5_turns_of_the_loop(monkeypatch):
    loop = asyncio.get_running_loop()
    to_server, from_client = os.pipe()
    to_client, from_server = os.pipe()
    serving = asyncio.create_task(
        ServerConnection(server, PipeTransport(to_server, from_server)).serve()
    )
    passed: list[str] = []
    turn_of: list[int] = []  # of the loop, for each function passed
    turns = 0
    run_once = loop._run_once

    def count_turn() -> None:
        nonlocal turns
        turns += 1
        run_once()

    def note_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            passed.append(code.co_qualname)
            turn_of.append(turns)

    async def call(id: int) -> bytes:
        answered = loop.create_future()
        loop.add_reader(to_client, lambda: answered.set_result(os.read(to_client, 65536)))
        os.write(from_client, CALL % id)
        answer = await answered
        loop.remove_reader(to_client)
        return answer

    try:
        await call(1)  # what is done once, such as reading what the client states
        monkeypatch.setattr(loop, "_run_once", count_turn)
        sys.setprofile(note_call)
        answer = await call(2)
        sys.setprofile(None)
    finally:
        sys.setprofile(None)
        os.close(from_client)
        await serving
        for pipe in (to_server, to_client, from_server):
            os.close(pipe)

    assert b'"text":"3"' in answer
    # What comes after the answer was written is not on its way.
    end = passed.index("PipeTransport.send") + 1
    on_the_way = passed[:end]
    assert len(on_the_way) <= 16, on_the_way
    assert turn_of[end - 1] - turn_of[0] < 5
