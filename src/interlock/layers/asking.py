"""The layer that asks a program's user about calls that need approval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from interlock import observing
from interlock.calls.call import Call, Outcome
from interlock.calls.handlers import Around, CallHandler
from interlock.config.gateway import CALLER
from interlock.errors import ApprovalMissing

if TYPE_CHECKING:
    from interlock.store.approvals import Approval

# Asks a caller to approve their own call. Returns True to approve, False to deny, and None if the
# caller does not answer. The approval is None if the program stores no approvals.
AskCaller: TypeAlias = "Callable[[Call, Approval | None], Awaitable[bool | None]]"


def asking(ask: AskCaller) -> Around:
    """Return a layer that asks the user about each call that needs approval.

    It is for one person's program without a gateway, and stores no approvals. It raises
    `ApprovalMissing` if the user refuses.
    """

    def wrap(handle: CallHandler) -> CallHandler:
        async def call_if_allowed(call: Call) -> Outcome:
            decision, address = call.decision, call.entry.address
            if decision is None or decision.effect != "ask":
                return await handle(call)
            if CALLER not in decision.approvers:
                text = f"{address} needs approval by {' or '.join(decision.approvers)}"
                raise ApprovalMissing(text, "approval_required", decision.rule)
            with observing.waiting("approval"):
                is_allowed = await ask(call, None)
            if not is_allowed:
                text = f"{address} was not run: the user refused this call"
                raise ApprovalMissing(text, "approval_denied", decision.rule)
            return await handle(call)

        return call_if_allowed

    return wrap
