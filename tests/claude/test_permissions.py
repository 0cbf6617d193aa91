"""One decision for each call of the real program, in every mode and whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import Server
from interlock.claude import Allow, ClaudeCode, ClaudeDone, Deny, PermissionRequest
from interlock.config.gateway import PolicyRules, Rule
from interlock.policy import Policy
from tests.claude.messages_api import MessagesApi, call, say, script
from tests.claude.programs import NEWEST

Make = Callable[..., ClaudeCode]


class Recorder:
    """A decision function that keeps what it was asked."""

    def __init__(self, verdict: Any = None) -> None:
        self.asked: list[PermissionRequest] = []
        self._verdict = verdict or Allow()

    async def __call__(self, request: PermissionRequest) -> Any:
        self.asked.append(request)
        return self._verdict


@pytest.fixture
def server() -> Server:
    server = Server("s")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


ADD_AND_TOUCH = script(
    call(
        ("mcp__s__add", {"a": 2, "b": 3}), ("Bash", {"command": "touch made", "description": "x"})
    ),
    say("ok"),
)


@pytest.mark.parametrize("mode", ["default", "bypassPermissions", "acceptEdits"])
async def test_every_mode_asks_once_about_each_call(
    claude: Make, api: MessagesApi, server: Server, tmp_path: Path, mode: str
):
    decide = Recorder()
    async with claude({"s": server}, permissions=decide, mode=mode) as opened:
        answer = await opened.ask(ADD_AND_TOUCH)

    assert [each.address for each in decide.asked] == ["s:add", "claude-built-in:Bash"]
    assert decide.asked[0].arguments == {"a": 2, "b": 3}
    assert api.result_text(0) == "5"
    assert (tmp_path / "work" / "made").exists()
    assert answer.denials == ()


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
async def test_denied_calls_do_not_run_in_any_mode(
    claude: Make, api: MessagesApi, server: Server, tmp_path: Path, mode: str
):
    decide = Recorder(Deny("not today"))
    async with claude({"s": server}, permissions=decide, mode=mode) as opened:
        answer = await opened.ask(ADD_AND_TOUCH)

    assert "not today" in api.result_text(0)
    assert "not today" in api.result_text(1)
    assert not (tmp_path / "work" / "made").exists()
    assert set(answer.denials) == {"s:add", "claude-built-in:Bash"}


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
async def test_call_runs_with_the_arguments_that_the_user_changed(
    claude: Make, claude_program: str, api: MessagesApi, server: Server, tmp_path: Path, mode: str
):
    async def decide(request: PermissionRequest) -> Allow:
        if request.address == "s:add":
            return Allow({"a": 40, "b": 2})
        return Allow({**request.arguments, "command": "touch other"})

    async with claude({"s": server}, permissions=decide, mode=mode) as opened:
        await opened.ask(ADD_AND_TOUCH)

    assert api.result_text(0) == "42"
    is_old = claude_program == "2.0.0"  # it ignores changes of its own tools, so they do not run
    assert (tmp_path / "work" / "other").exists() != is_old
    assert not (tmp_path / "work" / "made").exists()


@pytest.mark.parametrize("wrong", ["raises", "returns nothing", "is late"])
async def test_exception_in_the_permission_function_denies_the_call(
    claude: Make, api: MessagesApi, server: Server, tmp_path: Path, wrong: str
):
    async def decide(request: PermissionRequest) -> Any:
        if wrong == "raises":
            raise ValueError("s3cr3t")
        if wrong == "is late":
            await asyncio.sleep(60)
        return None

    async with claude({"s": server}, permissions=decide, decision_timeout=0.3) as opened:
        answer = await opened.ask(ADD_AND_TOUCH)

    assert len(answer.denials) == 2
    assert not (tmp_path / "work" / "made").exists()
    assert "s3cr3t" not in api.result_text(0)


async def test_remembered_tool_is_not_asked_about_again(claude: Make, server: Server):
    decide = Recorder(Allow(remember=True))
    add = call(("mcp__s__add", {"a": 2, "b": 3}))
    async with claude({"s": server}, permissions=decide) as opened:
        await opened.ask(script(add, add, say("ok")))

    assert len(decide.asked) == 1


async def test_interrupting_denial_ends_the_turn(claude: Make, server: Server):
    decide = Recorder(Deny("stop", interrupt=True))
    async with claude({"s": server}, permissions=decide) as opened:
        answer = await opened.ask(
            script(call(("mcp__s__add", {"a": 2, "b": 3})), say("must not be said"))
        )
        after = await opened.ask(script(say("Next.")))

    assert "must not be said" not in answer.text
    assert after.text == "Next."


async def test_policy_denial_is_final_and_ask_rules_go_to_the_permission_function(
    claude: Make, api: MessagesApi, server: Server
):
    rules = (
        Rule(id="ask", effect="ask", who=("*",), kind="tools", patterns=("s:*",)),
        Rule(id="no", effect="deny", who=("*",), kind="tools", patterns=("claude-built-in:*",)),
    )
    decide = Recorder()
    policy = Policy.compile(PolicyRules(rules=rules))
    async with claude({"s": server}, permissions=decide, policy=policy) as opened:
        answer = await opened.ask(ADD_AND_TOUCH)

    assert [each.address for each in decide.asked] == ["s:add"]
    assert answer.denials == ("claude-built-in:Bash",)
    assert "by rule no" in api.result_text(1)


async def test_questions_of_claude_are_answered_or_refused(
    claude: Make, api: MessagesApi, claude_program: str
):
    if claude_program == "2.0.0":
        return  # it has no such tool
    question = {
        "question": "Which?",
        "header": "Which",
        "multiSelect": False,
        "options": [
            {"label": "Red", "description": "r"},
            {"label": "Blue", "description": "b"},
        ],
    }
    ask = script(call(("AskUserQuestion", {"questions": [question]})), say("ok"))

    async def answer(questions: list[dict[str, Any]]) -> dict[str, str]:
        return {questions[0]["question"]: "Blue"}

    async with claude(questions=answer) as opened:
        await opened.ask(ask)
    assert "Blue" in api.result_text()
    async with claude() as opened:
        await opened.ask(ask)
    assert "no person can be asked" in api.result_text()


async def test_subagent_in_the_background_keeps_its_tools_and_shifts_no_answer(
    claude: Make, api: MessagesApi, server: Server, claude_program: str
):
    if claude_program == "2.0.0":
        return  # its subagents do not work in the background
    decide = Recorder()
    work = script(call(("mcp__s__add", {"a": 1, "b": 1})), say("sub done", seconds=0.1))
    agent = {
        "description": "add",
        "prompt": work,
        "subagent_type": "general-purpose",
        "run_in_background": True,
    }
    async with claude({"s": server}, permissions=decide) as opened:
        name = "Agent" if claude_program == NEWEST else "Task"
        first = await opened.ask(script(call((name, agent)), say("started")))
        if claude_program != "2.1.59":  # it joins both answers
            async for event in opened.events():
                if isinstance(event, ClaudeDone):
                    break
        second = await opened.ask(script(say("second")))

    assert first.text == "started"
    assert second.text == "second"
    [added] = [each for each in decide.asked if each.address == "s:add"]
    assert bool(added.agent) == (claude_program != "2.1.59")  # it does not say which


@pytest.mark.parametrize("settings", [(), ("project",)])
async def test_folder_is_trusted_only_if_the_settings_state_it(
    claude: Make, api: MessagesApi, server: Server, tmp_path: Path, settings: tuple[str, ...]
):
    folder = tmp_path / "work"
    (folder / ".claude").mkdir()
    hook = {"type": "command", "command": f"touch {tmp_path}/hooked"}
    hooks = {"PreToolUse": [{"matcher": "*", "hooks": [hook]}]}
    trusted = {"hooks": hooks, "enableAllProjectMcpServers": True}
    (folder / ".claude" / "settings.json").write_text(json.dumps(trusted))
    server_of_folder = {"command": "touch", "args": [f"{tmp_path}/started"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": server_of_folder}}))
    (folder / "CLAUDE.md").write_text("Say the word xyzzy.")
    async with claude({"s": server}, settings=settings) as opened:
        await opened.ask(ADD_AND_TOUCH)

    is_trusted = bool(settings)
    assert (tmp_path / "hooked").exists() == is_trusted
    assert (tmp_path / "started").exists() == is_trusted
    assert ("xyzzy" in str(api.requests[-1])) == is_trusted
