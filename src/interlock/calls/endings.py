"""How a call ended, as a single word for people and programs."""

from __future__ import annotations

from typing import Literal

from interlock.errors import (
    AuthError,
    ConnectionClosed,
    InterlockError,
    OutOfMemory,
    RemoteProtocolError,
    RequestTimeout,
    ServerUnavailable,
    SessionExpired,
    Unreachable,
)

Ending = Literal["ran", "failed", "refused", "limited", "held", "stopped"]

_RAN = (RemoteProtocolError, OutOfMemory)
_UNSENT = (Unreachable, SessionExpired)  # both are a `ConnectionClosed`

LIMITS = frozenset(
    {"rate_limited", "overloaded", "tool_rate_limited", "quota_exceeded", "queue_timeout"}
)


def reason_of(error: InterlockError) -> str:
    """Return a stable code for why a layer refused a call; "" if no layer refused it."""
    if isinstance(error, AuthError | ServerUnavailable):  # their `reason` is about the server
        return ""
    return str(getattr(error, "reason", ""))


def effect_of(error: InterlockError) -> str:
    """Return "the tool ran" or "the tool may have run"; "" if the error itself shows the answer."""
    if isinstance(error, _RAN):
        return "the tool ran"
    if isinstance(error, RequestTimeout | ConnectionClosed) and not isinstance(error, _UNSENT):
        return "the tool may have run"
    return ""


def ending_of(error: InterlockError) -> Ending:
    """Return how a call that raised an error ended."""
    reason = reason_of(error)
    if not reason:
        return "failed"
    if reason in LIMITS:
        return "limited"
    if reason == "cancelled":
        return "stopped"
    return "held" if reason == "tool_quarantined" else "refused"
