"""The resources that a gateway opens once: its database, keys, audit trail, vault and more.

A reload replaces the configuration but keeps these resources. They read the current configuration
from the `RunningGateway` that uses them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import asdict

from interlock import __version__, aio, build
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.calls import Caller
from interlock.config.gateway import GatewaySettings
from interlock.gateway.callers import GatewayCallers
from interlock.gateway.client_approvals import ClientQuestions, open_approvals
from interlock.gateway.definitions.pinning import Pinning, make_pinning
from interlock.gateway.durable_sessions import DurableSessions
from interlock.gateway.forwarding.server import ForwardingServer
from interlock.gateway.front import GatewayFront
from interlock.gateway.logins.connect import Logins
from interlock.gateway.logins.vault import Vault
from interlock.gateway.parts import Parts, limits_of, servers_by_name, transport_to
from interlock.gateway.recorder import GatewayRecorder
from interlock.layers.approvals import Approvals
from interlock.layers.audit import ARGUMENTS_KEY, AuditTrail
from interlock.layers.exposition import Gauge
from interlock.layers.metrics import Metrics
from interlock.layers.results import ResultBudget
from interlock.store.audit.upkeep import open_trail
from interlock.store.audit.writer import AuditWriter
from interlock.store.credentials import CredentialStore
from interlock.store.database.changes import ChangeFeed
from interlock.store.database.database import Database
from interlock.store.database.key_loading import load_key
from interlock.store.database.key_owner import open_owned
from interlock.store.database.location import find
from interlock.store.kept_results import KeptResultStore
from interlock.store.keys import KeyStore
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.gateway.front_door.door import FrontDoor


class RunningGateway(Protocol):
    """The running gateway, as far as its services need it."""

    @property
    def parts(self) -> Parts:
        """The parts of the current configuration."""
        ...

    @property
    def server(self) -> ForwardingServer: ...

    @property
    def front(self) -> GatewayFront:
        """The gateway's HTTP side."""
        ...

    @property
    def loaded_at(self) -> int:
        """When the configuration was read, in microseconds since 1970."""
        ...

    @property
    def is_reloaded(self) -> bool:
        """Whether the last reload succeeded."""
        ...

    def end_credentials(self, keys: Collection[str]) -> None:
        """End all work for API keys that are no longer valid, given the keys' ids."""
        ...

    def fail(self) -> None:
        """Stop serving, because calls cannot be recorded until the process is restarted."""
        ...

    def gauges(self) -> Mapping[str, Gauge]:
        """Return the current values of the gateway's gauges; see `Metrics`."""
        ...


class GatewayStores(Struct, frozen=True, kw_only=True):
    """A gateway's database, and the stores in it and beside it.

    Attributes:
        secret: The gateway's key.
        database: The database with the keys, the sessions and the audit trail.
        feed: Reports changes in the database.
        keys: The API keys.
        writer: Writes to the audit trail; None if it is off.
        trail: The audit trail; None if it is off.
        kept: The store for large results.
        approvals: The approvals of calls.
        sessions: Makes sessions that outlive this process; None with a SQLite file, which only one
            gateway serves from.
    """

    secret: GatewayKey
    database: Database
    feed: ChangeFeed
    keys: KeyRing
    writer: AuditWriter | None
    trail: AuditTrail | None
    kept: KeptResultStore
    approvals: Approvals
    sessions: DurableSessions | None


class GatewayServices(GatewayStores, frozen=True, kw_only=True):
    """The open resources of a gateway.

    Attributes:
        environ: The environment variables for the configuration.
        callers: Makes the authenticators for requests.
        recorder: Counts and records the gateway's events.
        questions: Asks clients to approve their own calls.
        results: Limits the size of results, and reads kept results.
        vault: The users' credentials for servers.
        logins: Begins and completes the users' logins to servers.
        pins: The accepted definitions.
        front_door: The OAuth front door; None without one.
    """

    environ: Mapping[str, str]
    callers: GatewayCallers
    recorder: GatewayRecorder
    questions: ClientQuestions
    results: ResultBudget
    vault: Vault
    logins: Logins
    pins: Pinning
    front_door: FrontDoor | None = None

    @property
    def metrics(self) -> Metrics:
        return self.recorder.metrics


@asynccontextmanager
async def open_services(
    parts: Parts,
    environ: Mapping[str, str],
    own_limits: dict[str, JsonObject],
    gateway: Callable[[], RunningGateway],
) -> AsyncIterator[GatewayServices]:
    """Open a gateway's resources.

    Args:
        parts: The parts of the configuration at the start.
        environ: The environment variables for the configuration.
        own_limits: An empty mapping, which is filled with the limits of individual keys.
        gateway: Returns the gateway that uses the services. It is called only after they are
            opened.

    Raises:
        ConfigError: The gateway's key cannot be used.
        StoreError: The database cannot be used.
    """
    async with AsyncExitStack() as stack:
        stores = await _open_stores(stack, parts, own_limits, gateway)
        recorder = GatewayRecorder(
            stores.trail,
            lambda: gateway().parts.policy,
            lambda: gateway().gauges(),
            lambda server: transport_to(gateway().parts.config, server),
        )
        vault = _vault(stores, recorder, gateway)
        door = None
        if parts.settings.oauth is not None:
            door = await stack.enter_async_context(_open_door(stores, recorder, vault, gateway))
        yield GatewayServices(
            **asdict(stores),
            environ=environ,
            callers=GatewayCallers(
                *(stores.keys, lambda: gateway().parts, recorder),
                grants=None if door is None else door.ring,
            ),
            front_door=door,
            recorder=recorder,
            questions=ClientQuestions(lambda: gateway().front),
            results=ResultBudget(stores.kept, limits_of(parts)),
            vault=vault,
            logins=Logins(
                *(vault, stores.secret, lambda: servers_by_name(gateway().parts.config), environ)
            ),
            pins=make_pinning(
                parts.config, parts.settings, stores.database, stores.secret, stores.trail
            ),
        )


def _vault(
    stores: GatewayStores, recorder: GatewayRecorder, gateway: Callable[[], RunningGateway]
) -> Vault:
    return Vault(
        CredentialStore(stores.database, stores.secret),
        stores.secret,
        recorder.credential_changed,
        recorder.recording,
        lambda: gateway().server.toolbox.upstreams,
        lambda: gateway().front.origin,
    )


def _open_door(
    stores: GatewayStores,
    recorder: GatewayRecorder,
    vault: Vault,
    gateway: Callable[[], RunningGateway],
) -> AbstractAsyncContextManager[FrontDoor]:
    from interlock.gateway.front_door.door import open_front_door
    from interlock.gateway.front_door.surroundings import Surroundings

    async def missing(caller: Caller) -> Sequence[JsonObject]:
        policy, servers = gateway().parts.policy, gateway().server.toolbox.upstreams
        needs = {
            name: each.needs
            for name, each in servers.items()
            if each.needs and policy.may_use_any(caller, name)
        }
        return await vault.missing(caller.owner, needs)

    around = Surroundings(
        settings=lambda: gateway().parts.settings,
        public_url=lambda: f"{gateway().front.origin}/mcp",
        list_tools=lambda caller: gateway().server.tools_of(caller),
        missing=missing,
        on_end=lambda ids: gateway().end_credentials(ids),
        recorder=recorder,
    )
    return open_front_door(stores.feed, stores.secret, stores.keys, around)


async def _open_stores(
    stack: AsyncExitStack,
    parts: Parts,
    own_limits: dict[str, JsonObject],
    gateway: Callable[[], RunningGateway],
) -> GatewayStores:
    def settings() -> GatewaySettings:
        return gateway().parts.settings

    location = parts.settings.database or None
    secret = await load_key(location)
    database = await open_owned(location, secret)
    stack.push_async_callback(database.close)
    feed = await stack.enter_async_context(ChangeFeed(database).running())
    keys = KeyRing(
        KeyStore(database), on_end=lambda ids: gateway().end_credentials(ids), limits=own_limits
    )
    await stack.enter_async_context(keys.running(feed))
    writer, trail = await _open_audit(stack, parts.settings, secret, gateway)
    results = KeptResultStore.beside(
        *(location, secret, lambda: settings().results, database),
        keep=lambda: settings().keep.results,
    )
    kept = await stack.enter_async_context(results)
    approvals = await stack.enter_async_context(
        open_approvals(
            *(feed, location, secret, writer),
            settings=lambda: settings().approvals,
            policy=lambda: gateway().parts.policy,
            toolbox=lambda: gateway().server.toolbox,
            keep=parts.settings.keep.approvals,
        )
    )
    await stack.enter_async_context(approvals.changes.running(feed))
    sessions = None
    if not isinstance(find(location), Path):
        sessions = DurableSessions(secret, feed, lambda: gateway().parts)
        await stack.enter_async_context(sessions.running())
    return GatewayStores(
        secret=secret,
        database=database,
        feed=feed,
        keys=keys,
        writer=writer,
        trail=trail,
        kept=kept,
        approvals=approvals,
        sessions=sessions,
    )


async def _open_audit(
    stack: AsyncExitStack,
    settings: GatewaySettings,
    secret: GatewayKey,
    gateway: Callable[[], RunningGateway],
) -> tuple[AuditWriter | None, AuditTrail | None]:
    if settings.audit.mode == "off":
        return None, None
    about = {"version": __version__}
    if found := await aio.in_thread(build.commit):
        about["commit"] = found
    opened = open_trail(
        *(settings.database or None, secret, settings.audit),
        keep=settings.keep.audit,
        about=about,
        on_failed=lambda: gateway().fail(),
    )
    writer = await stack.enter_async_context(opened)
    trail = AuditTrail(writer, secret.derive(ARGUMENTS_KEY), settings.audit)
    stack.callback(trail.flush)
    return writer, trail
