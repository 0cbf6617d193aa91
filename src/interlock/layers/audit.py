"""The audit trail of calls: an intent before each call, an outcome after it, and each refusal.

1. A call is sent only after its intent is on disk. If the intent cannot be written, the call fails.
2. A call with risk "read" may be sent while its intent is being written. Its result is held back
   until the intent is on disk. After a failed intent, such calls wait until an intent succeeds.
3. Each call with an intent gets exactly one outcome, even if it fails or is cancelled. Calls do not
   wait until their outcome is written.
4. In lenient mode calls do not wait, and a "gap" record states how many records were lost. The
   exception is a call that uses an approval, because its intent uses the approval up.
5. Arguments are recorded as a keyed hash, and as plain text only if the operator enables it.
"""

from __future__ import annotations

import asyncio
import logging
from binascii import b2a_base64
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from time import monotonic, time_ns
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from interlock import observing
from interlock.auth.gateway_auth import RefusedCredential
from interlock.auth.principal import Principal
from interlock.auth.stored_key import TENANT
from interlock.calls.call import Call, Caller, Outcome
from interlock.calls.entry import Entry, Item
from interlock.calls.grant import GrantLost
from interlock.calls.handlers import CallHandler
from interlock.config.gateway import Audit, Risk
from interlock.errors import (
    AuditUnavailable,
    CallRefused,
    ConnectionClosed,
    InterlockError,
    InvalidArguments,
    LoginRequired,
    MessageTooLarge,
    RemoteProtocolError,
    RequestTimeout,
    ServerUnavailable,
    ToolError,
)
from interlock.layers.refusals import Refusals
from interlock.protocol.envelope import encode_large
from interlock.store import AuditRecord, AuditWriter
from interlock.store.audit.writer import Added
from interlock.store.database.claims import Claim
from interlock.types import JsonObject

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

ARGUMENTS_KEY = "arguments"  # the derivation label of the key for `arguments_hash`
LOCAL_USER = "user:local"
_LOCAL = Principal(LOCAL_USER)  # for a `Caller` without a principal
UNKNOWN_RISK: Risk = "write"  # the risk of a call without a policy decision
MAX_NAME = 200  # characters of an unknown tool name that a caller sent

# Status and reason by class of error; the first matching class applies.
_FAILURES: tuple[tuple[type[BaseException], str, str], ...] = (
    (asyncio.CancelledError, "cancelled", "cancelled"),
    (RequestTimeout, "timeout", "upstream_timeout"),
    (ServerUnavailable, "error", "server_down"),
    (LoginRequired, "error", "needs_login"),
    (MessageTooLarge, "error", "result_too_large"),
    (RemoteProtocolError, "error", "protocol_error"),
    (msgspec.ValidationError, "error", "protocol_error"),
    (ConnectionClosed, "error", "upstream_closed"),
    (ToolError, "tool_error", ""),
    (InterlockError, "error", "upstream_error"),
    (BaseException, "error", "internal_error"),
)

_GOES_ON = {"input_required": "input_required", "task": "task_begun"}  # result type to reason
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_log = logging.getLogger("interlock.audit")


class _Intent(Struct, omit_defaults=True, rename="camel"):
    surface: str
    risk: str
    bytes: int  # size of the arguments
    view: str = ""
    client: str = ""  # the name that the client reports
    address: str = ""
    revision: str = ""
    traceparent: str = ""
    client_traceparent: str = ""  # the client's, if the trace does not continue it
    rule: str = ""
    grant: str = ""  # id of the approval that the call uses
    arguments_hash: str = ""  # see `arguments_hash`
    arguments: Raw | UnsetType = UNSET
    origin: JsonObject | None = None
    operation: str = ""  # "METHOD /path" of an HTTP API
    converted: dict[str, str] | None = None  # see `Call.converted`


class _Outcome(Struct, omit_defaults=True):
    ms: float
    bytes: int = 0  # size of the result
    kept: str = ""  # id of the kept result that the call stored or read
    revision: str = ""  # the server's revision, if it differs from the intent's
    messages: int = 1  # requests sent to the server


class AuditTrail:
    """Records calls in an audit trail. `refusals` is the outermost layer, `calls` the innermost.

    Args:
        writer: Writes the records.
        key: The key that arguments are hashed with.
        settings: The mode, and whether calls with risk "read" overlap with their intents.
        clock: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        writer: AuditWriter,
        key: bytes,
        settings: Audit,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._writer = writer
        self._key = key
        self._settings = settings
        self._clock = clock
        self._refusals = Refusals(self._write_soon)
        self._overlaps = settings.reads == "overlap"
        self._marked = 0  # lost records that "gap" records already report
        self._gap: asyncio.Future[None] | None = None  # the "gap" record that is being written

    # Layers

    def calls(self, handle: CallHandler) -> CallHandler:
        """Return the innermost layer, which records each call and its outcome."""
        if self._settings.mode == "off":
            return handle

        is_lenient = self._settings.mode == "lenient"

        async def record_and_call(call: Call) -> Outcome:
            intent, risk = self._intent(call)
            grant, written = call.grant, None
            overlaps = risk == "read" and self._overlaps and not self._writer.is_failing
            overlaps = overlaps and grant is None
            if is_lenient and grant is None:
                self._mark_gap()
                self._write_soon(intent)
            else:
                claim = None if grant is None else grant.claim
                written = self._writer.group.queue(Added(time_ns(), (intent,), claim))
            began = self._clock()
            try:
                if written is not None and not overlaps:
                    await written
                    if grant is not None:
                        grant.check()
                outcome = await handle(call)
                status = "tool_error" if outcome.is_error else "ok"
                # Other clients never see questions or a task, because the gateway continues their
                # calls.
                reason = _GOES_ON.get(outcome.result_type, "") if call.returns_questions else ""
            except (AuditUnavailable, GrantLost):  # nothing was recorded or sent
                raise
            except BaseException as error:
                self._end(intent, began, *_failure(error), call)
                if written is not None and overlaps and isinstance(error, Exception):
                    await written
                raise
            self._end(intent, began, status, reason, call, outcome)
            if written is not None and overlaps:
                await written
            return outcome

        return record_and_call

    def refusals(self, handle: CallHandler) -> CallHandler:
        """Return a layer that records the calls which the inner layers refuse."""
        if self._settings.mode == "off":
            return handle

        async def call_and_record(call: Call) -> Outcome:
            try:
                return await handle(call)
            except InterlockError as error:
                self.note_refusal(call, error)
                raise

        return call_and_record

    def note_refusal(self, call: Call, error: BaseException) -> None:
        """Record a refused call; ignore an error that is not a refusal."""
        rule = ""
        if isinstance(error, CallRefused):
            if error.is_recorded:
                return
            reason, rule = error.reason, getattr(error, "rule", "")  # some refusals have no rule
        elif isinstance(error, InvalidArguments):
            reason = "arguments_invalid"
        elif isinstance(error, AuditUnavailable):
            reason = "audit_unavailable"
        else:
            return
        if self._settings.mode != "off":
            self.refused(call.caller, reason, entry=call.entry, call=call.id, rule=rule)

    def refused(
        self,
        caller: Caller,
        reason: str,
        *,
        entry: Entry | Item | None = None,
        name: str = "",
        call: str = "",
        rule: str = "",
    ) -> None:
        """Record a refusal; equal refusals of a caller share one record a second, with a count.

        Args:
            caller: The caller whose call was refused.
            reason: The code of the refusal.
            entry: The tool; None if the tool does not exist or the refusal is not about a tool.
            name: The name that the caller sent, if no tool has this name.
            call: The call's id.
            rule: The id of the rule that denied the call.
        """
        record = replace(
            record_of(caller, "refused"),
            call=call,
            server=entry.server if entry is not None else "",
            tool=entry.address if entry is not None else name[:MAX_NAME],
            reason=reason,
        )
        self._refusals.add(
            record, caller.surface, is_tool=entry is not None, address=caller.address, rule=rule
        )

    def credential_refused(self, refused: RefusedCredential) -> None:
        """Record a refused credential, at most once a second for each address and key."""
        if self._settings.mode == "off":
            return
        record = AuditRecord("refused", reason=refused.reason)
        if refused.key is not None:
            user = f"user:{refused.key.user}"
            record = replace(record, user=user, key=refused.key.id, tenant=refused.key.tenant)
        self._refusals.add(record, "mcp", address=refused.address)

    def note(
        self,
        kind: str,
        body: JsonObject,
        *,
        user: str = LOCAL_USER,
        server: str = "",
        tool: str = "",
        call: str = "",
    ) -> None:
        """Record an event that is not a call, such as a changed configuration.

        Args:
            kind: The kind of the record.
            body: The details of the event.
            user: The principal that the event concerns, or that caused the event.
            server: The server that the event is about.
            tool: The address of the tool that the event is about.
            call: The id of the call that the event is about.
        """
        if self._settings.mode != "off":
            record = AuditRecord(kind, call, user, "", server, tool, body=_encode(body))
            self._write_soon(record)

    async def announce(self, call: Call) -> None:
        """Record the intent of a call that another program is about to make.

        The intent is on disk when this returns, except in lenient mode.

        Raises:
            AuditUnavailable: The intent could not be written, so the call must not be made.
        """
        intent, _ = self._intent(call)
        if self._settings.mode == "lenient":
            self._write_soon(intent)
        else:
            await self._writer.append(intent)

    async def report(self, call: Call, status: str, *, ms: float, size: int) -> None:
        """Record the outcome of a call that another program has made.

        Args:
            call: The call that was passed to `announce`, or a call with the same id.
            status: "ok" or "tool_error".
            ms: Milliseconds that the call took.
            size: Bytes of the result.

        Raises:
            AuditUnavailable: The outcome could not be recorded.
        """
        entry, body = call.entry, _encode(_Outcome(ms, size, messages=0))
        record = record_of(call.caller, "outcome", call.id, entry.server, entry.address, body)
        await self._writer.append(replace(record, status=status))

    async def record(
        self,
        kind: str,
        body: JsonObject,
        principal: Principal,
        *,
        server: str = "",
        tool: str = "",
        claim: Claim | None = None,
    ) -> None:
        """Record an action that is not a call; the record is on disk when this returns.

        Args:
            kind: The kind of the record.
            body: The details of the action.
            principal: The person who acted.
            server: The server that the action is about.
            tool: The address of the tool that the action is about.
            claim: A change to the database, made in the same transaction as the record.

        Raises:
            AuditUnavailable: The record could not be written in time.
        """
        await self._writer.append(_deed(kind, body, principal, server, tool), claim)

    def record_soon(self, kind: str, body: JsonObject, principal: Principal) -> None:
        """Record a completed action, such as a reload, without waiting; see `record`.

        If the database is unavailable, the record is queued and written later.
        """
        self._write_soon(_deed(kind, body, principal))

    def flush(self) -> None:
        """Record the refusals counted in the last second; call this before the writer closes."""
        self._refusals.flush()

    # Records

    def _intent(self, call: Call) -> tuple[AuditRecord, Risk]:
        decision, how, risk, rule = call.decision, self._settings.arguments, UNKNOWN_RISK, ""
        if decision is not None:
            how, risk, rule = decision.record or how, decision.risk, decision.rule
        try:
            arguments = _encode_sorted(call.arguments)
        except UnicodeEncodeError:
            arguments = canonical(call.arguments)  # raises an error that names the argument
        call.encoded = arguments
        caller = call.caller
        principal = caller.principal or _LOCAL
        trace, linked = caller.trace[:MAX_NAME], ""
        if observing.observer is not None and (within := observing.observer.current()) is not None:
            if trace[3:35] != within.parent[3:35]:
                linked = trace
            trace = within.parent
        body = _Intent(
            caller.surface,
            risk,
            len(arguments),
            view=principal.view,
            client=caller.client[:MAX_NAME],
            address=caller.address,
            revision=caller.revision,
            traceparent=trace,
            client_traceparent=linked,
            rule=rule,
            grant=call.grant.id if call.grant is not None else "",
            arguments_hash=arguments_hash(self._key, arguments) if how != "none" else "",
            arguments=Raw(arguments) if how == "full" else UNSET,
            origin=call.origin,
            operation=call.entry.operation[:MAX_NAME] if isinstance(call.entry, Entry) else "",
            converted=call.converted,
        )
        entry = call.entry
        intent = AuditRecord(
            "intent",
            call.id,
            principal.id,
            principal.key_id,
            entry.server,
            entry.address,
            body=_encode(body),
            tenant=principal.tenant or TENANT,
        )
        return intent, risk

    def _end(
        self,
        intent: AuditRecord,
        began: float,
        status: str,
        reason: str,
        call: Call,
        outcome: Outcome | None = None,
    ) -> None:
        size, kept = (outcome.size, outcome.kept) if outcome is not None else (0, "")
        ms = round((self._clock() - began) * 1_000, 1)
        revision = call.revision if call.revision != call.caller.revision else ""
        body = _encode(_Outcome(ms, size, kept, revision, call.messages))
        record = replace(intent, kind="outcome", status=status, reason=reason, body=body)
        try:
            self._writer.group.add_soon(Added(time_ns(), (record,)))
        except AuditUnavailable as error:
            self._lost(record, error)

    def _write_soon(self, record: AuditRecord) -> None:
        try:
            self._writer.append_soon(record)
        except AuditUnavailable as error:
            self._lost(record, error)

    @staticmethod
    def _lost(record: AuditRecord, error: AuditUnavailable) -> None:
        _log.error("an audit record %r was lost: %s", record.kind, error)

    # Gaps

    def _mark_gap(self) -> None:
        """Record how many records were lost since the last "gap" record, if any."""
        lost = self._writer.dropped - self._marked
        if not lost or self._gap is not None:
            return
        body = _encode({"records": lost})
        try:
            self._gap = self._writer.queue(AuditRecord("gap", body=body))
        except AuditUnavailable:
            return  # the next call retries

        def marked(gap: asyncio.Future[None]) -> None:
            self._gap = None
            if not gap.cancelled() and gap.exception() is None:
                self._marked += lost
                _log.error("%d audit records were lost", lost)

        self._gap.add_done_callback(marked)


def _deed(
    kind: str, body: JsonObject, principal: Principal, server: str = "", tool: str = ""
) -> AuditRecord:
    """Return a record of an action that is not a call."""
    encoded = _encode(body)
    return record_of(Caller(principal), kind, server=server, tool=tool, body=encoded)


def record_of(
    caller: Caller, kind: str, call: str = "", server: str = "", tool: str = "", body: bytes = b"{}"
) -> AuditRecord:
    """Return a record with the caller's principal, key and tenant."""
    principal = caller.principal or _LOCAL
    tenant = principal.tenant or TENANT
    return AuditRecord(
        kind, call, principal.id, principal.key_id, server, tool, body=body, tenant=tenant
    )


def arguments_hash(key: bytes, canonical: bytes) -> str:
    """Return the keyed hash of arguments; equal arguments have equal hashes."""
    # Not `hmac.digest`: it releases the GIL, and the thread that writes the trail then takes it,
    # which delays this call.
    begun_inner, begun_outer = _padded(key)
    inner, outer = begun_inner.copy(), begun_outer.copy()
    inner.update(canonical)
    outer.update(inner.digest())
    return b2a_base64(outer.digest(), newline=False).translate(_URL_SAFE, b"=").decode()


@lru_cache(maxsize=16)
def _padded(key: bytes) -> tuple[Hash, Hash]:
    """Return both hashes of HMAC-SHA256 (RFC 2104), already updated with the padded key."""
    if len(key) > sha256().block_size:
        key = sha256(key).digest()
    key = key.ljust(sha256().block_size, b"\0")
    return sha256(bytes(each ^ 0x36 for each in key)), sha256(bytes(each ^ 0x5C for each in key))


def canonical(arguments: JsonObject) -> bytes:
    """Encode arguments with sorted members."""
    try:
        return _encode_sorted(arguments)
    except UnicodeEncodeError:
        return encode_large(arguments)  # which raises an error that names the argument


def _failure(error: BaseException) -> tuple[str, str]:
    """Return the status and the reason for a call that raised an error."""
    if isinstance(error, CallRefused):
        return "error", error.reason
    return next((status, reason) for kind, status, reason in _FAILURES if isinstance(error, kind))
