"""The parts of a gateway that depend on its configuration; a reload replaces them together."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.bearer import check_url
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.issuers import Issuers, TrustedIssuer
from interlock.config import (
    Config,
    GatewaySettings,
    HttpServer,
    OpenApiConfig,
    ServerConfig,
    StdioServer,
)
from interlock.config.gateway import Rate
from interlock.config.gateway_reading import resolve
from interlock.gateway.manifests import Plugins, with_plugins
from interlock.layers import Layers
from interlock.layers.audit import AuditTrail
from interlock.layers.fair_queue import FairQueue, queued
from interlock.layers.limits import Limiter
from interlock.layers.results import ResultLimits
from interlock.policy import Policy
from interlock.schema.condition import Condition
from interlock.text.surrogates import path_text
from interlock.toolbox.user_credentials import needs_of
from interlock.transports import InProcessServer
from interlock.types import JsonObject

# Members of `gateway` that take effect only after a restart, by field.
FIXED = {
    "listen": "listen",
    "public_url": "publicUrl",
    "hosts": "hosts",
    "proxies": "proxies",
    "cors": "cors",
    "headers": "headers",
    "sse": "sse",
    "database": "database",
    "audit": "audit",
    "admin": "admin",
    "chat": "chat",
    "instructions": "instructions",
}
_FIXED_KEEP = ("audit", "approvals")  # the same for members of `gateway.keep`
_QueueSize = tuple[str, int, int]  # a server's name, its slots, and how many calls may wait

Servers = Mapping[str, ServerConfig | InProcessServer]


class Parts(Struct, frozen=True):
    """The parts of a gateway that depend on its configuration; a reload replaces them together.

    Attributes:
        written: The configuration as read from the file.
        config: The configuration, including the plugins' tools.
        settings: The member `gateway`, with variables replaced.
        servers: The servers; see `Toolbox`.
        policy: Decides which tools a caller may call.
        limiter: Limits how often callers may call.
        queues: Each server's queue, keyed by the server's name and the queue's size.
        issuers: The issuers whose tokens are accepted in addition to keys; None if only keys are.
        plugins: The plugins, whose tools are offered to users who installed them.
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
    """Return a configuration's servers, for a `Toolbox`."""
    return {name: _served(each) for name, each in config.servers.items()}


def transport_to(config: Config, server: str) -> str:
    """Return the transport to a server in the words of OpenTelemetry; "" in this process."""
    found = config.servers.get(server)
    if isinstance(found, StdioServer):
        return "pipe"
    return "tcp" if isinstance(found, HttpServer | OpenApiConfig) else ""


def make_parts(
    config: Config,
    environ: Mapping[str, str],
    before: Parts | None = None,
    *,
    own_limits: Mapping[str, JsonObject] | None = None,
) -> Parts:
    """Make the parts for a configuration; counts of calls carry over where limits are unchanged.

    Args:
        config: The configuration.
        environ: The values for `${VAR}`.
        before: The parts to replace, whose counts carry over; None at the start.
        own_limits: The limits of individual keys; see `Limiter`. If `before` is given, its limits
            are used instead.

    Raises:
        ConfigError: The configuration cannot be used.
    """
    settings = resolve(config, environ)
    if before is not None:
        config = _with_last_good(config, before.written)
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


def _with_last_good(config: Config, before: Config) -> Config:
    """Return the configuration with the earlier definitions of servers that are ignored now."""
    taken = {each.namespace or name for name, each in config.servers.items()}
    kept = {
        name: server
        for name, server in before.servers.items()
        if name in config.ignored and (server.namespace or name) not in taken
    }
    noted = (f"server {name!r} keeps its last good definition" for name in kept)
    return replace(config, servers={**config.servers, **kept}, warnings=(*config.warnings, *noted))


def described_parts(parts: Parts) -> JsonObject:
    """Return a summary of a configuration for the audit trail, without secrets."""
    return {
        "file": path_text(parts.config.path or ""),
        "servers": sorted(parts.servers),
        "views": sorted(parts.settings.views),
        "policy": parts.policy.hash,
        "plugins": {each.name: each.version for each in parts.plugins.found},
    }


def configuration_hash(config: Config, secret: GatewayKey) -> str:
    """Return a keyed hash of a configuration. Comments, whitespace and addresses do not change it.

    Gateways of one database listen at different addresses, with the same configuration.
    """
    settings = config.gateway
    if settings is not None:
        settings = replace(settings, listen=None, admin=None)
    said = (config.servers, settings)
    encoded = msgspec.json.encode(said, enc_hook=_document, order="deterministic")
    return hmac.digest(secret.derive("configuration"), encoded, "sha256").hex()[:16]


def _document(value: object) -> object:
    return value.document if isinstance(value, Condition) else str(value)


def layers_of(parts: Parts, trail: AuditTrail | None) -> Layers:
    """Return a configuration's layers, except those that count, record or ask.

    Args:
        parts: The parts of the configuration.
        trail: The audit trail; None if it is off.
    """
    return Layers(
        admit=parts.limiter.admit,
        policy=parts.policy,
        limits=parts.limiter.around,
        queue=queued({server: queue for (server, *_), queue in parts.queues.items()}),
        trail=None if trail is None else trail.calls,
    )


def restart_needed(started: GatewaySettings, now: GatewaySettings) -> list[str]:
    """Return the names of changed settings that take effect only after a restart."""
    fixed = [
        name for field, name in FIXED.items() if getattr(started, field) != getattr(now, field)
    ]
    if (started.oauth is None) != (now.oauth is None):
        fixed.append("auth.oauth")
    times = [each for each in _FIXED_KEEP if getattr(started.keep, each) != getattr(now.keep, each)]
    return fixed + [f"keep.{each}" for each in times]


def servers_by_name(config: Config) -> dict[str, ServerConfig]:
    """Return a configuration's servers, keyed by their names in addresses."""
    return {each.namespace or name: each for name, each in config.servers.items()}


def sharing_of(config: Config, server: str) -> str:
    """Return a server's `sharing`: which callers may use the same connection."""
    return getattr(servers_by_name(config).get(server), "sharing", "shared")


def personal_servers(config: Config) -> frozenset[str]:
    """Return the servers that may need a credential of the calling user."""
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
    """Return a server for a toolbox; only its fair queue then limits concurrent calls."""
    return replace(server, concurrency=max(server.concurrency, server.limits.concurrent or 0))


def _issuers(settings: GatewaySettings, before: Parts | None) -> Issuers | None:
    if before is not None and before.settings.issuers == settings.issuers:
        return before.issuers
    if not any(each.audience for each in settings.issuers):
        return None
    from interlock.auth.jwt import JwtVerifier

    return Issuers(
        [
            TrustedIssuer(
                each.issuer,
                JwtVerifier(
                    issuer=each.issuer, audience=each.audience, jwks_url=each.jwks_url or None
                ),
                each.groups,
                each.scopes,
                each.name,
                each.is_only,
            )
            for each in settings.issuers
            if each.audience
        ]
    )
