"""Opens the front door: its stores, its clients and tokens, and its application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.config.gateway import FrontDoorSettings, GatewaySettings, Issuer
from interlock.gateway.front_door.client_directory import ClientDirectory
from interlock.gateway.front_door.clients import FrontClient, Registrations
from interlock.gateway.front_door.consent import Consent, ListTools
from interlock.gateway.front_door.documents import MAX_DOCUMENT, Documents
from interlock.gateway.front_door.door_app import DoorApp
from interlock.gateway.front_door.request import OAuthError, Resources
from interlock.gateway.front_door.tokens import Tokens
from interlock.server.http.http_options import AsgiApp
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.changes import ChangeFeed
from interlock.store.oauth_clients import OAuthClientStore
from interlock.text.urls import is_loopback, split

if TYPE_CHECKING:
    from interlock.oauth.fetcher import Fetcher


class FrontDoor(Struct, frozen=True, kw_only=True):
    """The parts of an open front door.

    Attributes:
        ring: The authorizations in memory, which verify access tokens.
        clients: All clients.
        tokens: Issues, replaces and revokes tokens.
        consent: Shows requests to people, and turns their decisions into codes.
        store: The stored authorizations.
        decisions: What operators decided about clients.
        registrations: Registers clients.
        resources: Returns the resources of the current configuration.
        settings: Returns the current settings.
    """

    ring: AuthorizationRing
    clients: ClientDirectory
    tokens: Tokens
    consent: Consent
    store: AuthorizationStore
    decisions: OAuthClientStore
    registrations: Registrations
    resources: Callable[[], Resources]
    settings: Callable[[], FrontDoorSettings]

    def app(
        self,
        beside: AsgiApp,
        hosts: Sequence[str] | None,
        issuers: Callable[[], Sequence[Issuer]],
    ) -> DoorApp:
        """Return the application of the front door's paths; it passes others to `beside`."""
        return DoorApp(
            beside,
            clients=self.clients,
            registrations=self.registrations,
            tokens=self.tokens,
            consent=self.consent,
            check_assertion=_refuse_assertion,
            resources=self.resources,
            settings=self.settings,
            issuers=issuers,
            hosts=hosts,
        )


@asynccontextmanager
async def open_front_door(
    feed: ChangeFeed,
    secret: GatewayKey,
    keys: KeyRing,
    *,
    settings: Callable[[], GatewaySettings],
    public_url: Callable[[], str],
    is_trusted: Callable[[str], bool],
    list_tools: ListTools,
    on_end: Callable[[Collection[str]], None],
) -> AsyncIterator[FrontDoor]:
    """Open the front door of a gateway.

    Args:
        feed: Reports changes in the database.
        secret: The gateway's key.
        keys: The API keys.
        settings: Returns the current settings.
        public_url: Returns the URL of the endpoint for clients.
        is_trusted: Returns whether a person without an API key may go on.
        list_tools: Returns the tools that a caller sees.
        on_end: Called with the ids of authorizations that ended.

    Raises:
        StoreError: The database is unavailable.
    """

    def own() -> FrontDoorSettings:
        return settings().oauth or FrontDoorSettings()

    def resources() -> Resources:
        return Resources(public_url(), settings().views)

    def is_local() -> bool:
        return is_loopback(split(public_url()).hostname or "")

    store, decisions = AuthorizationStore(feed.database), OAuthClientStore(feed.database)
    registrations = Registrations(secret)
    documents = Documents(lambda: _fetcher(public_url() if is_local() else ""), is_local=is_local)
    async with AsyncExitStack() as stack:
        ring = AuthorizationRing(store, secret, keys, is_trusted=is_trusted, on_end=on_end)
        await stack.enter_async_context(ring.running(feed))
        clients = ClientDirectory(decisions, registrations, documents, lambda: own().clients)
        await stack.enter_async_context(clients.running(feed))
        tokens = Tokens(store, ring, secret, clients, resources)
        yield FrontDoor(
            ring=ring,
            clients=clients,
            tokens=tokens,
            consent=Consent(
                *(clients, tokens, store, keys, secret, resources),
                sign_in=lambda: own().sign_in,
                list_tools=list_tools,
            ),
            store=store,
            decisions=decisions,
            registrations=registrations,
            resources=resources,
            settings=own,
        )


def _fetcher(near: str) -> Fetcher:
    from interlock.oauth.fetcher import Fetcher  # loads aiohttp

    return Fetcher(near, max_bytes=MAX_DOCUMENT)


async def _refuse_assertion(client: FrontClient, _: str) -> None:
    raise OAuthError("invalid_client", f"{client.label} cannot sign its requests here yet", 401)
