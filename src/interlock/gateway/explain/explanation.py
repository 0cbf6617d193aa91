"""The data of an explanation: whether a call would be made, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    """The result of one check of a call.

    Attributes:
        step: The check's name.
        verdict: "ok", "ask" or "deny"; "not_reached" if an earlier denial ends the checks.
        detail: The fact that the check found. It contains no values of arguments.
        reason: The code for a denial or question, as the caller and the audit trail receive it; ""
            otherwise.
        change: The change that would make the check pass; "" if unknown.
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
        reason: A stable code for why the call is not allowed; "" if it is allowed.
        rule: The id of the rule that decided; "" if no rule did.
        checks: The results of all checks, in the order of `CHECKS`.
        decisive: The check that denies or asks; None if the call is allowed.
        state: The tool's state, such as "ok" or "server_down".
        is_uncertain: Whether the decision depends on arguments that were not given.
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
        """The change that would alter the effect; "" if allowed, or if none is known."""
        return self.decisive.change if self.decisive is not None else ""

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON, for the command line and the admin API."""
        shown = {"effect": self.effect, "reason": self.reason, "rule": self.rule}
        steps = [
            {"step": each.step, "verdict": each.verdict, "detail": each.detail}
            for each in self.checks
        ]
        object: dict[str, Any] = {name: value for name, value in shown.items() if value}
        object |= {"steps": steps} | ({"uncertain": True} if self.is_uncertain else {})
        return object | ({"change": self.change} if self.change else {})


class ExplainedCall(Struct):
    """The call to explain, with the data that its checks need.

    Attributes:
        key: The caller's API key; None if the caller has no key.
        address: The call's address, which consists of `server` and `name`.
        arguments: The call's arguments; None if they were not given.
        entry: The tool; an `Item` if it cannot be called.
        known: The tool to pass to the policy; an `Item` if only the tool's name is known.
        upstream: The tool's server; None if no server has this name.
        servers: The names of all servers.
        problem: Why the tool cannot be called; None if it can, or if it is not listed.
        decision: The policy's decision about the call.
        limiter: The limits on calls.
        policy: The gateway's policy.
        credentials: The credentials that the server needs from the user, from `Vault.states`.
        accepted: When each definition was accepted, by the tool's address.
        approval: The state of the newest approval for this call, and the approval; None if there is
            none.
        steps: The policy's checks by name.
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
    servers: Collection[str]
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
        """Whether the tool is hidden from the caller, whatever the arguments."""
        if self.upstream is not None and not self.upstream.entries and self.problem is None:
            return not self.policy.may_use_any(self.caller, self.server)
        return self.policy.decide(self.caller, self.known).effect == "deny"
