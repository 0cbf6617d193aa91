"""Whether a call would be made, and why: every check of a call, with the fact that decided it.

The checks are the functions that a call runs. They are shown in the order of `CHECKS`. A tool that
its caller may not see does not exist for it, so a denial by the policy comes before the state of
the tool's server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from math import ceil
from typing import Any, Literal, NoReturn

from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.stored_key import StoredKey
from interlock.calls import Call, Caller, Entry, Item
from interlock.calls.approvals import Approvals
from interlock.calls.audit import ARGUMENTS_KEY
from interlock.calls.limits import Limiter
from interlock.config import GatewaySettings, ServerConfig
from interlock.config.gateway import OWN
from interlock.errors import InvalidArguments, LimitExceeded, StoreError
from interlock.gateway.approvals import pin_in
from interlock.gateway.forwarded_tool import UnusableTool
from interlock.gateway.gateway import Gateway
from interlock.gateway.vault import Vault
from interlock.policy import Decision, Policy, Step
from interlock.store.approvals import Approval, ApprovalStore
from interlock.store.database import Database
from interlock.store.pin import Pin
from interlock.timestamps import now_micros, rfc3339
from interlock.toolbox.names import address as address_of
from interlock.toolbox.upstream import Upstream
from interlock.toolbox.user_credentials import needs_of
from interlock.types import JsonObject

Verdict = Literal["ok", "ask", "deny", "not_reached"]
Effect = Literal["allow", "ask", "deny"]

UNKNOWN = "unknown_tool"
_LATE = ("limits", "approval", "credential")  # checks that depend on the earlier ones
_ENDING = ("key_revoked", "key_expired", "insufficient_scope", UNKNOWN)  # nothing else matters
# The checks that make a tool not exist.
_HIDDEN = ("plugin", "view", "scope", "read_only", "policy")


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


class Question(Struct):
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


class Explainer:
    """Explains calls of a gateway whose servers have been started.

    Args:
        gateway: The gateway.
        policy: As the gateway has it.
        limiter: The limits that calls spend; they are not spent here.
        credentials: Those that the caller has or needs, as `Vault.states` returns them.
        pins: What is accepted.
        approvals: Where approvals are looked up; None for none.
    """

    def __init__(
        self,
        gateway: Gateway,
        policy: Policy,
        limiter: Limiter,
        credentials: Sequence[JsonObject] = (),
        pins: Iterable[Pin] = (),
        approvals: Approvals | None = None,
    ) -> None:
        self._toolbox = gateway.toolbox
        self._catalogue = gateway.catalogue
        self._policy = policy
        self._limiter = limiter
        self._approvals = approvals
        self._credentials = credentials
        self._accepted = {
            each.address: each.decided_at or each.since
            for each in pins
            if each.kind == "tool" and each.state == "accepted"
        }

    def schema_of(self, address: str) -> JsonObject:
        """Return the input schema of a tool; {} for an unknown tool."""
        entries = self._toolbox.tools
        found = next((each for each in entries if each.address == address), None)
        return {} if found is None else found.tool.input_schema

    async def explain_call(
        self,
        caller: Caller,
        address: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        key: StoredKey | None = None,
    ) -> Explanation:
        """Explain one call, with its approval if it needs one; see `explain`.

        Raises:
            StoreError: The database does not answer.
        """
        question = self._question(caller, address, arguments, key)
        approval = None
        if self._approvals is not None and arguments is not None and question.asks:
            call = Call(question.entry, dict(arguments), caller)
            found = await self._approvals.standing(call, question.decision)
            approval = None if found is None else (self._approvals.state(found), found)
        return self.explain(caller, address, arguments, key=key, approval=approval)

    def explain(
        self,
        caller: Caller,
        address: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        key: StoredKey | None = None,
        approval: tuple[str, Approval] | None = None,
    ) -> Explanation:
        """Explain one call.

        Args:
            caller: Who calls.
            address: The tool, "server:name".
            arguments: Those of the call; None to explain whether the tool is listed.
            key: The caller's key; None for a user without one.
            approval: The newest approval of this call, with its state.
        """
        question = self._question(caller, address, arguments, key, approval)
        found = [(check, check(question)) for check in CHECKS]
        checks = [each for _, each in found if each is not None]
        decisive = _decisive(checks, question)
        return Explanation(
            *_effect(decisive),
            rule=_rule(decisive, question),
            checks=tuple(_unreached(checks, decisive)),
            decisive=decisive,
            state=_state(question),
            is_uncertain=_is_uncertain(question, decisive),
        )

    def all_tools(
        self, caller: Caller, *, key: StoredKey | None = None
    ) -> Iterator[tuple[str, Explanation]]:
        """Explain the listing of every tool, by address, those that cannot be called included."""
        seen = set()
        for upstream in self._toolbox.upstreams.values():
            names = [each.tool.name for each in upstream.entries]
            names += [each.name for each in upstream.unusable]
            names += [] if names or not upstream.obstacle[0] else ["*"]
            for name in names:
                address = address_of(upstream.name, name)
                if address not in seen:
                    seen.add(address)
                    yield address, self.explain(caller, address, key=key)

    def _question(
        self,
        caller: Caller,
        address: str,
        arguments: Mapping[str, Any] | None,
        key: StoredKey | None,
        approval: tuple[str, Approval] | None = None,
    ) -> Question:
        server, _, name = address.partition(":")
        upstream = self._toolbox.upstreams.get(server)
        entry: Entry | Item = Item("tools", server, name)
        offered = upstream.entries if upstream is not None else ()
        for each in self._toolbox.own.entries if server == OWN else offered:
            if each.tool.name == name:
                entry = each
        problem = self._catalogue.problem_of(caller, address)
        known = entry if problem is None else problem.item
        decision = self._policy.decide(caller, known, arguments)
        return Question(
            caller,
            key,
            address,
            server,
            name,
            arguments,
            entry,
            known,
            upstream,
            problem,
            decision,
            self._limiter,
            self._policy,
            [each for each in self._credentials if each["server"] == server],
            self._accepted,
            approval,
            {each.step: each for each in _policy_checks(decision, known, caller, arguments)},
        )


# The checks


def _check_key(question: Question) -> Check | None:
    key, principal = question.key, question.caller.principal
    if key is None:
        scopes = ", ".join(sorted(principal.scopes)) if principal is not None else ""
        return Check("key", "ok", f"none; as with the scope {scopes}")
    state = key.state(now_micros())
    if state == "revoked":
        again = f"create another key: interlock keys create {key.user}"
        return Check("key", "deny", f"revoked {_day(key.revoked)}", "key_revoked", again)
    if state != "active":
        again = f"create another key: interlock keys create {key.user}"
        return Check("key", "deny", f"{state} {_day(key.expires)}", "key_expired", again)
    if not any(scope.startswith("mcp:") for scope in key.scopes):
        detail = f"{', '.join(key.scopes) or 'no scope'}: nothing that opens tools"
        again = f"create a key with --scope mcp:read: interlock keys create {key.user}"
        return Check("key", "deny", detail, "insufficient_scope", again)
    until = "does not expire" if key.expires is None else f"active until {_day(key.expires)}"
    return Check("key", "ok", until)


def _check_view(question: Question) -> Check | None:
    key, principal = question.key, question.caller.principal
    view = principal.view if principal is not None else ""
    if key is not None and key.view and key.view != view:
        detail = f"the key is bound to view {key.view}"
        return Check("view", "deny", detail, "not_in_view", f"use /mcp or /mcp/{key.view}")
    return question.steps["view"]


def _check_server(question: Question) -> Check | None:
    server, upstream = question.server, question.upstream
    if server == OWN and isinstance(question.entry, Entry):
        return Check("server", "ok", f"{server}: a tool of the gateway itself")
    if upstream is None:
        return Check("server", "deny", f"no server {server!r} in the configuration", UNKNOWN)
    status = upstream.status
    word, reason = upstream.obstacle
    if not word:
        state = "ok" if status.starts else "not started"
        return Check("server", "ok", f"{server}: {state}, {_count(status.tools, 'tool')}")
    detail = f"{server}: {status.state}" + (f", {reason}" if reason != status.state else "")
    if upstream.entries and word == "server_down" and status.state == "down":
        if not status.retry_in:
            return Check("server", "ok", f"{detail}; the next call starts it")
        wait = f"wait {ceil(status.retry_in)} s"
        return Check("server", "deny", detail, "breaker_open", wait)
    change = {
        "server_disabled": f'remove "enabled": false from mcpServers.{server}',
        "needs_login": _way_to_connect(question) or f"interlock servers login {server}",
    }.get(word, f"interlock doctor says what is wrong with {server}")
    return Check("server", "deny", detail, word, change)


def _check_definition(question: Question) -> Check | None:
    upstream, problem = question.upstream, question.problem
    if upstream is None or not (upstream.entries or upstream.unusable):
        return None
    unusable = next((each for each in upstream.unusable if each.name == question.name), None)
    if unusable is not None and unusable.is_hidden:
        change = f"change tools.allow or tools.deny of {question.server}"
        return Check("definition", "deny", unusable.detail, "filtered", change)
    if unusable is not None:
        change = "the server must correct the tool's definition"
        if unusable.reason == "tool_quarantined":
            change = f"interlock lock diff {question.address}, then interlock lock accept"
        return Check("definition", "deny", unusable.detail, unusable.reason, change)
    if problem is not None:
        change = "leave the other tool out of the view, or use wire names"
        is_clash = problem.reason == "name_clash"
        return Check(
            "definition", "deny", problem.detail, problem.reason, change if is_clash else ""
        )
    if isinstance(question.entry, Entry):
        since = question.accepted.get(question.address)
        fact = "accepted" if since is None else f"accepted {_day(since)}"
        return Check("definition", "ok", fact)
    names = [each.tool.name for each in upstream.entries]
    near = " or ".join(get_close_matches(question.name, names, 3))
    detail = f"the server lists no tool {question.name!r}"
    return Check("definition", "deny", detail, UNKNOWN, near and f"did you mean {near}?")


def _check_arguments(question: Question) -> Check | None:
    entry, upstream, arguments = question.entry, question.upstream, question.arguments
    if arguments is None or upstream is None or not isinstance(entry, Entry):
        return None
    try:
        upstream.calls.validate(Call(entry, dict(arguments), question.caller))
    except InvalidArguments as error:
        detail = str(error).removeprefix(f"{entry.address}: ")
        fitting = f"arguments that fit its schema: interlock tools --json {entry.address}"
        return Check("arguments", "deny", detail, "arguments_invalid", fitting)
    return Check("arguments", "ok", "they fit the schema")


def _check_plugin(question: Question) -> Check | None:
    return question.steps.get("plugin")


def _check_scope(question: Question) -> Check | None:
    return question.steps["scope"]


def _check_read_only(question: Question) -> Check | None:
    return question.steps.get("read_only")


def _check_policy(question: Question) -> Check | None:
    return question.steps["policy"]


def _check_limits(question: Question) -> Check | None:
    limiter, entry = question.limiter, question.entry
    try:
        limiter.check(question.caller, entry)
    except LimitExceeded as error:
        wait = f"wait {ceil(error.retry_after or 0)} s"
        return Check("limits", "deny", str(error), error.reason, wait)
    return Check("limits", "ok", "; ".join(limiter.describe(question.caller, entry)) or "no rates")


def _check_approval(question: Question) -> Check | None:
    if not question.asks or question.arguments is None:
        return None
    approvers = " or ".join(question.decision.approvers)
    if question.approval is None:
        detail = f"none of this call yet; {approvers} must approve"
        if question.key is None and question.caller.principal is not None:
            detail += "; approvals are for one key: name it with --key"
        return Check("approval", "ask", detail, "approval_required", f"an approval of {approvers}")
    state, approval = question.approval
    if state == "approved":
        return Check("approval", "ok", f"{approval.id}, approved by {approval.decided_by}")
    if state == "pending":
        change = f"interlock approvals approve {approval.id}, by {approvers}"
        return Check("approval", "ask", f"{approval.id} is pending", "approval_pending", change)
    detail = f"{approval.id}, denied by {approval.decided_by}"
    change = f"wait until {rfc3339(approval.expires)}, when it expires"
    return Check("approval", "deny", detail, "approval_denied", change)


def _check_credential(question: Question) -> Check | None:
    if not question.credentials:
        return None
    lacking = _lacking(question)
    if not lacking:
        names = ", ".join(each["name"] for each in question.credentials)
        return Check("credential", "ok", f"{names} of the user")
    detail = "; ".join(f"{each['name']}: {each['state']}" for each in lacking)
    return Check("credential", "deny", detail, "needs_login", _way_to_connect(question))


def _lacking(question: Question) -> list[JsonObject]:
    return [each for each in question.credentials if each["state"] not in ("ok", "expiring")]


def _way_to_connect(question: Question) -> str:
    """Return how the user gets the first credential that it lacks; "" if it has all."""
    principal = question.caller.principal
    for each in _lacking(question):
        user = principal.id if principal is not None else ""
        if "url" in each:
            return f"{user} connects at {each['url']}"
        named = user.removeprefix("user:")
        return f"interlock credentials set {question.server} {each['name']} --user {named}"
    return ""


CHECKS: list[Callable[[Question], Check | None]] = [
    _check_key,
    _check_plugin,
    _check_view,
    _check_server,
    _check_definition,
    _check_arguments,
    _check_scope,
    _check_read_only,
    _check_policy,
    _check_limits,
    _check_approval,
    _check_credential,
]

# What a caller lacks


async def credentials_of(
    vault: Vault, caller: Caller, servers: Mapping[str, ServerConfig]
) -> list[JsonObject]:
    """Return the credentials that a caller has or needs, with their states.

    Raises:
        StoreError: The database does not answer.
    """
    needs = {each.namespace or name: needs_of(each) for name, each in servers.items()}
    needs = {name: each for name, each in needs.items() if each.names or each.login}
    return await vault.states(caller.owner, needs) if needs else []


# The policy


def _is_uncertain(question: Question, decisive: Check | None) -> bool:
    is_denied = decisive is not None and decisive.verdict == "deny"
    decision = question.decision
    return question.arguments is None and not is_denied and bool(decision and decision.is_uncertain)


def _policy_checks(
    decision: Decision,
    entry: Entry | Item,
    caller: Caller,
    arguments: Mapping[str, Any] | None,
) -> Iterator[Check]:
    for step in decision.steps(arguments):
        reason, change = ("", "") if step.verdict == "ok" else _why(step, entry, caller)
        yield Check(step.step, step.verdict, step.detail, reason, change)


def _why(step: Step, entry: Entry | Item, caller: Caller) -> tuple[str, str]:
    """Return the reason of a check of the policy that did not pass, and what would change it."""
    address, principal = entry.address, caller.principal
    if step.step == "plugin":
        user = principal.id if principal is not None else "user:local"
        return "not_installed", f"interlock plugins install NAME --user {user}"
    if step.step == "view":
        view = principal.view if principal is not None else ""
        return "not_in_view", f"add {address} to view {view}, or use another path than /mcp/{view}"
    if step.step == "scope":
        return "scope", _wider_scope(entry, caller)
    if step.step == "read_only":
        return "read_only", "set policy.readOnly to false"
    if step.verdict == "ask":
        return "approval_required", "an approval of this call"
    denying = next((fact for fact in step.rules if fact.holds and fact.effect == "deny"), None)
    if denying is not None:
        return "denied_by_rule", f"change rule {denying.rule}; no rule can overrule a denial"
    user = principal.id if principal is not None else "user:local"
    return "no_rule", f"add a rule that allows {address} for {user}"


def _wider_scope(entry: Entry | Item, caller: Caller) -> str:
    key = f"create a key with --scope mcp:{entry.address} or --scope mcp:*"
    if caller.principal is None or "mcp:read" not in caller.principal.scopes:
        return key
    name = entry.tool.name if isinstance(entry, Entry) else entry.name
    return f"{key}; if the tool only reads, add {name} to tools.risk.read of {entry.server}"


def reading_approvals(
    database: Database,
    secret: GatewayKey,
    settings: GatewaySettings,
    policy: Policy,
    gateway: Gateway,
) -> Approvals:
    """Return the approvals of a database, only to look at them."""

    async def refuse(*_: object) -> NoReturn:
        raise StoreError("approvals are only read here")

    approvals = Approvals(
        ApprovalStore(database, secret),
        refuse,
        secret.derive(ARGUMENTS_KEY),
        settings=lambda: settings.approvals,
        policy=lambda: policy,
    )
    approvals.pin_of = pin_in(gateway.toolbox)
    return approvals


# What the checks amount to


def _decisive(checks: list[Check], question: Question) -> Check | None:
    """Return the check that decides: the first denial, in the order in which a call meets them."""
    denied = [each for each in checks if each.verdict == "deny"]
    if not denied:
        if question.approval is not None and question.approval[0] == "approved":
            return None
        return next((each for each in reversed(checks) if each.verdict == "ask"), None)
    is_hidden, is_listed = question.is_hidden, isinstance(question.entry, Entry)

    def turn(check: Check) -> int:
        if check.step == "key":
            return 0
        if check.reason in ("rate_limited", "overloaded"):
            return 1
        if check.reason in (UNKNOWN, "filtered"):
            return 2
        if is_hidden and check.step in _HIDDEN:
            return 3
        return 5 if is_listed and check.step == "server" else 4  # found out when the call is sent

    return min(denied, key=turn)


def _effect(decisive: Check | None) -> tuple[Effect, str]:
    if decisive is None:
        return "allow", ""
    return "ask" if decisive.verdict == "ask" else "deny", decisive.reason


def _rule(decisive: Check | None, question: Question) -> str:
    is_of_policy = decisive is None or decisive.step in ("policy", "approval")
    return question.decision.rule if is_of_policy else ""


def _unreached(checks: list[Check], decisive: Check | None) -> Iterator[Check]:
    """Mark the checks that say nothing after a denial. What a policy says is shown anyway."""
    is_denied = decisive is not None and decisive.verdict == "deny"
    ends_all = decisive is not None and decisive.reason in _ENDING
    is_over = False
    for each in checks:
        is_pointless = is_over and (ends_all or each.step in _LATE)
        yield Check(each.step, "not_reached") if is_pointless else each
        is_over = is_over or (is_denied and each is decisive)


def _state(question: Question) -> str:
    if question.problem is not None:
        return question.problem.reason
    if question.upstream is None:
        return "ok" if isinstance(question.entry, Entry) else UNKNOWN
    return question.upstream.obstacle[0] or "ok"


def _day(at: int | None) -> str:
    return (rfc3339(at) or "")[:10]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


__all__ = [
    "CHECKS",
    "Check",
    "Explainer",
    "Explanation",
    "Question",
    "credentials_of",
    "reading_approvals",
]
