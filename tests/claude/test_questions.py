"""What Claude Code asks besides MCP, without the program."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.claude.decisions import Allow, Decisions, Deny, Request
from interlock.claude.questions import Questions, UnsupportedQuestion
from interlock.types import ElicitParams, ElicitResult

SUGGESTED = {"type": "addRules", "destination": "localSettings", "rules": [{"toolName": "Bash"}]}


def questions_of(verdict: Allow | Deny, *, applies_changes: bool = True) -> Questions:
    async def decide(request: Request) -> Allow | Deny:
        assert request.suggestions in ((), (SUGGESTED,))
        return verdict

    async def person(params: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"said": params.message})

    return Questions(
        Decisions(decide, 5.0),
        lambda tool: f"claude-built-in:{tool}",
        lambda _: "",
        person,
        lambda: applies_changes,
    )


async def asked(questions: Questions, subtype: str, **request: Any) -> Any:
    line = msgspec.json.encode({"request": {"subtype": subtype, **request}})
    answer = questions.answer(subtype, line)
    return msgspec.json.decode(answer if isinstance(answer, bytes) else await answer)


PERMISSION = {"tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t1"}


@pytest.mark.parametrize(
    ("verdict", "answer"),
    [
        (Allow(), {"behavior": "allow", "updatedInput": {"command": "ls"}}),
        (Allow(remember=True), {"behavior": "allow", "updatedInput": {"command": "ls"}}),
        (Allow({"command": "pwd"}), {"behavior": "allow", "updatedInput": {"command": "pwd"}}),
        (Deny("no"), {"behavior": "deny", "message": "no"}),
        (Deny("no", interrupt=True), {"behavior": "deny", "message": "no", "interrupt": True}),
    ],
)
async def test_permission_always_has_the_arguments_and_never_the_suggested_rules(
    verdict: Allow | Deny, answer: dict[str, Any]
):
    more = {"permission_suggestions": [SUGGESTED]}
    assert await asked(questions_of(verdict), "can_use_tool", **PERMISSION, **more) == answer


@pytest.mark.parametrize(("applies_changes", "decision"), [(True, "allow"), (False, "ask")])
async def test_changed_arguments_reach_programs_that_take_them_only_with_a_permission(
    applies_changes: bool, decision: str
):
    questions = questions_of(Allow({"command": "pwd"}), applies_changes=applies_changes)
    hook = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "t1",
    }
    said = await asked(questions, "hook_callback", callback_id="decide", input=hook)
    assert said["hookSpecificOutput"]["permissionDecision"] == decision

    permission = await asked(questions, "can_use_tool", **PERMISSION)
    assert permission["updatedInput"] == {"command": "pwd"}


async def test_permission_is_answered_at_once_after_the_hook():
    questions = questions_of(Allow())
    hook = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    await asked(questions, "hook_callback", callback_id="decide", input=hook, tool_use_id="t1")

    line = msgspec.json.encode({"request": {"subtype": "can_use_tool", **PERMISSION}})
    assert isinstance(questions.answer("can_use_tool", line), bytes)


@pytest.mark.parametrize("request_of", [{"input": []}, {"input": {"tool_input": ["ls"]}}])
async def test_hook_that_cannot_be_read_denies_the_call(request_of: dict[str, Any]):
    said = await asked(questions_of(Allow()), "hook_callback", callback_id="decide", **request_of)

    assert said["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_elicitation_is_answered_and_other_questions_are_unsupported():
    questions = questions_of(Allow())
    answer = await asked(questions, "elicitation", message="How many?", mode="form")
    assert answer == {"action": "accept", "content": {"said": "How many?"}}
    with pytest.raises(UnsupportedQuestion):
        await asked(questions, "request_user_dialog")
