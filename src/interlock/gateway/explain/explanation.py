"""Whether a call would be made, and why, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from interlock.auth.stored_key import StoredKey
from interlock.calls import Caller, Entry, Item
from interlock.gateway.forwarding.tool import UnusableTool
from interlock.layers.limits import Limiter
from interlock.policy import Decision, Policy
from interlock.store.approvals import Approval
from interlock.toolbox.upstream import Upstream
from interlock.types import JsonObject

Verdict = Literal["ok", "ask", "deny", "not_reached"]
Effect = Literal["allow", "ask", "deny"]

UNKNOWN = "unknown_tool"


class Check(Struct, frozen=True, omit_defaults=True):
    """One check of a call.

    Attributes:
        step: What was checked.
        verdict: "not_reached" for a check that an earlier denial makes pointless.
        detail: The fact, without any value of an argument.
        reason: Of a denial or a question: the word that the caller and the trail get.
        change: What would make this check pass; "" if nothing is known.
    """

    step: str
    verdict: Verdict
    detail: str = ""
    reason: str = ""
    change: str = ""


class Explanation(Struct, frozen=True):
    """Whether a call would be made, and why.

    Attributes:
        effect: "allow", "ask" or "deny".
        reason: Why not, as a stable word; "" for "allow".
        rule: Id of the rule that decided; "" for none.
        checks: Every check, in the order of `CHECKS`.
        decisive: The one that denies or asks; None for "allow".
        state: Of the tool, such as "ok" or "server_down".
        is_uncertain: There were no arguments, and a rule depends on them.
    """

    effect: Effect
    reason: str
    rule: str
    checks: tuple[Check, ...]
    decisive: Check | None
    state: str
    is_uncertain: bool = False

    @property
    def change(self) -> str:
        """What would change the effect; "" for "allow", or if nothing is known."""
        return self.decisive.change if self.decisive is not None else ""

    def as_json(self) -> dict[str, Any]:
        """Return the object that the command and the admin API show."""
        shown = {"effect": self.effect, "reason": self.reason, "rule": self.rule}
        steps = [
            {"step": each.step, "verdict": each.verdict, "detail": each.detail}
            for each in self.checks
        ]
        object: dict[str, Any] = {name: value for name, value in shown.items() if value}
        object |= {"steps": steps} | ({"uncertain": True} if self.is_uncertain else {})
        return object | ({"change": self.change} if self.change else {})


class ExplainedCall(Struct):
    """What the checks look at.

    Attributes:
        caller: Who calls.
        key: The caller's key; None for a user without one.
        address: What is called, with its parts `server` and `name`.
        arguments: None if they are not given.
        entry: The tool; an `Item` if it cannot be called.
        known: The tool, as the policy decides about it; an `Item` if only its name is known.
        upstream: Its server; None if no server has this name.
        problem: Why the tool cannot be called, if it is listed but unusable.
        decision: Of the policy.
        limiter: The limits.
        policy: The policy.
        credentials: What the server needs of the user, as `Vault.states` returns it.
        accepted: When definitions were accepted, by address.
        approval: The newest one of this call, with its state; None if there is none.
        steps: What the policy checked, by the name of each check.
    """

    caller: Caller
    key: StoredKey | None
    address: str
    server: str
    name: str
    arguments: Mapping[str, Any] | None
    entry: Entry | Item
    known: Entry | Item
    upstream: Upstream | None
    problem: UnusableTool | None
    decision: Decision
    limiter: Limiter
    policy: Policy
    credentials: Sequence[JsonObject]
    accepted: Mapping[str, int]
    approval: tuple[str, Approval] | None
    steps: Mapping[str, Check]

    @property
    def asks(self) -> bool:
        """Whether the call needs an approval."""
        return self.decision.effect == "ask"

    @property
    def is_hidden(self) -> bool:
        """Whether the tool does not exist for the caller, whatever the arguments."""
        if self.upstream is not None and not self.upstream.entries and self.problem is None:
            return not self.policy.may_use_any(self.caller, self.server)
        return self.policy.decide(self.caller, self.known).effect == "deny"
