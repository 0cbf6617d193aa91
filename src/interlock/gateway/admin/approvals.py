"""The admin API's routes for approvals: list them, and approve or deny a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from interlock.errors import DecisionRefused, UnknownApproval
from interlock.gateway.admin.operations import BASE, Operations, PageQuery, listed
from interlock.layers.approvals import MAX_NOTE
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.store.approvals import Approval
from interlock.types import JsonObject


class ApprovalQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """The filter for a list of approvals."""

    state: Literal["", "pending", "approved", "denied", "expired", "used"] = ""


class ApprovalDecisionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a decision, with the hash of the arguments that the approver saw."""

    hash: str
    note: Annotated[str, Meta(max_length=MAX_NOTE)] = ""


async def list_approvals(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return a page of approvals without their arguments, newest first."""
    wanted: ApprovalQuery = request.query
    approvals = gate.services.approvals
    states = [wanted.state] if wanted.state else None
    try:
        found = await approvals.list(states, limit=wanted.limit, after=wanted.after)
    except UnknownApproval:
        text = "query: after is not a cursor of this list; take it from the Link header"
        raise Problem(400, "bad_request", text) from None
    following = found[-1].id if len(found) == wanted.limit else ""
    return listed([approvals.shown(each) for each in found], request, following)


async def show(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return an approval, with all arguments of its call."""
    try:
        found = await gate.services.approvals.get(request.path["id"])
    except UnknownApproval:
        raise _unknown() from None
    return gate.services.approvals.shown(found)


async def approve(gate: Operations, request: ApiRequest) -> JsonObject:
    """Approve a call with exactly the arguments that the approver saw."""
    return await _decided(gate, request, gate.services.approvals.approve)


async def deny(gate: Operations, request: ApiRequest) -> JsonObject:
    """Deny a call, even if it is already approved but has not run."""
    return await _decided(gate, request, gate.services.approvals.deny)


async def _decided(
    gate: Operations, request: ApiRequest, decide: Callable[..., Awaitable[Approval]]
) -> JsonObject:
    given: ApprovalDecisionBody = request.body
    try:
        decided = await decide(
            request.path["id"], given.hash, request.principal, note=given.note, surface="api"
        )
    except UnknownApproval:
        raise _unknown() from None
    except DecisionRefused as error:
        status = 403 if error.reason == "not_permitted" else 409
        raise Problem(status, error.reason, str(error)) from None
    return gate.services.approvals.shown(decided)


def _unknown() -> Problem:
    return not_found("no approval has this id")


_ONE = f"{BASE}/approvals/{{id}}"
ROUTES = (
    Route(
        "GET",
        f"{BASE}/approvals",
        "admin:read",
        list_approvals,
        "calls that need or needed approval, newest first",
        query=ApprovalQuery,
    ),
    Route("GET", _ONE, "admin:read", show, "one approval, with all arguments of its call"),
    Route(
        "POST",
        f"{_ONE}/approve",
        "admin:approve",
        approve,
        "approves the call with the hash that was shown",
        body=ApprovalDecisionBody,
    ),
    Route("POST", f"{_ONE}/deny", "admin:approve", deny, "denies it", body=ApprovalDecisionBody),
)
