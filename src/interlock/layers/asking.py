"""The layer that asks the user of a program about calls that must be approved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from interlock.calls.call import Call, Outcome
from interlock.calls.handlers import Around, CallHandler
from interlock.config.gateway import CALLER
from interlock.errors import ApprovalMissing

if TYPE_CHECKING:
    from interlock.store.approvals import Approval

# Asks callers to approve their own call: True to approve, False to deny, None without an answer.
# The approval is None if the program stores no approvals.
AskCaller: TypeAlias = "Callable[[Call, Approval | None], Awaitable[bool | None]]"


def asking(ask: AskCaller) -> Around:
    """Return a layer that asks about each call that must be approved, and stores no approvals.

    It is for programs of one person, without a gateway. It raises `ApprovalMissing`.
    """

    def wrap(handle: CallHandler) -> CallHandler:
        async def call_if_allowed(call: Call) -> Outcome:
            decision, address = call.decision, call.entry.address
            if decision is None or decision.effect != "ask":
                return await handle(call)
            if CALLER not in decision.approvers:
                text = f"{address} needs approval by {' or '.join(decision.approvers)}"
                raise ApprovalMissing(text, "approval_required", decision.rule)
            if not await ask(call, None):
                text = f"{address} was not run: the user refused this call"
                raise ApprovalMissing(text, "approval_denied", decision.rule)
            return await handle(call)

        return call_if_allowed

    return wrap
