"""The compiled policy of a configuration, which allows, denies or holds calls for approval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from glob import escape
from hashlib import sha256
from typing import Any, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.principal import Principal
from interlock.calls import Caller, Entry, Item
from interlock.calls.decision import Decision, Step
from interlock.config import Config
from interlock.config.gateway import (
    BUILT_IN,
    OWN,
    Kind,
    PolicyRules,
    Risk,
    Rule,
    View,
    ViewSearch,
)
from interlock.config.servers import ToolRisk
from interlock.policy.rights import CallerRights, PluginTools
from interlock.policy.rules import (
    EVERYTHING,
    NOTHING,
    CompiledRule,
    CompiledView,
    names_of,
    precedence,
)
from interlock.schema.condition import Condition
from interlock.types import JsonObject, Tool

LOCAL_USER = Principal("user:local", frozenset({"mcp:*"}))
"""The principal for a `Caller` without a principal: the person at this machine."""
# For a configuration without `gateway`: read-only tools run, and all others need approval.
LOCAL_RULES = PolicyRules(
    rules=(
        Rule(id="reads", effect="allow", who=("*",), kind="tools", patterns=("*:*",), risk="read"),
        Rule(id="writes", effect="ask", who=("*",), kind="tools", patterns=("*:*",), risk="write"),
        Rule(id="resources", effect="allow", who=("*",), kind="resources", patterns=("*:*",)),
        Rule(id="prompts", effect="allow", who=("*",), kind="prompts", patterns=("*:*",)),
    )
)
BUILT_IN_RISKS = {BUILT_IN: ToolRisk(read=("Read", "Glob", "Grep"))}
OWN_RISKS = {OWN: ToolRisk(read=("*",))}
MAX_CALLERS = 4_096  # callers whose rights are cached
MAX_TOOLS = 50_000  # tools whose matching rules are cached
MAX_RIGHTS = 100_000  # cached pairs of caller and tool


class Policy:
    """A compiled policy, immutable except for its caches.

    Decisions are cached by the `Principal` object and the tool's definition. Therefore use the same
    `Principal` object for all requests with the same credential and view.

    Attributes:
        hash: A hash of the rules, groups, views and risks. An approval is valid only under one
            hash.
        asks: Whether some calls need approval.
    """

    def __init__(
        self,
        policy: PolicyRules | None,
        groups: Mapping[str, tuple[str, ...]],
        views: Mapping[str, View],
        risks: Mapping[str, ToolRisk],
        trusts_hints: bool = False,
        plugins: PluginTools | None = None,
        search: ViewSearch = EVERYTHING.search,
    ) -> None:
        self._plugins = plugins
        # How tools are found changes no right, so it ends no approval
        rights = {name: replace(view, search=EVERYTHING.search) for name, view in views.items()}
        self.hash = _hash(policy, dict(groups), rights, dict(risks), trusts_hints)
        self._rules = None if policy is None else [CompiledRule(rule) for rule in policy.rules]
        if self._rules is not None:
            self._rules.sort(key=precedence)
        self.asks = policy is not None and any(rule.effect == "ask" for rule in policy.rules)
        self._read_only = policy is not None and policy.read_only
        self._groups = groups
        self._views = {name: CompiledView(view) for name, view in views.items()}
        self._everything = CompiledView(View(search=search))
        self._risks = {**risks, **OWN_RISKS}
        self._trusts_hints = trusts_hints
        self._known_risks: dict[str, tuple[Tool, Risk]] = {}  # by address
        self._callers: dict[int, CallerRights] = {}
        self._of_tools: dict[str, Sequence[CompiledRule]] = {}  # rules by address
        self._remembered = 0

    @classmethod
    def compile(
        cls,
        policy: PolicyRules | None,
        *,
        groups: Mapping[str, tuple[str, ...]] | None = None,
        views: Mapping[str, View] | None = None,
        risks: Mapping[str, ToolRisk] | None = None,
        trusts_hints: bool = False,
        plugins: PluginTools | None = None,
        search: ViewSearch = EVERYTHING.search,
    ) -> Policy:
        """Compile a policy.

        Args:
            policy: The rules; None if only scopes and views decide.
            groups: The members of each group, in addition to the groups in a principal's token.
            views: The views by name. A caller with an unknown view is denied every call.
            risks: The risks of tools, by the server's name. The default risk is `write`.
            trusts_hints: Whether a tool without a configured risk is `read` if its server marks it
                as read-only.
            plugins: Plugins and their installations; users see only tools of plugins that they have
                installed. None if there are no plugins.
            search: Whether callers without a view list all tools, or search for them.
        """
        return cls(policy, groups or {}, views or {}, risks or {}, trusts_hints, plugins, search)

    @classmethod
    def from_config(cls, config: Config, plugins: PluginTools | None = None) -> Policy:
        """Compile a configuration's policy; without rules, only scopes and views decide."""
        gateway = config.gateway
        risks = _risks(config)
        if gateway is None:
            return cls.compile(None, risks=risks, plugins=plugins)
        return cls.compile(
            gateway.policy,
            groups=gateway.groups,
            views=gateway.views,
            risks=risks,
            plugins=plugins,
            search=gateway.search,
        )

    @classmethod
    def for_local_user(cls, config: Config, *, trusts_lists: bool = True) -> Policy:
        """Compile the policy for a person at their own terminal or page.

        If the configuration has a member `gateway`, its policy applies. Otherwise `LOCAL_RULES`
        apply and the servers' hints are trusted. Tools that other programs' settings approve
        automatically then need no approval.

        Args:
            config: The configuration.
            trusts_lists: Whether to trust the auto-approve lists of other programs.
        """
        if config.gateway is not None:
            return cls.from_config(config)
        if not trusts_lists:
            return cls.compile(LOCAL_RULES, risks=_risks(config), trusts_hints=True)
        servers = config.servers
        approved = {each.namespace or name: each.tools.approved for name, each in servers.items()}
        risks = {
            name: replace(risk, read=(*risk.read, *map(escape, approved.get(name, ()))))
            for name, risk in _risks(config).items()
        }
        return cls.compile(LOCAL_RULES, risks=risks, trusts_hints=True)

    def decide(
        self, caller: Caller, entry: Entry | Item, arguments: Mapping[str, Any] | None = None
    ) -> Decision:
        """Decide whether a call is allowed, denied or needs approval.

        Args:
            caller: The caller; a caller without a principal is the local user.
            entry: The tool, resource or prompt.
            arguments: The arguments to be sent; None to decide whether to list the item.
        """
        principal = caller.principal or LOCAL_USER
        rights = self._callers.get(id(principal))  # inlined `_rights_of`, to save a call
        if rights is None or rights.principal is not principal:
            rights = self._remember(principal)
        if isinstance(entry, Item):  # not cached, because callers can send any number of names
            right = rights.right(entry.kind, entry.server, entry.name, self.risk(entry))
            return right.decide(arguments)
        found = rights.tools.get(entry.address)
        if found is None or found[0] is not entry.tool:
            if self._remembered >= MAX_RIGHTS:
                self._callers.clear()
                self._remembered = 0
                rights = self._remember(principal)
            rules = self._rules_for(entry)
            right = rights.right("tools", entry.server, entry.tool.name, self.risk(entry), rules)
            found = rights.tools[entry.address] = entry.tool, right
            self._remembered += 1
        right = found[1]
        if arguments is not None and right.certain is not None:
            return right.certain
        return right.decide(arguments)

    def steps(
        self, caller: Caller, entry: Entry | Item, arguments: Mapping[str, Any] | None = None
    ) -> tuple[Step, ...]:
        """Return all checks of `decide` with their verdicts; the first denial decides."""
        kind: Kind = entry.kind if isinstance(entry, Item) else "tools"
        name = entry.name if isinstance(entry, Item) else entry.tool.name
        return self._rights_of(caller).steps(kind, entry.server, name, self.risk(entry), arguments)

    def _rules_for(self, entry: Entry) -> Sequence[CompiledRule]:
        """Return the rules that match a tool, which are the same for all callers."""
        rules = self._of_tools.get(entry.address)
        if rules is None:
            if len(self._of_tools) >= MAX_TOOLS:
                self._of_tools.clear()
            rules = self._of_tools[entry.address] = [
                each
                for each in self._rules or ()
                if each.kind == "tools" and each.patterns.match(entry.server, entry.tool.name)
            ]
        return rules

    def risk(self, entry: Entry | Item) -> Risk:
        """Return a tool's configured risk, which its server's hint may raise.

        Resources and prompts always have risk `read`.
        """
        if isinstance(entry, Item):
            if entry.kind != "tools":
                return "read"
            of_server = self._risks.get(entry.server)
            return (of_server.of(entry.name) if of_server is not None else None) or "write"
        known = self._known_risks.get(entry.address)
        if known is None or known[0] is not entry.tool:
            if len(self._known_risks) >= MAX_RIGHTS:
                self._known_risks.clear()
            known = self._known_risks[entry.address] = entry.tool, self._risk_of(entry)
        return known[1]

    def _risk_of(self, entry: Entry) -> Risk:
        of_server = self._risks.get(entry.server)
        is_ours = of_server is not None and of_server.trusts_annotations
        if not is_ours and _claims_destruction(entry):
            return "write"
        stated = of_server.of(entry.tool.name) if of_server is not None else None
        stated = stated or entry.risk
        if stated is None and (self._trusts_hints or is_ours):
            annotations = entry.tool.annotations
            return "read" if annotations is not None and annotations.read_only_hint else "write"
        return stated or "write"

    def lists(self, caller: Caller, entry: Entry) -> bool:
        """Return whether a caller's client lists a tool, rather than searches for it."""
        view = self._rights_of(caller).view
        calls = view.search.calls
        return view.always_lists(entry) or (
            len(calls) < len(get_args(Risk)) and self.risk(entry) not in calls
        )

    def may_use_any(self, caller: Caller, server: str) -> bool:
        """Return whether a caller might be allowed to use some tool of a server."""
        rights = self._rights_of(caller)
        if not (rights.view.admits_any(server) and rights.scopes.cover_any(server)):
            return False
        return rights.all_rules is None or any(
            rule.permits and rule.kind == "tools" and rule.patterns.match_server(server)
            for rule in rights.rules
        )

    @property
    def plain_views(self) -> dict[str, CompiledView]:
        """The views by name whose tools keep the names that their servers use."""
        return {name: view for name, view in self._views.items() if view.is_plain}

    def view_of(self, caller: Caller) -> CompiledView:
        """Return the caller's view; a view with everything if the caller is not bound to a view."""
        return self._rights_of(caller).view

    def is_one_of(self, principal: Principal | None, who: Iterable[str]) -> bool:
        """Return whether a list in a rule, such as its approvers, contains a principal.

        The word "caller" in `who` never matches; the calling code must check for it.
        """
        return not self._rights_of(Caller(principal)).names.isdisjoint(who)

    def groups_of(self, principal: Principal) -> frozenset[str]:
        """Return a principal's groups, from its token and from the configuration."""
        listed = (name for name, members in self._groups.items() if principal.id in members)
        return principal.groups.union(listed)

    def _names_of(self, principal: Principal) -> frozenset[str]:
        return names_of(principal, self.groups_of(principal))

    def _rights_of(self, caller: Caller) -> CallerRights:
        principal = caller.principal or LOCAL_USER
        rights = self._callers.get(id(principal))
        if rights is None or rights.principal is not principal:
            rights = self._remember(principal)
        return rights

    def forget_rights(self) -> None:
        """Clear the cached decisions; needed after users install or remove plugins."""
        self._callers.clear()
        self._remembered = 0

    def _remember(self, principal: Principal) -> CallerRights:
        view = self._views.get(principal.view, NOTHING) if principal.view else self._everything
        rights = CallerRights(
            principal, self._names_of(principal), view, self._rules, self._read_only, self._plugins
        )
        if len(self._callers) >= MAX_CALLERS:
            oldest = self._callers.pop(next(iter(self._callers)))
            self._remembered -= len(oldest.tools)
        self._callers[id(principal)] = rights
        return rights


def _risks(config: Config) -> dict[str, ToolRisk]:
    servers = config.servers
    risks = {each.namespace or name: each.tools.risk for name, each in servers.items()}
    return {**risks, **BUILT_IN_RISKS}


class _Hints(Struct, rename="camel"):
    destructive_hint: bool | None = None


class _Annotated(Struct):
    annotations: _Hints | None = None


def _claims_destruction(entry: Entry) -> bool:
    """Return whether the server explicitly marks a tool as destructive."""
    annotations = entry.tool.annotations
    if annotations is None or not annotations.destructive_hint:
        return False
    if not entry.definition:
        return not annotations.read_only_hint
    hints = msgspec.json.decode(entry.definition, type=_Annotated).annotations
    return hints is not None and bool(hints.destructive_hint)


def _hash(*parts: Any) -> str:
    encoded = msgspec.json.encode(parts, enc_hook=_document, order="deterministic")
    return sha256(encoded).hexdigest()


def _document(condition: Any) -> JsonObject:
    if isinstance(condition, Condition):
        return condition.document
    raise NotImplementedError  # how msgspec expects to be told that a type is unsupported
