"""The real program with our servers: what the model was given, and what the caller sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock import Server
from interlock.agent import ToolFinished, ToolStarted
from interlock.claude import Allow, ClaudeCode, ClaudeDone, Deny, PermissionRequest
from interlock.models import TextDelta
from tests.claude.messages_api import MessagesApi, call, say, script
from tests.support.recorded_spans import named, recorded_spans, tree

Make = Callable[..., ClaudeCode]


def calculator() -> Server:
    server = Server("calculator")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


async def test_ask_with_a_server_in_this_program_returns_the_answer(claude: Make, api: MessagesApi):
    async with claude({"math": calculator()}) as opened:
        answer = await opened.ask(
            script(call(("mcp__math__add", {"a": 2, "b": 3})), say("It is 5."))
        )

    assert answer.text == "It is 5."
    assert (answer.is_error, answer.stop_reason, answer.denials) == (False, "end_turn", ())
    assert answer.session == opened.session
    assert api.result_text() == "5"


async def test_stream_yields_text_and_calls_in_order_and_done_last(claude: Make):
    async with claude({"math": calculator()}) as opened:
        events = [
            event
            async for event in opened.stream(
                script(
                    call(("mcp__math__add", {"a": 2, "b": 3}), text="Let me see."),
                    say("It is 5."),
                )
            )
        ]

    seen: list[Any] = [event for event in events if not isinstance(event, TextDelta)]
    assert [type(event) for event in seen] == [ToolStarted, ToolFinished, ClaudeDone]
    assert seen[0].address == "math:add"
    assert (seen[1].result, seen[1].is_error) == ("5", False)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "Let me see.It is 5."


async def test_permissions_decide_once_about_each_call_built_in_ones_included(
    claude: Make, api: MessagesApi
):
    asked: list[PermissionRequest] = []

    async def decide(request: PermissionRequest) -> Allow | Deny:
        asked.append(request)
        if request.address == "math:add":
            return Allow({"a": 20, "b": 3})
        return Deny("not today")

    async with claude({"math": calculator()}, permissions=decide) as opened:
        answer = await opened.ask(
            script(
                call(("mcp__math__add", {"a": 2, "b": 3}), ("Bash", {"command": "touch made"})),
                say("ClaudeDone."),
            )
        )

    assert [each.address for each in asked] == ["math:add", "claude-built-in:Bash"]
    assert answer.denials == ("claude-built-in:Bash",)
    assert api.result_text(0) == "23"
    assert "not today" in api.result_text(1)


async def test_calls_of_claude_code_are_within_the_span_of_its_answer(claude: Make):
    with recorded_spans() as spans:
        async with claude({"math": calculator()}) as opened:
            spans.clear()
            await opened.ask(script(call(("mcp__math__add", {"a": 2, "b": 3})), say("It is 5.")))

    assert {each[1:] for each in tree(spans)} == {
        ("invoke_agent claude-code", ""),
        ("execute_tool add", "invoke_agent claude-code"),
        ("tools/call add", "execute_tool add"),
        ("tools/call add", "tools/call add"),
    }
    assert "gen_ai.conversation.id" in named(spans, "invoke_agent claude-code").attributes
    assert str(named(spans, "execute_tool add").attributes["gen_ai.tool.call.id"]).startswith(
        "toolu"
    )
