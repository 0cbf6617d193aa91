"""The rights of a caller to a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from interlock.auth.principal import Principal
from interlock.calls.decision import Decision, Reason, RuleFact, Step
from interlock.config.gateway import OWN, Effect, Kind, Risk
from interlock.policy.rules import MISSING, CompiledRule, CompiledView, Scopes, first_failure
from interlock.text import quoting

MAX_SHOWN = 10  # failed rules shown in the text of a step


class PluginTools(Protocol):
    """The plugins that tools belong to, and the users who installed each plugin."""

    def plugin_of(self, server: str, tool: str) -> str:
        """Return the plugin that a tool belongs to; "" if it belongs to none."""
        ...

    def has(self, principal: str, plugin: str) -> bool:
        """Return whether a principal has installed a plugin."""
        ...


class CallerRights:
    """A principal's rules, groups, scopes and view, which apply to every tool."""

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
        self.tools: dict[str, tuple[object, Right]] = {}


class Right:
    """The rights of a caller to a tool, before conditions on arguments are checked."""

    __slots__ = (
        "_caller",
        "_kind",
        "_listed",
        "_name",
        "_otherwise",
        "_risk",
        "_rules",
        "_server",
        "_table",
        "certain",
    )

    def __init__(
        self,
        caller: CallerRights,
        kind: Kind,
        server: str,
        name: str,
        risk: Risk,
        rules: Sequence[CompiledRule] | None = None,
    ) -> None:
        self._caller = caller
        self._kind: Kind = kind
        self._server = server
        self._name = name
        self._risk: Risk = risk
        if rules is None:
            rules = [
                each
                for each in caller.rules
                if each.kind == kind and each.patterns.match(server, name)
            ]
        self._rules = [
            each
            for each in rules
            if each in caller.rules_set and (each.risk is None or each.risk == risk)
        ]
        obstacle = self._find_obstacle()
        if obstacle:
            self._rules = []
        self._table = [(each.engines, self._decision(each, False)) for each in self._rules]
        if not obstacle and (caller.all_rules is None or server == OWN):
            self._otherwise = Decision("allow", "", "", (), None, None, risk, False, self.steps)
        else:
            self._otherwise = self._denied(obstacle or "no_rule")
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

    def _find_obstacle(self) -> Reason:
        """Return why the call is denied before any rule is checked; "" if the rules decide."""
        caller = self._caller
        if self._plugin and not self._has_plugin:
            return "not_installed"
        if not caller.view.admits(self._kind, self._server, self._name):
            return "not_in_view"
        if not caller.scopes.cover(self._server, self._name, self._risk):
            return "scope"
        return "read_only" if caller.read_only and self._risk == "write" else ""

    @property
    def _plugin(self) -> str:
        plugins = self._caller.plugins
        if plugins is None or self._kind != "tools":
            return ""
        return plugins.plugin_of(self._server, self._name)

    @property
    def _has_plugin(self) -> bool:
        caller = self._caller
        return caller.plugins is not None and caller.plugins.has(caller.principal.id, self._plugin)

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
            self.steps,
        )

    def _denied(self, reason: Reason) -> Decision:
        return Decision("deny", reason, "", (), None, None, self._risk, False, self.steps)

    # Explaining

    def steps(self, arguments: Mapping[str, Any] | None) -> tuple[Step, ...]:
        """Return each check that `decide` makes, with its verdict."""
        caller = self._caller
        view = caller.principal.view
        in_view = caller.view.admits(self._kind, self._server, self._name)
        covered = caller.scopes.cover(self._server, self._name, self._risk)
        scopes = quoting.clip(", ".join(sorted(caller.principal.scopes))) or "no scope"
        what = self._kind.removesuffix("s")
        steps = [
            Step(
                "view",
                "ok" if in_view else "deny",
                f"view {view}" if view else f"all {self._kind}",
            ),
            Step(
                "scope",
                "ok" if covered else "deny",
                scopes if covered else _uncovered(scopes, what, self._risk),
            ),
        ]
        if self._plugin:
            is_missing = not self._has_plugin
            detail = f"plugin {self._plugin} is {'not ' * is_missing}installed"
            steps.insert(0, Step("plugin", "deny" if is_missing else "ok", detail))
        if caller.read_only:
            is_denied = self._risk == "write"
            detail = f"only risk read is allowed; this {what} is of risk {self._risk}"
            steps.append(Step("read_only", "deny" if is_denied else "ok", detail))
        return (*steps, self._explain_rules(arguments))

    def _explain_rules(self, arguments: Mapping[str, Any] | None) -> Step:
        caller = self._caller
        if caller.all_rules is None:
            return Step("policy", "ok", "no policy; scopes and views decide")
        rules = [
            each
            for each in caller.all_rules
            if each.kind == self._kind and each.patterns.match(self._server, self._name)
        ]
        facts = tuple(
            each.fact(caller.principal, caller.names, self._risk, arguments) for each in rules
        )
        decisive = next((index for index, fact in enumerate(facts) if fact.holds), None)
        misses = sorted((fact for fact in facts if fact.is_telling), key=_distance)[:MAX_SHOWN]
        if decisive is None:
            may_hold = [fact for fact in facts if fact.holds is None and fact.effect != "deny"]
            verdict: Literal["ok", "ask", "deny"] = "ok" if self._server == OWN else "deny"
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


def _uncovered(scopes: str, what: str, risk: Risk) -> str:
    if scopes == "mcp:read":
        return f"{scopes} covers {what}s of risk read; this one is {risk}"
    return f"{scopes} does not cover this {what} of risk {risk}"


def _distance(fact: RuleFact) -> int:
    """Rank a rule by the part that did not match; a lower rank is closer to a match."""
    return ("", "arguments", "claims", "view", "risk", "who").index(fact.failed)
