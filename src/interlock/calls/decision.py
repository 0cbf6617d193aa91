"""The decision whether a call may be made, and the steps that led to the decision."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from interlock.config.gateway import Effect, Record, Risk
from interlock.schema.condition import problem

Reason = Literal[
    "",
    "not_installed",
    "not_in_view",
    "scope",
    "read_only",
    "denied_by_rule",
    "no_rule",
    "approval_required",
]
"""A code for why a call may not be made; "" if it may be made."""


class RuleFact(Struct, frozen=True):
    """How a rule contributed to a decision.

    Attributes:
        rule: The rule's id.
        effect: The rule's effect.
        holds: Whether the rule matches the call; None if that depends on arguments not given.
        failed: The part that did not match: "who", "view", "risk", "claims" or "arguments"; ""
            otherwise.
        name: The claim or argument that did not meet its condition.
        keyword: The keyword of the condition that was not met; "absent" if the value is missing.
    """

    rule: str
    effect: Effect
    holds: bool | None
    failed: str = ""
    name: str = ""
    keyword: str = ""

    @property
    def is_telling(self) -> bool:
        """Whether the rule could have changed the decision if it had matched."""
        return not self.holds and (self.effect != "deny" or self.failed in ("", "arguments"))

    def __str__(self) -> str:
        if self.holds is None:
            return f"rule {self.rule} depends on the arguments"
        if self.holds:
            return f"rule {self.rule}"
        match self.failed:
            case "who":
                why = "it is for other callers"
            case "view":
                why = "it is for another view"
            case "risk":
                why = "it is for tools of another risk"
            case failed:
                what = f"claim {self.name}" if failed == "claims" else self.name
                absent = self.keyword == "absent"
                why = f"{what} {'is missing' if absent else problem(self.keyword)}"
        return f"rule {self.rule} does not hold: {why}"


class Step(Struct, frozen=True):
    """One of the checks that lead to a decision.

    Attributes:
        step: The check's name: "view", "scope", "read_only" or "policy".
        verdict: "ok", "ask" or "deny".
        detail: The reason in words. It contains no values of arguments or claims.
        rules: For the step "policy", all rules for this tool; otherwise empty.
    """

    step: str
    verdict: Literal["ok", "ask", "deny"]
    detail: str
    rules: tuple[RuleFact, ...] = ()


class Decision(Struct, frozen=True, eq=False):
    """The decision whether a call may be made.

    Attributes:
        effect: "allow", "ask" or "deny".
        reason: A code for why the call is not allowed; "" if it is allowed.
        rule: The id of the rule that decided; "" if no rule did.
        approvers: For "ask", the approvers that the rule names.
        expires: For "ask", seconds until an approval expires; None for the gateway's default.
        record: How to record the arguments; None for the gateway's default.
        risk: The tool's risk.
        is_uncertain: Whether no arguments were given, and some arguments would change the decision.
    """

    effect: Effect
    reason: Reason
    rule: str
    approvers: tuple[str, ...]
    expires: float | None
    record: Record | None
    risk: Risk
    is_uncertain: bool

    def __repr__(self) -> str:
        return f"Decision({self.effect!r}, {self.reason!r}, {self.rule!r})"
