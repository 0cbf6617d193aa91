"""Opens the front door: its stores, its clients and tokens, and its application."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock import aio
from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.config.gateway import FrontDoorSettings, GatewaySettings, Issuer
from interlock.gateway.front_door.assertions import Assertions
from interlock.gateway.front_door.client_directory import ClientDirectory
from interlock.gateway.front_door.clients import Registrations
from interlock.gateway.front_door.consent import Consent, ListTools, Missing
from interlock.gateway.front_door.consent_routes import ROUTES
from interlock.gateway.front_door.documents import MAX_DOCUMENT, Documents
from interlock.gateway.front_door.door_app import DoorApp
from interlock.gateway.front_door.machines import Machines
from interlock.gateway.front_door.recheck import Rechecks
from interlock.gateway.front_door.request import Resources
from interlock.gateway.front_door.tokens import TokenIssuer
from interlock.gateway.recorder import GatewayRecorder
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.json_api import Route
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.changes import ChangeFeed
from interlock.store.oauth_clients import OAuthClientStore
from interlock.store.signed_in import SignedInStore
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
        decisions: The operators' decisions about clients.
        registrations: Registers clients.
        gateway: The gateway that the front door belongs to.
        assertions: Verifies signed statements.
        machines: Issues tokens for programs.
        rechecks: Stores people who sign in, and asks their issuers again.
        counts: The number of requests by endpoint and outcome.
    """

    ring: AuthorizationRing
    clients: ClientDirectory
    tokens: TokenIssuer
    consent: Consent
    store: AuthorizationStore
    decisions: OAuthClientStore
    registrations: Registrations
    gateway: Surroundings
    assertions: Assertions
    machines: Machines
    rechecks: Rechecks
    counts: Counter[tuple[str, str]]

    @property
    def routes(self) -> tuple[Consent, Sequence[Route]]:
        """The JSON routes of people, for a listener's API."""
        return self.consent, ROUTES

    def app(
        self,
        beside: AsgiApp,
        hosts: Sequence[str] | None,
    ) -> DoorApp:
        """Return the application of the front door's paths; it passes others to `beside`."""
        return DoorApp(
            beside,
            clients=self.clients,
            registrations=self.registrations,
            tokens=self.tokens,
            consent=self.consent,
            assertions=self.assertions,
            machines=self.machines,
            resources=self.gateway.resources,
            settings=lambda: self.gateway.own,
            issuers=self.gateway.issuers,
            hosts=hosts,
            note=self._count,
        )

    def _count(self, endpoint: str, outcome: str) -> None:
        self.counts[endpoint, outcome] += 1


class Surroundings(Struct, frozen=True, kw_only=True):
    """The parts of a gateway that the front door uses.

    Attributes:
        settings: Returns the current settings.
        public_url: Returns the URL of the endpoint for clients.
        is_trusted: Returns whether a person without an API key may go on.
        list_tools: Returns the tools that a caller sees.
        missing: Returns the servers that lack a credential of a caller; see `Vault.missing`.
        on_end: Called with the ids of authorizations that ended.
        recorder: Records what happens to clients and authorizations.
    """

    settings: Callable[[], GatewaySettings]
    public_url: Callable[[], str]
    is_trusted: Callable[[str], bool]
    list_tools: ListTools
    missing: Missing
    on_end: Callable[[Collection[str]], None]
    recorder: GatewayRecorder

    @property
    def own(self) -> FrontDoorSettings:
        return self.settings().oauth or FrontDoorSettings()

    def resources(self) -> Resources:
        return Resources(self.public_url(), self.settings().views)

    def issuers(self) -> Sequence[Issuer]:
        return self.settings().issuers

    def is_local(self) -> bool:
        return is_loopback(split(self.public_url()).hostname or "")

    def fetcher(self) -> Fetcher:
        from interlock.oauth.fetcher import Fetcher  # loads aiohttp

        return Fetcher(self.public_url() if self.is_local() else "", max_bytes=MAX_DOCUMENT)


@asynccontextmanager
async def open_front_door(
    feed: ChangeFeed, secret: GatewayKey, keys: KeyRing, gateway: Surroundings
) -> AsyncIterator[FrontDoor]:
    """Open the front door of a gateway.

    Args:
        feed: Reports changes in the database.
        secret: The gateway's key.
        keys: The API keys.
        gateway: The gateway.

    Raises:
        StoreError: The database is unavailable.
    """
    store, decisions = AuthorizationStore(feed.database), OAuthClientStore(feed.database)
    people, registrations = SignedInStore(feed.database, secret), Registrations(secret)
    ring = AuthorizationRing(
        *(store, people.person, secret, keys), is_trusted=gateway.is_trusted, on_end=gateway.on_end
    )
    documents = Documents(gateway.fetcher, is_local=gateway.is_local)
    clients = ClientDirectory(decisions, registrations, documents, lambda: gateway.own.clients)
    rechecks = Rechecks(
        people,
        gateway.issuers,
        lambda: gateway.own.recheck,
        lambda person, reason: tokens.end_person(person, reason),
    )
    recorder, resources = gateway.recorder, gateway.resources
    of_tokens = store, ring, secret, clients, resources
    tokens = TokenIssuer(*of_tokens, recorder.recording_client, rechecks.check)
    assertions = Assertions(store, resources, gateway.issuers, gateway.fetcher)
    async with ring.running(feed), clients.running(feed), aio.beside(rechecks.run(ring)):
        yield FrontDoor(
            ring=ring,
            clients=clients,
            tokens=tokens,
            consent=Consent(
                *(clients, tokens, store, people, keys, secret, resources),
                *(lambda: gateway.own.sign_in, gateway.list_tools, gateway.missing),
                recorder.client_decided,
            ),
            store=store,
            decisions=decisions,
            registrations=registrations,
            gateway=gateway,
            assertions=assertions,
            machines=Machines(keys, tokens, assertions, people, resources),
            rechecks=rechecks,
            counts=Counter(),
        )
