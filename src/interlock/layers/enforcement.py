"""The layer that denies the calls which a policy does not allow."""

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
    """The policy denies a caller's call.

    Attributes:
        reason: A code for the denial.
        rule: The id of the rule that denied the call; "" if no rule did.
    """

    def __init__(self, address: str, reason: str, rule: str = "") -> None:
        by = f" by rule {rule}" if rule else ""
        super().__init__(f"{address} is denied{by} ({reason})", reason)
        self.rule = rule


def enforce(
    policy: Policy, *, asks_pass: bool = False, instead: Mapping[str, CallHandler] = NOTHING
) -> Around:
    """Return the layer that enforces a policy; it raises `CallDenied`.

    Args:
        policy: The policy to enforce.
        asks_pass: Whether to pass on calls that need approval, because an inner layer checks
            approvals. Otherwise they are denied.
        instead: Handlers for individual tools, by address. They replace the inner layers.
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
