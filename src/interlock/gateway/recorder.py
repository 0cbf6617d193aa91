"""The observer that counts a gateway's events in metrics and records them in the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from interlock.auth.gateway_auth import RefusedCredential
from interlock.auth.principal import Principal
from interlock.auth.stored_key import TENANT
from interlock.calls import Call, Caller, Entry, Item
from interlock.context import Context
from interlock.errors import CallRefused
from interlock.gateway.forwarding.refusals import UNKNOWN
from interlock.gateway.observer import GatewayObserver
from interlock.layers.audit import LOCAL_USER, AuditTrail
from interlock.layers.exposition import Gauge
from interlock.layers.metrics import Metrics, error_of
from interlock.policy import Policy
from interlock.server.catalogue import Kind
from interlock.store.credentials import Place
from interlock.store.database.claims import Claim
from interlock.store.database.recorded import Record
from interlock.telemetry import names
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.auth.stored_authorization import StoredAuthorization

_UNKNOWN: dict[Kind, str] = {  # codes for the audit trail and the metrics
    "tools": UNKNOWN,
    "prompts": "unknown_prompt",
    "resources": "unknown_resource",
    "resourceTemplates": "unknown_resource",
}


class GatewayRecorder(GatewayObserver):
    """Counts refusals in metrics, and records events in the audit trail if there is one.

    Args:
        trail: The audit trail; None if it is off.
        policy: Returns the current policy.
        gauges: Returns further metrics; see `Metrics`.
        transport: Returns the transport to a server; see `Metrics`.

    Attributes:
        metrics: The metrics in which refusals are counted.
    """

    def __init__(
        self,
        trail: AuditTrail | None,
        policy: Callable[[], Policy],
        gauges: Callable[[], Mapping[str, Gauge]],
        transport: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.metrics = Metrics(self.call_failed, gauges, transport)
        self._trail = trail
        self._policy = policy

    # Methods of `GatewayObserver`

    def credential_refused(self, refused: RefusedCredential) -> None:
        self.metrics.note_refusal(refused.reason, "" if refused.key is None else refused.key.id)
        if self._trail is not None:
            self._trail.credential_refused(refused)

    def not_admitted(self, principal: Principal | None, error: CallRefused) -> None:
        self.metrics.note_refusal(error.reason, _key_of(principal))
        if self._trail is not None:
            self._trail.refused(Caller(principal, surface="mcp"), error.reason)

    def unknown(self, caller: Caller, kind: Kind, name: str, entry: Entry | Item | None) -> None:
        decision = None if entry is None else self._policy().decide(caller, entry)
        reason, rule = _UNKNOWN[kind], ""
        if decision is not None and decision.effect == "deny":
            reason, rule = decision.reason, decision.rule
        self.metrics.note_refusal(reason, _key_of(caller.principal))
        if self._trail is not None:
            self._trail.refused(caller, reason, entry=entry, name=name, rule=rule)

    def unavailable(
        self, caller: Caller, reason: str, entry: Entry | Item | None, name: str, call: str
    ) -> None:
        self.metrics.note_refusal(reason, _key_of(caller.principal))
        if self._trail is not None:
            self._trail.refused(caller, reason, entry=entry, name=name, call=call)

    def answered(
        self, method: str, context: Context, seconds: float, error: BaseException | None
    ) -> None:
        reason = context.error_type if error is None else error_of(error)
        transport = "tcp" if context.address else "pipe"
        labels = (_known(method), context.called, reason, context.revision, transport)
        self.metrics.note_served(labels, seconds)

    def requested(
        self, server: str, method: str, revision: str, seconds: float, error: BaseException | None
    ) -> None:
        reason = "" if error is None else error_of(error)
        self.metrics.note_sent((_known(method), "", reason, revision, server), seconds)

    def call_failed(self, call: Call, error: BaseException) -> None:
        # The layer `counting` has already counted this call.
        if self._trail is not None:
            self._trail.note_refusal(call, error)

    def task_changed(self, caller: Caller, entry: Entry, call: str, event: str) -> None:
        if self._trail is not None:
            user = caller.principal.id if caller.principal is not None else LOCAL_USER
            tool, server = entry.address, entry.server
            self._trail.note(
                "task", {"event": event}, user=user, server=server, tool=tool, call=call
            )

    # Users' credentials

    def credential_changed(self, action: str, by: str, place: Place) -> None:
        """Record that a user's credential was changed."""
        if self._trail is not None:
            body = {"action": action, "name": place.name, "of": place.user}
            self._trail.note("credential", body, user=by, server=place.server)

    def recording(self, action: str, by: Principal) -> Record | None:
        """Return a function that stores a change with its audit record; None without a trail."""
        trail = self._trail
        if trail is None:
            return None

        async def record(claim: Claim, place: Place) -> None:
            body = {"surface": "api", "action": action, "name": place.name, "of": place.user}
            await trail.record("credential", body, by, server=place.server, claim=claim)

        return record

    # Clients of the front door

    def client_decided(self, action: str, person: Principal, client: str = "") -> None:
        """Record that a person allowed or denied a client, or has signed in at an issuer."""
        if self._trail is not None:
            body = {"action": action, "client": client}
            self._trail.record_soon("client", {n: v for n, v in body.items() if v}, person)

    def recording_client(
        self, action: str, of: StoredAuthorization, reason: str = ""
    ) -> Record | None:
        """Return a function that changes an authorization with its audit record.

        Args:
            action: "redeemed" or "ended".
            reason: Why it ended; "" if it did not.
        """
        trail = self._trail
        if trail is None:
            return None
        tenant = "" if of.tenant == TENANT else of.tenant
        principal = Principal(of.user, key_id=of.id, tenant=tenant)
        body = {"action": action, "client": of.client, "authorization": of.id, "of": of.user}
        if reason:
            body["why"] = reason

        async def record(claim: Claim, *_: object) -> None:
            await trail.record("client", body, principal, claim=claim)

        return record

    # The configuration

    def configured(self, before: JsonObject | None, after: JsonObject) -> None:
        """Record that a configuration replaced an earlier one; `before` is None at the start."""
        if self._trail is not None:
            self._trail.note("config", {"before": before, "after": after})


def _key_of(principal: Principal | None) -> str:
    return "" if principal is None else principal.key_id


def _known(method: str) -> str:
    return method if method in names.METHODS else names.OTHER
