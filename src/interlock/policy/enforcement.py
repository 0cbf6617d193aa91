"""The layer of the call stack that makes only the calls that a policy allows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from interlock.calls import Around, Call, CallHandler, Outcome
from interlock.calls.decision import Decision
from interlock.errors import CallRefused
from interlock.policy.policy import Policy

Approve = Callable[[Call, Decision], Awaitable[None]]


class CallDenied(CallRefused):
    """The policy, or a person that it asked, does not let this caller make this call.

    Attributes:
        reason: Why, as a stable word.
        rule: Id of the rule that decided; "" for none.
    """

    def __init__(self, address: str, reason: str, rule: str = "", *, text: str = "") -> None:
        by = f" by rule {rule}" if rule else ""
        super().__init__(text or f"{address} is denied{by} ({reason})", reason)
        self.rule = rule


def enforce(policy: Policy, approve: Approve | None = None) -> Around:
    """Return a layer for `Toolbox(around=[...])`. It raises `CallDenied`.

    Args:
        policy: Decides.
        approve: Awaited for a call that must be approved. It returns to let the call pass, and
            raises `CallDenied` otherwise. None denies such calls.
    """

    def wrap(handle: CallHandler) -> CallHandler:
        async def enforced(call: Call) -> Outcome:
            decision = policy.decide(call.caller, call.entry, call.arguments)
            call.decision = decision
            if decision.effect == "ask" and approve is not None:
                await approve(call, decision)
            elif decision.effect != "allow":
                raise CallDenied(call.entry.address, decision.reason, decision.rule)
            return await handle(call)

        return enforced

    return wrap
