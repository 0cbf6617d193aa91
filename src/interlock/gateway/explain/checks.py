"""The checks of a call, each a function of an `ExplainedCall`, in the order they are shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from math import ceil
from typing import Any

from interlock.calls import Call, Caller, Entry, Item
from interlock.config.gateway import OWN
from interlock.config.variables import CALLER_CLAIM
from interlock.errors import InvalidArguments, LimitExceeded
from interlock.gateway.explain.explanation import Check, ExplainedCall
from interlock.gateway.forwarding.refusals import UNKNOWN
from interlock.policy import Policy, Step
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject


def _check_key(question: ExplainedCall) -> Check | None:
    key, principal = question.key, question.caller.principal
    if key is None:
        scopes = ", ".join(sorted(principal.scopes)) if principal is not None else ""
        return Check("key", "ok", f"none; checked like a key with the scope {scopes}")
    state = key.state(now_micros())
    if state == "revoked":
        again = f"create another key: interlock keys create {key.user}"
        return Check("key", "deny", f"revoked {_day(key.revoked)}", "key_revoked", again)
    if state != "active":
        again = f"create another key: interlock keys create {key.user}"
        return Check("key", "deny", f"{state} {_day(key.expires)}", "key_expired", again)
    if not any(scope.startswith("mcp:") for scope in key.scopes):
        detail = f"{', '.join(key.scopes) or 'no scope'}: allows no tools"
        again = f"create a key with --scope mcp:read: interlock keys create {key.user}"
        return Check("key", "deny", detail, "insufficient_scope", again)
    until = "does not expire" if key.expires is None else f"active until {_day(key.expires)}"
    return Check("key", "ok", until)


def _check_view(question: ExplainedCall) -> Check | None:
    key, principal = question.key, question.caller.principal
    view = principal.view if principal is not None else ""
    if key is not None and key.view and key.view != view:
        detail = f"the key is bound to view {key.view}"
        return Check("view", "deny", detail, "not_in_view", f"use /mcp or /mcp/{key.view}")
    return question.steps["view"]


def _check_server(question: ExplainedCall) -> Check | None:
    server, upstream = question.server, question.upstream
    if server == OWN and isinstance(question.entry, Entry):
        return Check("server", "ok", f"{server}: a tool of the gateway itself")
    if upstream is None:
        detail = f"no server {server!r} in the configuration"
        return Check("server", "deny", detail, UNKNOWN, _did_you_mean(server, question.servers))
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


def _check_definition(question: ExplainedCall) -> Check | None:
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
            change = "interlock lock diff {0}, then interlock lock accept {0}"
            change = change.format(question.address)
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
    detail = f"the server lists no tool {question.name!r}"
    return Check("definition", "deny", detail, UNKNOWN, _did_you_mean(question.name, names))


def _did_you_mean(name: str, known: Collection[str]) -> str:
    near = " or ".join(get_close_matches(name, known, 3))
    return near and f"did you mean {near}?"


def _check_arguments(question: ExplainedCall) -> Check | None:
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


def _step(name: str) -> Callable[[ExplainedCall], Check | None]:
    """Return a function that returns a check of the policy, or None if it was not made."""
    return lambda question: question.steps.get(name)


def _check_limits(question: ExplainedCall) -> Check | None:
    limiter, entry = question.limiter, question.entry
    try:
        limiter.check(question.caller, entry)
    except LimitExceeded as error:
        wait = f"wait {ceil(error.retry_after or 0)} s"
        return Check("limits", "deny", str(error), error.reason, wait)
    return Check("limits", "ok", "; ".join(limiter.describe(question.caller, entry)) or "no rates")


def _check_approval(question: ExplainedCall) -> Check | None:
    if not question.asks or question.arguments is None:
        return None
    approvers = " or ".join(question.decision.approvers)
    if question.approval is None:
        detail = f"this call has no approval yet; {approvers} must approve it"
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


def _check_credential(question: ExplainedCall) -> Check | None:
    if not question.credentials:
        return None
    lacking = _lacking(question)
    if not lacking:
        names = ", ".join(each["name"] for each in question.credentials)
        return Check("credential", "ok", f"{names} of the user")
    detail = "; ".join(f"{each['name']}: {each['state']}" for each in lacking)
    return Check("credential", "deny", detail, "needs_login", _way_to_connect(question))


def _check_caller(question: ExplainedCall) -> Check | None:
    references = question.upstream.caller_references if question.upstream is not None else ()
    if not references:
        return None
    names = [each[2:-1] for each in references]
    claims = [name.removeprefix(CALLER_CLAIM) for name in names if name.startswith(CALLER_CLAIM)]
    if claims and question.key is not None:
        detail = f"the server needs {', '.join(claims)}, and a key has no claims"
        change = "call with a token of an issuer that has these claims"
        return Check("caller", "deny", detail, "caller_value_missing", change)
    return Check("caller", "ok", f"the server gets {', '.join(names)} of each call")


def _lacking(question: ExplainedCall) -> list[JsonObject]:
    return [each for each in question.credentials if each["state"] not in ("ok", "expiring")]


def _way_to_connect(question: ExplainedCall) -> str:
    """Return the command or URL to get the first missing credential; "" if none is missing."""
    principal = question.caller.principal
    for each in _lacking(question):
        user = principal.id if principal is not None else ""
        if "url" in each:
            return f"{user} connects at {each['url']}"
        named = user.removeprefix("user:")
        return f"interlock credentials set {question.server} {each['name']} --user {named}"
    return ""


def _check_listed(question: ExplainedCall) -> Check | None:
    """Return how a client gets to know a tool; None if clients list all tools."""
    entry, policy = question.entry, question.policy
    view = policy.view_of(question.caller)
    if not view.search.is_on or not isinstance(entry, Entry) or entry.server == OWN:
        return None
    if question.is_hidden:
        return None
    principal = question.caller.principal
    named = principal.view if principal is not None else ""
    where = f"view {named}" if named else "all tools"
    if policy.lists(question.caller, entry):
        return Check("listed", "ok", f"listed in {where}")
    executor = f"call_{policy.risk(entry)}_tool"
    return Check("listed", "ok", f"found by search in {where}; called with {executor}")


CHECKS: list[Callable[[ExplainedCall], Check | None]] = [
    _check_key,
    _step("plugin"),
    _check_view,
    _check_server,
    _check_definition,
    _check_arguments,
    _step("scope"),
    _step("read_only"),
    _step("policy"),
    _check_limits,
    _check_approval,
    _check_credential,
    _check_caller,
    _check_listed,
]


# The policy


def policy_checks(
    policy: Policy,
    entry: Entry | Item,
    caller: Caller,
    arguments: Mapping[str, Any] | None,
) -> Iterator[Check]:
    """Yield the policy's checks, each with the change that would make the check pass."""
    for step in policy.steps(caller, entry, arguments):
        reason, change = ("", "") if step.verdict == "ok" else _why(step, entry, caller)
        yield Check(step.step, step.verdict, step.detail, reason, change)


def _why(step: Step, entry: Entry | Item, caller: Caller) -> tuple[str, str]:
    """Return why a check of the policy failed, and the change that would make it pass."""
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


def _day(at: int | None) -> str:
    return (rfc3339(at) or "")[:10]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
