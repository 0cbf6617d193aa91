"""The admin API's routes for a single call: its request, its outcome, and its approval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Raw

from interlock.auth.stored_key import TENANT
from interlock.calls import Caller
from interlock.calls.endings import LIMITS
from interlock.errors import DecisionRefused, UnknownApproval, UnknownConversation
from interlock.gateway.admin.approvals import ApprovalDecisionBody
from interlock.gateway.admin.operations import Operations
from interlock.server.http.json_api import ApiRequest, Problem, Route, not_found
from interlock.store.approvals import Approval
from interlock.store.chat.chat_calls import ChatCall
from interlock.store.chat.conversations import ConversationStore
from interlock.types import JsonObject

Outcome = Literal["asking", "running", "ran", "failed", "refused", "limited", "held", "stopped"]

_OUTCOMES: dict[str, Outcome] = {
    "ok": "ran",
    "cancelled": "stopped",
    "tool_error": "failed",
    "error": "failed",
    "timeout": "failed",
    "unfinished": "failed",
}


async def show(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return one of the caller's own calls; operators may read any call."""
    id = request.path["id"]
    records = await _records(gate, request, id)
    kept = await _kept(gate, request, id)
    if not records and kept is None:
        raise not_found("no such call")
    return _shown(gate, request, records, kept, await _approval(gate, records))


def _shown(
    gate: Operations,
    request: ApiRequest,
    records: Sequence[JsonObject],
    kept: ChatCall | None,
    approval: Approval | None,
) -> JsonObject:
    if kept is not None:
        shown = _of_chat(kept)
    else:
        state = _verdict(records)
        if approval is not None:
            state = gate.services.approvals.state(approval)
        shown = _of_records(request.path["id"], records, approval, state)
    if approval is not None:
        about: JsonObject = gate.services.approvals.shown(approval)
        may_decide = gate.services.approvals.may_decide(request.principal, approval)
        shown["asked"] = {**about, "mayDecide": may_decide and about["state"] == "pending"}
    if trace := next(filter(None, (each.get("traceparent") for each in records)), None):
        shown["traceparent"] = trace
    return shown


async def approve(gate: Operations, request: ApiRequest) -> JsonObject:
    """Approve a call with exactly the arguments that the approver saw."""
    return await _decide(gate, request, is_allowed=True)


async def deny(gate: Operations, request: ApiRequest) -> JsonObject:
    """Deny a call."""
    return await _decide(gate, request, is_allowed=False)


async def _decide(gate: Operations, request: ApiRequest, *, is_allowed: bool) -> JsonObject:
    approvals, given = gate.services.approvals, request.body
    records = await _records(gate, request, request.path["id"])
    kept = await _kept(gate, request, request.path["id"])
    approval = await _approval(gate, records)
    if approval is None:
        raise not_found("no call with this id waits for an approval")
    decide = approvals.approve if is_allowed else approvals.deny
    try:
        decided = await decide(
            approval.id, given.hash, request.principal, note=given.note, surface="web"
        )
    except DecisionRefused as error:
        status = 403 if error.reason == "not_permitted" else 409
        raise Problem(status, error.reason, str(error)) from None
    return _shown(gate, request, records, kept, decided)  # as decided, without reading it again


async def _records(gate: Operations, request: ApiRequest, id: str) -> Sequence[JsonObject]:
    """Return a call's audit records; an empty list if the caller may not see them."""
    async with gate.reading_audit() as reader:
        records = await reader.records(id)
    principal = request.principal
    if "admin:read" in principal.scopes:
        return records
    tenant = principal.tenant or TENANT
    mine = [each for each in records if each["kind"] in ("asked", "intent", "refused")]
    is_own = mine and (mine[0].get("user"), mine[0].get("tenant")) == (principal.id, tenant)
    return records if is_own else ()


async def _kept(gate: Operations, request: ApiRequest, id: str) -> ChatCall | None:
    """Return a call that the caller's chat made; None if the chat did not make it."""
    store = ConversationStore(gate.services.database, Caller(request.principal).owner).calls
    try:
        return await store.get(id)
    except UnknownConversation:
        return None


async def _approval(gate: Operations, records: Sequence[JsonObject]) -> Approval | None:
    named = [found for each in records if (found := each.get("approval") or each.get("grant"))]
    if not named:
        return None
    try:
        return await gate.services.approvals.get(named[-1])
    except UnknownApproval:  # approvals are deleted 30 days after they end
        return None


def _of_chat(call: ChatCall) -> JsonObject:
    shown: JsonObject = {
        name: getattr(call, name) for name in call.__struct_fields__ if name != "result"
    }
    return {**shown, "result": None if call.result is None else Raw(call.result)}


def _of_records(
    id: str, records: Sequence[JsonObject], approval: Approval | None, state: str
) -> JsonObject:
    begin = records[0]
    end = next((each for each in reversed(records) if each["kind"] != "decided"), begin)
    arguments = next((each["arguments"] for each in records if "arguments" in each), None)
    if arguments is None and approval is not None:
        arguments = approval.arguments
    outcome, reason = _outcome(end), end.get("reason", "")
    if state in ("denied", "expired"):
        outcome, reason = "refused", f"approval_{state}"
    elif state == "approved" and outcome == "asking":
        reason = "approval_approved"
    return {
        "id": id,
        "conversation_id": None,
        "tool_call_id": None,
        "user": begin.get("user"),
        "tool": begin.get("tool", ""),
        "arguments": arguments,
        "outcome": outcome,
        "reason": reason,
        "seconds": end["ms"] / 1000 if "ms" in end else None,
        "at": end["at"],
        "approval": None,
        "result": None,
    }


def _verdict(records: Sequence[JsonObject]) -> str:
    """Return the state of a deleted approval, by the last decision about it."""
    verdicts = [each.get("verdict") for each in records if each["kind"] == "decided"]
    states = {"approve": "approved", "deny": "denied", "expire": "expired"}
    return states.get(str(verdicts[-1]), "") if verdicts else ""


def _outcome(last: JsonObject) -> Outcome:
    """Return a call's outcome or current state, from its last record."""
    reason = last.get("reason", "")
    if reason in LIMITS:
        return "limited"
    if reason == "tool_quarantined":
        return "held"
    if last["kind"] == "asked":
        return "asking"
    if last["kind"] == "intent":
        return "running"
    return _OUTCOMES.get(last.get("status", ""), "refused")


_ONE = "/api/calls/{id}"
ROUTES = (
    Route("GET", _ONE, "any", show, "one of the caller's calls; any call with `admin:read`"),
    Route(
        "POST",
        f"{_ONE}/approve",
        "any",
        approve,
        "approves the call with the hash that was shown, if its caller may do so",
        body=ApprovalDecisionBody,
    ),
    Route("POST", f"{_ONE}/deny", "any", deny, "denies it", body=ApprovalDecisionBody),
)
