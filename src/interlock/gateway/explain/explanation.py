"""The data of explanations: whether a call would be made, and why."""

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


class Check(Struct, frozen=True, omit_defaults=True):
    """One check of a call.

    Attributes:
        step: The name of the check.
        verdict: "not_reached" for a check that an earlier denial makes pointless.
        detail: The fact, without any value of an argument.
        reason: The stable word of a denial or question that the caller and the trail get.
        change: The change that would make this check pass; "" if unknown.
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
        rule: The id of the rule that decided; "" for none.
        checks: Every check, in the order of `CHECKS`.
        decisive: The check that denies or asks; None for "allow".
        state: The state of the tool, such as "ok" or "server_down".
        is_uncertain: Whether a rule depends on the arguments, and none were given.
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
        """The change that would alter the effect; "" for "allow", or if unknown."""
        return self.decisive.change if self.decisive is not None else ""

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON, for the command and the admin API."""
        shown = {"effect": self.effect, "reason": self.reason, "rule": self.rule}
        steps = [
            {"step": each.step, "verdict": each.verdict, "detail": each.detail}
            for each in self.checks
        ]
        object: dict[str, Any] = {name: value for name, value in shown.items() if value}
        object |= {"steps": steps} | ({"uncertain": True} if self.is_uncertain else {})
        return object | ({"change": self.change} if self.change else {})


class ExplainedCall(Struct):
    """The call that the checks examine, with the data they need.

    Attributes:
        caller: The caller.
        key: The caller's key; None for a user without one.
        address: The address of the call, with its parts `server` and `name`.
        arguments: The arguments; None if they are not given.
        entry: The tool; an `Item` if it cannot be called.
        known: The tool that the policy decides about; an `Item` if only its name is known.
        upstream: The server of the tool; None if no server has this name.
        problem: Why the tool cannot be called, if it is listed but unusable.
        decision: The decision of the policy.
        limiter: The limits.
        policy: The policy.
        credentials: The credentials that the server needs from the user, from `Vault.states`.
        accepted: The times at which definitions were accepted, by address.
        approval: The newest approval of this call, with its state; None if there is none.
        steps: The checks of the policy, by name.
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
        return self.decision.effect == "ask"

    @property
    def is_hidden(self) -> bool:
        """Whether the tool does not exist for the caller, with any arguments."""
        if self.upstream is not None and not self.upstream.entries and self.problem is None:
            return not self.policy.may_use_any(self.caller, self.server)
        return self.policy.decide(self.caller, self.known).effect == "deny"
