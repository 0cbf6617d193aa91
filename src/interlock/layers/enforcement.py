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
    """The policy does not let this caller make this call.

    Attributes:
        reason: Why, as a stable word.
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
        policy: Decides.
        asks_pass: Pass on calls that must be approved, because a layer further in sees to that.
            Otherwise they are denied.
        instead: The handlers of single tools by address, in place of the layers further in.
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
