"""Opens the front door: its stores, its clients and tokens, and its application."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from interlock import aio
from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.gateway.front_door.assertions import Assertions
from interlock.gateway.front_door.client_directory import ClientDirectory
from interlock.gateway.front_door.clients import Registrations
from interlock.gateway.front_door.consent import ROUTES, Consent
from interlock.gateway.front_door.door_app import DoorApp
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.machines import Machines
from interlock.gateway.front_door.recheck import Rechecks
from interlock.gateway.front_door.surroundings import Surroundings
from interlock.gateway.front_door.tokens import TokenIssuer
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.json_api import Route
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.changes import ChangeFeed
from interlock.store.oauth_clients import OAuthClientStore
from interlock.store.signed_in import SignedInStore

if TYPE_CHECKING:
    from interlock.gateway.logins.organisation_login import SignedIn


class FrontDoor(DoorParts, frozen=True, kw_only=True):
    """The parts of an open front door.

    Attributes:
        tokens: Issues, replaces and revokes tokens.
        consent: Shows requests to people, and turns their decisions into codes.
        counts: The number of requests by endpoint and outcome.
    """

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
    store, people = AuthorizationStore(feed.database), SignedInStore(feed.database, secret)
    clients = ClientDirectory(
        *(OAuthClientStore(feed.database), Registrations(secret), gateway),
        lambda: ring.report_ended(),
    )
    ring = AuthorizationRing(
        *(store, people.person, secret, keys),
        may_go_on=clients.may_act,
        with_rights=gateway.with_rights,
        on_end=gateway.on_end,
    )
    parts = DoorParts(
        store=store,
        ring=ring,
        keys=keys,
        secret=secret,
        clients=clients,
        rechecks=Rechecks(people, gateway, lambda *of: tokens.end_person(*of), feed.now),
        gateway=gateway,
        wall=feed.now,
    )
    tokens = TokenIssuer(parts)
    await feed.set_clock()  # all gateways of a database have its server's time
    async with ring.running(feed), clients.running(feed), aio.beside(parts.rechecks.run(ring)):
        consent = Consent(parts, tokens)
        yield FrontDoor(**asdict(parts), tokens=tokens, consent=consent, counts=Counter())
