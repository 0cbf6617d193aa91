"""Verifiers: functions that return the principal that a token or key identifies.

Rules:

1. If a verifier raises an error, the request is refused, and the client does not see the error's
   text.
2. Only the verifier sees a credential: no error, log line or repr contains it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping

from interlock.auth.principal import Principal
from interlock.errors import AuthUnavailable, ConfigError

Verify = Callable[[str], Awaitable[Principal | None]]
"""A function that returns a token's or key's principal, or None to refuse it."""

MAX_TOKEN_BYTES = 16_384
MIN_STATIC_TOKEN = 16  # characters; a shorter token could be guessed
TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750

_log = logging.getLogger("interlock.server")


async def verified(verify: Verify, credential: str) -> Principal | None:
    """Return the principal that a token or key identifies; None if it is not valid.

    Raises:
        AuthUnavailable: The verifier failed.
    """
    try:
        principal = await verify(credential)
        if principal is None or isinstance(principal, Principal):
            return principal
        failure = f"it returned {type(principal).__name__}, not a Principal or None"
    except Exception as error:
        # without its text, which may contain the credential
        failure = f"it raised {_place_of(error)}"
    # After the except clause, so that the new error does not refer to the verifier's error.
    _log.error("cannot verify a credential: %s", failure)
    raise AuthUnavailable("credentials cannot be verified now; try again later")


def static_tokens(tokens: Mapping[str, Principal]) -> Verify:
    """Return a verifier for fixed tokens or keys. It stores only their SHA-256 digests.

    Args:
        tokens: The principal of each token. `secrets.token_urlsafe(32)` generates a good token.

    Raises:
        ConfigError: A token is too short, or contains characters that a header cannot contain.
    """
    for token in tokens:
        if len(token) < MIN_STATIC_TOKEN:
            raise ConfigError(
                f"a static token has {len(token)} characters; use {MIN_STATIC_TOKEN} or more"
            )
        if len(token) > MAX_TOKEN_BYTES or not TOKEN.fullmatch(token.encode()):
            raise ConfigError("a static token has characters that no bearer header can carry")
    known = [(_digest(token), principal) for token, principal in tokens.items()]

    async def verify(token: str) -> Principal | None:
        digest = _digest(token)
        found = None
        for each, principal in known:  # never stops early, so the time reveals nothing
            if hmac.compare_digest(each, digest):
                found = principal
        return found

    return verify


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _place_of(error: BaseException) -> str:
    """Return an error's type and the line that raised it, without its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
    return f"{type(error).__name__} at {place}"
