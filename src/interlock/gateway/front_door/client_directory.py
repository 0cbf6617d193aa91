"""All clients of the front door: registered, described by a document, or created by an operator."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

from interlock.auth.stored_authorization import StoredAuthorization
from interlock.gateway.front_door.clients import FrontClient, Registrations, is_listed, places_of
from interlock.gateway.front_door.documents import Documents, is_document
from interlock.gateway.front_door.request import OAuthError
from interlock.gateway.front_door.surroundings import Surroundings
from interlock.store.database.changes import ChangeFeed
from interlock.store.oauth_clients import OAuthClientStore, StoredClient

_log = logging.getLogger("interlock.gateway")


class ClientDirectory:
    """Finds clients by their `client_id`, for every endpoint in the same way.

    Args:
        store: The clients that an operator created, blocked or allowed.
        registrations: The clients that registered themselves.
        gateway: The gateway.
        on_change: Called after operators have decided about clients.
    """

    def __init__(
        self,
        store: OAuthClientStore,
        registrations: Registrations,
        gateway: Surroundings,
        on_change: Callable[[], None],
    ) -> None:
        self.store = store
        self.registrations = registrations
        self._gateway = gateway
        self._documents = Documents(gateway.fetcher, is_local=gateway.is_local)
        self._on_change = on_change
        self._stored: dict[str, StoredClient] = {}
        self._blocked: frozenset[str] = frozenset()

    @asynccontextmanager
    async def running(self, feed: ChangeFeed) -> AsyncGenerator[ClientDirectory, None]:
        """Follow what operators decide about clients.

        Raises:
            StoreError: The database is unavailable.
        """
        await self.refresh()
        async with feed.follow("clients", self._step, _log, "clients"):
            yield self

    async def _step(self, has_changed: bool) -> None:
        if has_changed:
            await self.refresh()

    async def refresh(self) -> None:
        """Read the decisions of operators again.

        Raises:
            StoreError: The database is unavailable.
        """
        self._stored = {each.id: each for each in await self.store.list()}
        blocked = (id for id, each in self._stored.items() if each.state == "blocked")
        self._blocked = frozenset(blocked)
        self._on_change()

    async def find(self, id: str, *, caller: str = "", is_known: bool = False) -> FrontClient:
        """Return a client.

        Args:
            id: The `client_id`.
            caller: The IP address of the caller.
            is_known: Whether people have allowed this client before; see `Documents.find`.

        Raises:
            OAuthError: The client is unknown (401), is blocked, or may not ask here.
        """
        client = await self._found(id, caller, is_known=is_known)
        if self.is_blocked(client.id, places_of(client)):
            raise OAuthError("invalid_client", f"the client {client.label} is blocked here", 401)
        stored = self._stored.get(id)
        if stored is None and not is_listed(client, self._gateway.own.clients):
            places = ", ".join(sorted(places_of(client)))
            text = f"the client {client.label} is not among those that may ask here ({places})"
            raise OAuthError("invalid_client", text, 401)
        return client

    def is_blocked(self, id: str, places: Iterable[str]) -> bool:
        """Return whether an operator has blocked a client, its document, or one of its places."""
        if (decided := self._stored.get(id)) is not None:
            return decided.state == "blocked"
        return any(each in self._blocked for each in places)

    def may_act(self, stored: StoredAuthorization) -> bool:
        """Return whether operators and the configuration still permit an authorization."""
        if not self._gateway.has_door or self.is_blocked(stored.client, stored.places):
            return False
        return self._gateway.is_trusted(stored.user)

    async def _found(self, id: str, caller: str, *, is_known: bool) -> FrontClient:
        stored = self._stored.get(id)
        if stored is not None and stored.redirects:
            return FrontClient(
                id=id,
                name=stored.name,
                redirects=stored.redirects,
                secret_hash=stored.secret_hash,
                jwks=stored.jwks_url or None,
                must_sign=bool(stored.jwks_url),
            )
        if (client := self.registrations.find(id)) is not None:
            return client
        if is_document(id):
            return await self._documents.find(id, caller=caller, is_known=is_known)
        text = "this client_id is unknown here: register the client again"
        raise OAuthError("invalid_client", text, 401)
