"""Sessions of legacy clients that outlive their gateway: any gateway of the database restores them.

1. The id of such a session contains its state: the revision, the client's capabilities and name, a
   keyed hash of its owner, and its birth. A keyed hash of this state protects it, so an id needs no
   row, and nothing is written when a session begins.
2. Subscriptions and the log level are lost. A session that another gateway restores begins new
   streams, so its client is notified that all lists may have changed.
3. A session that its client ended is a row of the table `changes`, until its id is too old.
4. A session is not restored for a caller who may use a server with `"sharing": "per_session"`,
   because the connection of the session, and the state behind it, is gone.
"""

from __future__ import annotations

import binascii
import hmac
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct
from sqlalchemy import select

from interlock import revisions
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.principal import Principal
from interlock.calls import Caller
from interlock.context import Session
from interlock.gateway.parts import Parts, servers_by_name
from interlock.store.database.changes import ChangeFeed, ChangeReader, note_change
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.tables import changes
from interlock.types import ClientCapabilities, Implementation, JsonObject

MAX_AGE = 23 * 3600 * 1_000_000  # microseconds; ended sessions are remembered for a day
MAX_ENDED = 100_000  # ended sessions in memory; beyond it, all sessions of that age are refused
MAX_ID = 4_096  # characters
MAX_CAPABILITIES = 512  # bytes of the client's capabilities; larger ones lose their details
_MAX_NAME = 64  # characters of the client's name, and of its version
_AHEAD = 300 * 1_000_000  # microseconds by which another gateway's clock may be ahead
_OWNER_BYTES = 16

_log = logging.getLogger("interlock.gateway")
_encode = msgspec.json.encode


class _State(Struct, frozen=True, array_like=True):
    """The state of a session in its id."""

    name: str  # `Session.id`
    born: int  # microseconds since 1970, by the database's clock
    revision: str
    capabilities: JsonObject
    client: tuple[str, str] | None  # name and version
    owner: bytes


_decode = msgspec.json.Decoder(_State).decode


class DurableSessions:
    """Makes ids of sessions, and restores sessions from them.

    Args:
        key: The gateway's key.
        feed: Reports the sessions that were ended elsewhere.
        parts: Returns the current parts of the configuration.

    Attributes:
        on_ended: Called with the names of sessions that their clients have ended.
    """

    def __init__(self, key: GatewayKey, feed: ChangeFeed, parts: Callable[[], Parts]) -> None:
        self.on_ended: Callable[[Collection[str]], None] = lambda _: None
        self._key = key.derive("sessions")
        self._feed = feed
        self._parts = parts
        self._reader = ChangeReader("sessions")
        self._ended: dict[str, int] = {}  # when each session was ended; the oldest first
        self._refused_until = 0  # older sessions may have been ended

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[DurableSessions, None]:
        """Follow the ends of sessions in the database until the end of the block.

        Raises:
            StoreError: The database is unavailable.
        """
        await self._feed.set_clock()
        await self._feed.database.read(self._load)
        async with self._feed.follow("sessions", self._step, _log, "ended sessions"):
            yield self

    # Methods of `SessionIds`

    def make(self, session: Session, principal: Principal | None) -> str:
        """Return the id of a new session."""
        info = session.client_info
        client = None if info is None else (info.name[:_MAX_NAME], info.version[:_MAX_NAME])
        stated = _slim(session.client_capabilities)
        owner = self._owner(principal)
        state = _State(session.id, self._feed.now(), session.revision, stated, client, owner)
        body = _encode(state)
        return urlsafe_b64encode(body + self._mac(body)).rstrip(b"=").decode()

    def restore(self, id: str, principal: Principal | None) -> tuple[Session, int] | None:
        """Return the session of an id, and a number above all that its client has been sent.

        No gateway sends a session an event each millisecond, so the number is the session's age in
        milliseconds, and as many more as the gateways' clocks may differ.
        """
        state = self._read(id)
        if state is None or not hmac.compare_digest(state.owner, self._owner(principal)):
            return None
        age = self._feed.now() - state.born
        if not -_AHEAD <= age < MAX_AGE or state.born <= self._refused_until:
            return None
        if state.name in self._ended or self._has_own_connections(principal):
            return None
        session = Session(
            id=state.name,
            revision=state.revision,
            client_capabilities=msgspec.convert(state.capabilities, ClientCapabilities),
            client_info=None if state.client is None else Implementation(*state.client),
        )
        return session, (age + _AHEAD) // 1000 + 1

    async def end(self, session: Session) -> None:
        """Record that a client has ended a session, so that no gateway restores it.

        Raises:
            StoreError: The database is unavailable.
        """
        name = session.id
        await self._feed.database.write(
            lambda connection: note_change(connection, "sessions", name)
        )
        self._add(name, self._feed.now())

    # Ids

    def _read(self, id: str) -> _State | None:
        if len(id) > MAX_ID or not id.isascii():
            return None
        try:
            signed = urlsafe_b64decode(id + "=" * (-len(id) % 4))
        except binascii.Error:
            return None
        body, mac = signed[:-32], signed[-32:]
        # Several texts have the same bytes; only the one that was made is an id.
        is_whole = urlsafe_b64encode(signed).rstrip(b"=").decode() == id
        if not (is_whole and hmac.compare_digest(mac, self._mac(body))):
            return None
        state = _decode(body)
        return state if state.revision in revisions.LEGACY else None

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, b"session" + body, "sha256")

    def _owner(self, principal: Principal | None) -> bytes:
        identity = None if principal is None else principal.identity
        return hmac.digest(self._key, b"owner" + _encode(identity), "sha256")[:_OWNER_BYTES]

    def _has_own_connections(self, principal: Principal | None) -> bool:
        """Return whether a server may have a connection for each session of a caller."""
        parts, caller = self._parts(), Caller(principal)
        return any(
            getattr(server, "sharing", "") == "per_session"
            and parts.policy.may_use_any(caller, name)
            for name, server in servers_by_name(parts.config).items()
        )

    # Ends

    def _add(self, name: str, at: int) -> None:
        self._ended[name] = at
        while self._ended:
            oldest, ended = next(iter(self._ended.items()))
            if len(self._ended) > MAX_ENDED:
                self._refused_until = max(self._refused_until, ended)
            elif ended > self._feed.now() - MAX_AGE - _AHEAD:
                break
            del self._ended[oldest]

    async def _load(self, connection: AsyncConnection) -> None:
        await self._reader.read(connection)
        rows = select(changes.c.key, changes.c.at).where(changes.c.kind == "sessions")
        for name, at in await connection.execute(rows.order_by(changes.c.id)):
            self._add(name, at)

    async def _step(self, has_changed: bool) -> None:
        if not has_changed:
            return
        added = await self._feed.database.read(self._reader.read)
        if self._reader.was_restored:
            await self._feed.database.read(self._load)
        for name in added:
            self._add(name, self._feed.now())
        self.on_ended(added)


def _slim(capabilities: ClientCapabilities) -> JsonObject:
    """Return capabilities as JSON; large ones are reduced to their names."""
    stated = msgspec.to_builtins(capabilities)
    if len(_encode(stated)) > MAX_CAPABILITIES:
        return {name: {} for name in ("roots", "sampling", "elicitation") if name in stated}
    return dict(stated)
