"""Servers to which the real program connects itself: what it offers them, and uses of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import StdioServer
from interlock.claude import ClaudeCode
from interlock.claude.decisions import allow_all
from interlock.types import ElicitParams, ElicitResult
from tests.claude.messages_api import MessagesApi, call, say, script
from tests.claude.programs import NEWEST

MISSING = StdioServer(command="/no/such/program")
NOTES = """
from interlock import Context, Server

server = Server("notes")
form = {"type": "object", "properties": {"time": {"type": "string"}}}


@server.tool
def note(context: Context) -> str:
    return f"noted in {context.revision}"


@server.tool
async def roots(context: Context) -> str:
    return " ".join(root.uri for root in await context.roots())


@server.tool
async def book(context: Context) -> str:
    answer = await context.elicit("When?", form)
    return f"booked at {answer.content['time']}"


@server.resource("notes://today")
def today() -> str:
    return "buy milk"


@server.prompt
def greet(name: str) -> str:
    return f"Greet {name}."
"""


async def test_tools_resources_prompts_and_questions_of_a_direct_server(
    claude: Callable[..., ClaudeCode],
    api: MessagesApi,
    claude_program: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    if claude_program == "2.0.0":
        return  # its servers cannot be set
    path = tmp_path / "notes.py"
    path.write_text(NOTES)
    is_new = claude_program != "2.1.59"  # which only calls tools of servers that are set later
    notes = StdioServer(
        command=sys.executable,
        args=("-m", "interlock", "run", str(path)),
        env={"NOTES_TOKEN": "s3cr3t"},
    )

    async def person(question: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"time": f"noon ({question.message})"})

    servers = {"notes": notes, "broken": MISSING}
    options = {"direct": [*servers], "permissions": allow_all, "elicitation": person}
    read = ("ReadMcpResourceTool", {"server": "notes", "uri": "notes://today"})
    async with claude(servers, **options) as opened:
        calls = call(("mcp__notes__note", {})), call(("mcp__notes__roots", {})), call(read)
        await opened.ask(script(*calls, say("ok")))
        used = [api.result_text(at) for at in range(3)]
        if is_new:
            await opened.ask(script(call(("mcp__notes__book", {})), say("ok")))
            assert api.result_text() == "booked at noon (When?)"
        await opened.ask("/mcp__notes__greet Bob")
        status = opened.status
        process = Path(f"/proc/{opened.process_id}")
        started = [(process / name).read_text() for name in ("cmdline", "environ")]

    assert used[0] == f"noted in {'2026-07-28' if claude_program == NEWEST else '2025-11-25'}"
    assert used[1] == (tmp_path / "work").as_uri()
    assert ("buy milk" in used[2]) == is_new
    assert ("Greet Bob." in str(api.requests[-1]["messages"][-1])) == is_new
    assert "s3cr3t" not in f"{started} {opened!r} {notes!r} {status} {caplog.text}"
    assert not any("sk-ant" in each for each in (started[0], caplog.text, repr(opened)))
    assert status["notes"].state == "ok"
    assert status["broken"].state == "failed"
    assert status["broken"].reason
