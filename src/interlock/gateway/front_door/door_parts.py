"""The parts that the endpoints of the front door share."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.gateway.front_door.client_directory import ClientDirectory
from interlock.gateway.front_door.recheck import Rechecks
from interlock.gateway.front_door.surroundings import Surroundings
from interlock.store.authorizations import AuthorizationStore
from interlock.text.timestamps import now_micros


class DoorParts(Struct, frozen=True, kw_only=True):
    """The parts that the endpoints of the front door share.

    Attributes:
        store: The stored authorizations and codes.
        ring: The authorizations in memory, which verify access tokens.
        keys: The API keys, with which people and programs may sign in.
        secret: The gateway's key.
        clients: All clients.
        rechecks: The people whom issuers have described.
        gateway: The gateway that the front door belongs to.
        wall: The wall clock of the database's server, in microseconds since 1970.
    """

    store: AuthorizationStore
    ring: AuthorizationRing
    keys: KeyRing
    secret: GatewayKey
    clients: ClientDirectory
    rechecks: Rechecks
    gateway: Surroundings
    wall: Callable[[], int] = now_micros
