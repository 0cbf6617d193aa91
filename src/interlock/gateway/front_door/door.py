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
from interlock.auth.stored_authorization import StoredPerson
from interlock.config.gateway import FrontDoorSettings, GatewaySettings, Issuer
from interlock.gateway.front_door.assertions import Assertions
from interlock.gateway.front_door.client_directory import ClientDirectory
from interlock.gateway.front_door.clients import Registrations
from interlock.gateway.front_door.consent import ROUTES, Consent, ListTools
from interlock.gateway.front_door.documents import MAX_DOCUMENT, Documents
from interlock.gateway.front_door.door_app import DoorApp
from interlock.gateway.front_door.machines import Machines
from interlock.gateway.front_door.recheck import Rechecks
from interlock.gateway.front_door.request import Resources
from interlock.gateway.front_door.tokens import Tokens
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
        decisions: What operators decided about clients.
        registrations: Registers clients.
        resources: Returns the resources of the current configuration.
        settings: Returns the current settings.
        assertions: Verifies signed statements.
        machines: Issues tokens for programs.
        rechecks: Stores people who sign in, and asks their issuers again.
        issuers: Returns the configured issuers.
        counts: The number of requests by endpoint and outcome.
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
    assertions: Assertions
    machines: Machines
    rechecks: Rechecks
    issuers: Callable[[], Sequence[Issuer]]
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
            resources=self.resources,
            settings=self.settings,
            issuers=self.issuers,
            hosts=hosts,
            note=self._count,
        )

    def _count(self, endpoint: str, outcome: str) -> None:
        self.counts[endpoint, outcome] += 1


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
    recorder: GatewayRecorder,
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
        recorder: Records what happens to clients and authorizations.

    Raises:
        StoreError: The database is unavailable.
    """

    def own() -> FrontDoorSettings:
        return settings().oauth or FrontDoorSettings()

    def resources() -> Resources:
        return Resources(public_url(), settings().views)

    def is_local() -> bool:
        return is_loopback(split(public_url()).hostname or "")

    def issuers() -> Sequence[Issuer]:
        return settings().issuers

    def fetcher() -> Fetcher:
        from interlock.oauth.fetcher import Fetcher  # loads aiohttp

        return Fetcher(public_url() if is_local() else "", max_bytes=MAX_DOCUMENT)

    store, decisions = AuthorizationStore(feed.database), OAuthClientStore(feed.database)
    people, registrations = SignedInStore(feed.database, secret), Registrations(secret)

    async def person(user: str, tenant: str) -> StoredPerson | None:
        found = await people.get(user, tenant)
        return None if found is None else found[0]

    async def end_person(person: StoredPerson, reason: str) -> None:
        mine = await store.list(user=person.user, tenant=person.tenant)
        await tokens.end([each.id for each in mine if each.ended is None], reason)

    ring = AuthorizationRing(store, person, secret, keys, is_trusted=is_trusted, on_end=on_end)
    documents = Documents(fetcher, is_local=is_local)
    clients = ClientDirectory(decisions, registrations, documents, lambda: own().clients)
    rechecks = Rechecks(people, issuers, lambda: own().recheck, end_person)
    tokens = Tokens(
        *(store, ring, secret, clients, resources), recorder.recording_client, rechecks.check
    )
    assertions = Assertions(store, resources, issuers, fetcher)
    async with (
        ring.running(feed),
        clients.running(feed),
        aio.beside(rechecks.run(ring)),
    ):
        yield FrontDoor(
            ring=ring,
            clients=clients,
            tokens=tokens,
            consent=Consent(
                *(clients, tokens, store, people, keys, secret, resources),
                sign_in=lambda: own().sign_in,
                list_tools=list_tools,
                note=recorder.client_decided,
            ),
            store=store,
            decisions=decisions,
            registrations=registrations,
            resources=resources,
            settings=own,
            assertions=assertions,
            machines=Machines(keys, tokens, assertions, people, resources),
            rechecks=rechecks,
            issuers=issuers,
            counts=Counter(),
        )
