"""A store of approvals for exact calls, whose arguments are encrypted in the database.

`ApprovalStore` reads approvals. Each change of an approval is a `Claim`: it is made in the
transaction of its audit record, and only if the approval still has the expected state.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Collection, Sequence
from math import inf
from secrets import token_hex
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, Row, Select, and_, case, delete, func, or_, select, update

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import UnknownApproval
from interlock.store.database import tables
from interlock.store.database.changes import ChangeReader, change_statement, note_change
from interlock.store.database.claims import Claim
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.rows import storable
from interlock.text.timestamps import rfc3339
from interlock.types import JsonObject

State = Literal["pending", "approved", "denied", "expired", "used"]

KIND: Final = "approvals"  # the kind of rows in `changes`
SEALED_FOR = "approvals"  # the purpose for which the encryption key is derived
HASHED_FOR = "approval binding"
MAX_LISTED = 500
LEEWAY = 60 * 1_000_000  # microseconds by which two machines' clocks may differ

_COLUMNS = tuple(column.name for column in tables.approvals.columns)
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
# Several gateways may request an approval of the same call; one of them does.
_INSERT = (
    f"INSERT INTO approvals ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
    " ON CONFLICT DO NOTHING"
)
_DECIDE = (
    "UPDATE approvals SET state = ?, decided_by = ?, decided_at = ?, note = ?"
    " WHERE id = ? AND state = 'pending' AND expires > ? AND created <= ? AND hash = ?"
)
# An approved call can still be denied, until the approval is used.
_DENY = _DECIDE.replace("state = 'pending'", "state IN ('pending', 'approved')")
_EXPIRE = (
    "UPDATE approvals SET state = 'expired'"
    " WHERE id = ? AND state IN ('pending', 'approved') AND (expires <= ? OR created > ?)"
)
# The caller's key must be valid when the approval is used.
_USE = (
    "UPDATE approvals SET state = 'used', used_by_call = ?"
    " WHERE id = ? AND state = ? AND COALESCE(used_by_call, '') = ?"
    " AND expires > ? AND created <= ?"
    " AND NOT EXISTS (SELECT 1 FROM keys WHERE keys.id = approvals.key"
    " AND (keys.revoked <= ? OR keys.expires <= ?))"
)


class Binding(Struct, frozen=True):
    """The exact call that an approval is for. If any attribute changes, the approval is void.

    Attributes:
        tenant: The caller's tenant.
        user: The caller's id.
        key: The id of the caller's API key; "" if the caller did not use an API key.
        server: The name of the server.
        tool: The address of the tool.
        hash: The hash of the call's arguments; see `layers.audit.arguments_hash`.
        rule: The id of the policy rule that requires the approval.
        policy: The hash of the policy.
        pin: The hash of the tool's definition.
    """

    tenant: str
    user: str
    key: str
    server: str
    tool: str
    hash: str
    rule: str
    policy: str
    pin: str


class Approval(Struct, frozen=True, kw_only=True):
    """A request to approve one call, and the decision. Times are microseconds since 1970.

    Attributes:
        id: The id of the approval.
        call: The id of the call that requested it.
        state: The stored state; see `state_at`.
        arguments: The call's arguments; None in lists, and if they were encrypted with another key,
            or another program changed what the approval is for.
        approvers: The principals who may decide, written as in the rule.
        created: The time at which the approval was requested.
        expires: The time of expiry.
        decided_by: The principal that approved or denied the call; None before the decision.
        decided_at: The time of the decision; None before it.
        note: The decider's note.
        used_by_call: The id of the call that used the approval; None if it is unused.
        told: The time at which a gateway began to tell its approvers; None before that.
    """

    id: str
    call: str
    state: State
    tenant: str
    user: str
    key: str
    server: str
    tool: str
    arguments: JsonObject | None
    hash: str
    rule: str
    policy: str
    pin: str
    approvers: tuple[str, ...]
    created: int
    expires: int
    decided_by: str | None = None
    decided_at: int | None = None
    note: str | None = None
    used_by_call: str | None = None
    told: int | None = None

    def state_at(self, now: int) -> State:
        """Return the state at a time: after its expiry, an open or approved request is "expired".

        A request whose creation lies in the future is expired, too: otherwise it would stay valid
        longer after a clock was set back.
        """
        is_over = self.expires <= now or self.created > now + LEEWAY
        return "expired" if self.is_open and is_over else self.state

    @property
    def is_open(self) -> bool:
        """Whether it is stored as pending or approved, though it may have expired."""
        return self.state in ("pending", "approved")

    @property
    def binding(self) -> Binding:
        return msgspec.convert(asdict(self), Binding)

    def as_json(self, now: int) -> JsonObject:
        return {
            "id": self.id,
            "call": self.call,
            "state": self.state_at(now),
            "user": self.user,
            **({"key": self.key} if self.key else {}),
            "tool": self.tool,
            **({"arguments": self.arguments} if self.arguments is not None else {}),
            "hash": self.hash,
            "rule": self.rule,
            "approvers": list(self.approvers),
            "created": rfc3339(self.created),
            "expires": rfc3339(self.expires),
            **({"decidedBy": self.decided_by} if self.decided_by else {}),
            **({"decidedAt": rfc3339(self.decided_at)} if self.decided_at is not None else {}),
            **({"note": self.note} if self.note else {}),
        }


class PendingCalls(NamedTuple):
    """The number of calls that wait for a decision, and the bytes of their arguments."""

    calls: int  # pending calls of one user
    bytes: int  # bytes of arguments of one user's pending calls
    bytes_of_all: int


_Approvals: TypeAlias = list[Approval]


def new_approval_id() -> str:
    """Return a new, unique id."""
    return f"a_{token_hex(8)}"


class ApprovalStore:
    """A store of approvals in one database. Every method that reads may raise a `StoreError`.

    Args:
        database: The database with the table of approvals.
        key: The key that encrypts the arguments.
    """

    def __init__(self, database: Database, key: GatewayKey) -> None:
        self._database = database
        self._key = key
        self._changes = ChangeReader(KIND)

    # Reading

    async def get(self, id: str) -> Approval:
        """Return one approval.

        Raises:
            UnknownApproval: No approval has this id.
        """
        found = await self._read(select(tables.approvals).where(_of.id == storable(id)))
        if not found:
            raise UnknownApproval(f"no approval {id!r}; see `interlock approvals list`")
        return found[0]

    async def list(
        self,
        states: Collection[State] | None,
        now: int,
        *,
        user: str = "",
        limit: int = MAX_LISTED,
        after: str = "",
    ) -> _Approvals:
        """Return approvals without their arguments, newest first.

        Args:
            states: The states to include; None for all states.
            now: The current time.
            user: The user who made the calls; "" for all users.
            limit: The largest number of approvals to return.
            after: The id of the last approval on the previous page; "" for the first page.
        """
        query = select(*_LISTED).order_by(_of.created.desc(), _of.id.desc()).limit(limit)
        if states is not None:
            query = query.where(_state_at(now).in_(states))
        if user:
            query = query.where(_of.user == storable(user))
        if after:
            last = await self.get(after)
            query = query.where(
                (_of.created < last.created) | ((_of.created == last.created) & (_of.id < last.id))
            )
        return await self._read(query)

    async def oldest(self, now: int, limit: int) -> _Approvals:
        """Return approvals that are pending, without their arguments, oldest first."""
        query = select(*_LISTED).where(_of.state == "pending", ~_is_over(now))
        return await self._read(query.order_by(_of.created, _of.id).limit(limit))

    async def latest(self, binding: Binding, now: int) -> Approval | None:
        """Return the open approval for a call, or else the newest; None if there is none."""
        query = self._for(binding).where(or_(_is_open(), _of.created <= now + LEEWAY))
        query = query.order_by(_is_open().desc(), _of.created.desc(), _of.id.desc()).limit(1)
        return next(iter(await self._read(query)), None)

    async def used_by(self, binding: Binding, call: str) -> Approval | None:
        """Return the approval for this binding that a call has used; None if it used none."""
        query = self._for(binding).where(_of.state == "used", _of.used_by_call == storable(call))
        return next(iter(await self._read(query)), None)

    async def pending(self, tenant: str, user: str, now: int) -> PendingCalls:
        """Return how much waits for a decision: of one user, and of all users."""
        size, is_own = func.length(_of.arguments), and_(_of.tenant == tenant, _of.user == user)
        query = select(
            func.count(case((is_own, 1))), func.sum(case((is_own, size))), func.sum(size)
        ).where(_of.state == "pending", ~_is_over(now))

        async def work(connection: AsyncConnection) -> PendingCalls:
            row = (await connection.execute(query)).one()
            return PendingCalls(*(int(each or 0) for each in row))

        return await self._database.read(work)

    async def counts(self, now: int) -> Counter[str]:
        state = _state_at(now)

        async def work(connection: AsyncConnection) -> Counter[str]:
            query = select(state, func.count()).group_by(state)
            rows: Sequence[Any] = (await connection.execute(query)).all()
            return Counter(dict(map(tuple, rows)))

        return await self._database.read(work)

    async def overdue(self, now: int) -> _Approvals:
        """Return approvals that have expired but are not marked as expired."""
        return await self._read(
            select(tables.approvals).where(_is_open(), _is_over(now)).limit(MAX_LISTED)
        )

    async def next_expiry(self) -> float:
        """Return the earliest expiry of the open approvals; infinity if there are none."""
        query = select(func.min(_of.expires)).where(_is_open())

        async def work(connection: AsyncConnection) -> float:
            earliest: int | None = await connection.scalar(query)
            return inf if earliest is None else earliest

        return await self._database.read(work)

    async def changed(self) -> set[str]:
        """Return the ids of approvals changed since the last call; the first returns some ids."""
        return await self._database.read(self._changes.read)

    async def purge(self, before: int) -> None:
        """Delete approvals that expired before a time; the audit trail keeps their records."""
        query = delete(tables.approvals).where(_of.expires < before)
        await self._database.write(lambda connection: connection.execute(query))

    async def _read(self, query: Select[Any]) -> _Approvals:
        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            found: Sequence[Row[Any]] = (await connection.execute(query)).all()
            return found

        return [self._approval(row) for row in await self._database.read(work)]

    # Notifying approvers

    async def untold(self, now: int, limit: int) -> _Approvals:
        """Return pending approvals whose approvers were not told yet, oldest first."""
        query = select(*_LISTED).where(_of.state == "pending", ~_is_over(now), _of.told.is_(None))
        return await self._read(query.order_by(_of.created, _of.id).limit(limit))

    async def tell(self, id: str, now: int) -> bool:
        """Mark an approval's message as sent; return False if another gateway marked it first."""
        change = update(tables.approvals).where(_of.id == id, _of.told.is_(None)).values(told=now)

        async def work(connection: AsyncConnection) -> bool:
            return bool((await connection.execute(change)).rowcount)

        return await self._database.write(work)

    async def untell(self, ids: Collection[str]) -> None:
        """Remove the marks of approvals whose messages were not sent."""
        change = update(tables.approvals).where(_of.id.in_(ids)).values(told=None)

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(change)
            for id in ids:
                await note_change(connection, KIND, id)

        if ids:
            await self._database.write(work)

    # Changes

    def insertion(self, approval: Approval) -> Claim:
        """Return the claim that inserts an approval; it fails if one for its call is open."""
        fields = asdict(approval)
        arguments = msgspec.json.encode(approval.arguments)
        fields["arguments"] = self._key.seal(SEALED_FOR, arguments, bound_to(approval.id))
        fields["approvers"] = msgspec.json.encode(approval.approvers).decode()
        fields["binding"] = self._hash(approval.binding)
        texts = {each: storable(text) for each, text in fields.items() if isinstance(text, str)}
        row = tuple((fields | texts)[name] for name in _COLUMNS)
        return Claim(_INSERT, row, [change_statement(KIND, approval.id)])

    def decision(self, approval: Approval, state: State, by: str, note: str, now: int) -> Claim:
        """Return the claim that approves or denies a request if it still has the state as read."""
        sql = _DENY if state == "denied" else _DECIDE
        at = (now, now + LEEWAY)
        row = (state, storable(by), now, storable(note) or None, approval.id, *at, approval.hash)
        return Claim(sql, row, [change_statement(KIND, approval.id)])

    def expiry(self, id: str, now: int) -> Claim:
        """Return the claim that marks an approval as expired."""
        return Claim(_EXPIRE, (id, now, now + LEEWAY), [change_statement(KIND, id)])

    def use(self, id: str, call: str, now: int, *, after: str = "") -> Claim:
        """Return the claim that uses an approval; it fails if the caller's key is not valid.

        Args:
            id: The id of the approval.
            call: The id of the call that uses it.
            now: The current time.
            after: The id of the call that used the approval before, if this call repeats that call
                with answers to the server's questions.
        """
        state = "used" if after else "approved"
        row = (call, id, state, after, now, now + LEEWAY, now, now)
        return Claim(_USE, row, [change_statement(KIND, id)])

    def _for(self, binding: Binding) -> Select[Any]:
        return select(tables.approvals).where(_of.binding == self._hash(binding))

    def _hash(self, binding: Binding) -> bytes:
        return binding_hash(binding, self._key)

    def _approval(self, row: Row[Any]) -> Approval:
        fields = dict(row._mapping)
        binding = fields.pop("binding")
        fields["approvers"] = msgspec.json.decode(fields["approvers"], type=tuple[str, ...])
        opened = None
        if (sealed := fields.setdefault("arguments", None)) is not None:
            opened = self._key.unseal(SEALED_FOR, sealed, bound_to(fields["id"]))
        fields["arguments"] = None if opened is None else msgspec.json.decode(opened)
        found = Approval(**fields)
        if binding != self._hash(found.binding):  # another program changed the row
            return msgspec.structs.replace(found, arguments=None)
        return found


_of = tables.approvals.c
_LISTED = tuple(column for column in _of if column.name != "arguments")


def _state_at(now: int) -> Any:
    return case((and_(_is_open(), _is_over(now)), "expired"), else_=_of.state)


def _is_open() -> ColumnElement[bool]:
    return _of.state.in_(("pending", "approved"))


def _is_over(now: int) -> ColumnElement[bool]:
    return or_(_of.expires <= now, _of.created > now + LEEWAY)


def binding_hash(binding: Binding, key: GatewayKey) -> bytes:
    """Return the keyed hash by which the approval of a call is found."""
    content = msgspec.json.encode([storable(each) for each in asdict(binding).values()])
    return hmac.digest(key.derive(HASHED_FOR), content, "sha256")


def bound_to(id: str) -> bytes:
    """Return the place for which an approval's arguments are encrypted."""
    return f"approval {id}".encode()
