"""The layer of the call stack that makes only the calls that a policy allows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from interlock.calls import Around, Call, CallHandler, Outcome
from interlock.errors import CallRefused

if TYPE_CHECKING:
    from interlock.policy import Policy

NOTHING: Mapping[str, CallHandler] = MappingProxyType({})


class CallDenied(CallRefused):
    """The policy denies this call to this caller.

    Attributes:
        reason: The code of the denial.
        rule: Id of the rule that decided; "" for none.
    """

    def __init__(self, address: str, reason: str, rule: str = "", *, text: str = "") -> None:
        by = f" by rule {rule}" if rule else ""
        super().__init__(text or f"{address} is denied{by} ({reason})", reason)
        self.rule = rule


def enforce(
    policy: Policy, *, asks_pass: bool = False, instead: Mapping[str, CallHandler] = NOTHING
) -> Around:
    """Return the layer of a policy. It raises `CallDenied`.

    Args:
        policy: The policy that decides.
        asks_pass: Pass on calls that must be approved, because an inner layer checks approvals.
            Otherwise they are denied.
        instead: Handlers of single tools by address; they replace the inner layers.
    """

    def wrap(handle: CallHandler) -> CallHandler:
        async def enforced(call: Call) -> Outcome:
            decision = policy.decide(call.caller, call.entry, call.arguments)
            call.decision = decision
            if decision.effect != "allow" and not (asks_pass and decision.effect == "ask"):
                raise CallDenied(call.entry.address, decision.reason, decision.rule)
            return await instead.get(call.entry.address, handle)(call)

        return enforced

    return wrap
