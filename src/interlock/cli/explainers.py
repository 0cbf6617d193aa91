"""Opens a gateway without clients, to explain its calls."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from interlock.cli.database_options import database_of
from interlock.cli.terminal import working

if TYPE_CHECKING:
    from interlock.auth.stored_key import StoredKey
    from interlock.calls import Caller
    from interlock.config import Config
    from interlock.gateway.explain.explainer import Explainer
    from interlock.gateway.parts import Parts, Servers
    from interlock.layers.limits import Limiter
    from interlock.store.database.database import Database
    from interlock.toolbox import Toolbox
    from interlock.types import JsonObject

IDLE_TIMEOUT = 5.0  # seconds; stop waiting if no server becomes ready or fails for so long


@asynccontextmanager
async def open_explainer(
    config: Config, key_id: str, user: str, view: str, address: str
) -> AsyncIterator[tuple[Explainer, Caller, StoredKey | None]]:
    """Open a gateway without clients; start only servers whose tools are unknown.

    The caller has the key `key_id`, or is `user`. An `address` limits the servers to its own.
    """
    from interlock.gateway.definitions.pinning import make_pinning
    from interlock.gateway.explain.explainer import Explainer, credentials_of, reading_approvals
    from interlock.gateway.forwarding.server import ForwardingServer
    from interlock.gateway.logins.vault import Vault
    from interlock.gateway.parts import make_parts
    from interlock.store.credentials import CredentialStore
    from interlock.store.database.key_loading import load_key
    from interlock.store.database.key_owner import open_owned
    from interlock.store.pins import PinStore
    from interlock.store.plugins import PluginStore

    own_limits: dict[str, JsonObject] = {}
    parts = make_parts(config, os.environ, own_limits=own_limits)
    location = database_of(config)
    secret = await load_key(location)
    database = await open_owned(location, secret)
    try:
        caller, key = await _caller(database, key_id, user, view)
        if key is not None and key.limits:
            own_limits[key.id] = key.limits
        await _load_limits(parts.limiter, database)
        await parts.plugins.load(PluginStore(database))
        vault = Vault(CredentialStore(database, secret), secret)
        credentials = await credentials_of(vault, caller, config.servers)
        servers = _concerned(parts, caller, address)
        has_pins = parts.settings.lock.mode != "off"
        pins = make_pinning(config, parts.settings, database, secret, None) if has_pins else None
        gateway = ForwardingServer(servers, parts.policy, credentials=vault, pins=pins)
        try:
            with working("listing the tools"):
                await gateway.toolbox.restore(idle_timeout=IDLE_TIMEOUT)
                await _start_if_unknown(gateway.toolbox, address)
            known = await PinStore(database).list() if pins is not None else []
            approvals = reading_approvals(database, secret, parts.settings, parts.policy, gateway)
            names = [_name_of(*each) for each in parts.servers.items()]
            explainer = Explainer(
                gateway, parts.policy, parts.limiter, credentials, known, approvals, names
            )
            yield explainer, caller, key
        finally:
            await gateway.toolbox.close()
    finally:
        await database.close()


async def _start_if_unknown(toolbox: Toolbox, address: str) -> None:
    """Start the server of a tool, unless its last list has the tool."""
    server, _, name = address.partition(":")
    upstream = toolbox.upstreams.get(server)
    if not name or upstream is None:
        return
    known = {each.tool.name for each in upstream.entries} | {
        each.name for each in upstream.unusable
    }
    if name not in known and not upstream.status.starts:
        await upstream.start()


def _concerned(parts: Parts, caller: Caller, address: str) -> Servers:
    """Return the servers whose tools the explanation needs."""
    view = parts.settings.views.get(caller.principal.view if caller.principal else "")
    if not address or (view is not None and view.names == "plain"):  # names may clash
        return parts.servers
    server = address.partition(":")[0]
    return {name: each for name, each in parts.servers.items() if _name_of(name, each) == server}


def _name_of(key: str, server: object) -> str:
    return getattr(server, "namespace", "") or key


async def _caller(
    database: Database, key_id: str, user: str, view: str
) -> tuple[Caller, StoredKey | None]:
    from msgspec.structs import replace

    from interlock.auth.key_ring import principal_of
    from interlock.auth.principal import Principal, principal_id
    from interlock.calls import Caller
    from interlock.store import KeyStore

    if user:
        return Caller(Principal(principal_id(user), frozenset({"mcp:*"}), view=view)), None
    key = await KeyStore(database).get(key_id)
    principal = principal_of(key)
    return Caller(replace(principal, view=view or principal.view)), key


async def _load_limits(limiter: Limiter, database: Database) -> None:
    """Load the stored use of quotas; a gateway keeps the use of rates only in memory."""
    from interlock.layers.quotas import Quotas
    from interlock.store.quotas import QuotaStore

    await Quotas(QuotaStore(database), lambda: limiter.days).load()
