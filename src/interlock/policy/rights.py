"""The rights of a caller to a tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from interlock.auth.principal import Principal
from interlock.calls.decision import Decision, Reason, RuleFact, Step
from interlock.config.gateway import OWN, Effect, Kind, Risk
from interlock.policy.rules import MISSING, CompiledRule, CompiledView, Scopes, first_failure
from interlock.text import quoting

MAX_SHOWN = 10  # failed rules shown in the text of a step
MAX_SHARED = 1_000  # rights of a caller that tools and other items share


class PluginTools(Protocol):
    """The plugins that tools belong to, and the users who installed each plugin."""

    def plugin_of(self, server: str, tool: str) -> str:
        """Return the plugin that a tool belongs to; "" if it belongs to none."""
        ...

    def has(self, principal: str, plugin: str) -> bool:
        """Return whether a principal has installed a plugin."""
        ...


class CallerRights:
    """A principal's rules, groups, scopes and view, which apply to every tool.

    Tools that the same rules decide about share one `Right`, so that thousands of tools need few.
    """

    def __init__(
        self,
        principal: Principal,
        names: frozenset[str],
        view: CompiledView,
        rules: list[CompiledRule] | None,
        read_only: bool,
        plugins: PluginTools | None = None,
    ) -> None:
        self.plugins = plugins
        self.principal = principal  # kept alive, so that no other principal gets the same `id()`
        self.names = names
        self.view = view
        self.scopes = Scopes(principal.scopes)
        self.all_rules = rules
        self.read_only = read_only
        self.rules = [each for each in rules or () if each.is_for(principal, names)]
        self.rules_set = frozenset(self.rules)
        self.tools: dict[str, tuple[object, Right]] = {}  # by address
        self._shared: dict[tuple[object, ...], Right] = {}

    def right(
        self,
        kind: Kind,
        server: str,
        name: str,
        risk: Risk,
        matching: Iterable[CompiledRule] | None = None,
    ) -> Right:
        """Return the right to an item.

        Args:
            kind: The item's kind.
            server: The name of the item's server.
            name: The item's name at the server.
            risk: The item's risk.
            matching: The rules, of all callers, that match the item; None to look them up.
        """
        obstacle = self._find_obstacle(kind, server, name, risk)
        rules: tuple[CompiledRule, ...] = ()
        if not obstacle:
            if matching is None:
                matching = (
                    each
                    for each in self.rules
                    if each.kind == kind and each.patterns.match(server, name)
                )
            rules = tuple(
                each
                for each in matching
                if each in self.rules_set and (each.risk is None or each.risk == risk)
            )
            if self.all_rules is not None and server != OWN:
                obstacle = "no_rule"
        key = rules, obstacle, risk
        right = self._shared.get(key)
        if right is None:
            if len(self._shared) >= MAX_SHARED:
                self._shared.clear()
            right = self._shared[key] = Right(rules, obstacle, risk)
        return right

    def _find_obstacle(self, kind: Kind, server: str, name: str, risk: Risk) -> Reason:
        """Return why a call is denied before any rule is checked; "" if the rules decide."""
        plugin = self._plugin(kind, server, name)
        if plugin and not self._has(plugin):
            return "not_installed"
        if not self.view.admits(kind, server, name):
            return "not_in_view"
        if not self.scopes.cover(server, name, risk):
            return "scope"
        return "read_only" if self.read_only and risk == "write" else ""

    def _plugin(self, kind: Kind, server: str, name: str) -> str:
        if self.plugins is None or kind != "tools":
            return ""
        return self.plugins.plugin_of(server, name)

    def _has(self, plugin: str) -> bool:
        return self.plugins is not None and self.plugins.has(self.principal.id, plugin)

    # Explaining

    def steps(
        self, kind: Kind, server: str, name: str, risk: Risk, arguments: Mapping[str, Any] | None
    ) -> tuple[Step, ...]:
        """Return each check that a decision makes, with its verdict."""
        view = self.principal.view
        in_view = self.view.admits(kind, server, name)
        covered = self.scopes.cover(server, name, risk)
        scopes = quoting.clip(", ".join(sorted(self.principal.scopes))) or "no scope"
        what = kind.removesuffix("s")
        steps = [
            Step("view", "ok" if in_view else "deny", f"view {view}" if view else f"all {kind}"),
            Step(
                "scope",
                "ok" if covered else "deny",
                scopes if covered else _uncovered(scopes, what, risk),
            ),
        ]
        plugin = self._plugin(kind, server, name)
        if plugin:
            is_missing = not self._has(plugin)
            detail = f"plugin {plugin} is {'not ' * is_missing}installed"
            steps.insert(0, Step("plugin", "deny" if is_missing else "ok", detail))
        if self.read_only:
            is_denied = risk == "write"
            detail = f"only risk read is allowed; this {what} is of risk {risk}"
            steps.append(Step("read_only", "deny" if is_denied else "ok", detail))
        return (*steps, self._explain_rules(kind, server, name, risk, arguments))

    def _explain_rules(
        self, kind: Kind, server: str, name: str, risk: Risk, arguments: Mapping[str, Any] | None
    ) -> Step:
        if self.all_rules is None:
            return Step("policy", "ok", "no policy; scopes and views decide")
        rules = [
            each
            for each in self.all_rules
            if each.kind == kind and each.patterns.match(server, name)
        ]
        facts = tuple(each.fact(self.principal, self.names, risk, arguments) for each in rules)
        decisive = next((index for index, fact in enumerate(facts) if fact.holds), None)
        misses = sorted((fact for fact in facts if fact.is_telling), key=_distance)[:MAX_SHOWN]
        if decisive is None:
            may_hold = [fact for fact in facts if fact.holds is None and fact.effect != "deny"]
            verdict: Literal["ok", "ask", "deny"] = "ok" if server == OWN else "deny"
            if may_hold:
                verdict = "ask" if all(each.effect == "ask" for each in may_hold) else "ok"
            told = "; ".join(map(str, misses)) or "no rule is for it"
            return Step("policy", verdict, told, facts)
        rule = rules[decisive].rule
        misses = [fact for fact in misses if fact.failed in ("", "claims", "arguments")]
        told = f"rule {rule.id}"
        if rule.effect == "ask":
            told += f", {' or '.join(rule.approvers)} must approve"
        words: dict[Effect, Literal["ok", "ask", "deny"]] = {
            "allow": "ok",
            "ask": "ask",
            "deny": "deny",
        }
        return Step("policy", words[rule.effect], "; ".join([told, *map(str, misses)]), facts)


class Right:
    """The rights of a caller to tools, before conditions on arguments are checked.

    Args:
        rules: The rules that match the tools and the caller.
        obstacle: Why a call is denied to which no rule applies; "" if it is allowed.
        risk: The risk of the tools.
    """

    __slots__ = ("_listed", "_otherwise", "_risk", "_rules", "_table", "certain")

    def __init__(self, rules: Sequence[CompiledRule], obstacle: Reason, risk: Risk) -> None:
        self._risk: Risk = risk
        self._rules = rules
        self._table = [(each.engines, self._decision(each, False)) for each in self._rules]
        effect: Effect = "deny" if obstacle else "allow"
        self._otherwise = Decision(effect, obstacle, "", (), None, None, risk, False)
        self._listed = self._list()
        # The decision about every call, if it does not depend on arguments.
        self.certain: Decision | None = None if self._table else self._otherwise
        if self._table and not self._table[0][0]:
            self.certain = self._table[0][1]

    def decide(self, arguments: Mapping[str, Any] | None) -> Decision:
        """Decide about a call; with None, decide whether the tool is listed."""
        if arguments is None:
            return self._listed
        try:
            for checks, decision in self._table:
                for name, is_valid, accepts_absence in checks:
                    value = arguments.get(name, MISSING)
                    if not (accepts_absence if value is MISSING else is_valid(value)):
                        break
                else:
                    return decision
        except ValueError:  # an argument is not valid JSON, for example a lone surrogate
            return self._decide_slowly(arguments)
        return self._otherwise

    def _decide_slowly(self, arguments: Mapping[str, Any]) -> Decision:
        for rule, (_, decision) in zip(self._rules, self._table, strict=True):
            if first_failure(rule.checks, arguments) is None:
                return decision
        return self._otherwise

    def _list(self) -> Decision:
        """Decide whether the tool is listed, as if the arguments met every allowing condition."""
        certain = next((each for each in self._rules if not each.checks), None)
        # Rules are sorted by strictness, so the last rule that may apply permits most.
        best = certain or next((each for each in reversed(self._rules) if each.permits), None)
        if best is None:
            return self._otherwise
        stronger = self._rules[: self._rules.index(best) + 1]
        return self._decision(best, best.permits and any(each.checks for each in stronger))

    def _decision(self, decisive: CompiledRule, is_uncertain: bool) -> Decision:
        rule = decisive.rule
        return Decision(
            rule.effect,
            decisive.reason,
            rule.id,
            decisive.approvers,
            rule.expires,
            rule.record,
            self._risk,
            is_uncertain,
        )


def _uncovered(scopes: str, what: str, risk: Risk) -> str:
    if scopes == "mcp:read":
        return f"{scopes} covers {what}s of risk read; this one is {risk}"
    return f"{scopes} does not cover this {what} of risk {risk}"


def _distance(fact: RuleFact) -> int:
    """Rank a rule by the part that did not match; a lower rank is closer to a match."""
    return ("", "arguments", "claims", "view", "risk", "who").index(fact.failed)
