"""The layer of the call stack that makes only the calls that a policy allows."""

from __future__ import annotations

from interlock.calls import Around, Call, CallHandler, Outcome
from interlock.errors import InterlockError
from interlock.policy.policy import Policy


class CallDenied(InterlockError):
    """The policy does not let this caller make this call.

    Attributes:
        reason: Why, as a stable word.
        rule: Id of the rule that decided; "" for none.
    """

    def __init__(self, address: str, reason: str, rule: str = "") -> None:
        by = f" by rule {rule}" if rule else ""
        super().__init__(f"{address} is denied{by} ({reason})")
        self.reason = reason
        self.rule = rule


def enforce(policy: Policy) -> Around:
    """Return a layer for `Toolbox(around=[...])`. It raises `CallDenied`."""

    def wrap(handle: CallHandler) -> CallHandler:
        async def enforced(call: Call) -> Outcome:
            decision = policy.decide(call.caller, call.entry, call.arguments)
            if decision.effect != "allow":
                raise CallDenied(call.entry.address, decision.reason, decision.rule)
            return await handle(call)

        return enforced

    return wrap
