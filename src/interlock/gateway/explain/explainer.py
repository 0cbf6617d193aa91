"""Explanations of calls: each check of a call, with the fact that decided it.

The checks are the functions that a real call runs, in the order of `CHECKS`. A caller must not
learn about a tool that is hidden from them, so a denial by the policy comes before the state of the
tool's server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.stored_key import StoredKey
from interlock.calls import Call, Caller, Entry, Item
from interlock.config import GatewaySettings, ServerConfig
from interlock.config.gateway import OWN
from interlock.errors import StoreError
from interlock.gateway.assembly import Assembly
from interlock.gateway.client_approvals import pin_in
from interlock.gateway.explain.checks import CHECKS, policy_checks
from interlock.gateway.explain.explanation import Check, Effect, ExplainedCall, Explanation
from interlock.gateway.forwarding.refusals import UNKNOWN
from interlock.gateway.forwarding.search_tools import Found
from interlock.gateway.forwarding.server import ForwardingServer
from interlock.gateway.logins.vault import Vault
from interlock.layers.approvals import Approvals
from interlock.layers.audit import ARGUMENTS_KEY
from interlock.layers.limits import Limiter
from interlock.policy import Policy
from interlock.store.approvals import Approval, ApprovalStore
from interlock.store.database.database import Database
from interlock.store.pin import Pin
from interlock.store.pins import PinStore
from interlock.toolbox.names import address as address_of
from interlock.toolbox.user_credentials import needs_of
from interlock.types import JsonObject

_LATE = ("limits", "approval", "credential")  # checks that run only if earlier checks pass
_ENDING = ("key_revoked", "key_expired", "insufficient_scope", UNKNOWN)  # no later check runs
# The checks that hide a tool from its caller.
_HIDDEN = ("plugin", "view", "scope", "read_only", "policy")


class Explainer:
    """Explains calls to a gateway whose servers have been started.

    Args:
        policy: The gateway's policy.
        limiter: The limits on calls; an explanation does not use them up.
        credentials: The caller's credentials, including missing ones, from `Vault.states`.
        pins: The accepted definitions.
        approvals: The stored approvals; None if approvals are not checked.
        servers: The names of all servers; by default, the gateway's servers.
    """

    def __init__(
        self,
        gateway: ForwardingServer,
        policy: Policy,
        limiter: Limiter,
        credentials: Sequence[JsonObject] = (),
        pins: Iterable[Pin] = (),
        approvals: Approvals | None = None,
        servers: Collection[str] = (),
    ) -> None:
        self._toolbox = gateway.toolbox
        self._servers = servers or self._toolbox.upstreams
        self._catalogue = gateway.catalogue
        self._searching = gateway.searching
        self._policy = policy
        self._limiter = limiter
        self._approvals = approvals
        self._credentials = credentials
        self._accepted = {
            each.address: each.decided_at or each.since
            for each in pins
            if each.kind == "tool" and each.state == "accepted"
        }

    async def found_by(self, caller: Caller, query: str, limit: int) -> list[Found]:
        """Return the tools that a model of a caller would find with a query, and why."""
        return await self._searching.explained(query, limit, caller)

    def schema_of(self, address: str) -> JsonObject:
        """Return a tool's input schema; {} if the tool is unknown."""
        entries = self._toolbox.tools
        found = next((each for each in entries if each.address == address), None)
        return {} if found is None else found.tool.input_schema

    async def explain_call(
        self,
        caller: Caller,
        address: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        key: StoredKey | None = None,
    ) -> Explanation:
        """Explain a call, including the approval that it needs; see `explain`.

        Raises:
            StoreError: The database is unavailable.
        """
        question = self._question(caller, address, arguments, key)
        approval = None
        if self._approvals is not None and question.arguments is not None and question.asks:
            call = Call(question.entry, dict(question.arguments), caller)
            found = await self._approvals.standing(call, question.decision)
            approval = None if found is None else (self._approvals.state(found), found)
        return self.explain(caller, address, arguments, key=key, approval=approval)

    def explain(
        self,
        caller: Caller,
        address: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        key: StoredKey | None = None,
        approval: tuple[str, Approval] | None = None,
    ) -> Explanation:
        """Explain a call.

        Args:
            address: The tool's address, "server:name".
            arguments: The call's arguments; None to explain whether the tool is listed.
            key: The caller's API key; None if the caller has no key.
            approval: The state of the newest approval for this call, and the approval.
        """
        question = self._question(caller, address, arguments, key, approval)
        found = [(check, check(question)) for check in CHECKS]
        checks = [each for _, each in found if each is not None]
        decisive = _decisive(checks, question)
        return Explanation(
            *_effect(decisive),
            rule=_rule(decisive, question),
            checks=tuple(_unreached(checks, decisive)),
            decisive=decisive,
            state=_state(question),
            is_uncertain=_is_uncertain(question, decisive),
        )

    def all_tools(
        self, caller: Caller, *, key: StoredKey | None = None
    ) -> Iterator[tuple[str, Explanation]]:
        """Explain for each tool, even an unusable tool, whether it is listed; yield by address."""
        seen = set()
        for upstream in self._toolbox.upstreams.values():
            names = [each.tool.name for each in upstream.entries]
            names += [each.name for each in upstream.unusable]
            names += [] if names or not upstream.obstacle[0] else ["*"]
            for name in names:
                address = address_of(upstream.name, name)
                if address not in seen:
                    seen.add(address)
                    yield address, self.explain(caller, address, key=key)

    def _question(
        self,
        caller: Caller,
        address: str,
        arguments: Mapping[str, Any] | None,
        key: StoredKey | None,
        approval: tuple[str, Approval] | None = None,
    ) -> ExplainedCall:
        server, _, name = address.partition(":")
        upstream = self._toolbox.upstreams.get(server)
        entry: Entry | Item = Item("tools", server, name)
        offered = upstream.entries if upstream is not None else ()
        for each in self._toolbox.own.entries if server == OWN else offered:
            if each.tool.name == name:
                entry = each
        if isinstance(entry, Entry) and arguments is not None:
            call = Call(entry, dict(arguments), caller)
            self._toolbox.convert_arguments(call)
            arguments = call.arguments
        problem = self._catalogue.problem_of(caller, address)
        known = entry if problem is None else problem.item
        decision = self._policy.decide(caller, known, arguments)
        return ExplainedCall(
            caller,
            key,
            address,
            server,
            name,
            arguments,
            entry,
            known,
            upstream,
            self._servers,
            problem,
            decision,
            self._limiter,
            self._policy,
            [each for each in self._credentials if each["server"] == server],
            self._accepted,
            approval,
            {each.step: each for each in policy_checks(self._policy, known, caller, arguments)},
        )


# Missing parts of a call


async def credentials_of(
    vault: Vault, caller: Caller, servers: Mapping[str, ServerConfig]
) -> list[JsonObject]:
    """Return the credentials that a caller has or needs, with their states.

    Raises:
        StoreError: The database is unavailable.
    """
    needs = {each.namespace or name: needs_of(each) for name, each in servers.items()}
    needs = {name: each for name, each in needs.items() if each.names or each.login}
    return await vault.states(caller.owner, needs) if needs else []


async def explainer_for(caller: Caller, gateway: Assembly) -> Explainer:
    """Return an explainer for a caller's calls to a running gateway.

    Raises:
        StoreError: The database is unavailable.
    """
    parts, services = gateway.parts, gateway.services
    credentials = await credentials_of(services.vault, caller, parts.config.servers)
    pins = await PinStore(services.database).list()
    return Explainer(
        gateway.server, parts.policy, parts.limiter, credentials, pins, services.approvals
    )


def _is_uncertain(question: ExplainedCall, decisive: Check | None) -> bool:
    is_denied = decisive is not None and decisive.verdict == "deny"
    decision = question.decision
    return question.arguments is None and not is_denied and bool(decision and decision.is_uncertain)


def reading_approvals(
    database: Database,
    secret: GatewayKey,
    settings: GatewaySettings,
    policy: Policy,
    gateway: ForwardingServer,
) -> Approvals:
    """Return the approvals in a database, for reading only."""

    async def refuse(*_: object) -> NoReturn:
        raise StoreError("approvals cannot be changed while a call is explained")

    return Approvals(
        ApprovalStore(database, secret),
        refuse,
        secret.derive(ARGUMENTS_KEY),
        settings=lambda: settings.approvals,
        policy=lambda: policy,
        pin_of=pin_in(lambda: gateway.toolbox),
    )


# The outcome of the checks


def _decisive(checks: list[Check], question: ExplainedCall) -> Check | None:
    """Return the decisive check: the first denial, in the order in which a call is checked."""
    denied = [each for each in checks if each.verdict == "deny"]
    if not denied:
        if question.approval is not None and question.approval[0] == "approved":
            return None
        return next((each for each in reversed(checks) if each.verdict == "ask"), None)
    is_hidden, is_listed = question.is_hidden, isinstance(question.entry, Entry)

    def turn(check: Check) -> int:
        if check.step == "key":
            return 0
        if check.reason in ("rate_limited", "overloaded"):
            return 1
        if check.reason in (UNKNOWN, "filtered"):
            return 2
        if is_hidden and check.step in _HIDDEN:
            return 3
        return 5 if is_listed and check.step == "server" else 4  # found only when the call is sent

    return min(denied, key=turn)


def _effect(decisive: Check | None) -> tuple[Effect, str]:
    if decisive is None:
        return "allow", ""
    return "ask" if decisive.verdict == "ask" else "deny", decisive.reason


def _rule(decisive: Check | None, question: ExplainedCall) -> str:
    is_of_policy = decisive is None or decisive.step in ("policy", "approval")
    return question.decision.rule if is_of_policy else ""


def _unreached(checks: list[Check], decisive: Check | None) -> Iterator[Check]:
    """Mark the checks that do not run after a denial; the policy's checks always run."""
    is_denied = decisive is not None and decisive.verdict == "deny"
    ends_all = decisive is not None and decisive.reason in _ENDING
    is_over = False
    for each in checks:
        is_pointless = is_over and (ends_all or each.step in _LATE)
        yield Check(each.step, "not_reached") if is_pointless else each
        is_over = is_over or (is_denied and each is decisive)


def _state(question: ExplainedCall) -> str:
    if question.problem is not None:
        return question.problem.reason
    if question.upstream is None:
        return "ok" if isinstance(question.entry, Entry) else UNKNOWN
    return question.upstream.obstacle[0] or "ok"
