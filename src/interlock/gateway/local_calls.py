"""Calls from a person's own programs: `interlock chat` and `interlock call`.

If the configuration has a member `gateway`, its policy, limits and audit trail apply to these calls
too. Their caller is `user:local` with the scope `mcp:*`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from interlock.config import Config, ServerConfig
from interlock.config.gateway import GatewaySettings
from interlock.errors import ConfigError, StoreError
from interlock.layers import Layers
from interlock.layers.asking import AskCaller, asking
from interlock.layers.kept_results import MemoryResults, ResultStore
from interlock.layers.results import ResultBudget, ResultLimits
from interlock.policy import Policy
from interlock.store.kept import Kept, Owner

if TYPE_CHECKING:
    from interlock.layers.audit import AuditTrail
    from interlock.toolbox.pins import PinKeeper
    from interlock.transports import InProcessServer

_log = logging.getLogger("interlock.results")


class LocalCalls(Struct, frozen=True):
    """The servers and layers for a local program's toolbox.

    Attributes:
        servers: The servers by name.
        layers: The layers around every call.
        results: The limit on results.
        pins: The accepted definitions; None to accept all definitions.
    """

    servers: Mapping[str, ServerConfig | InProcessServer]
    layers: Layers
    results: ResultBudget
    pins: PinKeeper | None = None


@asynccontextmanager
async def local_calls(config: Config, ask: AskCaller) -> AsyncIterator[LocalCalls]:
    """Open the servers and layers of a configuration for local calls.

    Args:
        config: The configuration.
        ask: Asks the person to approve a call, if the rule allows them to.

    Raises:
        ConfigError: The configuration or the gateway's key cannot be used.
        StoreError: The audit trail cannot be opened.
    """
    async with AsyncExitStack() as stack:
        if config.gateway is not None:
            yield await _gateway_calls(stack, config, ask)
            return
        layers = Layers(policy=Policy.for_local_user(config), approval=asking(ask))
        kept = _OpenedOnDemand(stack, None, GatewaySettings())
        yield LocalCalls(
            config.servers, layers, ResultBudget(kept, ResultLimits.from_config(config))
        )


async def _gateway_calls(stack: AsyncExitStack, config: Config, ask: AskCaller) -> LocalCalls:
    """Open the servers and layers for a configuration with a gateway; `stack` closes them."""
    # These imports need the extra "serve", which a chat without a gateway does not need.
    from interlock.gateway.client_approvals import open_approvals
    from interlock.gateway.definitions.pinning import make_pinning
    from interlock.gateway.parts import layers_of, limits_of, make_parts
    from interlock.layers.audit import ARGUMENTS_KEY, AuditTrail
    from interlock.store.audit.upkeep import open_trail
    from interlock.store.database.changes import ChangeFeed
    from interlock.store.database.key_loading import load_key
    from interlock.store.database.key_owner import open_owned
    from interlock.store.plugins import PluginStore

    parts = make_parts(config, os.environ)
    location, audit = parts.settings.database or None, parts.settings.audit
    secret, keep = await load_key(location), parts.settings.keep
    database = await open_owned(location, secret)
    stack.push_async_callback(database.close)
    trail = writer = None
    if audit.mode != "off":
        opened = open_trail(location, secret, audit, keep=keep.audit)
        writer = await stack.enter_async_context(opened)
        trail = AuditTrail(writer, secret.derive(ARGUMENTS_KEY), audit)
        stack.callback(trail.flush)
    feed = await stack.enter_async_context(ChangeFeed(database).running())
    if parts.plugins.found:
        await parts.plugins.load(PluginStore(database))
    pins = None
    if parts.settings.lock.mode != "off":
        pins = make_pinning(config, parts.settings, database, secret, trail)
        await stack.enter_async_context(pins.following(feed))
    layers = layers_of(parts, trail)
    if trail is not None:
        layers = replace(layers, refusals=trail.refusals)
    if parts.policy.asks:
        approvals = await stack.enter_async_context(
            open_approvals(
                *(feed, location, secret, writer),
                settings=lambda: parts.settings.approvals,
                policy=lambda: parts.policy,
                keep=keep.approvals,
            )
        )
        await stack.enter_async_context(approvals.changes.running(feed))
        layers = replace(layers, approval=approvals.around(ask))
    results = ResultBudget(_OpenedOnDemand(stack, location, parts.settings), limits_of(parts))
    return LocalCalls(parts.servers, layers, results, pins)


@asynccontextmanager
async def local_trail(config: Config) -> AsyncIterator[AuditTrail | None]:
    """Open a configuration's audit trail to add a few records; yield None if it has none.

    Raises:
        ConfigError: The configuration or the gateway's key cannot be used.
        StoreError: The audit trail cannot be opened.
    """
    from interlock.config.gateway_reading import resolve

    settings = resolve(config, os.environ)
    if config.gateway is None or settings.audit.mode == "off":
        yield None
        return
    from interlock.layers.audit import ARGUMENTS_KEY, AuditTrail
    from interlock.store.audit.writer import AuditWriter
    from interlock.store.database.key_loading import load_key

    location, audit = settings.database or None, settings.audit
    secret = await load_key(location)
    async with AuditWriter.open(location, key=secret, settings=audit) as writer:
        trail = AuditTrail(writer, secret.derive(ARGUMENTS_KEY), audit)
        yield trail
        trail.flush()


class _OpenedOnDemand:
    """Stores results beside a database, which is opened on the first use.

    If packages are missing or the database cannot be opened, results are stored in memory.
    """

    def __init__(
        self, stack: AsyncExitStack, location: str | None, settings: GatewaySettings
    ) -> None:
        self._stack = stack
        self._location = location
        self._settings = settings
        self._opening = asyncio.Lock()
        self._store: ResultStore | None = None

    async def keep(self, owner: Owner, call: str, content: bytes) -> Kept:
        return await (await self._opened()).keep(owner, call, content)

    async def load(self, owner: Owner, id: str) -> bytes | None:
        return await (await self._opened()).load(owner, id)

    async def _opened(self) -> ResultStore:
        async with self._opening:
            if self._store is None:
                try:
                    self._store = await self._stack.enter_async_context(await self._beside())
                except (ImportError, ConfigError, StoreError) as error:
                    _log.warning("large results are kept in memory only: %s", error)
                    self._store = MemoryResults(keep=self._settings.keep.results)
            return self._store

    async def _beside(self) -> AbstractAsyncContextManager[ResultStore]:
        # These imports need the extras "chat" and "serve".
        import cryptography  # noqa: F401

        from interlock.store.database.key_loading import load_key
        from interlock.store.kept_results import KeptResultStore

        secret = await load_key(self._location)
        return KeptResultStore.beside(
            *(self._location, secret, lambda: self._settings.results),
            keep=lambda: self._settings.keep.results,
        )
