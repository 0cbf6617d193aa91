"""Builds a gateway from a configuration: its servers, policy, limits, keys and audit trail.

config -> Parts -> GatewayServices -> ForwardingServer      at the start
config -> Parts -> ForwardingServer.replace                 on each reload
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext

from msgspec.structs import replace

from interlock import aio, observing
from interlock.auth.principal import Principal
from interlock.config import Config, load
from interlock.errors import ConfigError
from interlock.gateway.forwarding.server import IDLE_TIMEOUT, ForwardingServer
from interlock.gateway.front import GatewayFront
from interlock.gateway.gauges import gauges_of
from interlock.gateway.manifests import following
from interlock.gateway.notifier import Notifier
from interlock.gateway.parts import (
    Parts,
    configuration_hash,
    described_parts,
    layers_of,
    limits_of,
    make_parts,
    personal_servers,
    restart_needed,
)
from interlock.gateway.permission_prompts import PermissionPrompts, ask_nobody
from interlock.gateway.replicas import Replicas
from interlock.gateway.services import GatewayServices, open_services
from interlock.layers import Layers
from interlock.layers.exposition import Family, Gauge, family, one
from interlock.layers.login_questions import LoginQuestions
from interlock.layers.quotas import Quotas
from interlock.policy import LOCAL_USER
from interlock.store.approvals import ApprovalStore
from interlock.store.chat.expiry import purge_regularly
from interlock.store.plugins import PluginStore
from interlock.store.quotas import QuotaStore
from interlock.text.timestamps import now_micros
from interlock.text.urls import is_loopback
from interlock.types import JsonObject


class Assembly:
    """A running gateway: its configuration, its open resources, and its server.

    Args:
        parts: The parts of the configuration at the start.
        services: The resources opened for this configuration.

    Attributes:
        parts: The parts of the current configuration.
        services: The resources that stay open when the configuration is reloaded.
        server: Answers the clients' requests.
        front: The gateway's HTTP side.
        started: The settings at the start. Some of them cannot change later; see `restart_needed`.
        loaded_at: When the configuration was read, in microseconds since 1970.
        is_reloaded: Whether the last reload succeeded.
        replicas: The gateways of the same database; None with a SQLite file.
        read: Reads the configuration file again.
        failed: Set when calls cannot be recorded until the process is restarted.
    """

    def __init__(self, parts: Parts, services: GatewayServices) -> None:
        self.parts = parts
        self.services = services
        self.started = parts.settings
        self.front = GatewayFront()
        self.loaded_at = now_micros()
        self.is_reloaded = True
        self.failed = asyncio.Event()
        self.replicas: Replicas | None = None
        self.read = self._read_file
        self._reloading = asyncio.Lock()
        self._logins = LoginQuestions(services.vault)
        self._prompts = PermissionPrompts(self._deciding)
        if observing.observer is not None:
            observing.observer.use_key(services.secret.derive("telemetry"))
        self.server = ForwardingServer(
            parts.servers,
            parts.policy,
            environ=services.environ,
            layers=self._layers_of(parts),
            instructions=parts.settings.instructions or None,
            sealing_key=services.secret.derive("seal"),
            idle_timeout=IDLE_TIMEOUT,
            credentials=services.vault,
            results=services.results,
            own_tools=[self._prompts.tool],
            pins=services.pins,
            observer=services.recorder,
            trusts=self._trusts,
            full_rights=services.callers.full_rights,
            refuses_clashes=True,
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls, config: Config, *, environ: Mapping[str, str] | None = None
    ) -> AsyncIterator[Assembly]:
        """Open the database, and yield a gateway for a configuration; no server is started yet.

        Raises:
            ConfigError: The configuration or the gateway's key cannot be used.
            StoreError: The database cannot be used.
        """
        environ = os.environ if environ is None else environ
        own_limits: dict[str, JsonObject] = {}
        parts = make_parts(config, environ, own_limits=own_limits)
        opening = open_services(parts, environ, own_limits, lambda: assembly)
        async with opening as services, AsyncExitStack() as stack:
            assembly = cls(parts, services)
            services.recorder.configured(None, described_parts(parts))
            quotas = Quotas(QuotaStore(services.database), lambda: assembly.parts.limiter.days)
            await stack.enter_async_context(quotas.running())
            await stack.enter_async_context(services.vault.running(services.feed))
            await stack.enter_async_context(services.pins.following(services.feed))
            await stack.enter_async_context(assembly._following_plugins())
            notifier = Notifier(
                ApprovalStore(services.database, services.secret),
                lambda: assembly.parts.settings.notify,
                lambda approval: assembly.front.decided_at(approval),
            )
            await stack.enter_async_context(notifier.running(services.feed))
            await stack.enter_async_context(aio.beside(services.metrics.measure_lag()))
            purging = purge_regularly(services.database, lambda: assembly.parts.settings.keep)
            await stack.enter_async_context(aio.beside(purging))
            if services.database.is_shared and services.writer is not None:
                found = Replicas(
                    services.feed,
                    services.writer.id,
                    lambda: (assembly.hash_of(assembly.parts.written), assembly.loaded_at),
                    assembly.reread,
                )
                assembly.replicas = await stack.enter_async_context(found.running())
            yield assembly

    # Methods of `RunningGateway`

    def end_credentials(self, keys: Collection[str]) -> None:
        self.front.end_credentials(keys)
        self.server.end_credentials(keys)

    def fail(self) -> None:
        self.failed.set()

    def gauges(self) -> Mapping[str, Gauge]:
        return gauges_of(self, self.services)

    async def families(self) -> list[Family]:
        """Return a snapshot of all metrics."""
        ready = await self.front.is_ready()
        found = self.services.metrics.families()
        if ready is not None:
            found.append(family("interlock_ready", "Whether calls can be made.", one(ready)))
        return found

    def exporting(self) -> AbstractAsyncContextManager[None]:
        """Export the metrics during a block and at its end, if telemetry is on."""
        meter = observing.meter
        return nullcontext() if meter is None else meter.following(self.families)

    def serve_by(self, front: GatewayFront) -> None:
        """Set the HTTP side, which is notified of reloads and ended keys, and which asks people."""
        self.front = front

    def _trusts(self, principal: Principal | None, address: str) -> bool:
        """Return whether the trace of a caller may continue.

        That is the process that started this gateway, the key of this run on loopback, and the
        callers that the configuration names.
        """
        if principal is None or (
            principal.id == LOCAL_USER.id and not principal.key_id and not address
        ):
            return True
        if principal.key_id in self.services.keys.of_this_run and is_loopback(address):
            return True
        who = self.parts.settings.telemetry.trust
        return bool(who) and self.parts.policy.is_one_of(principal, who)

    # The layers of calls

    @property
    def layers(self) -> Layers:
        """The layers around every call, for calls that do not go through the gateway's toolbox."""
        return self._layers_of(self.parts)

    def _layers_of(self, parts: Parts) -> Layers:
        services, personal = self.services, personal_servers(parts.config)
        asks = parts.policy.asks
        return replace(
            layers_of(parts, services.trail),
            counting=services.metrics.calls,
            instead={self._prompts.address: self._prompts.answer},
            approval=services.approvals.around(services.questions) if asks else None,
            login=self._logins.around(personal) if personal else None,
        )

    def _deciding(self) -> Layers:
        """Return the layers that decide about calls of Claude Code's own tools."""
        trail = self.services.trail
        return replace(
            layers_of(self.parts, trail),
            refusals=None if trail is None else trail.refusals,
            approval=self.services.approvals.around(ask_nobody),
        )

    # The configuration

    async def reload(self, config: Config) -> list[str]:
        """Replace the configuration; calls in progress keep the previous configuration.

        Returns:
            The names of changed members that take effect only after a restart.

        Raises:
            ConfigError: The configuration cannot be used; nothing was replaced.
        """
        async with self._reloading:
            self.is_reloaded = False
            fixed = await self._reload(config)
            self.is_reloaded = True
        if self.replicas is not None:
            await self.replicas.note()
        return fixed

    async def reread(self) -> list[str]:
        """Read the configuration file again, and replace the configuration; see `reload`."""
        self.is_reloaded = False
        return await self.reload(self.read())

    def _read_file(self) -> Config:
        path = self.parts.config.path
        if path is None:
            raise ConfigError("the configuration did not come from a file; restart to change it")
        return load(path)

    def hash_of(self, config: Config) -> str:
        """Return the hash of a configuration; see `configuration_hash`."""
        return configuration_hash(config, self.services.secret)

    async def _reload(self, config: Config) -> list[str]:
        services, described = self.services, described_parts(self.parts)
        before = self.parts.settings
        parts = make_parts(config, services.environ, self.parts)
        if parts.plugins.found:
            await parts.plugins.load(PluginStore(services.database))
        await self.server.replace(parts.servers, parts.policy, layers=self._layers_of(parts))
        services.results.limit_to(limits_of(parts))
        self.loaded_at = now_micros()
        self.parts = parts  # without an await since the servers were replaced, so both match
        services.recorder.configured(described, described_parts(parts))
        await services.pins.replace(parts.settings.lock, self.server.toolbox.upstreams)
        self.front.reloaded()
        is_same = (before.issuers, before.oauth) == (parts.settings.issuers, parts.settings.oauth)
        if services.front_door is not None and not is_same:
            services.front_door.ring.reconfigured()
        return restart_needed(self.started, parts.settings)

    def _following_plugins(self) -> AbstractAsyncContextManager[None]:
        return following(
            self.services.feed,
            PluginStore(self.services.database),
            lambda: self.parts.plugins,
            lambda: self.server.rights_changed(),
            self._read_plugins,
        )

    async def _read_plugins(self) -> None:
        async with self._reloading:
            await self._reload(self.parts.written)
