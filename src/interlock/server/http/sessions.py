"""All sessions of legacy clients over HTTP.

Rules:

1. A session exists only once its `initialize` request has succeeded.
2. It belongs to the credential that began it. A request with another credential gets the same
   answer as for a session that does not exist.
3. A session that is idle for too long ends, and so do its requests and streams.
4. With `SessionIds`, a session that this process does not have is restored from its id.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Collection
from time import monotonic
from typing import Protocol

from interlock.auth.principal import Principal
from interlock.context import Session
from interlock.errors import InterlockError
from interlock.revisions import INTERNAL_ERROR
from interlock.server.answering import Answering
from interlock.server.http.http_options import HttpOptions
from interlock.server.http.legacy_session import LegacySession
from interlock.server.http.responses import LATER, HttpRefusal
from interlock.server.http.streams import Budget


class SessionIds(Protocol):
    """Makes ids from which any process of a service restores a session."""

    def make(self, session: Session, principal: Principal | None) -> str:
        """Return the id of a new session."""
        ...

    def restore(self, id: str, principal: Principal | None) -> tuple[Session, int] | None:
        """Return the session of an id, and a number above all that its client has been sent.

        Returns:
            None if the id is not valid.
        """
        ...

    async def end(self, session: Session) -> None:
        """Record that a client has ended a session.

        Raises:
            InterlockError: The end could not be recorded.
        """
        ...


class Sessions:
    """All sessions of an endpoint, and the limits on them.

    Args:
        server: Answers the clients' requests.
        options: The HTTP options, which limit the number of sessions and their idle time.
        budget: The limits that all streams of the endpoint share.
        ids: Makes the ids of sessions that other processes can restore; None for random ids.
    """

    def __init__(
        self,
        server: Answering,
        options: HttpOptions,
        budget: Budget,
        ids: SessionIds | None = None,
    ) -> None:
        self.budget = budget
        self._ids = ids
        self._server = server
        self._max = options.max_sessions
        self._max_per_principal = options.max_sessions_per_principal
        self._idle = options.session_idle
        self.is_stateless = options.stateless
        self._open: OrderedDict[str, LegacySession] = OrderedDict()  # least recently used first
        self._owners: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def check_room(self, principal: Principal | None) -> None:
        """Refuse a new session if there are too many.

        Raises:
            HttpRefusal: 503: too many sessions are open.
        """
        self.expire()
        if len(self._open) >= self._max:
            text = f"too many sessions (limit {self._max}); try again later"
            raise HttpRefusal(503, text, INTERNAL_ERROR, headers=LATER)
        if principal is not None and self._owners[principal.owner] >= self._max_per_principal:
            text = f"too many sessions of one principal (limit {self._max_per_principal})"
            raise HttpRefusal(503, f"{text}; end some first", INTERNAL_ERROR, headers=LATER)

    def make(self, principal: Principal | None, *, single: bool = False) -> LegacySession:
        """Make a session, which counts as open only after `add`.

        Args:
            principal: The principal that owns the session.
            single: Whether one stream carries all messages, as in HTTP+SSE.

        Raises:
            HttpRefusal: 503: too many sessions are open.
        """
        self.check_room(principal)
        return LegacySession(self._server, principal, self.budget, single=single)

    def make_stateless(self, principal: Principal | None, revision: str) -> LegacySession:
        """Make a session for one request, whose header states the revision."""
        session = LegacySession(self._server, principal, self.budget, stateless=True)
        session.session.revision = revision
        return session

    def begin(self, session: LegacySession) -> None:
        """Open a session whose `initialize` request has succeeded.

        Raises:
            HttpRefusal: 503: too many sessions are open.
        """
        self.check_room(session.principal)
        if self._ids is not None:
            session.id = self._ids.make(session.session, session.principal)
        self.add(session)

    def add(self, session: LegacySession) -> None:
        session.used = monotonic()
        self._open[session.id] = session
        if session.principal is not None:
            self._owners[session.principal.owner] += 1
        self._arm()

    def find(
        self, id: str | bytes, principal: Principal | None, *, single: bool = False
    ) -> LegacySession:
        """Return a session, restored if necessary, and record that it has just been used.

        Args:
            id: The session's id, as text or as a header's bytes.
            principal: The caller, who must own the session.
            single: Whether the session must use HTTP+SSE.

        Raises:
            HttpRefusal: 404 or 503: this principal has no session with this id, or it cannot be
                restored because too many sessions are open.
        """
        if isinstance(id, bytes):
            id = id.decode("latin-1").strip(" \t")
        now = monotonic()
        if self._open and next(iter(self._open.values())).used + self._idle <= now:
            self.expire()
        session = self._open.get(id)
        if session is None and self._ids is not None and not single:
            session = self._restored(self._ids, id, principal)
        if (
            session is None
            or session.is_single != single
            or (principal is not session.principal and not _are_same(principal, session.principal))
        ):
            raise HttpRefusal(404, "no such session; begin with initialize")
        session.used = now
        if principal is not session.principal:
            session.use(principal)
        self._open.move_to_end(id)
        return session

    def _restored(
        self, ids: SessionIds, id: str, principal: Principal | None
    ) -> LegacySession | None:
        found = ids.restore(id, principal)
        if found is None:
            return None
        self.check_room(principal)
        state, first = found
        session = LegacySession(self._server, principal, self.budget, restored=state, first=first)
        session.id = id
        self.add(session)
        session.continue_restored()
        return session

    async def end(self, session: LegacySession) -> None:
        """End a session at its client's request, in all processes.

        Raises:
            HttpRefusal: 503: the end cannot be recorded for the other processes.
        """
        if self._ids is not None:
            try:
                await self._ids.end(session.session)
            except InterlockError as error:
                text = f"the session cannot be ended: {error}"
                raise HttpRefusal(503, text, INTERNAL_ERROR, headers=LATER) from None
        self.remove(session)

    def end_named(self, names: Collection[str]) -> None:
        """Close sessions that were ended in another process, given their `Session.id`."""
        for session in list(self._open.values()):
            if session.session.id in names:
                self.remove(session)

    def remove(self, session: LegacySession) -> None:
        if self._open.pop(session.id, None) is not None and session.principal is not None:
            owner = session.principal.owner
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]
        session.close()

    def expire(self) -> None:
        now = monotonic()
        while self._open:
            session = next(iter(self._open.values()))
            if session.used + self._idle > now:
                break
            if session.is_busy:
                session.used = now
                self._open.move_to_end(session.id)
            else:
                self.remove(session)

    def end_credentials(self, keys: Collection[str]) -> None:
        for session in list(self._open.values()):
            if session.principal is not None and session.principal.ends_with(keys):
                self.remove(session)

    def drain(self) -> None:
        """End idle sessions and standalone streams; running calls may finish."""
        for session in list(self._open.values()):
            if not session.drain():
                self.remove(session)

    def close(self) -> None:
        for session in list(self._open.values()):
            self.remove(session)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._open:
            first = next(iter(self._open.values()))
            delay = max(first.used + self._idle - monotonic(), 1.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.expire()
        self._arm()


def _are_same(one: Principal | None, other: Principal | None) -> bool:
    return one is not None and other is not None and one.identity == other.identity
