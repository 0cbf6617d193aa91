"""The vault: a running gateway's store of the credentials that users have for servers.

1. A credential is used only for its own user and server. The key or token with which a caller
   authenticates to the gateway is never sent to a server.
2. A login is refreshed once, even if many calls need it, because all connections of a user share
   it.
3. A change in the database takes effect within a second. The user's connections are then
   replaced, and calls that wait for the user continue.
4. While the database is unavailable, cached values stay in use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import unquote
from weakref import WeakValueDictionary

from interlock import aio
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.principal import Principal
from interlock.auth.stored_key import TENANT
from interlock.calls import Call
from interlock.config import HttpServer
from interlock.errors import InterlockError, LoginRequired, StoreCorrupt, StoreError
from interlock.server.sealing import EncryptingSeal
from interlock.store.credentials import LOGIN, Credential, CredentialStore, Place
from interlock.store.database.changes import ChangeFeed
from interlock.store.database.recorded import Record
from interlock.text.timestamps import now_micros
from interlock.toolbox.connect import client_identity
from interlock.toolbox.upstream import Upstream
from interlock.toolbox.user_credentials import Needs
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.oauth.stored_login import StoredLogin
    from interlock.store.login_tokens import LoginTokens

LIST_PATIENCE = 5.0  # seconds to wait for a user's tools after a change of credentials
LINK_TTL = 86_400.0  # seconds that a link to connect is valid
MAX_KEPT = 10_000  # cached credentials, each of one user for one server
CONNECT_PATH = "/connect/"

_T = TypeVar("_T")
_Key = tuple[str, str]  # owner and server
_Credentials: TypeAlias = list[Credential]
_Objects: TypeAlias = list[JsonObject]
_log = logging.getLogger("interlock.gateway")


class Vault:
    """Provides users' credentials to a gateway's connections; implements `UserCredentials`.

    Args:
        store: The storage for credentials.
        secret: The gateway's key, which encrypts the links to connect.
        note: Records an event of a login in the audit trail, given the action, the user and the
            place.
        recording: Returns a function that stores a change together with its audit record, given the
            action and the principal.
        upstreams: Returns the servers by name.
        public_url: Returns the public listener's origin; "" without a public listener.

    Attributes:
        is_local: Whether the only user is the local user; see `UserCredentials`.
        upstreams: Returns the servers by name.
        public_url: Returns the public listener's origin; "" without a public listener.
    """

    def __init__(
        self,
        store: CredentialStore,
        secret: GatewayKey,
        note: Callable[[str, str, Place], None] = lambda *_: None,
        recording: Callable[[str, Principal], Record | None] = lambda *_: None,
        upstreams: Callable[[], Mapping[str, Upstream]] = dict,
        public_url: Callable[[], str] = str,
    ) -> None:
        self.is_local = False
        self.upstreams = upstreams
        self.public_url = public_url
        self._store = store
        self._note = note
        self._recording = recording
        self._links = EncryptingSeal(secret.derive("connect"), LINK_TTL)
        self._values: dict[_Key, dict[str, str]] = {}
        self._tokens: dict[_Key, LoginTokens] = {}
        self._logins: dict[_Key, StoredLogin] = {}
        # Weak, so that an event is removed when no call waits for it.
        self._waiting = WeakValueDictionary[_Key, asyncio.Event]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = asyncio.Lock()
        self._changes = 0  # how often credentials have changed; see `values`

    @asynccontextmanager
    async def running(self, feed: ChangeFeed) -> AsyncGenerator[Vault, None]:
        """Follow changes in the database while the context is open.

        Args:
            feed: Reports changes in the database.

        Raises:
            StoreError: The database is unavailable.
        """
        await self._store.changed()  # skip earlier changes
        try:
            async with feed.follow("credentials", self._step, _log, "credentials"):
                yield self
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _step(self, has_changed: bool) -> None:
        if has_changed:
            await self.refresh()

    async def refresh(self, *, patience: float = 0.0) -> None:
        """Apply the changes made in the database since the last call.

        Args:
            patience: Seconds to wait until the affected users' tools are listed.

        Raises:
            StoreError: The database is unavailable.
        """
        async with self._reading:
            for place in await self._store.changed():
                self._changed(owner_of(place), place.server)
        if patience and self._tasks:
            await asyncio.wait(set(self._tasks), timeout=patience)

    def _changed(self, owner: str, server: str) -> None:
        self._changes += 1
        self._values.pop((owner, server), None)
        self._logins.pop((owner, server), None)
        upstream = self.upstreams().get(server)
        if upstream is not None:
            upstream.end_user(owner)
            task = aio.start_detached(upstream.start_for(owner))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting = self._waiting.pop((owner, server), None)
        if waiting is not None:
            waiting.set()

    # Methods of `UserCredentials`

    async def values(self, owner: str, server: str) -> Mapping[str, str]:
        """Return the values for `${user:NAME}`, keyed by name.

        Raises:
            LoginRequired: A value cannot be decrypted, so the user must store the value again.
            StoreError: The values cannot be read from the database.
        """
        known = self._values.get((owner, server))
        if known is None:
            tenant, user = user_of(owner)
            changes = self._changes
            try:
                known = await self._store.values(user, server, tenant=tenant)
            except StoreCorrupt as error:  # for example, because the gateway's key was replaced
                _log.warning("%s", error)
                raise LoginRequired(str(error)) from None
            if changes == self._changes:  # otherwise a change may have made these values outdated
                _keep(self._values, (owner, server), known)
        return known

    def login(self, owner: str, server: str, config: HttpServer) -> StoredLogin:
        """Return a user's login; all connections of the user share the same object."""
        known = self._logins.get((owner, server))
        if known is None or known.server_url != config.url:
            from interlock.oauth.stored_login import StoredLogin  # loads aiohttp

            known = StoredLogin(
                config.url,
                is_expected=True,
                client=client_identity(config),
                issuer=config.oauth.issuer,
                store=self.tokens(owner, server),
            )
            _keep(self._logins, (owner, server), known)
        return known

    def tokens(self, owner: str, server: str) -> LoginTokens:
        known = self._tokens.get((owner, server))
        if known is None:
            from interlock.store.login_tokens import LoginTokens  # loads aiohttp

            known = LoginTokens(self._store, place_of(owner, server, LOGIN))
            _keep(self._tokens, (owner, server), known)
        return known

    async def owners(self, server: str) -> Sequence[str]:
        """Return users that have a usable credential for a server, the most recent first."""
        users = await self._store.users_of(server)
        return [owner_of(Place(user, server, "", tenant)) for tenant, user in users]

    # Methods of `CheckedLogins`

    def is_needed(self, server: str) -> bool:
        """Return whether each user needs a credential for a server."""
        upstream = self.upstreams().get(server)
        return upstream is not None and bool(upstream.needs)

    async def check(self, call: Call) -> None:
        """Check that the caller has the credentials that the server needs.

        Raises:
            LoginRequired: A credential is missing.
            InterlockError: The check itself failed.
        """
        upstream = self.upstreams().get(call.entry.server)
        if upstream is not None:
            await upstream.calls.check_credentials(call)

    def check_caller(self, call: Call) -> None:
        """Check that the caller has the claims and headers that the server needs.

        Raises:
            CallRefused: One is missing, or cannot be sent.
        """
        upstream = self.upstreams().get(call.entry.server)
        if upstream is not None:
            upstream.calls.check_caller(call.caller)

    # Users

    async def list(self, *, user: str = "", tenant: str = TENANT) -> _Credentials:
        """Return the credentials of a user, or of all users, without their values."""
        return await self._store.list(user=user, tenant=tenant)

    async def states(self, owner: str, servers: Mapping[str, Needs]) -> _Objects:
        """Return each credential that a user has or needs, with the URL where the user connects.

        Args:
            owner: The user, as `Principal.owner`.
            servers: The credentials that each user needs, by the server's name.
        """
        tenant, user = user_of(owner)
        now = now_micros()
        shown = {
            (each.place.server, each.place.name): each.as_json(now)
            for each in await self._store.list(user=user, tenant=tenant)
        }
        for server, needs in servers.items():
            wanted = [*sorted(needs.names), *([LOGIN] if needs.login else [])]
            for name in wanted:
                absent = {"user": user, "server": server, "name": name, "state": "needs_login"}
                kind = "oauth" if name == LOGIN else "value"
                one = shown.setdefault((server, name), absent | {"kind": kind})
                if one["state"] != "ok" and (url := self.connect_url(owner, server)):
                    one["url"] = url
        return [shown[key] for key in sorted(shown)]

    async def missing(self, owner: str, servers: Mapping[str, Needs]) -> _Objects:
        """Return the servers that lack a credential of a user: server, url, and whether the page at
        this URL asks for values.

        Args:
            owner: The user, as `Principal.owner`.
            servers: The credentials that each user needs, by the server's name.
        """
        found = {
            each["server"]: each["url"]
            for each in (await self.states(owner, servers) if servers else ())
            if each["server"] in servers and each["state"] != "ok" and "url" in each
        }
        return [
            {"server": name, "url": url, "values": bool(servers[name].names)}
            for name, url in found.items()
        ]

    async def set(self, owner: str, server: str, name: str, value: str, *, by: Principal) -> None:
        """Store a value, and apply it at once.

        Args:
            owner: The owner of the value.
            server: The server's name.
            name: The name in `${user:NAME}`.
            value: The secret value.
            by: The principal that stores it.

        Raises:
            StoreError: The value is not valid, or cannot be stored.
        """
        place = place_of(owner, server, name)
        await self._store.set(place, value, record=self._recording("set", by))
        await self._use_change(owner, server)

    async def delete(self, owner: str, server: str, name: str, *, by: Principal) -> bool:
        """Delete a value or a login; return whether it existed.

        Raises:
            StoreError: The credential cannot be deleted.
        """
        place = place_of(owner, server, name)
        was_there = await self._store.revoke(place, record=self._recording("deleted", by))
        await self._use_change(owner, server)
        return was_there

    async def logged_in(self, owner: str, server: str) -> None:
        """Apply the login that a user has just completed.

        Raises:
            StoreError: The database is unavailable.
        """
        await self._store.note(place_of(owner, server, LOGIN))
        self.note("logged_in", owner, server)
        await self._use_change(owner, server)

    async def _use_change(self, owner: str, server: str) -> None:
        """Apply a change that was just stored, even if the database becomes unavailable."""
        try:
            await self.refresh(patience=LIST_PATIENCE)
        except StoreError:
            self._changed(owner, server)  # stops at least the use of the previous credential

    async def refused(self, owner: str, server: str) -> None:
        """Stop using a token that the server rejects and that cannot be renewed."""
        login = self._logins.pop((owner, server), None)
        if login is None:
            return
        with suppress(InterlockError):  # if it fails, the next rejection retries it
            await self.tokens(owner, server).expire(login.server_url, login.token)
            self.note("refused", owner, server)

    def note(self, action: str, owner: str, server: str) -> None:
        """Record an action on a user's login in the audit trail."""
        self._note(action, user_of(owner)[1], place_of(owner, server, LOGIN))

    def next_change(self, owner: str, server: str) -> asyncio.Event:
        """Return an event that is set when a user's credential for a server next changes."""
        event = asyncio.Event()
        return self._waiting.setdefault((owner, server), event)

    # Links

    def connect_url(self, owner: str, server: str) -> str:
        """Return the URL where a user connects to a server; "" without a public listener."""
        public_url = self.public_url()
        if not public_url:
            return ""
        id = self._links.close(f"{server}\n{owner}".encode(), b"").rstrip("=")
        return f"{public_url}{CONNECT_PATH}{id}"

    def opened_link(self, id: str) -> _Key:
        """Return the owner and the server that a link to connect contains.

        Raises:
            InvalidArguments: The link is not valid, or has expired.
        """
        padded = id + "=" * (-len(id) % 4)
        server, _, owner = self._links.open(padded, b"").decode().partition("\n")
        return owner, server


def place_of(owner: str, server: str, name: str) -> Place:
    """Return the key of an owner's stored credential."""
    tenant, user = user_of(owner)
    return Place(user, server, name, tenant)


def user_of(owner: str) -> tuple[str, str]:
    """Return the tenant and the user id of a `Principal.owner`."""
    tenant, _, user = owner.partition("/")
    return unquote(tenant) or TENANT, user


def owner_of(place: Place) -> str:
    """Return the `Principal.owner` of the user that a credential belongs to."""
    tenant = "" if place.tenant == TENANT else place.tenant
    return Principal(place.user, tenant=tenant).owner


def _keep(known: dict[_Key, _T], key: _Key, value: _T) -> None:
    known[key] = value
    while len(known) > MAX_KEPT:
        del known[next(iter(known))]
