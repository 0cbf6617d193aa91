"""What is done about a request over HTTP that failed: nothing, or what makes it go on.

===============================  =============================================  =============
what happened                    what is done                                   how often
===============================  =============================================  =============
401, 403                         the authorization gets a better token          3
the session or era is forgotten  a new handshake                                1
it may be, by the error          the same, if a ping is refused, too            1
a header does not fit a tool     its definition is listed again                 1
429                              wait as told, ask again                        2
503, 502, 504, a cut answer      the same, if the request may be sent twice     2
nothing was sent                 the same, for every request, if told soon      2
===============================  =============================================  =============

The last three are bounded in all: at most one request in ten is sent again (R-45).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import monotonic

from interlock import revisions
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
MAX_SILENCE = 2.0  # seconds; an address that does not even refuse is not tried again
FIRST_PAUSE = 0.25  # seconds; doubled each time, and half of it is left to chance

# Requests sent again cost 1, each request earns 0.1, up to this.
BUDGET = 10.0
EARNED = 0.1

# Errors by which a server of one era answers a request of the other.
_FOREIGN = (
    revisions.UNSUPPORTED_VERSION,
    revisions.INVALID_REQUEST,
    -32000,  # "no session", "not initialized"
)
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
    """What a client can do about failures.

    Args:
        authorization: Where tokens come from, if there is any.
        renew: Makes a new connection, unless somebody has just done so.
        relist: Lists the tools anew.
        has_lost_session: Tells whether the server knows nothing of the session of a connection.

    Attributes:
        sent: Count each request here.
    """

    def __init__(
        self,
        authorization: Authorization | None,
        renew: Callable[[object], Awaitable[None]],
        relist: Callable[[], Awaitable[None]],
        has_lost_session: Callable[[object], Awaitable[bool]],
    ) -> None:
        self.authorization = authorization
        self._renew = renew
        self._relist = relist
        self._has_lost_session = has_lost_session
        self.sent = 0  # requests since the budget was last looked at
        self._budget = BUDGET

    def attempt(self, method: str, *, idempotent: bool, sent: float, deadline: float) -> Retry:
        """Begin to watch over one request that has failed.

        Args:
            method: Its method.
            idempotent: It may be sent twice, whatever the method says.
            sent: When it was sent, by the monotonic clock.
            deadline: When its caller stops waiting, by the same clock.
        """
        return Retry(self, method, idempotent or method in _SAFE, sent, deadline)

    async def renew(self, connection: object) -> None:
        """Replace a connection that the server does not know any more."""
        await self._renew(connection)

    async def has_lost_session(self, connection: object) -> bool:
        """Find out whether the server knows nothing of a connection's session."""
        return await self._has_lost_session(connection)

    async def relist(self) -> None:
        """Learn the tools anew."""
        await self._relist()

    def spend(self) -> bool:
        """Take what one more sending costs; False when there is not enough."""
        self._budget = min(BUDGET, self._budget + EARNED * self.sent)
        self.sent = 0
        if self._budget < 1:
            return False
        self._budget -= 1
        return True


class Retry:
    """One request, sent as often as it takes."""

    def __init__(
        self, recovery: RetryPolicy, method: str, safe: bool, sent: float, deadline: float
    ) -> None:
        self._recovery = recovery
        self._method = method
        self._safe = safe
        self.deadline = deadline
        self._sent = sent  # the last time
        self._authorizations = 0
        self._repeats = 0
        self._renewed = False
        self._relisted = False

    async def recover(self, error: InterlockError, connection: object) -> None:
        """Do what makes it worth sending the request again.

        Raises:
            InterlockError: `error` itself, or why nothing could be done about it.
        """
        await self._mend(error, connection)
        if monotonic() >= self.deadline:
            raise error

    async def _mend(self, error: InterlockError, connection: object) -> None:
        if isinstance(error, AuthError):
            await self._authorize(error)
        elif isinstance(error, SessionExpired) or _is_other_era(error):
            await self._renew(error, connection)
        elif isinstance(error, RemoteError) and _may_be_foreign(error):
            if not await self._recovery.has_lost_session(connection):
                raise error
            await self._renew(error, connection)
        elif isinstance(error, RemoteError) and error.code == revisions.HEADER_MISMATCH:
            if self._relisted or self._method != "tools/call":
                raise error
            self._relisted = True
            await self._recovery.relist()
        else:
            await self._wait(error)

    async def _renew(self, error: InterlockError, connection: object) -> None:
        if self._renewed:
            raise error
        self._renewed = True
        await self._recovery.renew(connection)

    async def _authorize(self, error: AuthError) -> None:
        authorization = self._recovery.authorization
        if authorization is None:
            raise error
        if self._authorizations == MAX_AUTHORIZATIONS:
            if isinstance(error, AuthRequired):  # by itself it would look like the first one
                tokens = f"the tokens of its own authorization server, {MAX_AUTHORIZATIONS} so far"
                error.args = (f"{error}; it refuses {tokens}",)
            raise error
        self._authorizations += 1
        began = monotonic()
        await authorization.refresh_after(error)
        self.deadline += monotonic() - began  # a person's time is not the server's

    async def _wait(self, error: InterlockError) -> None:
        if not self._may_repeat(error) or self._repeats == MAX_REPEATS:
            raise error
        pause = FIRST_PAUSE * 2**self._repeats
        pause *= 0.5 + random.random() / 2  # noqa: S311 - so that not all come back together
        told = error.retry_after if isinstance(error, HttpError) else None
        pause = max(pause, told or 0.0)
        if monotonic() + pause >= self.deadline or not self._recovery.spend():
            raise error
        self._repeats += 1
        await asyncio.sleep(pause)
        self._sent = monotonic()

    def _may_repeat(self, error: InterlockError) -> bool:
        if isinstance(error, HttpError):
            return error.status == 429 or (self._safe and error.status in (502, 503, 504))
        if isinstance(error, Unreachable):
            return monotonic() - self._sent < MAX_SILENCE
        return self._safe and isinstance(error, StreamEnded)


def _is_other_era(error: InterlockError) -> bool:
    return isinstance(error, RemoteError) and error.status == 400 and error.code in _FOREIGN


def _may_be_foreign(error: RemoteError) -> bool:
    # A modern server misses `_meta`; a legacy one may mean the arguments.
    return error.status == 400 and error.code == revisions.INVALID_PARAMS
