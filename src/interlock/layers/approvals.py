"""Approvals of calls. A user requests one, another user decides, and one call uses it up.

1. An approval is for one exact call: caller, key, tool, arguments, rule, policy and definition.
2. A call uses its approval in the transaction that records its intent, so an approval never runs
   twice, even if several processes try.
3. Each request, decision and expiry is recorded in the audit trail, in the transaction that changes
   the approval.
4. Callers cannot approve their own calls, unless the rule names "caller" among its approvers.
5. A call has at most one open approval, even if several gateways of a database request it.
6. Expiry uses the database's clock, because all its gateways share it and it continues while the
   machine is suspended. If it is set back, approvals created at a later time expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from interlock import observing
from interlock.auth.principal import Principal
from interlock.calls.call import Call, Caller, Outcome
from interlock.calls.decision import Decision
from interlock.calls.entry import Entry, Item
from interlock.calls.grant import Grant, GrantLost
from interlock.calls.handlers import Around, CallHandler
from interlock.config.gateway import CALLER, ApprovalSettings, Keep
from interlock.errors import ApprovalMissing, DecisionRefused, UnknownApproval
from interlock.layers.approval_changes import ApprovalChanges
from interlock.layers.asking import AskCaller
from interlock.layers.audit import arguments_hash, canonical, record_of
from interlock.protocol import Progress
from interlock.store.approvals import (
    Approval,
    ApprovalStore,
    Binding,
    PendingCalls,
    State,
    new_approval_id,
)
from interlock.store.audit.writer import AuditRecord
from interlock.store.database.claims import Claim
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

APPROVE_SCOPE = "admin:approve"
PROGRESS_EVERY = 2.0  # seconds between two progress notifications of a waiting call
MAX_PENDING = 100  # pending approvals of one user
MAX_PENDING_BYTES = 16 * 1024 * 1024  # of the arguments of one user's pending approvals
MAX_PENDING_BYTES_OF_ALL = 256 * 1024 * 1024
MAX_NOTE = 1_000  # characters
# Progress must increase. The step is tiny, because the server's own progress may begin near 0.
_STEP = 1e-9

# Writes an audit record together with its claim. The claim may fail.
Write = Callable[[AuditRecord, Claim], Awaitable[None]]
PinOf = Callable[["Entry | Item"], str]


class Rules(Protocol):
    """The parts of a policy that approvals use."""

    hash: str

    def is_one_of(self, principal: Principal | None, who: Iterable[str]) -> bool:
        """Return whether a principal is among those that a rule names."""
        ...


_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("interlock.approvals")


class _Asked(Struct, omit_defaults=True, rename="camel"):
    approval: str
    surface: str
    rule: str
    risk: str
    approvers: tuple[str, ...]
    expires: str | None
    arguments_hash: str
    arguments: Raw | UnsetType = UNSET


class _Decided(Struct, omit_defaults=True, rename="camel"):
    approval: str
    verdict: Literal["approve", "deny", "expire"]
    caller: str  # whose call it is
    rule: str
    arguments_hash: str
    surface: str = ""
    note: str = ""


class Approvals:
    """Requests, decides and uses up the approvals of a gateway.

    Args:
        store: The storage for approvals.
        write: Writes an audit record and its claim in one transaction.
        key: The key that arguments are hashed with; see `AuditTrail`.
        settings: Returns how long approvals are valid, and how long a call waits for its approval.
        policy: Returns the current policy.
        pin_of: Returns the hash of a tool's current definition.
        keep: The seconds from an approval's expiry until it is deleted.
        has_trail: Whether an audit trail in an inner layer uses up approvals with calls' intents.
        now: Returns the database's time in microseconds since 1970.

    Attributes:
        changes: Follows the changes in the database.
    """

    def __init__(
        self,
        store: ApprovalStore,
        write: Write,
        key: bytes,
        *,
        settings: Callable[[], ApprovalSettings],
        policy: Callable[[], Rules],
        pin_of: PinOf | None = None,
        keep: float = Keep().approvals,
        has_trail: bool = True,
        now: Callable[[], int] | None = None,
    ) -> None:
        self._pin_of = pin_of or _known_pin
        self._store = store
        self._write = write
        self._key = key
        self._settings = settings
        self._policy = policy
        self._has_trail = has_trail
        self._finding: dict[Binding, asyncio.Future[Approval]] = {}
        self.changes = ApprovalChanges(
            store, self._expire, int(keep * 1_000_000), now or now_micros
        )

    # Decisions

    async def list(
        self,
        states: Collection[State] | None = None,
        *,
        of: Principal | None = None,
        limit: int = 500,
        after: str = "",
    ) -> list[Approval]:
        """Return approvals without their arguments, newest first.

        Args:
            states: Return only approvals in these states; None for all states.
            of: Return only approvals of this principal's calls; None for all principals.
            limit: The most approvals to return.
            after: The id of the last approval of the previous page; "" for the first page.
        """
        user = "" if of is None else of.id
        return await self._store.list(
            states, self.changes.now(), user=user, limit=limit, after=after
        )

    async def oldest(self, limit: int) -> Sequence[Approval]:
        """Return the approvals that wait for a decision, without their arguments, oldest first."""
        return await self._store.oldest(self.changes.now(), limit)

    async def pending(self) -> int:
        """Return how many approvals wait for a decision."""
        return (await self._store.counts(self.changes.now()))["pending"]

    async def get(self, id: str, *, of: Principal | None = None) -> Approval:
        """Return the approval with an id.

        Args:
            id: The id of the approval.
            of: The principal whose call the approval must be for; None for any principal.

        Raises:
            UnknownApproval: The approval does not exist, or is for another principal's call.
        """
        found = await self._store.get(id)
        if of is not None and not _is_own(of, found):
            raise UnknownApproval(f"no approval {id!r}; see `interlock approvals list`")
        return found

    def state(self, approval: Approval) -> State:
        return approval.state_at(self.changes.now())

    def shown(self, approval: Approval) -> JsonObject:
        """Return an approval as JSON, for the command line and the admin API."""
        return approval.as_json(self.changes.now())

    async def approve(
        self,
        id: str,
        hash: str,
        by: Principal | None,
        *,
        note: str = "",
        surface: str = "",
    ) -> Approval:
        """Approve a call.

        Args:
            id: The approval's id.
            hash: The hash of the arguments that the approver saw.
            by: The principal that approves; None for an administrator with access to the database.
            note: A note for the audit trail.
            surface: The part of interlock that received the decision, such as "cli".

        Raises:
            UnknownApproval: The approval does not exist.
            DecisionRefused: The principal may not decide, the call's arguments differ from `hash`,
                or the approval is no longer pending.
        """
        found = await self._decidable(id, hash, by)
        if self.state(found) != "pending":
            raise _not_pending(found, self.state(found))
        shown = found.arguments
        if shown is None or arguments_hash(self._key, canonical(shown)) != hash:
            text = (
                f"the arguments of approval {id} were encrypted with another gateway key, or the "
                "database was changed; deny it"
            )
            raise DecisionRefused(text, "approval_unreadable")
        return await self._decide(found, "approved", by, note, surface)

    async def deny(
        self,
        id: str,
        hash: str,
        by: Principal | None,
        *,
        note: str = "",
        surface: str = "",
    ) -> Approval:
        """Deny a call, even if it is already approved but has not run; see `approve`."""
        found = await self._decidable(id, hash, by)
        if self.state(found) not in ("pending", "approved"):
            raise _not_pending(found, self.state(found))
        return await self._decide(found, "denied", by, note, surface)

    def may_decide(self, by: Principal, approval: Approval) -> bool:
        if _is_own(by, approval):
            return CALLER in approval.approvers
        return APPROVE_SCOPE in by.scopes and self._policy().is_one_of(by, approval.approvers)

    async def _decidable(self, id: str, hash: str, by: Principal | None) -> Approval:
        found = await self._store.get(id)
        if by is not None and not self.may_decide(by, found):
            whose = "your own call" if _is_own(by, found) else "this call"
            must = " or ".join(found.approvers)
            raise DecisionRefused(f"you may not decide about {whose}; {must} must", "not_permitted")
        if hash != found.hash:
            text = f"approval {id} is for other arguments than you saw; reload it"
            raise DecisionRefused(text, "approval_changed")
        return found

    async def _decide(
        self, found: Approval, state: State, by: Principal | None, note: str, surface: str
    ) -> Approval:
        # Not checked for the administrator, whose command may read a newer policy than the gateway.
        if by is not None and state == "approved" and found.policy != self._policy().hash:
            text = f"approval {found.id} is void: the policy has changed since; call again"
            raise DecisionRefused(text, "approval_void")
        note, who, now = note[:MAX_NOTE], record_of(Caller(by), "decided"), self.changes.now()
        claim = self._store.decision(found, state, who.user, note, now)
        verdict: Literal["approve", "deny"] = "approve" if state == "approved" else "deny"
        body = _decided(found, verdict, surface=surface, note=note)
        await self._write(
            AuditRecord(
                *("decided", found.call, who.user, who.key, found.server, found.tool),
                body=body,
                tenant=who.tenant,
            ),
            claim,
        )
        if claim.has_failed:  # the approval was decided, expired or used in the meantime
            decided = await self._store.get(found.id)
            raise _not_pending(decided, self.state(decided))
        self.changes.note(found.id)
        # Not read from the store, because a call may have used the approval since this decision.
        decision = {"state": state, "decided_by": who.user, "decided_at": now, "note": note}
        return msgspec.structs.replace(found, **decision)

    # The layer

    def around(self, ask: AskCaller) -> Around:
        """Return a layer that runs calls which need approval only once they are approved.

        Args:
            ask: Asks callers to approve their own call, where the rule allows that.
        """

        def wrap(handle: CallHandler) -> CallHandler:
            async def call_if_approved(call: Call) -> Outcome:
                decision = call.decision
                if decision is None or decision.effect != "ask":
                    return await handle(call)
                binding = self._binding(call, decision)
                while True:
                    call.grant = await self._granted(binding, call, decision, ask)
                    try:
                        if not self._has_trail:
                            await self._write(record_of(call.caller, ""), call.grant.claim)
                            call.grant.check()
                        return await handle(call)
                    # for example, another call with the same arguments used the approval
                    except GrantLost:
                        await self._check_lost(call, call.grant.id)

            return call_if_approved

        return wrap

    async def _check_lost(self, call: Call, id: str) -> None:
        """Raise an error if a call could not use an approval that is still valid."""
        lost = await self._store.get(id)
        if self.state(lost) == "approved":
            text = f"{call.entry.address} was not run: the key of its approval has ended"
            raise ApprovalMissing(text, "approval_required", lost.rule, id)

    async def _granted(
        self, binding: Binding, call: Call, decision: Decision, ask: AskCaller
    ) -> Grant:
        """Return the grant for an approved call.

        Raises:
            ApprovalMissing: The call is still pending, or was denied.
            InputRequired: The client must ask its user before the call can continue.
        """
        if call.continues:
            used = await self._store.used_by(binding, call.continues)
            if used is not None:
                return self._grant(used, call, after=call.continues)
        approval = await self._found(binding, call, decision)
        if self.state(approval) == "pending":
            approval = await self._ask(call, approval, decision, ask)
        match self.state(approval):
            case "approved":
                return self._grant(approval, call)
            case "used":  # another client's call with the same arguments has just used the approval
                return await self._granted(binding, call, decision, ask)
            case state:
                raise _missing(call, approval, state, decision)

    def _grant(self, approval: Approval, call: Call, *, after: str = "") -> Grant:
        entry = call.entry

        def is_current() -> bool:
            return self._policy().hash == approval.policy and self._pin_of(entry) == approval.pin

        claim = self._store.use(approval.id, call.id, self.changes.now(), after=after)
        return Grant(approval.id, claim, is_current)

    async def standing(self, call: Call, decision: Decision) -> Approval | None:
        """Return the approval that a call would use or wait for; None if it would request a new
        one.
        """
        binding = self._binding(call, decision)
        found = await self._store.latest(binding, self.changes.now())
        holds = found is not None and self._holds(found, self.state(found), binding)
        return found if holds else None

    def _holds(self, found: Approval, state: State, binding: Binding) -> bool:
        # Users who denied their own call may change their mind, so ask them again.
        is_denied = state == "denied" and found.decided_by != binding.user
        return state in ("pending", "approved") or (
            is_denied and found.expires > self.changes.now()
        )

    def _binding(self, call: Call, decision: Decision) -> Binding:
        who, entry = record_of(call.caller, ""), call.entry
        return Binding(
            who.tenant,
            who.user,
            who.key,
            entry.server,
            entry.address,
            arguments_hash(self._key, canonical(call.arguments)),
            decision.rule,
            self._policy().hash,
            self._pin_of(entry),
        )

    # Asking

    async def _found(self, binding: Binding, call: Call, decision: Decision) -> Approval:
        """Return a call's approval, or request one; concurrent calls that are equal share it."""
        finding = self._finding.get(binding)
        if finding is None:
            finding = asyncio.ensure_future(self._find(binding, call, decision))
            self._finding[binding] = finding
            finding.add_done_callback(partial(self._end_finding, binding))
        return await asyncio.shield(finding)

    def _end_finding(self, binding: Binding, finding: asyncio.Future[Approval]) -> None:
        del self._finding[binding]
        if not finding.cancelled():
            finding.exception()  # avoids asyncio's warning if all its calls were cancelled

    async def _find(self, binding: Binding, call: Call, decision: Decision) -> Approval:
        while True:
            now = self.changes.now()
            found = await self._store.latest(binding, now)
            if found is not None:
                if self._holds(found, found.state_at(now), binding):
                    return found
                if found.is_open:  # it has expired, and would block the next approval
                    await self._expire(found, now)
            created = await self._create(binding, call, decision)
            if created is not None:
                return created

    async def _create(self, binding: Binding, call: Call, decision: Decision) -> Approval | None:
        """Request an approval; return None if another process has just requested it."""
        now, address = self.changes.now(), call.entry.address
        pending = await self._store.pending(binding.tenant, binding.user, now)
        if limit := _exceeded(pending, len(canonical(call.arguments))):
            text = f"{address} needs approval, and too much already waits for approval ({limit}); "
            text += "wait until some of it is decided"
            raise ApprovalMissing(text, "approval_required", decision.rule)
        lifetime = self._settings().expires if decision.expires is None else decision.expires
        approval = Approval(
            id=new_approval_id(),
            call=call.id,
            state="pending",
            arguments=call.arguments,
            approvers=decision.approvers,
            created=now,
            expires=now + int(lifetime * 1_000_000),
            **msgspec.structs.asdict(binding),
        )
        is_full = decision.record == "full"
        body = _Asked(
            approval.id,
            call.caller.surface,
            decision.rule,
            decision.risk,
            decision.approvers,
            rfc3339(approval.expires),
            approval.hash,
            Raw(canonical(call.arguments)) if is_full else UNSET,
        )
        record = record_of(
            call.caller, "asked", call.id, binding.server, binding.tool, _encode(body)
        )
        insertion = self._store.insertion(approval)
        await self._write(record, insertion)
        if insertion.has_failed:
            return None
        self.changes.note(approval.id)
        return approval

    async def _ask(
        self, call: Call, approval: Approval, decision: Decision, ask: AskCaller
    ) -> Approval:
        """Ask the caller if the rule allows it; then wait for other approvers for the set time."""
        if CALLER in decision.approvers:
            with observing.waiting("approval"):
                answer = await self._answer(call, approval, ask)
            decide = self.approve if answer else self.deny
            if answer is not None:
                surface, by = call.caller.surface, call.caller.principal
                # a caller without a principal is the local user
                by = by or Principal(approval.user)
                # another approver decided first, or the approval expired
                with suppress(DecisionRefused):
                    return await decide(approval.id, approval.hash, by, surface=surface)
        if self._settings().wait:
            with observing.waiting("approval"):
                await self._wait(call, approval, self._settings().wait)
        return await self._store.get(approval.id)

    async def _answer(self, call: Call, approval: Approval, ask: AskCaller) -> bool | None:
        """Return the caller's answer; None if there is none or another approver decides first."""
        asking = asyncio.ensure_future(ask(call, approval))
        deciding = asyncio.ensure_future(self.changes.decided(approval.id))
        try:
            await asyncio.wait((asking, deciding), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            for each in (asking, deciding):
                each.cancel()
            await asyncio.wait((asking, deciding))

    async def _wait(self, call: Call, approval: Approval, seconds: float) -> None:
        if call.slots is not None:
            call.slots.give_back()
        waiting = asyncio.create_task(self.changes.decided(approval.id))
        loop = asyncio.get_running_loop()
        deadline, number = loop.time() + seconds, 0
        try:
            while not waiting.done() and (left := deadline - loop.time()) > 0:
                if call.progress is not None:
                    number += 1
                    text = f"waits for approval {approval.id}"
                    call.progress(Progress("", number * _STEP, message=text))
                await asyncio.wait([waiting], timeout=min(left, PROGRESS_EVERY))
        finally:
            waiting.cancel()

    async def _expire(self, approval: Approval, now: int) -> None:
        record = AuditRecord(
            *("decided", approval.call, "", "", approval.server, approval.tool),
            body=_decided(approval, "expire"),
            tenant=approval.tenant,
        )
        await self._write(record, self._store.expiry(approval.id, now))


def _known_pin(entry: Entry | Item) -> str:
    return entry.pin if isinstance(entry, Entry) else ""


def _is_own(principal: Principal, approval: Approval) -> bool:
    who = record_of(Caller(principal), "")
    return (who.tenant, who.user) == (approval.tenant, approval.user)


def _decided(
    approval: Approval,
    verdict: Literal["approve", "deny", "expire"],
    *,
    surface: str = "",
    note: str = "",
) -> bytes:
    return _encode(
        _Decided(approval.id, verdict, approval.user, approval.rule, approval.hash, surface, note)
    )


def _exceeded(pending: PendingCalls, size: int) -> str:
    """Return the limit that a further approval with arguments of this size exceeds; "" if none."""
    if pending.calls >= MAX_PENDING:
        return f"limit {MAX_PENDING} calls of one user"
    if pending.bytes + size > MAX_PENDING_BYTES:
        return f"limit {MAX_PENDING_BYTES // 2**20} MiB of arguments of one user"
    if pending.bytes_of_all + size > MAX_PENDING_BYTES_OF_ALL:
        return f"limit {MAX_PENDING_BYTES_OF_ALL // 2**20} MiB of arguments of all users"
    return ""


def _not_pending(approval: Approval, state: State) -> DecisionRefused:
    text = f"approval {approval.id} is {state}; it can no longer be decided"
    return DecisionRefused(text, f"approval_{state}")


def _missing(call: Call, approval: Approval, state: State, decision: Decision) -> ApprovalMissing:
    address, expires = call.entry.address, rfc3339(approval.expires) or ""
    until = f"{expires[:10]} {expires[11:16]} UTC"
    match state:
        case "denied":
            because = f" ({approval.note})" if approval.note else ""
            text = f"{address} was not run: approval {approval.id} was denied{because}"
        case "expired":
            text = f"{address} was not run: approval {approval.id} expired at {until}; call again"
            text += " to request a new approval"
        case _:
            who = " or ".join("you" if each == CALLER else each for each in decision.approvers)
            text = f"{address} needs approval by {who}: {approval.id}, until {until};"
            text += " call again unchanged afterwards"
    missing = ApprovalMissing(text, f"approval_{state}", decision.rule, approval.id, expires)
    missing.is_recorded = state == "pending" and approval.call == call.id
    return missing
