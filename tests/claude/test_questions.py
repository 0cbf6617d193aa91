"""What Claude Code asks besides MCP, without the program."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.claude.decisions import Allow, Decisions, Deny, PermissionRequest
from interlock.claude.questions import Questions, UnsupportedQuestion
from interlock.types import ElicitParams, ElicitResult
from tests.support.rows import each_row

SUGGESTED = {"type": "addRules", "destination": "localSettings", "rules": [{"toolName": "Bash"}]}


def questions_of(verdict: Allow | Deny) -> Questions:
    async def decide(request: PermissionRequest) -> Allow | Deny:
        assert request.suggestions in ((), (SUGGESTED,))
        return verdict

    async def person(params: ElicitParams) -> ElicitResult:
        shown = {"said": params.message, "form": params.requested_schema}
        return ElicitResult(
            "accept", {key: value for key, value in shown.items() if value is not None}
        )

    return Questions(
        Decisions(decide, 5.0),
        lambda tool: f"claude-built-in:{tool}",
        lambda _: "",
        person,
    )


async def asked(questions: Questions, subtype: str, **request: Any) -> Any:
    line = msgspec.json.encode({"request": {"subtype": subtype, **request}})
    answer = questions.answer(subtype, line)
    return msgspec.json.decode(answer if isinstance(answer, bytes) else await answer)


PERMISSION = {"tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t1"}


@each_row(
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


async def test_hook_changes_the_arguments_and_the_permission_follows_at_once():
    questions = questions_of(Allow({"command": "pwd"}))
    hook = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    said = await asked(
        questions, "hook_callback", callback_id="decide", input=hook, tool_use_id="t1"
    )
    assert said["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow",
        "updatedInput": {"command": "pwd"},
    }

    line = msgspec.json.encode({"request": {"subtype": "can_use_tool", **PERMISSION}})
    answer = questions.answer("can_use_tool", line)
    assert isinstance(answer, bytes)
    assert b'"updatedInput":{"command":"pwd"}' in answer


@each_row("request_of", [{"input": []}, {"input": {"tool_input": ["ls"]}}])
async def test_hook_that_cannot_be_read_denies_the_call(request_of: dict[str, Any]):
    said = await asked(questions_of(Allow()), "hook_callback", callback_id="decide", **request_of)

    assert said["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_elicitation_is_answered():
    questions = questions_of(Allow())
    answer = await asked(questions, "elicitation", message="How many?", mode="form")
    assert answer == {"action": "accept", "content": {"said": "How many?"}}


async def test_elicitation_has_no_default_that_does_not_fit():
    form = {"properties": {"n": {"type": "integer", "default": "5"}}}

    answer = await asked(questions_of(Allow()), "elicitation", requested_schema=form)

    assert answer["content"]["form"] == {"properties": {"n": {"type": "integer"}}}


async def test_other_questions_are_unsupported():
    questions = questions_of(Allow())
    with pytest.raises(UnsupportedQuestion):
        await asked(questions, "request_user_dialog")
