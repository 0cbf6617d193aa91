"""The parts of a gateway that a configuration decides; a reload replaces them as a whole."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.bearer import check_url
from interlock.auth.issuers import Issuers, TrustedIssuer
from interlock.config import Config, GatewaySettings, ServerConfig
from interlock.config.gateway import Rate
from interlock.config.gateway_reading import resolve
from interlock.gateway.manifests import Plugins, with_plugins
from interlock.layers import Layers
from interlock.layers.audit import AuditTrail
from interlock.layers.fair_queue import FairQueue, queued
from interlock.layers.limits import Limiter
from interlock.layers.results import ResultLimits
from interlock.policy import Policy
from interlock.toolbox.user_credentials import needs_of
from interlock.transports import InProcessServer
from interlock.types import JsonObject

# Members of `gateway` whose change needs a restart, by field.
FIXED = {
    "listen": "listen",
    "public_url": "publicUrl",
    "hosts": "hosts",
    "sse": "sse",
    "database": "database",
    "audit": "audit",
    "admin": "admin",
    "chat": "chat",
    "instructions": "instructions",
}
_QueueSize = tuple[str, int, int]  # server, slots and calls that may wait

Servers = Mapping[str, ServerConfig | InProcessServer]


class Parts(Struct, frozen=True):
    """The parts that a configuration decides; a reload replaces them as a whole.

    Attributes:
        written: The configuration as it was written.
        config: The configuration with the tools of the plugins.
        settings: The member `gateway`, with variables replaced.
        servers: The servers; see `Toolbox`.
        policy: Decides who may call what.
        limiter: Limits how often calls are made.
        queues: The slots of each server, by their size.
        issuers: The issuers whose tokens are accepted beside keys.
        plugins: Tools for users who have installed them.
    """

    written: Config
    config: Config
    settings: GatewaySettings
    servers: Servers
    policy: Policy
    limiter: Limiter
    queues: Mapping[_QueueSize, FairQueue]
    issuers: Issuers | None
    plugins: Plugins


def servers_of(config: Config) -> Servers:
    """Return the servers of a configuration, for a `Toolbox`."""
    return {name: _served(each) for name, each in config.servers.items()}


def make_parts(
    config: Config,
    environ: Mapping[str, str],
    before: Parts | None = None,
    *,
    own_limits: Mapping[str, JsonObject] | None = None,
) -> Parts:
    """Make the parts of a configuration; counters of calls are kept while their limits stay.

    Args:
        config: The configuration.
        environ: The values of `${VAR}`.
        before: The parts that these replace, for their counters.
        own_limits: The limits of single keys; see `Limiter`. With `before`, its limits are used.

    Raises:
        ConfigError: The configuration cannot be used.
    """
    settings = resolve(config, environ)
    written = config
    config, plugins = with_plugins(config)
    if before is not None:
        plugins.adopt(before.plugins)
    if settings.public_url:
        check_url(settings.public_url, "gateway.publicUrl")
    every = config.servers
    sizes = [_queue_size(name, each, settings) for name, each in every.items()]
    known = before.queues if before is not None else {}
    return Parts(
        written,
        config,
        settings,
        servers_of(config),
        Policy.from_config(config, plugins),
        _limiter(config, settings, before, own_limits),
        {size: known.get(size) or FairQueue(*size) for size in sizes},
        _issuers(settings, before),
        plugins,
    )


def described_parts(parts: Parts) -> JsonObject:
    """Return the description of a configuration for the audit trail, without secrets."""
    return {
        "file": str(parts.config.path or ""),
        "servers": sorted(parts.servers),
        "views": sorted(parts.settings.views),
        "policy": parts.policy.hash,
        "plugins": {each.name: each.version for each in parts.plugins.found},
    }


def layers_of(parts: Parts, trail: AuditTrail | None) -> Layers:
    """Return the layers of a configuration, without those that count, record and ask.

    Args:
        parts: The configuration.
        trail: The audit trail; None for none.
    """
    return Layers(
        admit=parts.limiter.admit,
        policy=parts.policy,
        limits=parts.limiter.around,
        queue=queued({server: queue for (server, *_), queue in parts.queues.items()}),
        trail=None if trail is None else trail.calls,
    )


def restart_needed(started: GatewaySettings, now: GatewaySettings) -> list[str]:
    """Return the members of the settings at the start that stay in use until a restart."""
    return [name for field, name in FIXED.items() if getattr(started, field) != getattr(now, field)]


def servers_by_name(config: Config) -> dict[str, ServerConfig]:
    """Return the servers of a configuration by their names in addresses."""
    return {each.namespace or name: each for name, each in config.servers.items()}


def sharing_of(config: Config, server: str) -> str:
    """Return the sharing of a server: the callers that may use one connection."""
    return getattr(servers_by_name(config).get(server), "sharing", "shared")


def personal_servers(config: Config) -> frozenset[str]:
    """Return the servers that may need a credential of the user who calls."""
    servers = servers_by_name(config).items()
    return frozenset(name for name, each in servers if needs_of(each) or each.sharing != "shared")


def limits_of(parts: Parts) -> ResultLimits:
    """Return the limits on the size of results."""
    return ResultLimits.from_config(parts.config, parts.settings.results)


def _limiter(
    config: Config,
    settings: GatewaySettings,
    before: Parts | None,
    own: Mapping[str, JsonObject] | None,
) -> Limiter:
    rates = _rates(config)
    if before is None:
        return Limiter(settings.limits, rates, own=own)
    limiter = before.limiter
    if before.settings.limits == settings.limits and _rates(before.config) == rates:
        return limiter
    return Limiter(settings.limits, rates, own=limiter.own, days=limiter.days)


def _rates(config: Config) -> dict[str, Rate]:
    return {
        each.namespace or name: each.limits.rate
        for name, each in config.servers.items()
        if each.limits.rate is not None
    }


def _queue_size(name: str, server: ServerConfig, settings: GatewaySettings) -> _QueueSize:
    limits = server.limits
    size = settings.limits.queue if limits.queue is None else limits.queue
    return server.namespace or name, limits.concurrent or server.concurrency, size


def _served(server: ServerConfig) -> ServerConfig:
    """Return a server for a toolbox; its fair queue is the only limit on calls at once."""
    return replace(server, concurrency=max(server.concurrency, server.limits.concurrent or 0))


def _issuers(settings: GatewaySettings, before: Parts | None) -> Issuers | None:
    if before is not None and before.settings.issuers == settings.issuers:
        return before.issuers
    if not settings.issuers:
        return None
    from interlock.auth.jwt import JwtVerifier

    return Issuers(
        [
            TrustedIssuer(
                each.issuer,
                JwtVerifier(issuer=each.issuer, audience=each.audience, jwks_url=each.jwks_url),
                each.groups,
                each.scopes,
            )
            for each in settings.issuers
        ]
    )
