"""The values of `error.type` in spans and metrics."""

from __future__ import annotations

import asyncio
import re

from interlock.errors import (
    ConnectionClosed,
    InputRequired,
    InterlockError,
    InvalidArguments,
    ModelError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    ServerUnavailable,
    UnknownResource,
    UnknownTool,
    to_wire,
)

_WORD = re.compile("[a-z_]{1,40}")
# The first class that matches an error determines its `error.type`, unless a layer gave a reason.
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (asyncio.CancelledError, "cancelled"),
    (RequestTimeout, "timeout"),
    (TimeoutError, "timeout"),
    (InvalidArguments, "arguments_invalid"),
    (UnknownTool, "unknown_tool"),
    (UnknownResource, "unknown_resource"),
    (ConnectionClosed, "upstream_closed"),
    (RemoteProtocolError, "protocol_error"),
)


def error_type(error: BaseException) -> str:
    """Return the value of `error.type`: a stable word, or the code of a JSON-RPC error.

    Return "" for questions that the client must answer first; they are not errors.
    """
    if isinstance(error, InputRequired):
        return ""
    if isinstance(error, RemoteError):
        return str(error.code)
    if isinstance(error, ServerUnavailable):
        return error.code
    reason = getattr(error, "reason", "") if isinstance(error, InterlockError) else ""
    if isinstance(reason, str) and _WORD.fullmatch(reason):
        return reason
    found = next((word for kind, word in _REASONS if isinstance(error, kind)), "")
    if found:
        return found
    if isinstance(error, ModelError):
        return "model_error"
    return str(to_wire(error)[0])
