"""A configuration becomes a gateway: its servers, policy, limits, keys and audit trail.

    config -> Parts -> Gateway          once at the start, and again for each reload

The layers of a call, from the outside: the record of refusals, policy, limits, the fair queue of
its server, the audit trail.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.bearer import check_url
from interlock.auth.gateway_auth import GatewayAuth, RefusedCredential
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.issuers import Issuers, TrustedIssuer
from interlock.auth.key_ring import KeyRing
from interlock.calls import Around, Call
from interlock.calls.audit import AuditTrail
from interlock.calls.fair_queue import FairQueue, queued
from interlock.calls.limits import Limiter
from interlock.config import Config, PythonServer, ServerConfig
from interlock.config import Gateway as Settings
from interlock.config.gateway import Record
from interlock.config.gateway_reading import resolve
from interlock.errors import ConfigError
from interlock.gateway.gateway import Gateway
from interlock.policy import Policy
from interlock.store.audit import AuditWriter
from interlock.store.keys import KeyStore
from interlock.store.location import folder_beside
from interlock.transports import InProcessServer, Transport

IDLE_TIMEOUT = 3.0  # seconds without a server getting ready; then the others are served
LOCAL = "local"  # the user of a key that is valid for one run only

_log = logging.getLogger("interlock.gateway")

Servers = Mapping[str, ServerConfig | InProcessServer]


class Parts(Struct, frozen=True):
    """What a configuration says about calls.

    Attributes:
        config: The configuration.
        settings: Its member `gateway`, with variables replaced.
        servers: As for `Toolbox`.
        policy: Who may call what.
        limiter: How often.
        queues: The slots of each server.
        trail: Records the calls; None if audit is off.
    """

    config: Config
    settings: Settings
    servers: Servers
    policy: Policy
    limiter: Limiter
    queues: Mapping[str, FairQueue]
    trail: AuditTrail | None

    @property
    def outside(self) -> list[Around]:
        """The layers outside of the policy."""
        return [self.trail.refusals] if self.trail is not None else []

    @property
    def around(self) -> list[Around]:
        """The layers inside of the policy."""
        inner = [self.trail.calls] if self.trail is not None else []
        return [self.limiter.around, queued(self.queues), *inner]


class Assembly:
    """A gateway, and what it needs beside it.

    Attributes:
        gateway: Answers the requests.
        keys: The API keys.
        parts: What the configuration says now.
    """

    def __init__(
        self, parts: Parts, keys: KeyRing, environ: Mapping[str, str], secret: GatewayKey
    ) -> None:
        self.parts = parts
        self.keys = keys
        self._environ = environ
        self._issuers = _issuers(parts.settings)
        self.gateway = Gateway(
            parts.servers,
            parts.policy,
            environ=environ,
            around=parts.around,
            outside=parts.outside,
            admit=parts.limiter.admit,
            instructions=parts.settings.instructions or None,
            sealing_key=secret.derive("seal"),
            idle_timeout=IDLE_TIMEOUT,
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls, config: Config, *, environ: Mapping[str, str] | None = None
    ) -> AsyncIterator[Assembly]:
        """Open the database, and make a gateway of a configuration. No server is started yet.

        Raises:
            ConfigError: The configuration or the gateway's key cannot be used.
            StoreError: The database cannot be used.
        """
        environ = os.environ if environ is None else environ
        settings = settings_of(config, environ)
        location = settings.database or None
        secret = GatewayKey.load(folder_beside(location))
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(KeyStore.open(location))
            keys = await stack.enter_async_context(KeyRing(store).running())
            writer = None
            if settings.audit.mode != "off":
                writer = await stack.enter_async_context(AuditWriter.open(location))
            parts = make_parts(config, settings, writer, secret)
            if parts.trail is not None:
                stack.callback(parts.trail.flush)
            yield cls(parts, keys, environ, secret)

    # Callers

    @property
    def views(self) -> Sequence[str]:
        """The names of the views."""
        return list(self.parts.settings.views)

    def authenticator(self, resource: str, view: str = "") -> GatewayAuth:
        """Return what identifies the callers at a path.

        Args:
            resource: The public URL of the path.
            view: The view at the path; "" for none.
        """
        return GatewayAuth(
            self.keys, self._issuers, resource=resource, view=view, on_refused=self._refused
        )

    def _refused(self, refused: RefusedCredential) -> None:
        if self.parts.trail is not None:
            self.parts.trail.credential_refused(refused)

    def key_for_this_run(self) -> str | None:
        """Return a new key that is not stored; None if the database has keys."""
        return None if len(self.keys) else self.keys.issue(LOCAL, ["mcp:*"])

    @property
    def has_callers(self) -> bool:
        """Whether any credential exists: a key, or an issuer of tokens."""
        return bool(len(self.keys)) or self._issuers is not None


# Parts


def settings_of(config: Config, environ: Mapping[str, str]) -> Settings:
    """Return the member `gateway` with variables replaced; its defaults if there is none.

    Raises:
        ConfigError: A variable is not set.
    """
    return resolve(config.gateway or Settings(), environ)


def check(config: Config, environ: Mapping[str, str] | None = None) -> Servers:
    """Check a configuration as far as that is possible without a database; return its servers.

    Raises:
        ConfigError: It cannot be served.
    """
    settings = settings_of(config, os.environ if environ is None else environ)
    Policy.from_config(config)
    _issuers(settings)
    if settings.public_url:
        check_url(settings.public_url, "gateway.publicUrl")
    return servers_of(config)


def servers_of(config: Config) -> Servers:
    """Return the servers of a configuration, as for `Toolbox`."""
    return {name: _served(each) for name, each in {**config.servers, **config.python}.items()}


def make_parts(
    config: Config, settings: Settings, writer: AuditWriter | None, secret: GatewayKey
) -> Parts:
    """Make the parts of a configuration."""
    policy = Policy.from_config(config)
    every = {**config.servers, **config.python}
    rates = {
        each.namespace or name: each.limits.rate
        for name, each in every.items()
        if each.limits.rate is not None
    }
    trail = None
    if writer is not None:
        trail = AuditTrail(
            writer,
            secret.derive("arguments"),
            settings.audit,
            risk=lambda call: policy.risk(call.entry),
            record=_record(policy, settings),
        )
    return Parts(
        config,
        settings,
        servers_of(config),
        policy,
        Limiter(settings.limits, rates),
        {each.namespace or name: _queue(name, each, settings) for name, each in every.items()},
        trail,
    )


def _queue(name: str, server: ServerConfig | PythonServer, settings: Settings) -> FairQueue:
    limits = server.limits
    size = settings.limits.queue if limits.queue is None else limits.queue
    return FairQueue(server.namespace or name, limits.concurrent or server.concurrency, size)


def _served(server: ServerConfig | PythonServer) -> ServerConfig | InProcessServer:
    """Return a server for a toolbox; its fair queue is the only limit on calls at once."""
    if isinstance(server, PythonServer):
        return PythonObject(server.object)
    return replace(server, concurrency=max(server.concurrency, server.limits.concurrent or 0))


class PythonObject(Struct, frozen=True):
    """A server that is an object of a module, imported when it is first connected to.

    Attributes:
        name: "package.module:name".
    """

    name: str

    def connect(self) -> Transport:
        """Connect to the object.

        Raises:
            ConfigError: It cannot be imported, or is not a server.
        """
        module, _, attribute = self.name.partition(":")
        try:
            found: Any = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # whatever the module raises
            raise ConfigError(f"{self.name} cannot be imported: {error}") from error
        if not callable(getattr(found, "connect", None)):
            raise ConfigError(f"{self.name} is not a server; it has no method connect()")
        transport: Transport = found.connect()
        return transport


def _record(policy: Policy, settings: Settings) -> Any:
    """Return how the arguments of a call are recorded, if any rule says so; else None."""
    rules = settings.policy.rules if settings.policy is not None else ()
    if all(rule.record is None for rule in rules):
        return None

    def record(call: Call) -> Record:
        decision = policy.decide(call.caller, call.entry, call.arguments)
        return decision.record or settings.audit.arguments

    return record


def _issuers(settings: Settings) -> Issuers | None:
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
