"""Retries of failed HTTP requests, and the step that each kind of failure needs before a retry.

===============================  =============================================  =============
failure                          before the retry                               retries
===============================  =============================================  =============
401, 403                         get a better token                             3
session or era is lost           a new handshake                                1
session may be lost              the same, if a ping is refused as well         1
headers do not fit a tool        list the tools again                           1
429                              wait as long as the server asks                2
502, 503, 504, truncated answer  wait, if the request is idempotent             2
the request was not sent         wait, if this is known within `MAX_SILENCE`    2
===============================  =============================================  =============

The retries in the last three rows share a budget of 10 retries; every ten requests add one retry.

Servers tell of a lost session by almost any status, and some by an error for the params. So after
the first successful request of a legacy session, each such refusal is checked by one ping. If the
ping is refused as well, a new session begins. The request is repeated if it is idempotent, or if
its refusal equals that of the ping, because the server did not run either of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic

from interlock import revisions
from interlock.aio import Backoff
from interlock.errors import (
    AuthError,
    AuthRequired,
    HttpError,
    InterlockError,
    RemoteError,
    SessionExpired,
    StreamEnded,
    Unreachable,
)
from interlock.transports import Authorization

MAX_AUTHORIZATIONS = 3
MAX_REPEATS = 2
MAX_SILENCE = 2.0  # seconds; a request whose connection fails later than this is not retried
FIRST_PAUSE = 0.25  # seconds

# Each request adds EARNED to the budget, up to BUDGET, and each retry costs 1.
BUDGET = 10.0
EARNED = 0.1

# Error codes with which servers refuse requests from another era.
_OTHER_ERA = (
    revisions.UNSUPPORTED_VERSION,
    revisions.INVALID_REQUEST,
    -32000,  # "no session", "not initialized"
)
_OUTAGES = (502, 503, 504)
_SESSION = re.compile("session|initiali[sz]", re.IGNORECASE)
_SAFE = frozenset(
    (
        "ping",
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    )
)


class RetryPolicy:
    """The steps that a client takes before retries, and its budget for retries.

    Args:
        authorization: The source of access tokens; None if there are no tokens.
        renew: Replaces a connection, unless another request has just replaced it.
        relist: Lists the tools again.
        refusal_of_ping: Sends a ping on a legacy connection; returns the server's refusal, or
            None if the session lives or its state is unknown.

    Attributes:
        sent: The number of requests since the budget was last updated, which the caller counts.
        has_answered: Whether the server has answered a request successfully, as the caller notes.
    """

    def __init__(
        self,
        authorization: Authorization | None,
        renew: Callable[[object], Awaitable[None]],
        relist: Callable[[], Awaitable[None]],
        refusal_of_ping: Callable[[object], Awaitable[InterlockError | None]],
    ) -> None:
        self.authorization = authorization
        self._renew = renew
        self._relist = relist
        self._refusal_of_ping = refusal_of_ping
        self.sent = 0
        self.has_answered = False
        self._budget = BUDGET

    def attempt(self, method: str, *, idempotent: bool, sent: float, deadline: float) -> Retry:
        """Return an object that decides about the retries of one failed request.

        Args:
            method: The method of the request.
            idempotent: Whether the request may be sent twice, whatever its method.
            sent: The time when the request was sent, by the monotonic clock.
            deadline: The time when the caller stops waiting, by the monotonic clock.
        """
        return Retry(self, method, idempotent or method in _SAFE, sent, deadline)

    async def renew(self, connection: object) -> None:
        await self._renew(connection)

    async def refusal_of_ping(self, connection: object) -> InterlockError | None:
        return await self._refusal_of_ping(connection)

    async def relist(self) -> None:
        await self._relist()

    def spend(self) -> bool:
        """Deduct a retry from the budget; return False if the budget does not allow a retry."""
        self._budget = min(BUDGET, self._budget + EARNED * self.sent)
        self.sent = 0
        if self._budget < 1:
            return False
        self._budget -= 1
        return True


class Retry:
    """Decides whether one request is retried, and prepares each retry."""

    def __init__(
        self, policy: RetryPolicy, method: str, safe: bool, sent: float, deadline: float
    ) -> None:
        self._policy = policy
        self._method = method
        self._safe = safe
        self.deadline = deadline
        self._sent = sent  # the time when the request was last sent
        self._authorizations = 0
        self._backoff = Backoff(FIRST_PAUSE, inf, jitter=0.5)
        self._renewed = False
        self._relisted = False

    async def recover(self, error: InterlockError, connection: object) -> None:
        """Prepare for a retry, and return as soon as the request may be sent again.

        Raises:
            InterlockError: `error` itself if a retry is not allowed, or an error from preparing.
        """
        await self._mend(error, connection)
        if monotonic() >= self.deadline:
            raise error

    async def _mend(self, error: InterlockError, connection: object) -> None:
        if isinstance(error, SessionExpired) or _is_other_era(error):
            await self._renew(error, connection)
        elif (refusal := await self._refusal_of_ping(error, connection)) is not None:
            await self._replace(error, refusal, connection)
        elif isinstance(error, AuthError):
            await self._authorize(error)
        elif isinstance(error, RemoteError) and error.code == revisions.HEADER_MISMATCH:
            if self._relisted or self._method != "tools/call":
                raise error
            self._relisted = True
            await self._policy.relist()
        else:
            await self._wait(error)

    async def _renew(self, error: InterlockError, connection: object) -> None:
        if self._renewed:
            raise error
        self._renewed = True
        await self._policy.renew(connection)

    async def _refusal_of_ping(
        self, error: InterlockError, connection: object
    ) -> InterlockError | None:
        """Return the refusal of a ping, if `error` may mean that the session is lost."""
        if self._renewed or not may_be_lost(error):
            return None
        is_busy = isinstance(error, HttpError) and error.status in _OUTAGES and self._safe
        if is_busy or not (self._policy.has_answered or _may_be_other_era(error)):
            return None
        return await self._policy.refusal_of_ping(connection)

    async def _replace(
        self, error: InterlockError, refusal: InterlockError, connection: object
    ) -> None:
        self._renewed = True
        try:
            await self._policy.renew(connection)
        except AuthError:
            raise
        except InterlockError:
            raise error from None
        if not self._safe and not _is_same_refusal(error, refusal):
            raise error

    async def _authorize(self, error: AuthError) -> None:
        authorization = self._policy.authorization
        if authorization is None:
            raise error
        if self._authorizations == MAX_AUTHORIZATIONS:
            if isinstance(error, AuthRequired):  # distinguishes it from the first refusal
                tokens = f"{MAX_AUTHORIZATIONS} tokens of its own authorization server"
                error.args = (f"{error}; it has rejected {tokens}",)
            raise error
        self._authorizations += 1
        began = monotonic()
        await authorization.refresh_after(error)
        self.deadline += monotonic() - began  # the time for a login does not count

    async def _wait(self, error: InterlockError) -> None:
        if not self._may_repeat(error) or self._backoff.attempts == MAX_REPEATS:
            raise error
        told = error.retry_after if isinstance(error, HttpError) else None
        pause = max(self._backoff.next_pause(monotonic()), told or 0.0)
        if monotonic() + pause >= self.deadline or not self._policy.spend():
            raise error
        await asyncio.sleep(pause)
        self._sent = monotonic()

    def _may_repeat(self, error: InterlockError) -> bool:
        if isinstance(error, HttpError):
            return error.status == 429 or (self._safe and error.status in _OUTAGES)
        if isinstance(error, Unreachable):
            return monotonic() - self._sent < MAX_SILENCE
        return self._safe and isinstance(error, StreamEnded)


def _is_other_era(error: InterlockError) -> bool:
    return isinstance(error, RemoteError) and error.status == 400 and error.code in _OTHER_ERA


def _may_be_other_era(error: InterlockError) -> bool:
    # INVALID_PARAMS is ambiguous: a legacy server may be modern now and require `_meta`, or it
    # may have rejected the arguments.
    if not isinstance(error, RemoteError):
        return False
    return error.status == 400 and error.code == revisions.INVALID_PARAMS


def may_be_lost(error: InterlockError) -> bool:
    """Return whether an error may mean that a legacy server has lost the session."""
    if isinstance(error, AuthError):
        return error.status == 401 and not error.token_used  # until now, no login was needed
    if isinstance(error, RemoteError) and error.code == revisions.INVALID_PARAMS:
        return True
    if not isinstance(error, HttpError | RemoteError):
        return False
    return error.status >= 400 and error.status not in (403, 429)


def _is_same_refusal(error: InterlockError, refusal: InterlockError) -> bool:
    """Return whether a server has refused a request for the same reason as a ping.

    A proxy may send the status of an outage although the request has reached the server.
    """
    if type(error) is not type(refusal) or str(error) != str(refusal):
        return False
    is_outage = getattr(error, "status", 0) in _OUTAGES
    return not is_outage or _SESSION.search(str(error)) is not None
