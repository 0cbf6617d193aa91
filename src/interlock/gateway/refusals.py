"""Refusals of a call, as a result that the model reads and a reason that programs read."""

from __future__ import annotations

import logging
import secrets

from msgspec import Raw

from interlock.calls import Call
from interlock.errors import (
    AuthError,
    CallRefused,
    ConnectionClosed,
    InterlockError,
    InvalidArguments,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    ServerUnavailable,
)
from interlock.policy import CallDenied
from interlock.protocol.envelope import encode
from interlock.types import JsonObject

REASON_KEY = "interlock/reason"

_log = logging.getLogger("interlock.gateway")

# The first class that an error belongs to decides.
_REASONS: tuple[tuple[type[InterlockError], str], ...] = (
    (InvalidArguments, "arguments_invalid"),
    (ServerUnavailable, "server_down"),
    (LoginRequired, "needs_login"),
    (AuthError, "upstream_error"),
    (RequestTimeout, "upstream_timeout"),
    (ConnectionClosed, "upstream_closed"),
    (RemoteProtocolError, "protocol_error"),
    (RemoteError, "upstream_error"),
)


def reason_of(error: InterlockError) -> str:
    """Return the stable word for why a call failed."""
    if isinstance(error, CallDenied | CallRefused):
        return error.reason
    return next((word for kind, word in _REASONS if isinstance(error, kind)), "upstream_error")


def refusal(call: Call, error: InterlockError) -> Raw:
    """Return the result of a call that was not made or has failed: a sentence and its reason.

    The reference in it is in the log beside the error.
    """
    code, reference = reason_of(error), secrets.token_hex(6)
    _log.info("tool %s: %s, reference %s: %s", call.entry.address, code, reference, error)
    shown: JsonObject = {"code": code, "reference": reference}
    if isinstance(error, CallDenied) and error.rule:
        shown["rule"] = error.rule
    if isinstance(error, RemoteError):
        shown["upstreamCode"] = error.code
    result: JsonObject = {
        "content": [{"type": "text", "text": str(error)}],
        "isError": True,
        "_meta": {REASON_KEY: shown},
    }
    return Raw(encode(result))
