"""How many turns of the event loop pass until the program's questions about a call are answered."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.base_events import BaseEventLoop
from typing import Any

import pytest

from interlock import Server
from interlock.claude import ClaudeCode, claude_code
from interlock.claude.decisions import allow_all
from interlock.transports import Receiver

EAGER = sys.version_info >= (3, 12)  # tasks run at once, up to their first wait
CALL = {"tool_name": "mcp__math__add", "tool_use_id": "t1"}
HOOK = {"hook_event_name": "PreToolUse", "tool_input": {"a": 2, "b": 3}, **CALL}
PARAMS = {
    "name": "add",
    "arguments": {"a": 2, "b": 3},
    "_meta": {"claudecode/toolUseId": "t1", "progressToken": 2},
}
RPC = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": PARAMS}


class Program:
    """A transport that is the program: it asks, and counts turns until the answer."""

    def __init__(self, *_: object, **options: object) -> None:
        self.turns = 0
        self.receiver: Receiver
        self.answered: asyncio.Future[tuple[dict[str, Any], int]]

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def send(self, frames: list[bytes]) -> None:
        [line] = map(json.loads, frames)
        if line["type"] == "control_request":
            response = {"subtype": "success", "request_id": line["request_id"]}
            answer = json.dumps({"type": "control_response", "response": response}).encode()
            asyncio.get_running_loop().call_soon(self.receiver.frames_received, [answer])
        else:
            self.answered.set_result((line["response"]["response"], self.turns))

    async def ask(self, id: str, **request: Any) -> tuple[dict[str, Any], int]:
        """Send a control request; return the answer, and how many turns it took."""
        self.answered = asyncio.get_running_loop().create_future()
        began = self.turns
        line = {"type": "control_request", "request_id": id, "request": request}
        self.receiver.frames_received([json.dumps(line).encode()])
        answer, ended = await self.answered
        return answer, ended - began

    async def close(self) -> None: ...


async def test_hook_permission_and_call_wait_for_as_few_turns_as_possible(
    monkeypatch: pytest.MonkeyPatch,
):
    program, run_once = Program(), BaseEventLoop._run_once

    def count(loop: BaseEventLoop) -> None:
        program.turns += 1
        run_once(loop)

    server = Server("math")

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    monkeypatch.setattr(claude_code, "StdioTransport", lambda *_, **__: program)
    monkeypatch.setattr(BaseEventLoop, "_run_once", count)
    async with ClaudeCode({"math": server}, permissions=allow_all, program=__file__):
        await asyncio.sleep(0)
        hook, turns_of_hook = await program.ask(
            "q1", subtype="hook_callback", callback_id="decide", input=HOOK
        )
        permission, turns_of_permission = await program.ask(
            "q2", subtype="can_use_tool", input={"a": 2, "b": 3}, **CALL
        )
        result, turns_of_call = await program.ask(
            "q3", subtype="mcp_message", server_name="math", message=RPC
        )

    assert hook["hookSpecificOutput"]["permissionDecision"] == "allow"
    assert permission["behavior"] == "allow"
    assert result["mcp_response"]["result"]["content"] == [{"type": "text", "text": "5"}]
    expected = (0, 0, 2) if EAGER else (1, 0, 3)
    assert (turns_of_hook, turns_of_permission, turns_of_call) == expected
