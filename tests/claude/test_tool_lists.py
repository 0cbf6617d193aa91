"""Servers and tools that change while the program runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from interlock import Server, StdioServer
from interlock.claude import ClaudeCode
from tests.claude.messages_api import MessagesApi, call, say, script
from tests.claude.programs import NEWEST

Make = Callable[..., ClaudeCode]
ECHO = StdioServer(
    command=sys.executable,
    args=("-I", "-S", str(Path(__file__).parents[1] / "servers" / "echo.py")),
)
# It never answers; the tests end it long before.
MUTE = StdioServer(command=sys.executable, args=("-c", "import time; time.sleep(3600)"))


async def test_tool_added_in_a_turn_is_callable_in_the_same_or_the_next_turn(
    claude: Make, api: MessagesApi, claude_program: str
):
    server = Server("growing")

    @server.tool
    async def grow() -> str:
        """Add a tool."""

        async def added() -> str:
            """Answer."""
            return "grown"

        server.tool(added)
        return "ok"

    async with claude({"s": server}) as opened:
        if claude_program == NEWEST:
            wait = call(("Bash", {"command": "sleep 1.5", "description": "x"}))
            turns = (call(("mcp__s__grow", {})), wait, call(("mcp__s__added", {})), say("ok"))
            await opened.ask(script(*turns))
        else:
            await opened.ask(script(call(("mcp__s__grow", {})), say("ok", seconds=2)))
            if claude_program == "2.0.0":
                await opened.reopen()
            await opened.ask(script(call(("mcp__s__added", {})), say("ok")))

    assert api.result_text() == "grown"


async def test_server_can_be_added_and_removed_between_turns(
    claude: Make, api: MessagesApi, claude_program: str
):
    if claude_program == "2.0.0":
        return  # its servers cannot be set
    one, two = Server("one"), Server("two")

    @one.tool
    @two.tool
    async def hello() -> str:
        """Greet."""
        return "hello"

    async with claude({"one": one}) as opened:
        await opened.ask(script(say("ok")))
        await opened.add_server("two", two)
        await opened.ask(script(say("ok")))
        both = [*api.offered]
        await opened.remove_server("one")
        await opened.ask(script(say("ok")))
        status = opened.status

    assert {"mcp__one__hello", "mcp__two__hello"} <= set(both)
    assert "mcp__two__hello" in api.offered
    assert "mcp__one__hello" not in api.offered
    assert [*status] == ["two"]


async def test_silent_server_does_not_delay_turns_and_its_status_has_the_reason(
    claude: Make, api: MessagesApi
):
    async with claude({"mute": MUTE, "echo": ECHO}) as opened:
        answer = await opened.ask(script(say("ok")))
        state = opened.status["mute"].state

    assert answer.text == "ok"
    assert any(name.startswith("mcp__echo__") for name in api.offered)
    assert state == "starting"
