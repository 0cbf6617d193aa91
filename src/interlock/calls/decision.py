"""The decision whether a call may be made, and the steps that led to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

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
"""The code of the reason why a call may not be made; "" if it may."""


class RuleFact(Struct, frozen=True):
    """The contribution of one rule to a decision.

    Attributes:
        rule: The id of the rule.
        effect: The effect of the rule.
        holds: The rule applies to the call; None if that depends on arguments not given.
        failed: The part that did not hold: "who", "view", "risk", "claims" or "arguments".
        name: The claim or argument that did not fit.
        keyword: The keyword of its condition that failed; "absent" if it is missing.
    """

    rule: str
    effect: Effect
    holds: bool | None
    failed: str = ""
    name: str = ""
    keyword: str = ""

    @property
    def is_telling(self) -> bool:
        """Whether the rule might have changed the decision if it had held."""
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
    """One of the checks that make up a decision.

    Attributes:
        step: The name of the check: "view", "scope", "read_only" or "policy".
        verdict: "ok", "ask" or "deny".
        detail: The reason in words, without any value of an argument or claim.
        rules: For the step "policy": every rule for this tool.
    """

    step: str
    verdict: Literal["ok", "ask", "deny"]
    detail: str
    rules: tuple[RuleFact, ...] = ()


class Decision(Struct, frozen=True, eq=False):
    """The decision whether a call may be made.

    Attributes:
        effect: "allow", "ask" or "deny".
        reason: The code of the reason; "" for "allow".
        rule: Id of the rule that decided; "" for none.
        approvers: For "ask": the approvers that the rule names.
        expires: For "ask": seconds until an approval is void; None for the gateway's default.
        record: How to record the arguments; None for the gateway's default.
        risk: The risk of the tool.
        is_uncertain: No arguments were given, and some arguments would change the decision.
    """

    effect: Effect
    reason: Reason
    rule: str
    approvers: tuple[str, ...]
    expires: float | None
    record: Record | None
    risk: Risk
    is_uncertain: bool
    _explain: Callable[[Mapping[str, Any] | None], tuple[Step, ...]]

    def steps(self, arguments: Mapping[str, Any] | None = None) -> tuple[Step, ...]:
        """Return every check with its verdict, for `explain`. The first denial is the decision.

        Args:
            arguments: The arguments of the call, which a decision does not keep.
        """
        return self._explain(arguments)

    def __repr__(self) -> str:
        return f"Decision({self.effect!r}, {self.reason!r}, {self.rule!r})"
