"""Conversion of handlers' exceptions to JSON-RPC errors; bugs are logged with a reference."""

from __future__ import annotations

import logging
import os
import secrets
from math import ceil
from pathlib import PurePath
from typing import Any

from msgspec import Struct

from interlock.errors import AuditUnavailable, AuthError, CallRefused, InterlockError, to_wire
from interlock.text.quoting import replace_surrogates
from interlock.types import JsonObject

_STATUS = {"rate_limited": 429, "overloaded": 503, "draining": 503}  # HTTP status by reason
_AUDIT_RETRY = 1.0  # seconds after which clients may retry while calls cannot be recorded
_AUTH_RETRY = 5.0  # seconds after which clients may retry while callers cannot be identified
_log = logging.getLogger("interlock.server")


class RequestRefusal(Struct, frozen=True):
    """The error response to a request that is refused as a whole, whichever tool it names.

    Attributes:
        status: The HTTP status. The JSON-RPC error code is -31000 minus the status.
        reason: A stable code for programs; "" if there is none.
        text: One line for people.
        retry_after: The seconds after which the same request may succeed; None if waiting does not
            help.
        challenge: The value of `WWW-Authenticate`; "" to send no such header.
    """

    status: int
    reason: str
    text: str
    retry_after: float | None = None
    challenge: str = ""

    @property
    def code(self) -> int:
        return -31000 - self.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        found = []
        if self.retry_after is not None:
            found.append((b"retry-after", b"%d" % ceil(self.retry_after)))
        if self.challenge:
            found.append((b"www-authenticate", self.challenge.encode()))
        return found

    def data(self) -> JsonObject:
        """Return the data of the JSON-RPC error. If it has a reference, the reference is logged."""
        data: JsonObject = {"reason": self.reason} if self.reason else {}
        if self.status != 401:  # all 401 responses are equal, so that they do not reveal the cause
            data["reference"] = reference = secrets.token_hex(6)
            _log.info("refused: %s, reference %s: %s", self.reason, reference, self.text)
        if self.retry_after is not None:
            data["retryAfter"] = ceil(self.retry_after)
        return data


def request_refusal(error: BaseException) -> RequestRefusal | None:
    """Return the response to an error about the request or its caller; None for other errors."""
    if isinstance(error, CallRefused):
        status = _STATUS.get(error.reason)
        if status is None:
            return None
        return RequestRefusal(status, error.reason, str(error), error.retry_after)
    if isinstance(error, AuditUnavailable):  # its text names the database, so it is replaced
        text = "calls cannot be recorded now, so they are not made; try again later"
        return RequestRefusal(503, "audit_unavailable", text, _AUDIT_RETRY)
    if isinstance(error, AuthError):
        later = _AUTH_RETRY if error.status == 503 else None
        return RequestRefusal(error.status, error.reason, str(error), later, error.challenge)
    return None


def wire_error(method: str, error: BaseException) -> tuple[int, str, Any]:
    """Return code, message and data of a failed request's JSON-RPC error.

    An unexpected exception is logged. The client gets a reference to the log instead of the
    exception's text, which may contain secrets.
    """
    refusal = request_refusal(error)
    if refusal is not None:
        return refusal.code, refusal.text, refusal.data()
    code, message, data = to_wire(error)
    if not isinstance(error, InterlockError):
        reference = log_bug(method, error)
        message = f"{message}; {log_name()} has the details under {reference}"
    return code, replace_surrogates(message), replace_surrogates(data)


def log_name() -> str:
    """Return a name of the server's log that a local user understands, without a path."""
    logger: logging.Logger | None = _log
    while logger is not None:
        for handler in logger.handlers:
            path = handler.baseFilename if isinstance(handler, logging.FileHandler) else os.devnull
            if path != os.devnull:
                return f"the server's log {PurePath(path).name}"
        logger = logger.parent if logger.propagate else None
    return "the server's log on stderr"


def log_bug(what: str, error: BaseException) -> str:
    """Log an exception with its traceback; return the reference under which it is logged."""
    reference = secrets.token_hex(4)
    _log.error("%s failed, reference %s", what, reference, exc_info=error)
    return reference
