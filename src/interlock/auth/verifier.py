"""Verifiers: functions that return the owner of a token or key.

Rules:

1. When a verifier raises, the request is unauthenticated, and the error text stays in this process.
2. A credential is passed to the verifier only: no error, log or repr contains it.
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
"""Returns the principal of a token or key; None refuses it."""

MAX_TOKEN_BYTES = 16_384
MIN_STATIC_TOKEN = 16  # characters; shorter ones can be guessed
TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750

_log = logging.getLogger("interlock.server")


async def verified(verify: Verify, credential: str) -> Principal | None:
    """Return the owner of a token or key; None if it is not valid.

    Raises:
        AuthUnavailable: The verifier failed.
    """
    try:
        principal = await verify(credential)
        if principal is None or isinstance(principal, Principal):
            return principal
        failure = f"it returned {type(principal).__name__}, not a Principal or None"
    except Exception as error:
        failure = f"it raised {_place_of(error)}"  # the text may contain the credential
    # Outside of the except clause, so that no context refers to the verifier's error.
    _log.error("cannot verify a credential: %s", failure)
    raise AuthUnavailable("credentials cannot be verified now; try again later")


def static_tokens(tokens: Mapping[str, Principal]) -> Verify:
    """Return a verifier of fixed tokens or keys. It keeps their SHA-256 digests only.

    Args:
        tokens: The owner of each token. `secrets.token_urlsafe(32)` makes a good token.

    Raises:
        ConfigError: A token is too short, or has characters that no header can carry.
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
        for each, principal in known:  # compares with all, so that the time reveals nothing
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
