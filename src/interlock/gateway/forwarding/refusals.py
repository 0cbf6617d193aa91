"""Refusals of a request: a sentence for the model, and a reason code for programs.

If a call to a visible tool fails, the result of the tool states the problem. If the request itself
or the key is refused, the response is a JSON-RPC error, with an HTTP status where one exists.
"""

from __future__ import annotations

import logging
import secrets
from math import ceil

from msgspec import Raw

from interlock import observing
from interlock.calls import Entry, Item
from interlock.errors import (
    ApprovalMissing,
    AskRefused,
    AuditUnavailable,
    AuthError,
    CallRefused,
    ConnectionClosed,
    InterlockError,
    InvalidArguments,
    LoginNeeded,
    LoginRequired,
    MessageTooLarge,
    MissingCapability,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    ServerUnavailable,
)
from interlock.layers.delivery import named
from interlock.layers.enforcement import CallDenied
from interlock.protocol.envelope import encode
from interlock.revisions import MISSING_CAPABILITY
from interlock.server.wire_errors import request_refusal
from interlock.types import JsonObject

REASON_KEY = "interlock/reason"
UNKNOWN = "unknown_tool"
INTERNAL_ERROR = -32603

_log = logging.getLogger("interlock.gateway")

# The first class that matches an error determines the reason.
_REASONS: tuple[tuple[type[InterlockError], str], ...] = (
    (AuditUnavailable, "audit_unavailable"),
    (InvalidArguments, "arguments_invalid"),
    (LoginRequired, "needs_login"),
    (AuthError, "upstream_error"),
    (RequestTimeout, "upstream_timeout"),
    (ConnectionClosed, "upstream_closed"),
    (MessageTooLarge, "result_too_large"),
    (RemoteProtocolError, "protocol_error"),
    (RemoteError, "upstream_error"),
)


def reason_of(error: InterlockError) -> str:
    """Return a stable code for the reason of a failed call."""
    if isinstance(error, CallDenied | CallRefused | AskRefused):
        return error.reason
    if isinstance(error, ServerUnavailable):
        return error.code
    if isinstance(error, MissingCapability):
        return "cannot_ask"
    if isinstance(error, RemoteError) and error.code == MISSING_CAPABILITY:
        return "cannot_ask"
    return next((word for kind, word in _REASONS if isinstance(error, kind)), "upstream_error")


def refusal(entry: Entry | Item, error: InterlockError, call: str = "") -> Raw:
    """Return the result for a refused or failed call: a sentence, and the reason for programs.

    Args:
        entry: The item that was called.
        error: Why the call was refused or failed.
        call: The call's id, which is also the reference to its audit records and its log line.
            Without an id, a new reference appears only in the log.

    Raises:
        CallRefused, AuditUnavailable: The request itself or the key is refused.
    """
    code, reference = _logged(entry, error, call)
    shown = _shown(code, reference, _retry_after(error))
    shown |= _details(error)
    if isinstance(error, RemoteError):
        shown["upstreamCode"] = error.code
    return result_of(str(error), {"code": shown.pop("reason"), **shown})


def result_of(text: str, reason: JsonObject) -> Raw:
    """Return the result for a tool that was not called."""
    content = [{"type": "text", "text": text}]
    return Raw(encode({"content": content, "isError": True, "_meta": {REASON_KEY: reason}}))


def refused(entry: Entry | Item, error: InterlockError, call: str = "") -> RemoteError:
    """Return the JSON-RPC error for a refused resource, prompt or task; see `refusal`."""
    code, reference = _logged(entry, error, call)
    data = _shown(code, reference, _retry_after(error))
    data |= _details(error)
    if isinstance(error, RemoteError):
        return RemoteError(error.code, str(error), data)
    return RemoteError(INTERNAL_ERROR, str(error), data)


def _logged(entry: Entry | Item, error: InterlockError, call: str) -> tuple[str, str]:
    if isinstance(error, CallRefused | AuditUnavailable) and request_refusal(error) is not None:
        raise error
    code, reference = reason_of(error), call or secrets.token_hex(6)
    if observing.observer is not None:
        observing.observer.refused(code, reference)
    # The text of a server may quote arguments.
    shown = f"error {error.code}" if isinstance(error, RemoteError) else str(error)
    members = {"server": entry.server, "reason": code} | ({"call_id": call} if call else {})
    if isinstance(entry, Entry):
        members["tool"] = entry.address
    text = "%s: %s, reference %s: %s"
    _log.info(text, named(entry), code, reference, shown, extra=members)
    return code, reference


def _details(error: InterlockError) -> JsonObject:
    if isinstance(error, ApprovalMissing):
        details = {"rule": error.rule, "approval": error.approval, "expires": error.expires}
    elif isinstance(error, CallDenied):
        details = {"rule": error.rule}
    elif isinstance(error, LoginNeeded | LoginRequired):
        details = {"url": error.url}
    else:
        details = {}
    return {name: value for name, value in details.items() if value}


def _retry_after(error: InterlockError) -> float | None:
    if isinstance(error, CallRefused | ServerUnavailable):
        return error.retry_after
    return None


def _shown(reason: str, reference: str, retry_after: float | None) -> JsonObject:
    shown: JsonObject = {"reason": reason, "reference": reference}
    if retry_after is not None:
        shown["retryAfter"] = max(1, ceil(retry_after))
    return shown
