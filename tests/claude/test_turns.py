"""Turns of the real program: interrupted, cancelled, abandoned, failed, continued."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import Server
from interlock.agent import ToolFinished, ToolStarted
from interlock.claude import ClaudeCode, ClaudeDone, ClaudeToolProgress, Retrying
from interlock.claude.decisions import allow_all
from interlock.context import Context
from interlock.errors import ConnectionClosed, UnknownSession
from interlock.types import ToolAnnotations
from tests.claude.messages_api import MessagesApi, call, say, script
from tests.claude.programs import NEWEST
from tests.claude.test_tool_lists import ECHO

Make = Callable[..., ClaudeCode]
WAIT = script(call(("mcp__slow__wait", {})), say("Waited."))
HELLO = script(say("Hello."))


class Slow:
    """A server with a tool that ends only when it is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.server = Server("slow")

        @self.server.tool
        async def wait(context: Context) -> str:
            """Wait."""
            context.progress(1, 2, "half")
            self.started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "done"


async def test_interrupt_ends_the_tool_and_the_turn_and_the_next_turn_is_clean(claude: Make):
    slow = Slow()
    async with claude({"slow": slow.server}) as opened:
        asking = asyncio.create_task(opened.ask(WAIT))
        await slow.started.wait()
        await opened.interrupt()
        await slow.cancelled.wait()
        answer = await asking
        after = await opened.ask(HELLO)

    assert (answer.stop_reason, answer.is_error) == ("interrupted", False)
    assert after.text == "Hello."


async def test_cancelled_ask_ends_the_tool_and_the_next_turn_is_clean(claude: Make):
    slow = Slow()
    async with claude({"slow": slow.server}) as opened:
        asking = asyncio.create_task(opened.ask(WAIT))
        await slow.started.wait()
        asking.cancel()
        await slow.cancelled.wait()
        after = await opened.ask(HELLO)

    assert asking.cancelled()
    assert after.text == "Hello."


async def test_abandoned_stream_reports_progress_and_ends_the_tool(claude: Make):
    async def first_progress(prompt: str) -> ClaudeToolProgress:
        async for event in opened.stream(prompt):
            if isinstance(event, ClaudeToolProgress):
                return event
        raise AssertionError("no progress")

    slow = Slow()
    async with claude({"slow": slow.server, "echo": ECHO}) as opened:
        here = await first_progress(WAIT)
        await slow.cancelled.wait()
        outside = await first_progress(script(call(("mcp__echo__wait", {})), say("Waited.")))
        after = await opened.ask(HELLO)

    assert (here.address, here.progress, here.total, here.message) == ("slow:wait", 1, 2, "half")
    assert (outside.address, outside.message) == ("echo:wait", "half-way")
    assert after.text == "Hello."


async def test_two_prompts_at_once_take_turns(claude: Make):
    async with claude() as opened:
        one, two = await asyncio.gather(
            opened.ask(script(say("one", seconds=0.2))), opened.ask(script(say("two")))
        )

    assert (one.text, two.text) == ("one", "two")


@pytest.mark.parametrize("status", [400, 401, 529])
async def test_error_of_the_api_is_an_answer_with_the_reason(
    claude: Make, claude_program: str, status: int
):
    async with claude() as opened:
        events = [event async for event in opened.stream(script(say("no luck", status=status)))]

    done = events[-1]
    assert isinstance(done, ClaudeDone)
    assert done.answer.is_error
    assert done.answer.stop_reason == "api_error"
    assert done.answer.reason
    if status == 529 and claude_program not in ("2.1.59", "2.0.0"):  # they retry in silence
        assert any(isinstance(event, Retrying) for event in events)


async def test_turn_limit_is_reported_as_the_stop_reason(claude: Make):
    server = Server("s")

    @server.tool
    async def again() -> str:
        """Go on."""
        return "again"

    turns = [call(("mcp__s__again", {})) for _ in range(5)]
    async with claude({"s": server}, max_turns=2) as opened:
        answer = await opened.ask(script(*turns))

    assert (answer.is_error, answer.stop_reason) == (True, "max_turns")


async def test_killed_program_fails_the_turn_at_once_and_reopen_continues_the_session(
    claude: Make, claude_program: str, api: MessagesApi
):
    slow = Slow()
    async with claude({"slow": slow.server}) as opened:
        await opened.ask(HELLO)
        session = opened.session
        asking = asyncio.create_task(opened.ask(WAIT))
        await slow.started.wait()
        assert opened.process_id is not None
        os.kill(opened.process_id, signal.SIGKILL)
        with pytest.raises(ConnectionClosed, match="ended by signal 9"):
            await asking
        await slow.cancelled.wait()
        with pytest.raises(ConnectionClosed, match="ended by signal 9"):
            await opened.ask(HELLO)

        try:
            await opened.reopen()
        except UnknownSession:  # older versions store a session later than its turn ends
            assert claude_program != NEWEST
            return
        answer = await opened.ask(script(say("Back.")))

    assert answer.text == "Back."
    assert opened.session == session
    assert "Hello." in str(api.requests[-1]["messages"])


async def test_resume_continues_and_fork_copies_a_session(claude: Make, api: MessagesApi):
    async with claude() as opened:
        first = await opened.ask(HELLO)
    async with claude(resume=first.session) as opened:
        second = await opened.ask(script(say("Again.")))
    async with claude(resume=first.session, fork=True) as opened:
        third = await opened.ask(script(say("Copy.")))

    assert second.session == first.session
    assert third.session != first.session
    assert "Again." in str(api.requests[-1]["messages"])


async def test_resume_of_an_unknown_session_raises_at_open(claude: Make):
    unknown = "11111111-1111-4111-8111-111111111111"

    with pytest.raises(UnknownSession, match=unknown):
        await claude(resume=unknown).open()


async def test_output_schema_returns_structured_output(claude: Make, claude_program: str):
    if claude_program == "2.0.0":
        return  # it has no such option
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with claude(output_schema=schema) as opened:
        answer = await opened.ask(script(call(("StructuredOutput", {"n": 5})), say("It is 5.")))

    assert answer.structured == {"n": 5}


async def test_eight_calls_run_at_once_beside_one_of_an_external_server(
    claude: Make, api: MessagesApi
):
    server, all_run = Server("s"), asyncio.Barrier(8)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def double(n: int) -> int:
        """Double a number."""
        await all_run.wait()
        if n == 7:
            raise ValueError("s3cr3t")
        return 2 * n

    calls = [("mcp__s__double", {"n": n}) for n in range(8)]
    outside = call(("mcp__echo__say", {"text": "hi"}))
    async with claude({"s": server, "echo": ECHO}) as opened:
        prompt = script(call(*calls), outside, say("ok"))
        events = [event async for event in opened.stream(prompt)]

    started = [event.id for event in events if isinstance(event, ToolStarted)]
    ended = {event.id: event for event in events if isinstance(event, ToolFinished)}
    *doubled, failed, said = [ended[id] for id in started]
    assert [each.result for each in doubled] == [str(2 * n) for n in range(7)]
    assert failed.is_error
    assert "s3cr3t" not in failed.result
    assert (said.address, said.result) == ("echo:say", "hi")
    assert "s3cr3t" not in str(api.requests)


async def test_model_and_mode_can_be_changed_while_claude_code_runs(
    claude: Make, claude_program: str, api: MessagesApi, tmp_path: Path
):
    file = tmp_path / "work" / "made"
    write = script(call(("Write", {"file_path": str(file), "content": "x"})), say("ok"))
    async with claude(model="opus") as opened:
        await opened.ask(write)
        assert "opus" in api.requests[-1]["model"]
        assert not file.exists()
        await opened.set_model("sonnet")
        await opened.set_mode("acceptEdits")
        await opened.ask(write)
        if claude_program not in ("2.1.59", "2.0.0"):  # they do not know the question
            assert (await opened.context_usage())["totalTokens"] > 0

    assert "sonnet" in api.requests[-1]["model"]
    assert file.read_text() == "x"


async def test_verbatim_prompt_reads_no_file_and_rewind_restores_what_its_turn_wrote(
    claude: Make, api: MessagesApi, claude_program: str, tmp_path: Path
):
    if claude_program != "2.1.330":
        return  # older programs ignore `verbatim`
    file = tmp_path / "work" / "note.txt"
    file.write_text("xyzzy")
    read, write = {"file_path": str(file)}, {"file_path": str(file), "content": "after"}
    checkpoints = {"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"}
    turns = call(("Read", read)), call(("Write", write)), say("ok")
    async with claude(permissions=allow_all, verbatim=True, env=checkpoints) as opened:
        answer = await opened.ask(script(*turns, prompt=f"Change @{file}"))
        assert "xyzzy" not in str(api.requests[0]["messages"])
        assert file.read_text() == "after"
        await opened.rewind(answer.prompt)
        assert file.read_text() == "xyzzy"
