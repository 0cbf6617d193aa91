"""A configuration becomes a gateway: its servers, policy, limits, keys and audit trail.

config -> Parts -> ForwardingServer  once at the start, and again for each reload
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from interlock import __version__
from interlock.auth.gateway_auth import GatewayAuth, RefusedCredential
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.auth.principal import Principal
from interlock.calls import Call, Caller, Entry, Item
from interlock.config import Config, ServerConfig
from interlock.config.gateway import Audit, GatewaySettings, Issuer
from interlock.errors import CallRefused
from interlock.gateway.client_approvals import ClientQuestions, open_approvals, pin_in
from interlock.gateway.definitions.pinning import make_pinning
from interlock.gateway.explain.explainer import Explainer, credentials_of
from interlock.gateway.explain.explanation import UNKNOWN
from interlock.gateway.forwarding.server import ForwardingServer
from interlock.gateway.health import Health
from interlock.gateway.logins.connect import Logins
from interlock.gateway.logins.vault import Vault
from interlock.gateway.manifests import following
from interlock.gateway.parts import Parts, described_parts, layers_of, limits_of, make_parts
from interlock.gateway.permission_prompts import PermissionPrompts, ask_nobody
from interlock.layers import Layers
from interlock.layers.approvals import Approvals
from interlock.layers.audit import ARGUMENTS_KEY, LOCAL_USER, AuditTrail
from interlock.layers.login_questions import LoginQuestions
from interlock.layers.metrics import Metrics, Samples, by_label
from interlock.layers.quotas import Quotas
from interlock.layers.results import ResultBudget
from interlock.server.catalogue import Kind
from interlock.store.audit.upkeep import open_trail
from interlock.store.audit.writer import AuditWriter
from interlock.store.credentials import CredentialStore, Place
from interlock.store.database.changes import ChangeFeed, note_change
from interlock.store.database.claims import Claim
from interlock.store.database.database import Database, open_database
from interlock.store.database.location import folder_beside
from interlock.store.database.recorded import Record
from interlock.store.kept_results import KeptResultStore
from interlock.store.keys import KeyStore
from interlock.store.pins import PinStore
from interlock.store.plugins import PluginStore
from interlock.store.quotas import QuotaStore
from interlock.text.timestamps import now_micros
from interlock.toolbox.user_credentials import needs_of
from interlock.types import JsonObject

IDLE_TIMEOUT = 3.0  # seconds without a server getting ready; then the others are served
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
_UNKNOWN: dict[Kind, str] = {  # reasons that the trail and the metrics have
    "tools": UNKNOWN,
    "prompts": "unknown_prompt",
    "resources": "unknown_resource",
    "resourceTemplates": "unknown_resource",
}
LOCAL = "local"  # the user of a key that is valid for one run only


class Assembly:
    """A gateway, and what it needs beside it.

    Attributes:
        gateway: Answers the requests.
        keys: The API keys.
        approvals: The approvals of calls.
        approval_questions: How clients are asked to approve their own calls.
        parts: What the configuration says now.
        started: The settings at the start; those in `FIXED` stay in use.
        metrics: What is counted.
        pins: Which definitions are accepted.
        database: Where keys, sessions and the audit trail are.
        vault: The credentials of users for servers.
        logins: Those that users are making now.
        results: The budget of results; it also reads those that are kept.
        secret: The gateway's key.
        environ: Where variables of the configuration are looked up.
        loaded_at: When the configuration was read, in microseconds since 1970.
        on_reload: Called after the configuration was replaced.
        on_failed: Called once, when no call can be recorded until the process is restarted.
        has_failed: This has happened.
    """

    def __init__(
        self,
        parts: Parts,
        keys: KeyRing,
        database: Database,
        writer: AuditWriter | None,
        environ: Mapping[str, str],
        secret: GatewayKey,
        kept: KeptResultStore,
        approvals: Approvals,
    ) -> None:
        self.parts = parts
        self.started = parts.settings
        self.parts.limiter.own = keys.limits
        self.keys = keys
        self.approvals = approvals
        self.approval_questions = ClientQuestions()
        self.metrics = Metrics(self._note_refused_call)
        self.on_reload: Callable[[], None] = lambda: None
        self.on_failed: Callable[[], None] = lambda: None
        self.has_failed = False
        self.database = database
        self.environ = environ
        self.secret = secret
        self.loaded_at = now_micros()
        self._writer = writer
        self._reloading = asyncio.Lock()
        self.trail: AuditTrail | None = None
        if writer is not None:
            self.trail = make_trail(writer, secret, parts.settings.audit)
        self.vault = Vault(
            CredentialStore(database, secret),
            secret,
            self._note_credential,
            self._recording_credential,
        )
        self.logins = Logins(self.vault, self._configured, environ)
        self._questions = LoginQuestions(self.vault)
        self.results = ResultBudget(kept, limits_of(parts))
        self.metrics.gauges["interlock_kept_bytes"] = (
            "Bytes of large results that are kept for their users.",
            lambda: {(): float(kept.bytes)},
        )
        self._prompts = PermissionPrompts(self._deciding)
        self._instead = {self._prompts.address: self._prompts.answer}
        self.pins = make_pinning(parts.config, parts.settings, database, secret, self.trail)
        self.gateway = self._make_gateway(parts)
        self.vault.upstreams = lambda: self.gateway.toolbox.upstreams
        approvals.pin_of = pin_in(self.gateway.toolbox)
        self._add_gauges(writer)

    def _make_gateway(self, parts: Parts) -> ForwardingServer:
        return ForwardingServer(
            parts.servers,
            parts.policy,
            environ=self.environ,
            layers=self._layers_of(parts),
            on_not_admitted=self._not_admitted,
            instructions=parts.settings.instructions or None,
            sealing_key=self.secret.derive("seal"),
            idle_timeout=IDLE_TIMEOUT,
            credentials=self.vault,
            results=self.results,
            own_tools=[self._prompts.tool],
            pins=self.pins,
            on_unknown=self._unknown,
            on_refused=self._refused_tool,
            on_task=self._note_task,
            refuses_clashes=True,
        )

    def _add_gauges(self, writer: AuditWriter | None) -> None:
        gauges = self.metrics.gauges
        gauges["interlock_queue_depth"] = ("Calls that wait for a server.", self._queue_depth)
        gauges["interlock_instances"] = ("Open connections to servers.", self._instances)
        gauges["interlock_pins"] = (
            "Definitions of tools, prompts and servers.",
            lambda: by_label("state", self.pins.states),
        )
        gauges["interlock_parked"] = (
            "Calls that wait for answers of their client.",
            lambda: {(): float(self.gateway.parked)},
        )
        gauges["interlock_approvals"] = (
            "Approvals of calls that are kept.",
            lambda: by_label("state", self.approvals.counts),
        )
        gauges["interlock_dropped_total"] = (
            "Messages and requests that were dropped.",
            lambda: by_label("reason", self.gateway.dropped),
        )
        if writer is not None:
            gauges["interlock_audit_lag_seconds"] = (
                "Age of the oldest record that is not on the disk yet.",
                lambda: {(): writer.lag},
            )
            gauges["interlock_audit_rows_total"] = (
                "Audit records written.",
                lambda: {(): float(writer.rows)},
            )
            gauges["interlock_audit_lost_total"] = (
                "Audit records that were lost.",
                lambda: {(): float(writer.dropped)},
            )

    def _queue_depth(self) -> Samples:
        waiting = {server: queue.waiting for (server, *_), queue in self.parts.queues.items()}
        return by_label("server", waiting)

    def _instances(self) -> Samples:
        return {
            (("server", name), ("sharing", self.sharing(name))): float(each.connections)
            for name, each in self.gateway.toolbox.status.items()
        }

    def sharing(self, server: str) -> str:
        """Return who may use one connection to a server."""
        for name, each in self.parts.config.servers.items():
            if (each.namespace or name) == server:
                return getattr(each, "sharing", "shared")
        return "shared"

    def audit_state(self) -> JsonObject:
        """Return the mode of the audit trail and how far its writer is."""
        state: JsonObject = {"mode": self.started.audit.mode}
        if self._writer is None:
            return state
        writer = self._writer
        return state | {
            "writer": writer.id,
            "head": {"seq": writer.head.seq, "hash": writer.head.hash.hex()},
            "records": writer.rows,
            "lost": writer.dropped,
            "lag": round(writer.lag, 3),
        }

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
        parts = make_parts(config, environ)
        location = parts.settings.database or None
        secret = GatewayKey.load(folder_beside(location))
        async with AsyncExitStack() as stack:
            database = await open_database(location)
            stack.push_async_callback(database.close)
            feed = await stack.enter_async_context(ChangeFeed(database).running())
            keys = await stack.enter_async_context(KeyRing(KeyStore(database)).running(feed))
            writer, audit = None, parts.settings.audit
            if audit.mode != "off":
                about = {"version": __version__}
                trail = open_trail(
                    location, secret, audit, about=about, on_failed=lambda: assembly._failed()
                )
                writer = await stack.enter_async_context(trail)
            kept = await stack.enter_async_context(
                KeptResultStore.beside(
                    location, secret, lambda: assembly.parts.settings.results, database
                )
            )
            approvals = await stack.enter_async_context(
                open_approvals(
                    *(database, location, secret, writer),
                    settings=lambda: assembly.parts.settings.approvals,
                    policy=lambda: assembly.parts.policy,
                )
            )
            await stack.enter_async_context(approvals.running(feed))
            assembly = cls(parts, keys, database, writer, environ, secret, kept, approvals)
            if assembly.trail is not None:
                stack.callback(assembly.trail.flush)
            assembly._record_configuration(None)
            quotas = Quotas(QuotaStore(database), lambda: assembly.parts.limiter.days)
            await stack.enter_async_context(quotas.running())
            await stack.enter_async_context(assembly.vault.running(feed))
            stack.push_async_callback(assembly.logins.close)
            await stack.enter_async_context(assembly.pins.following(feed))
            await stack.enter_async_context(assembly._following_plugins(feed))
            yield assembly

    def _failed(self) -> None:
        self.has_failed = True
        self.on_failed()

    # The configuration

    async def reload(self, config: Config) -> list[str]:
        """Replace the configuration. Calls under way end as they began.

        Returns:
            The members whose change needs a restart.

        Raises:
            ConfigError: The configuration cannot be used. Nothing was replaced.
        """
        async with self._reloading:
            return await self._reload(config)

    def _following_plugins(self, feed: ChangeFeed) -> AbstractAsyncContextManager[None]:
        return following(
            feed,
            PluginStore(self.database),
            lambda: self.parts.plugins,
            lambda: self.gateway.rights_changed(),
            self._read_plugins,
        )

    async def _read_plugins(self) -> None:
        async with self._reloading:
            await self._reload(self.parts.written)

    async def _reload(self, config: Config) -> list[str]:
        described = described_parts(self.parts)
        parts = make_parts(config, self.environ, self.parts)
        parts.limiter.own = self.keys.limits
        if parts.plugins.found:
            await parts.plugins.load(PluginStore(self.database))
        await self.gateway.replace(
            parts.servers,
            parts.policy,
            layers=self._layers_of(parts),
        )
        self.results.limits = limits_of(parts)
        self.loaded_at = now_micros()
        self.parts = parts  # in the step that replaced the servers
        self._record_configuration(described)
        await self.pins.replace(parts.settings.lock, self.gateway.toolbox.upstreams)
        self.on_reload()
        return self.restart_needed(parts.settings)

    def restart_needed(self, settings: GatewaySettings) -> list[str]:
        """Return the members that differ from those in use and need a restart."""
        return [
            name
            for field, name in FIXED.items()
            if getattr(self.started, field) != getattr(settings, field)
        ]

    def _record_configuration(self, before: JsonObject | None) -> None:
        if self.trail is not None:
            self.trail.note("config", {"before": before, "after": described_parts(self.parts)})

    @property
    def layers(self) -> Layers:
        """The layers of every call, for calls beside the toolbox of the gateway."""
        return self._layers_of(self.parts)

    def _layers_of(self, parts: Parts) -> Layers:
        personal = frozenset(  # servers that may need a credential of the user who calls
            each.namespace or name
            for name, each in parts.config.servers.items()
            if needs_of(each) or each.sharing != "shared"
        )
        asks = parts.policy.asks
        return replace(
            layers_of(parts, self.trail),
            counting=self.metrics.calls,
            instead=self._instead,
            approval=self.approvals.around(self.approval_questions) if asks else None,
            login=self._questions.around(personal) if personal else None,
        )

    def _deciding(self) -> Layers:
        """Return the layers that decide about a tool of Claude Code."""
        return replace(
            layers_of(self.parts, self.trail),
            refusals=None if self.trail is None else self.trail.refusals,
            approval=self.approvals.around(ask_nobody),
        )

    def _configured(self) -> Mapping[str, ServerConfig]:
        """Return the servers of the file by their names in addresses."""
        return {each.namespace or name: each for name, each in self.parts.config.servers.items()}

    def _note_credential(self, action: str, by: str, place: Place) -> None:
        if self.trail is not None:
            body = {"action": action, "name": place.name, "of": place.user}
            self.trail.note("credential", body, user=by, server=place.server)

    def _recording_credential(self, action: str, by: Principal) -> Record | None:
        trail = self.trail
        if trail is None:
            return None

        async def record(claim: Claim, place: Place) -> None:
            body = {"surface": "api", "action": action, "name": place.name, "of": place.user}
            await trail.record("credential", body, by, server=place.server, claim=claim)

        return record

    def _not_admitted(self, principal: Principal | None, error: CallRefused) -> None:
        self.metrics.note_refusal(error.reason, _key_of(principal))
        if self.trail is not None:
            self.trail.refused(Caller(principal, surface="mcp"), error.reason)

    def _note_refused_call(self, call: Call, error: BaseException) -> None:
        if self.trail is not None:
            self.trail.note_refusal(call, error)

    def _unknown(self, caller: Caller, kind: Kind, name: str, entry: Entry | Item | None) -> None:
        """Record that a caller named what does not exist, or not for this caller."""
        decision = None if entry is None else self.parts.policy.decide(caller, entry)
        reason, rule = _UNKNOWN[kind], ""
        if decision is not None and decision.effect == "deny":
            reason, rule = decision.reason, decision.rule
        self.metrics.note_refusal(reason, _key_of(caller.principal))
        if self.trail is not None:
            self.trail.refused(caller, reason, entry=entry, name=name, rule=rule)

    def _refused_tool(
        self, caller: Caller, reason: str, entry: Entry | Item | None, name: str, call: str
    ) -> None:
        """Record a call of a tool that the caller sees, but that cannot be called now."""
        self.metrics.note_refusal(reason, _key_of(caller.principal))
        if self.trail is not None:
            self.trail.refused(caller, reason, entry=entry, name=name, call=call)

    def _note_task(self, caller: Caller, entry: Entry, call: str, event: str) -> None:
        if self.trail is not None:
            user = caller.principal.id if caller.principal is not None else LOCAL_USER
            tool, server = entry.address, entry.server
            self.trail.note(
                "task", {"event": event}, user=user, server=server, tool=tool, call=call
            )

    # Callers

    def authenticator(self, resource: str, view: str = "", scope: str = "mcp:") -> GatewayAuth:
        """Return what identifies the callers at a path.

        Args:
            resource: The public URL of the path.
            view: The view at the path; "" for none.
            scope: One of the scopes must begin with it.
        """
        return GatewayAuth(
            self.keys,
            self.parts.issuers,
            resource=resource,
            view=view,
            scope_prefix=scope,
            on_refused=self.refused,
        )

    def refused(self, refused: RefusedCredential) -> None:
        """Count and record a refused credential."""
        self.metrics.note_refusal(refused.reason, "" if refused.key is None else refused.key.id)
        if self.trail is not None:
            self.trail.credential_refused(refused)

    def key_for_this_run(self) -> str | None:
        """Return a new key that is not stored; None if the database has keys."""
        return None if len(self.keys) else self.keys.issue(LOCAL, ["mcp:*"])

    def login_issuers(self) -> list[Issuer]:
        """Return the issuers at which people can log in to the pages."""
        return [each for each in self.parts.settings.issuers if each.client_id]

    @property
    def has_callers(self) -> bool:
        """Whether any credential exists: a key, or an issuer of tokens."""
        return bool(len(self.keys)) or self.parts.issuers is not None

    async def explainer(self, caller: Caller) -> Explainer:
        """Return what explains the calls of a caller.

        Raises:
            StoreError: The database does not answer.
        """
        parts = self.parts
        lacking = await credentials_of(self.vault, caller, parts.config.servers)
        pins = await PinStore(self.database).list()
        return Explainer(self.gateway, parts.policy, parts.limiter, lacking, pins, self.approvals)

    # Health

    def health(self, is_draining: Callable[[], bool]) -> Health:
        """Return the pages about health."""
        return Health(
            self._probe,
            lambda: list(self.gateway.toolbox.status.values()),
            self._required,
            is_draining,
            lambda name: self.gateway.toolbox.upstreams[name].start_again(),
        )

    async def _probe(self) -> None:
        """Write to the database, which the audit trail is in, too."""
        await self.database.write(lambda connection: note_change(connection, "probe", ""))

    def _required(self) -> frozenset[str]:
        every = self.parts.config.servers
        return frozenset(each.namespace or name for name, each in every.items() if each.required)


def _key_of(principal: Principal | None) -> str:
    return "" if principal is None else principal.key_id


def make_trail(writer: AuditWriter, secret: GatewayKey, settings: Audit) -> AuditTrail:
    """Make the audit trail."""
    return AuditTrail(writer, secret.derive(ARGUMENTS_KEY), settings)
