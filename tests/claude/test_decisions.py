"""Decisions about calls: one each, bound to the exact call, and always made."""

from __future__ import annotations

import asyncio
from typing import Any

from interlock.claude.decisions import (
    ASK_USER,
    MAX_DECISIONS,
    Allow,
    Decisions,
    Deny,
    PermissionRequest,
)
from tests.support.rows import each_row

CALL = PermissionRequest("s:add", {"a": 1}, "t1")


class Decider:
    """Counts and answers."""

    def __init__(self, verdict: Any = None) -> None:
        self.count = 0
        self._verdict = Allow() if verdict is None else verdict

    async def __call__(self, request: PermissionRequest) -> Any:
        self.count += 1
        await asyncio.sleep(0)
        return self._verdict


async def test_three_waiting_callers_get_the_same_decision():
    decide = Decider(Allow({"a": 2}))
    decisions = Decisions(decide, 5.0)
    hook, question = await asyncio.gather(decisions.of(CALL), decisions.of(CALL))
    used = await decisions.use(CALL)

    assert hook == question == used == Allow({"a": 2})
    assert decide.count == 1


async def test_user_decides_about_the_sent_arguments_and_the_program_keeps_its_own():
    asked: list[Any] = []

    async def decide(request: PermissionRequest) -> Allow:
        asked.append(request.arguments)
        return Allow()

    decisions = Decisions(decide, 5.0, convert=lambda request: {**request.arguments, "a": 1})
    given = PermissionRequest("s:add", {"a": "1"}, "t1")

    assert await decisions.of(given) == await decisions.use(given) == Allow({"a": "1"})
    assert asked == [{"a": 1}]


async def test_allowed_call_runs_once():
    decisions = Decisions(Decider(), 5.0)
    await decisions.use(CALL)

    assert await decisions.use(CALL) == Deny("this call has run already")


@each_row(
    "altered",
    [
        PermissionRequest("s:add", {"a": 2}, "t1"),
        PermissionRequest("s:add", {"a": True}, "t1"),
        PermissionRequest("s:add", {"a": 1, "b": None}, "t1"),
        PermissionRequest("s:sub", {"a": 1}, "t1"),
    ],
)
async def test_call_that_differs_from_the_allowed_one_is_denied_and_uses_it_up(
    altered: PermissionRequest,
):
    decisions = Decisions(Decider(), 5.0)
    await decisions.of(CALL)

    assert isinstance(await decisions.use(altered), Deny)
    assert isinstance(await decisions.use(CALL), Deny)


@each_row(
    ("allowed", "called"),
    [
        ({"a": 1.0}, {"a": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 2**53 + 1}, {"a": 2**53}),
        ({"a": [{"b": 1e3}]}, {"a": [{"b": 1000}]}),
    ],
)
async def test_call_that_only_javascript_has_reformatted_stays_allowed(
    allowed: dict[str, Any], called: dict[str, Any]
):
    decisions = Decisions(Decider(), 5.0)
    await decisions.of(PermissionRequest("s:add", allowed, "t1"))

    assert isinstance(await decisions.use(PermissionRequest("s:add", called, "t1")), Allow)


async def test_changed_arguments_run_even_if_the_program_sends_the_original_ones():
    decisions = Decisions(Decider(Allow({"a": 9})), 5.0)
    await decisions.of(CALL)

    assert await decisions.use(CALL) == Allow({"a": 9})


async def test_question_without_id_finds_the_decision_by_tool_and_arguments():
    decide = Decider()
    decisions = Decisions(decide, 5.0)
    await decisions.of(CALL)
    await decisions.of(PermissionRequest("s:add", {"a": 1}))

    assert decide.count == 1


async def test_call_without_a_permission_question_is_decided_when_it_runs():
    decide = Decider(Deny("no"))

    assert await Decisions(decide, 5.0).use(CALL) == Deny("no")
    assert decide.count == 1


async def test_withdrawn_question_cancels_the_function_and_denies_the_call():
    cancelled = asyncio.Event()

    async def decide(_: PermissionRequest) -> Allow:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return Allow()

    decisions = Decisions(decide, 100.0)
    first = asyncio.create_task(decisions.of(CALL))
    second = asyncio.create_task(decisions.of(CALL))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not cancelled.is_set()
    third = asyncio.create_task(decisions.of(CALL))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert cancelled.is_set()
    assert isinstance(await third, Deny)
    assert isinstance(await decisions.use(CALL), Deny)


@each_row("verdict", ["yes", True, Allow({"a": object()}), Allow([1]), Allow({"a": "\ud800"})])
async def test_invalid_result_of_the_permission_function_denies_the_call(verdict: Any):
    assert isinstance(await Decisions(Decider(verdict), 5.0).of(CALL), Deny)


def broken(_: PermissionRequest) -> Any:
    raise ValueError("s3cr3t")


@each_row(("decide", "check"), [(Decider(Deny()), None), (broken, None), (Decider(), broken)])
async def test_a_denial_is_reported_once_even_if_the_decider_or_policy_raises(
    decide: Any, check: Any
):
    denied: list[PermissionRequest] = []
    decisions = Decisions(
        decide, 5.0, check=check, on_deny=lambda request, _: denied.append(request)
    )
    verdicts = [await decisions.of(CALL), await decisions.of(CALL)]

    assert denied == [CALL]
    assert all(isinstance(each, Deny) for each in verdicts)
    assert "s3cr3t" not in str(verdicts)


async def test_number_of_remembered_decisions_is_bounded_and_the_newest_stay():
    decide = Decider()
    decisions = Decisions(decide, 5.0)
    calls = [
        PermissionRequest("s:add", {"a": 1}, str(number)) for number in range(MAX_DECISIONS + 1)
    ]
    for call in calls:
        await decisions.of(call)

    newest = [decisions.made(call) for call in calls[-MAX_DECISIONS // 2 :]]
    assert decisions.made(calls[0]) is None
    assert None not in newest


@each_row(
    ("checked", "decided", "expected", "asked"),
    [
        (Deny("policy"), Allow(), Deny("policy"), 0),
        (Allow(), None, Allow({"a": 1}), 0),
        (Allow(), Deny("person"), Deny("person"), 1),
        (None, Allow(), Allow({"a": 1}), 1),
    ],
)
async def test_policy_is_checked_before_the_permission_function(
    checked: Any, decided: Any, expected: Any, asked: int
):
    decide = None if decided is None else Decider(decided)
    decisions = Decisions(decide, 5.0, check=lambda _: checked)

    assert await decisions.of(CALL) == expected
    assert (decide.count if decide else 0) == asked


async def test_changed_arguments_are_checked_by_the_policy_as_well():
    def check(request: PermissionRequest) -> Allow | Deny:
        return Deny("too much") if request.arguments["a"] > 5 else Allow()

    decisions = Decisions(Decider(Allow({"a": 9})), 5.0, check=check)

    assert await decisions.of(CALL) == Deny("too much")


@each_row(("arguments", "kind"), [(None, Allow), ({"a": 1}, Allow), ({"a": 9}, Deny)])
async def test_argument_change_that_claude_code_would_ignore_denies_the_call(
    arguments: dict[str, Any] | None, kind: type
):
    decisions = Decisions(Decider(Allow(arguments)), 5.0, can_change=lambda _: False)

    assert isinstance(await decisions.of(CALL), kind)


@each_row(("address", "kind"), [("s:add", Allow), ("claude-built-in:Bash", Deny), (ASK_USER, Deny)])
async def test_only_toolbox_tools_are_allowed_if_no_permission_function_is_given(
    address: str, kind: type
):
    assert isinstance(await Decisions(None, 5.0).of(PermissionRequest(address, {}, "t")), kind)
