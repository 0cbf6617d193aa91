"""Compiled rules, views and scopes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from typing import Any

from interlock.auth.principal import Principal
from interlock.calls import Entry
from interlock.calls.decision import Reason, RuleFact
from interlock.config.gateway import CALLER, EVERYBODY, GROUP, OWN, Effect, Kind, Risk, Rule, View
from interlock.schema.condition import Condition

MISSING: Any = object()
_ORDER: dict[Effect, int] = {"deny": 0, "ask": 1, "allow": 2}
_REASONS: dict[Effect, Reason] = {
    "deny": "denied_by_rule",
    "ask": "approval_required",
    "allow": "",
}
_Check = tuple[str, Callable[[Any], bool], bool]


class CompiledRule:
    """A rule with compiled patterns and conditions."""

    __slots__ = (
        "approvers",
        "checks",
        "claims",
        "engines",
        "kind",
        "patterns",
        "permits",
        "reason",
        "risk",
        "rule",
    )

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.kind = rule.kind
        self.risk = rule.risk
        self.patterns = Patterns(rule.patterns)
        self.checks = _checks(rule.arguments, rule.effect)
        self.engines = _checks(rule.arguments, rule.effect, with_engines=True)
        self.claims = _checks(rule.claims, rule.effect)
        self.reason: Reason = _REASONS[rule.effect]
        self.permits = rule.effect != "deny"
        self.approvers = rule.approvers if rule.effect == "ask" else ()

    def is_for(self, principal: Principal, names: frozenset[str]) -> bool:
        """Return whether the rule applies to a caller, whatever the tool and the arguments."""
        return not self._failed_for(principal, names)

    def fact(
        self,
        principal: Principal,
        names: frozenset[str],
        risk: Risk,
        arguments: Mapping[str, Any] | None,
    ) -> RuleFact:
        """Return whether the rule matches a call, and the first part that does not match."""
        rule = self.rule
        values: Mapping[str, Any]
        failed = self._failed_for(principal, names)
        if not failed and rule.risk not in (None, risk):
            failed = "risk"
        if failed and failed != "claims":
            return RuleFact(rule.id, rule.effect, False, failed)
        if failed:
            checks, conditions, values = self.claims, rule.claims, principal.claims
        elif arguments is None:
            return RuleFact(rule.id, rule.effect, None if self.checks else True)
        else:
            checks, conditions, values = self.checks, rule.arguments, arguments
        name = first_failure(checks, values)
        if name is None:
            return RuleFact(rule.id, rule.effect, True)
        keyword = conditions[name].failed_keyword(values[name]) if name in values else "absent"
        return RuleFact(rule.id, rule.effect, False, failed or "arguments", name, keyword)

    def _failed_for(self, principal: Principal, names: frozenset[str]) -> str:
        if names.isdisjoint(self.rule.who):
            return "who"
        if self.rule.view and self.rule.view != principal.view:
            return "view"
        return "" if first_failure(self.claims, principal.claims) is None else "claims"


def precedence(rule: CompiledRule) -> tuple[int, bool, bool, str]:
    """Return a rule's sorting key: the first matching rule in this order decides."""
    is_own = CALLER in rule.approvers or EVERYBODY in rule.approvers
    return _ORDER[rule.rule.effect], is_own, bool(rule.checks), rule.rule.id


def _checks(
    conditions: Mapping[str, Condition], effect: Effect, *, with_engines: bool = False
) -> tuple[_Check, ...]:
    """Return a check for each condition; compiled checks are faster but raise for invalid JSON."""
    is_lenient = effect == "deny"
    checks: list[_Check] = []
    for name, each in conditions.items():
        if with_engines:
            check = each.engine(is_lenient=is_lenient)
        else:
            check = each.may_hold if is_lenient else each.holds
        checks.append((name, check, each.accepts_absence))
    return tuple(checks)


def first_failure(checks: tuple[_Check, ...], values: Mapping[str, Any]) -> str | None:
    """Return the name of the first value that fails its check; None if all pass."""
    for name, check, accepts_absence in checks:
        value = values.get(name, MISSING)
        if not (accepts_absence if value is MISSING else check(value)):
            return name
    return None


class Patterns:
    """Address patterns. Server and name are matched apart, because names may contain colons."""

    __slots__ = ("_pairs",)

    def __init__(self, patterns: Iterable[str]) -> None:
        self._pairs = [
            (_matcher(server), _matcher(name))
            for server, _, name in (pattern.partition(":") for pattern in patterns)
        ]

    def match(self, server: str, name: str) -> bool:
        for matches_server, matches_name in self._pairs:
            if (matches_server is None or matches_server(server)) and (
                matches_name is None or matches_name(name)
            ):
                return True
        return False

    def match_server(self, server: str) -> bool:
        """Return whether a pattern matches some item of a server."""
        return any(matches is None or matches(server) for matches, _ in self._pairs)


def _matcher(pattern: str) -> Callable[[str], object] | None:
    """Return a function that matches a part of an address; None if the pattern matches any part."""
    if pattern == "*":
        return None
    if not any(char in pattern for char in "*?["):
        return pattern.__eq__
    return re.compile(translate(pattern)).match


class CompiledView:
    """A view with its patterns compiled.

    Attributes:
        is_plain: Whether tools keep the names that their servers use.
        is_original: Whether tools keep the input schemas that their servers use.
        search: Whether clients list all tools, or search for them.
    """

    def __init__(self, view: View) -> None:
        self.is_plain = view.names == "plain"
        self.is_original = view.schemas == "original"
        self.search = view.search
        self._always = Patterns(view.search.always)
        self._servers = None if view.servers is None else frozenset(view.servers)
        self._allow = None if view.allow is None else Patterns(view.allow)
        self._deny = Patterns(view.deny)

    def admits(self, kind: Kind, server: str, name: str) -> bool:
        """Return whether the view contains an item; the view's patterns apply to tools only.

        Every view that is not empty contains interlock's own tools, unless it denies them.
        """
        if server == OWN:
            return self._servers != frozenset() and not self._deny.match(server, name)
        if self._servers is not None and server not in self._servers:
            return False
        if kind != "tools":
            return True
        is_allowed = self._allow is None or self._allow.match(server, name)
        return is_allowed and not self._deny.match(server, name)

    def always_lists(self, entry: Entry) -> bool:
        """Return whether clients list a tool of the view, rather than search for it.

        Tools whose risk is not in `search.calls` are listed as well.
        """
        return (
            not self.search.is_on
            or entry.is_always_listed
            or self._always.match(entry.server, entry.tool.name)
        )

    def admits_any(self, server: str) -> bool:
        """Return whether the view may contain tools of a server."""
        if self._servers is not None and server not in self._servers:
            return False
        return self._allow is None or self._allow.match_server(server)


EVERYTHING = CompiledView(View())
NOTHING = CompiledView(View(servers=()))


class Scopes:
    """The scopes of a credential.

    Only `mcp:*`, `mcp:read` and `mcp:SERVER:PATTERN` have an effect; other scopes are ignored.
    """

    def __init__(self, scopes: Iterable[str]) -> None:
        scopes = frozenset(scopes)
        self._all = "mcp:*" in scopes
        self._read = "mcp:read" in scopes
        parts = (scope.split(":", 2) for scope in scopes)
        self._patterns = [
            (part[1], _matcher(part[2])) for part in parts if part[0] == "mcp" and len(part) == 3
        ]

    def cover(self, server: str, name: str, risk: Risk) -> bool:
        """Return whether a scope includes an item; resources and prompts have risk `read`.

        Any valid scope also includes interlock's own tools.
        """
        return (
            self._all
            or (server == OWN and bool(self._patterns))
            or (self._read and risk == "read")
            or any(
                server == each and (matches is None or bool(matches(name)))
                for each, matches in self._patterns
            )
        )

    def cover_any(self, server: str) -> bool:
        """Return whether a scope may include tools of a server."""
        return self._all or self._read or any(server == each for each, _ in self._patterns)


def names_of(principal: Principal, groups: Iterable[str]) -> frozenset[str]:
    """Return all names with which a rule can refer to a principal that is in these groups."""
    is_reserved = principal.id == CALLER or principal.id.startswith(GROUP)
    ids = () if is_reserved else (principal.id,)
    return frozenset((EVERYBODY, *ids, *(GROUP + group for group in groups)))
