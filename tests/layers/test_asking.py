"""A program of one person asks its user before a call that must be approved."""

from __future__ import annotations

import pytest

from interlock.calls import Around, Call
from interlock.calls.decision import Decision
from interlock.errors import ApprovalMissing
from interlock.layers.asking import asking
from tests.layers.support import Upstream, call_of
from tests.support.rows import each_row


async def ask(upstream: Upstream, layer: Around, effect: str, approvers: tuple[str, ...]) -> None:
    call = call_of()
    call.decision = Decision(
        effect,  # type: ignore[arg-type] # one of the words
        "",
        "writes",
        approvers,
        None,
        None,
        "write",
        False,
    )
    await layer(upstream.handle)(call)


async def test_only_calls_that_need_an_approval_cause_a_question():
    asked: list[str] = []

    async def approve(call: Call, _: object) -> bool:
        asked.append(call.entry.address)
        return True

    upstream = Upstream()
    await ask(upstream, asking(approve), "allow", ("caller",))
    await ask(upstream, asking(approve), "ask", ("caller",))

    assert (asked, upstream.calls) == (["crm:refund"], 2)


@each_row("answer", [False, None])
async def test_a_call_that_its_user_does_not_approve_is_not_sent(answer: bool | None):
    async def refuse(_: Call, __: object) -> bool | None:
        return answer

    upstream = Upstream()
    with pytest.raises(ApprovalMissing, match="crm:refund was not run: the user refused"):
        await ask(upstream, asking(refuse), "ask", ("caller",))
    assert upstream.calls == 0


async def test_a_call_that_others_must_approve_is_refused_without_a_question():
    async def never(_: Call, __: object) -> bool:
        raise AssertionError

    with pytest.raises(ApprovalMissing, match="needs approval by user:b or group:ops"):
        await ask(Upstream(), asking(never), "ask", ("user:b", "group:ops"))
