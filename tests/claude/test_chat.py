"""`interlock chat --model claude-code` with the real program."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from shutil import rmtree
from typing import cast

import pytest

from interlock.agent import ToolStarted
from interlock.chat import ConversationLog
from interlock.claude import ClaudeCode, ClaudeEvent
from interlock.claude.chat import ChatAgent
from interlock.errors import ModelUnavailable
from interlock.messages import AssistantMessage, Message, ToolCall, UserMessage, interrupted
from interlock.models import TextDelta
from interlock.store import ConversationStore
from interlock.store.chat.transcripts import role_of
from tests.claude.conftest import Run
from tests.claude.messages_api import MessagesApi, call, say, script

PNG = b64decode(  # one red pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


async def test_chat_runs_toolbox_tools_and_stores_a_conversation_for_any_model(
    interlock: Run, api: MessagesApi, tmp_path: Path
):
    (tmp_path / "cat.png").write_bytes(PNG)
    calls = call(("mcp__math__add", {"a": 2, "b": 3}), ("mcp__math__store", {"n": 5}), text="So:")
    prompt = script(calls, say("It is 5."), prompt="Add, please.")
    code, out, err = await interlock(
        "chat", prompt, "--model", "claude-code", "-a", "cat.png", "--config", "mcp.json"
    )

    assert (code, out.splitlines()[-1]) == (0, "It is 5.")
    assert "[TOOL] math:add ok" in err
    assert "no person can be asked" in err
    assert "image/png" in str(api.requests[0]["messages"])

    answers = tmp_path / "answers.json"
    answers.write_text('[{"content": "Yes, 5."}]')
    model = f"scripted:{answers}"
    code, out, _ = await interlock("chat", "Really?", "--continue", "--model", model, "--json")
    assert code == 0
    async with ConversationStore.open(tmp_path / "chat.db") as store:
        [conversation] = await store.list()
        stored = await store.messages(conversation.id)
    roles = [role_of(each) for each in stored]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
    assert isinstance(stored[1], AssistantMessage)
    assert [each.name for each in stored[1].tool_calls] == ["math__add", "math__store"]
    assert stored[2].content == "5"

    code, _, err = await interlock("chat", "And?", "--continue", "--model", "claude-code")
    assert code == 1
    assert "another model has taken part in conversation" in err


async def test_conversation_continues_its_session_until_claude_code_forgets_it(
    interlock: Run, claude_program: str, api: MessagesApi, tmp_path: Path
):
    if claude_program == "2.0.0":
        return  # its own tools cannot be left out
    await interlock("chat", script(say("One.")), "--model", "claude-code:opus", "--no-tools")
    assert {"Bash", "Write"}.isdisjoint(api.offered)
    code, out, _ = await interlock("chat", script(say("Two.")), "--continue")
    assert (code, out) == (0, "Two.\n")
    assert "One." in str(api.requests[-1]["messages"])
    assert "opus" in api.requests[-1]["model"]

    rmtree(tmp_path / "config" / "projects")
    code, _, err = await interlock("chat", "Three.", "--continue")
    assert code == 1
    assert f"it began in {tmp_path}: go there, or start another conversation" in err


async def test_failed_answer_and_missing_program_are_errors(interlock: Run):
    code, _, err = await interlock(
        *("chat", script(say("no luck", status=400)), "--model", "claude-code"),
        *("--config", "mcp.json"),
    )
    assert code == 1
    assert "no luck" in err

    code, _, err = await interlock(
        "chat", "Hello", "--model", "claude-code", INTERLOCK_CLAUDE="/does/not/exist"
    )
    assert code == 1
    assert "/does/not/exist" in err


class Program:
    """Claude Code that is calling a tool, which does not end."""

    session = "s-1"

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def stream(self, _: object) -> AsyncGenerator[ClaudeEvent, None]:
        yield TextDelta("Let me add. ")
        yield ToolStarted("t-1", "math:add", {"a": 2})
        await asyncio.Event().wait()


async def test_stopped_answer_leaves_a_result_for_each_call():
    made: list[str | None] = []

    def make(session: str | None) -> ClaudeCode:
        made.append(session)
        return cast("ClaudeCode", Program())

    recorded: list[Message] = []

    async def record(messages: Sequence[Message]) -> None:
        recorded.extend(messages)

    agent = ChatAgent(make, ConversationLog(None, warn=print), print)
    messages: list[Message] = [UserMessage("Add.")]
    events = agent.stream(messages, record)
    assert isinstance(await anext(events), TextDelta)
    assert isinstance(await anext(events), ToolStarted)
    await events.aclose()

    call = ToolCall("t-1", "math__add", {"a": 2})
    assert recorded == [AssistantMessage("Let me add. ", (call,)), interrupted(call)]
    assert messages[1:] == recorded
    await agent.begin(ConversationLog(None, warn=print))
    assert made == [None]


async def test_model_of_another_provider_cannot_continue_the_conversation():
    agent = ChatAgent(
        lambda _: cast("ClaudeCode", Program()), ConversationLog(None, warn=print), print
    )
    with pytest.raises(ModelUnavailable, match="cannot pass it on to openai:x"):
        await agent.change_model("openai:x")
