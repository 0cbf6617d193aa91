"""Opens the front door: its stores, its clients and tokens, and its application."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import asdict

from interlock import aio
from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.auth.stored_authorization import StoredAuthorization
from interlock.gateway.front_door.assertions import Assertions
from interlock.gateway.front_door.client_directory import ClientDirectory
from interlock.gateway.front_door.clients import Registrations
from interlock.gateway.front_door.consent import Consent
from interlock.gateway.front_door.consent_routes import ROUTES
from interlock.gateway.front_door.documents import Documents
from interlock.gateway.front_door.door_app import DoorApp
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.machines import Machines
from interlock.gateway.front_door.recheck import Rechecks
from interlock.gateway.front_door.surroundings import Surroundings
from interlock.gateway.front_door.tokens import TokenIssuer
from interlock.gateway.logins.organisation_login import SignedIn
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.json_api import Route
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.changes import ChangeFeed
from interlock.store.oauth_clients import OAuthClientStore
from interlock.store.signed_in import SignedInStore


class FrontDoor(DoorParts, frozen=True, kw_only=True):
    """The parts of an open front door.

    Attributes:
        decisions: The operators' decisions about clients.
        registrations: Registers clients.
        tokens: Issues, replaces and revokes tokens.
        consent: Shows requests to people, and turns their decisions into codes.
        counts: The number of requests by endpoint and outcome.
    """

    decisions: OAuthClientStore
    registrations: Registrations
    tokens: TokenIssuer
    consent: Consent
    counts: Counter[tuple[str, str]]

    @property
    def routes(self) -> tuple[Consent, Sequence[Route]]:
        """The JSON routes of people, for a listener's API."""
        return self.consent, ROUTES

    async def signed_in(self, signed_in: SignedIn) -> None:
        """Store and record a person who has just logged in at an issuer.

        Raises:
            StoreError: The person cannot be stored.
        """
        await self.rechecks.signed_in(signed_in)
        self.gateway.recorder.client_decided("signed_in", signed_in.principal)

    def app(self, beside: AsgiApp, hosts: Sequence[str] | None) -> DoorApp:
        """Return the application of the front door's paths; it passes others to `beside`."""
        assertions = Assertions(self)
        return DoorApp(
            beside,
            self,
            registrations=self.registrations,
            tokens=self.tokens,
            consent=self.consent,
            assertions=assertions,
            machines=Machines(self, self.tokens, assertions),
            hosts=hosts,
            counts=self.counts,
        )


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
    documents = Documents(gateway.fetcher, is_local=gateway.is_local)
    clients = ClientDirectory(
        *(decisions, registrations, documents, lambda: gateway.own.clients),
        lambda: parts.ring.report_ended(),
    )

    def may_go_on(stored: StoredAuthorization) -> bool:
        is_blocked = clients.is_blocked(stored.client, stored.places)
        return not is_blocked and gateway.is_trusted(stored.user)

    parts = DoorParts(
        store=store,
        ring=AuthorizationRing(
            *(store, people.person, secret, keys),
            may_go_on=may_go_on,
            with_rights=gateway.with_rights,
            on_end=gateway.on_end,
        ),
        keys=keys,
        secret=secret,
        clients=clients,
        rechecks=Rechecks(people, gateway, lambda *of: tokens.end_person(*of), feed.now),
        gateway=gateway,
        wall=feed.now,
    )
    tokens = TokenIssuer(parts)
    await feed.set_clock()  # all gateways of a database have its server's time
    running = parts.ring.running(feed), parts.clients.running(feed)
    async with running[0], running[1], aio.beside(parts.rechecks.run(parts.ring)):
        yield FrontDoor(
            **asdict(parts),
            decisions=decisions,
            registrations=registrations,
            tokens=tokens,
            consent=Consent(parts, tokens),
            counts=Counter(),
        )
