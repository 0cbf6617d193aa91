"""The parts of a gateway that the front door uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.principal import Principal
from interlock.auth.stored_authorization import StoredPerson
from interlock.calls import Caller
from interlock.config.gateway import FrontDoorSettings, GatewaySettings, Issuer
from interlock.gateway.callers import is_trusted
from interlock.gateway.front_door.documents import MAX_DOCUMENT
from interlock.gateway.front_door.request import Resources
from interlock.gateway.logins.people import with_rights_now
from interlock.gateway.recorder import GatewayRecorder
from interlock.text.urls import is_loopback, split
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.oauth.fetcher import Fetcher


class Surroundings(Struct, frozen=True, kw_only=True):
    """The parts of a gateway that the front door uses.

    Attributes:
        settings: Returns the current settings.
        public_url: Returns the URL of the endpoint for clients.
        list_tools: Returns the tools that a caller sees.
        missing: Returns the servers that lack a credential of a caller; see `Vault.missing`.
        on_end: Called with the ids of authorizations that ended.
        recorder: Records what happens to clients and authorizations.
    """

    settings: Callable[[], GatewaySettings]
    public_url: Callable[[], str]
    list_tools: Callable[[Caller], Awaitable[tuple[list[JsonObject], list[JsonObject]]]]
    missing: Callable[[Caller], Awaitable[Sequence[JsonObject]]]
    on_end: Callable[[Collection[str]], None]
    recorder: GatewayRecorder

    @property
    def has_door(self) -> bool:
        """Whether the current configuration has a front door; one that lost it must restart."""
        return self.settings().oauth is not None

    @property
    def own(self) -> FrontDoorSettings:
        return self.settings().oauth or FrontDoorSettings()

    def resources(self) -> Resources:
        return Resources(self.public_url(), self.settings().views)

    def issuers(self) -> Sequence[Issuer]:
        return self.settings().issuers

    def is_trusted(self, user: str) -> bool:
        """Return whether a person without an API key may go on."""
        return is_trusted(self.issuers(), user)

    def with_rights(self, person: StoredPerson) -> StoredPerson | None:
        """Return a person with the rights of the current configuration; None for none."""
        found = with_rights_now(self.issuers(), Principal(person.user, claims=person.claims))
        if found is None:
            return None
        scopes, groups = tuple(sorted(found.scopes)), tuple(sorted(found.groups))
        return replace(person, scopes=scopes, groups=groups)

    def claims_of_rules(self) -> set[str]:
        """Return the names of the claims that rules have conditions on."""
        policy = self.settings().policy
        return {name for each in (policy.rules if policy else ()) for name in each.claims}

    def is_local(self) -> bool:
        return is_loopback(split(self.public_url()).hostname or "")

    def fetcher(self) -> Fetcher:
        from interlock.oauth.fetcher import Fetcher  # loads aiohttp

        return Fetcher(self.public_url() if self.is_local() else "", max_bytes=MAX_DOCUMENT)
