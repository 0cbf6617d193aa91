"""Exceptions of handlers -> JSON-RPC errors; bugs are logged under a reference."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from interlock.errors import InterlockError, to_wire
from interlock.quoting import replace_surrogates

_log = logging.getLogger("interlock.server")


def wire_error(method: str, error: BaseException) -> tuple[int, str, Any]:
    """Return code, message and data of the JSON-RPC error that answers a failed request.

    An exception that was not raised on purpose is logged. The client gets a reference into
    the log instead of its text, which may hold secrets.
    """
    code, message, data = to_wire(error)
    if not isinstance(error, InterlockError):
        reference = log_bug(method, error)
        message = f"{message}; the server's log has the details under {reference}"
    return code, replace_surrogates(message), replace_surrogates(data)


def log_bug(what: str, error: BaseException) -> str:
    """Log an exception with its traceback, and return the reference under which it stands."""
    reference = secrets.token_hex(4)
    _log.error("%s failed, reference %s", what, reference, exc_info=error)
    return reference
