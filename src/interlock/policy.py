"""Whether a caller may make a call, and why.

1. A call needs all of these: the caller's view has the tool, one of its scopes covers it, and the
   policy allows it. Lists, calls and explanations use the same function, `Policy.decide`.
2. Rules have no order. A denial beats a question, and a question beats an allowance. Of several
   questions, one that the caller cannot answer itself comes first.
3. What no rule allows is denied. Without a policy, scopes and views alone decide.
4. For a value of another type, an allowance or a question does not hold, and a denial does.
5. Without arguments a rule that has conditions on them is uncertain: a tool is listed unless every
   call of it would be denied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import translate
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct

from interlock.auth.principal import Principal
from interlock.calls import Caller, Entry
from interlock.config import Config
from interlock.config.gateway import (
    CALLER,
    EVERYBODY,
    GROUP,
    Effect,
    Kind,
    PolicyRules,
    Record,
    Risk,
    Rule,
    View,
)
from interlock.config.section import nearest
from interlock.config.servers import ToolRisk
from interlock.schema.condition import Condition, problem
from interlock.types import JsonObject

Reason = Literal[
    "", "not_in_view", "scope", "read_only", "denied_by_rule", "no_rule", "approval_required"
]
LOCAL_USER = Principal("user:local", frozenset({"mcp:*"}))  # a `Caller` without principal
MAX_CALLERS = 4_096  # whose rights are remembered
MAX_RIGHTS = 100_000  # of a caller to a tool, remembered in all
MAX_SHOWN = 10  # rules that do not hold, in the text of a step
_MISSING: Any = object()


class Item(Struct, frozen=True):
    """A resource or a prompt.

    Attributes:
        kind: Which of the two.
        server: Name of its server.
        name: The URI of the resource, or the name of the prompt.
    """

    kind: Literal["resources", "prompts"]
    server: str
    name: str


class RuleFact(Struct, frozen=True):
    """What a rule for this tool contributed to a decision.

    Attributes:
        rule: Its id.
        effect: Its effect.
        holds: None if that depends on arguments that are not given.
        failed: The part that did not hold: "who", "view", "risk", "claims" or "arguments".
        name: The claim or argument that did not fit.
        keyword: The keyword of its condition that failed; "absent" if it is missing.
    """

    rule: str
    effect: Effect
    holds: bool | None
    failed: str = ""
    name: str = ""
    keyword: str = ""

    @property
    def is_telling(self) -> bool:
        """Whether the rule might have changed the decision, had it been met."""
        return not self.holds and (self.effect != "deny" or self.failed in ("", "arguments"))

    def __str__(self) -> str:
        if self.holds is None:
            return f"rule {self.rule} depends on the arguments"
        if self.holds:
            return f"rule {self.rule}"
        match self.failed:
            case "who":
                why = "it is for other callers"
            case "view":
                why = "it is for another view"
            case "risk":
                why = "it is for tools of another risk"
            case failed:
                what = f"claim {self.name}" if failed == "claims" else self.name
                absent = self.keyword == "absent"
                why = f"{what} {'is missing' if absent else problem(self.keyword)}"
        return f"rule {self.rule} does not hold: {why}"


class Step(Struct, frozen=True):
    """One of the checks that make up a decision.

    Attributes:
        step: What was checked: "view", "scope", "read_only" or "policy".
        verdict: "ok", "ask" or "deny".
        detail: The reason in words, without any value of an argument or claim.
        rules: Of the step "policy": every rule for this tool.
    """

    step: str
    verdict: Literal["ok", "ask", "deny"]
    detail: str
    rules: tuple[RuleFact, ...] = ()


class Decision(Struct, frozen=True, eq=False):
    """The answer to whether a call may be made.

    Attributes:
        effect: "allow", "ask" or "deny".
        reason: Why not, as a stable word; "" for "allow".
        rule: Id of the rule that decided; "" for none.
        approvers: For "ask": who may approve, as in the rule.
        expires: For "ask": seconds until an approval is void; None for the gateway's default.
        record: How to record the arguments; None for the gateway's default.
        is_uncertain: There were no arguments, and with some of them it would be another decision.
    """

    effect: Effect
    reason: Reason
    rule: str
    approvers: tuple[str, ...]
    expires: float | None
    record: Record | None
    is_uncertain: bool
    _right: _Right

    def steps(self, arguments: Mapping[str, Any] | None = None) -> tuple[Step, ...]:
        """Return every check with its verdict, for `explain`. The first denial is the decision.

        Args:
            arguments: Those that were decided about. A decision does not keep them.
        """
        return self._right.steps(arguments)

    def __repr__(self) -> str:
        return f"Decision({self.effect!r}, {self.reason!r}, {self.rule!r})"


class Policy:
    """The compiled rules. Immutable, but for what it remembers to be fast.

    Decisions are remembered by the `Principal` object and the definition of the tool, so keep one
    principal for the requests of one credential and view.

    Attributes:
        hash: Changes with rules, groups, views and risks. An approval is for one such hash.
    """

    def __init__(
        self,
        policy: PolicyRules | None,
        groups: Mapping[str, tuple[str, ...]],
        views: Mapping[str, View],
        risks: Mapping[str, ToolRisk],
    ) -> None:
        self.hash = _hash(policy, dict(groups), dict(views), dict(risks))
        self._rules = None if policy is None else [_CompiledRule(rule) for rule in policy.rules]
        if self._rules is not None:
            self._rules.sort(key=_precedence)
        self._read_only = policy is not None and policy.read_only
        self._groups = groups
        self._views = {name: _CompiledView(view) for name, view in views.items()}
        self._risks = risks
        self._callers: dict[int, _CallerRights] = {}
        self._remembered = 0

    @classmethod
    def compile(
        cls,
        policy: PolicyRules | None,
        *,
        groups: Mapping[str, tuple[str, ...]] | None = None,
        views: Mapping[str, View] | None = None,
        risks: Mapping[str, ToolRisk] | None = None,
    ) -> Policy:
        """Compile rules.

        Args:
            policy: The rules; None to let scopes and views decide.
            groups: The principals of each group. A principal has groups of its own besides.
            views: By name. A caller with an unknown view is denied everything.
            risks: By the name of a server in addresses. A tool without risk is `write`.
        """
        return cls(policy, groups or {}, views or {}, risks or {})

    @classmethod
    def from_config(cls, config: Config) -> Policy:
        """Compile the policy of a file, or of scopes alone if it has none."""
        servers = {**config.servers, **config.python}
        risks = {each.namespace or name: each.tools.risk for name, each in servers.items()}
        gateway = config.gateway
        if gateway is None:
            return cls.compile(None, risks=risks)
        return cls.compile(gateway.policy, groups=gateway.groups, views=gateway.views, risks=risks)

    def decide(
        self, caller: Caller, entry: Entry | Item, arguments: Mapping[str, Any] | None = None
    ) -> Decision:
        """Decide about a call.

        Args:
            caller: On whose behalf; without a principal, the local user.
            entry: The tool, resource or prompt.
            arguments: As they will be sent; None to decide whether to list it.
        """
        principal = caller.principal or LOCAL_USER
        rights = self._callers.get(id(principal))
        if rights is None or rights.principal is not principal:
            rights = self._remember(principal)
        if isinstance(entry, Item):  # its name comes from the caller, so it is not remembered
            return rights.right(entry.kind, entry.server, entry.name, "read").decide(arguments)
        found = rights.tools.get(entry.address)
        if found is None or found[0] is not entry.tool:
            right = rights.right("tools", entry.server, entry.tool.name, self.risk(entry))
            found = rights.tools[entry.address] = entry.tool, right
            self._remembered += 1
        return found[1].decide(arguments)

    def risk(self, entry: Entry) -> Risk:
        """Return the risk of a tool: the operator's word, which a hint of its server may raise."""
        said = self._risks.get(entry.server)
        if said is None or _claims_destruction(entry):
            return "write"
        return said.of(entry.tool.name)

    def groups_of(self, principal: Principal | None) -> frozenset[str]:
        """Return the groups of a principal, from its credential and from the file."""
        principal = principal or LOCAL_USER
        named = (name for name, members in self._groups.items() if principal.id in members)
        return principal.groups.union(named)

    def _remember(self, principal: Principal) -> _CallerRights:
        view = self._views.get(principal.view, _NOTHING) if principal.view else _EVERYTHING
        rights = _CallerRights(
            principal, self.groups_of(principal), view, self._rules, self._read_only
        )
        if self._remembered >= MAX_RIGHTS:
            self._callers.clear()
            self._remembered = 0
        elif len(self._callers) >= MAX_CALLERS:
            oldest = self._callers.pop(next(iter(self._callers)))
            self._remembered -= len(oldest.tools)
        self._callers[id(principal)] = rights
        return rights


def is_one_of(principal: Principal | None, groups: frozenset[str], who: Iterable[str]) -> bool:
    """Return whether a principal with these groups is among those that a rule names."""
    id = (principal or LOCAL_USER).id
    return any(
        each in (EVERYBODY, id) or (each.startswith(GROUP) and each[len(GROUP) :] in groups)
        for each in who
    )


class _Hints(Struct, rename="camel"):
    destructive_hint: bool | None = None


class _Annotated(Struct):
    annotations: _Hints | None = None


def _claims_destruction(entry: Entry) -> bool:
    """Return whether the server says that a tool destroys; its silence does not count."""
    annotations = entry.tool.annotations
    if annotations is None or not annotations.destructive_hint:
        return False
    if not entry.definition:
        return not annotations.read_only_hint
    hints = msgspec.json.decode(entry.definition, type=_Annotated).annotations
    return hints is not None and bool(hints.destructive_hint)


def opens_any(scopes: Iterable[str]) -> bool:
    """Return whether scopes cover anything at all under `/mcp`."""
    return any(scope.startswith("mcp:") for scope in scopes)


# One caller and one tool


class _CallerRights:
    """What holds for one principal, whatever the tool."""

    def __init__(
        self,
        principal: Principal,
        groups: frozenset[str],
        view: _CompiledView,
        rules: list[_CompiledRule] | None,
        read_only: bool,
    ) -> None:
        self.principal = principal  # kept, so that no other one gets its id()
        self.groups = groups
        self.view = view
        self.scopes = _Scopes(principal.scopes)
        self.all_rules = rules
        self.read_only = read_only
        self.rules = [each for each in rules or () if not each.missing_for(principal, groups)]
        self.tools: dict[str, tuple[object, _Right]] = {}

    def right(self, kind: Kind, server: str, name: str, risk: Risk) -> _Right:
        return _Right(self, kind, server, name, risk)


class _Right:
    """What one caller may do with one tool, but for the conditions on arguments."""

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
    )

    def __init__(
        self, caller: _CallerRights, kind: Kind, server: str, name: str, risk: Risk
    ) -> None:
        self._caller = caller
        self._kind: Kind = kind
        self._server = server
        self._name = name
        self._risk: Risk = risk
        self._rules = [
            each
            for each in caller.rules
            if each.kind == kind
            and (each.risk is None or each.risk == risk)
            and each.patterns.match(server, name)
        ]
        obstacle = self._find_obstacle()
        if obstacle:
            self._rules = []
        self._table = [(each.engines, self._decision(each, False)) for each in self._rules]
        if not obstacle and caller.all_rules is None:
            self._otherwise = Decision("allow", "", "", (), None, None, False, self)
        else:
            self._otherwise = self._denied(obstacle or "no_rule")
        self._listed = self._list()

    def decide(self, arguments: Mapping[str, Any] | None) -> Decision:
        if arguments is None:
            return self._listed
        try:
            for checks, decision in self._table:
                for name, is_valid, accepts_absence in checks:
                    value = arguments.get(name, _MISSING)
                    if not (accepts_absence if value is _MISSING else is_valid(value)):
                        break
                else:
                    return decision
        except ValueError:  # an argument that is not JSON, such as text with a lone surrogate
            return self._decide_slowly(arguments)
        return self._otherwise

    def _decide_slowly(self, arguments: Mapping[str, Any]) -> Decision:
        for rule, (_, decision) in zip(self._rules, self._table, strict=True):
            if not _first_failure(rule.checks, arguments):
                return decision
        return self._otherwise

    def _find_obstacle(self) -> Reason:
        """Return why the rules do not matter; "" if they do."""
        caller = self._caller
        if not caller.view.admits(self._kind, self._server, self._name):
            return "not_in_view"
        if not caller.scopes.cover(self._server, self._name, self._risk):
            return "scope"
        return "read_only" if caller.read_only and self._risk == "write" else ""

    def _list(self) -> Decision:
        """Decide without arguments, in favour of the call where it depends on them."""
        certain = next((each for each in self._rules if not each.checks), None)
        # The rules are sorted, so the last of those that may hold permits most.
        best = certain or next((each for each in reversed(self._rules) if each.permits), None)
        if best is None:
            return self._otherwise
        stronger = self._rules[: self._rules.index(best) + 1]
        return self._decision(best, best.permits and any(each.checks for each in stronger))

    def _decision(self, decisive: _CompiledRule, is_uncertain: bool) -> Decision:
        rule = decisive.rule
        return Decision(
            rule.effect,
            decisive.reason,
            rule.id,
            decisive.approvers,
            rule.expires,
            rule.record,
            is_uncertain,
            self,
        )

    def _denied(self, reason: Reason) -> Decision:
        return Decision("deny", reason, "", (), None, None, False, self)

    # Explaining

    def steps(self, arguments: Mapping[str, Any] | None) -> tuple[Step, ...]:
        caller = self._caller
        view = caller.principal.view
        in_view = caller.view.admits(self._kind, self._server, self._name)
        covered = caller.scopes.cover(self._server, self._name, self._risk)
        scopes = ", ".join(sorted(caller.principal.scopes)) or "no scope"
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
                scopes if covered else f"{scopes} does not cover this {what} of risk {self._risk}",
            ),
        ]
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
            each.fact(caller.principal, caller.groups, self._risk, arguments) for each in rules
        )
        decisive = next((index for index, fact in enumerate(facts) if fact.holds), None)
        misses = sorted((fact for fact in facts if fact.is_telling), key=_distance)[:MAX_SHOWN]
        if decisive is None:
            may_hold = [fact for fact in facts if fact.holds is None and fact.effect != "deny"]
            verdict: Literal["ok", "ask", "deny"] = "deny"
            if may_hold:
                verdict = "ask" if all(each.effect == "ask" for each in may_hold) else "ok"
            told = "; ".join(map(str, misses)) or "no rule is for it"
            return Step("policy", verdict, told, facts)
        rule = rules[decisive].rule
        told = f"rule {rule.id}"
        if rule.effect == "ask":
            told += f", {' or '.join(rule.approvers)} must approve"
        words: dict[Effect, Literal["ok", "ask", "deny"]] = {
            "allow": "ok",
            "ask": "ask",
            "deny": "deny",
        }
        return Step("policy", words[rule.effect], "; ".join([told, *map(str, misses)]), facts)


def _distance(fact: RuleFact) -> int:
    """Return how far a rule was from holding."""
    return ("", "arguments", "claims", "view", "risk", "who").index(fact.failed)


# What is compiled once

_ORDER: dict[Effect, int] = {"deny": 0, "ask": 1, "allow": 2}
_REASONS: dict[Effect, Reason] = {
    "deny": "denied_by_rule",
    "ask": "approval_required",
    "allow": "",
}
_Check = tuple[str, Callable[[Any], bool], bool]


class _CompiledRule:
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
        self.patterns = _Patterns(rule.patterns)
        self.checks = _checks(rule.arguments, rule.effect)
        self.engines = _checks(rule.arguments, rule.effect, with_engines=True)
        self.claims = _checks(rule.claims, rule.effect)
        self.reason: Reason = _REASONS[rule.effect]
        self.permits = rule.effect != "deny"
        self.approvers = rule.approvers if rule.effect == "ask" else ()

    def missing_for(self, principal: Principal, groups: frozenset[str]) -> str:
        """Return what makes the rule one for other callers; "" if nothing does."""
        if not is_one_of(principal, groups, self.rule.who):
            return "who"
        if self.rule.view and self.rule.view != principal.view:
            return "view"
        return "claims" if _first_failure(self.claims, principal.claims) else ""

    def fact(
        self,
        principal: Principal,
        groups: frozenset[str],
        risk: Risk,
        arguments: Mapping[str, Any] | None,
    ) -> RuleFact:
        rule = self.rule
        failed = self.missing_for(principal, groups)
        if not failed and rule.risk not in (None, risk):
            failed = "risk"
        if failed == "claims":
            name = _first_failure(self.claims, principal.claims)
            keyword = _keyword(rule.claims[name], principal.claims, name)
            return RuleFact(rule.id, rule.effect, False, failed, name, keyword)
        if failed:
            return RuleFact(rule.id, rule.effect, False, failed)
        if arguments is None:
            return RuleFact(rule.id, rule.effect, None if self.checks else True)
        name = _first_failure(self.checks, arguments)
        if not name:
            return RuleFact(rule.id, rule.effect, True)
        keyword = _keyword(rule.arguments[name], arguments, name)
        return RuleFact(rule.id, rule.effect, False, "arguments", name, keyword)


def _precedence(rule: _CompiledRule) -> tuple[int, bool, bool, str]:
    is_own = CALLER in rule.approvers or EVERYBODY in rule.approvers
    return _ORDER[rule.rule.effect], is_own, bool(rule.checks), rule.rule.id


def _checks(
    conditions: Mapping[str, Condition], effect: Effect, *, with_engines: bool = False
) -> tuple[_Check, ...]:
    """Return how to check each value; engines are faster, and raise for what is not JSON."""
    is_lenient = effect == "deny"
    checks: list[_Check] = []
    for name, each in conditions.items():
        if with_engines:
            check = each.engine(is_lenient=is_lenient)
        else:
            check = each.may_hold if is_lenient else each.holds
        checks.append((name, check, each.accepts_absence))
    return tuple(checks)


def _first_failure(checks: tuple[_Check, ...], values: Mapping[str, Any]) -> str:
    for name, check, accepts_absence in checks:
        value = values.get(name, _MISSING)
        if not (accepts_absence if value is _MISSING else check(value)):
            return name
    return ""


def _keyword(condition: Condition, values: Mapping[str, Any], name: str) -> str:
    return condition.failed_keyword(values[name]) if name in values else "absent"


class _Patterns:
    """Patterns of addresses. Their parts are matched one by one, as names may contain colons."""

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


def _matcher(pattern: str) -> Callable[[str], object] | None:
    """Return a function that matches one part of an address; None if everything does."""
    if pattern == "*":
        return None
    if not any(char in pattern for char in "*?["):
        return pattern.__eq__
    return re.compile(translate(pattern)).match


class _CompiledView:
    def __init__(self, view: View) -> None:
        self._servers = None if view.servers is None else frozenset(view.servers)
        self._allow = None if view.allow is None else _Patterns(view.allow)
        self._deny = _Patterns(view.deny)

    def admits(self, kind: Kind, server: str, name: str) -> bool:
        """Return whether the view has an item. Patterns are about tools only."""
        if self._servers is not None and server not in self._servers:
            return False
        if kind != "tools":
            return True
        is_allowed = self._allow is None or self._allow.match(server, name)
        return is_allowed and not self._deny.match(server, name)


_EVERYTHING = _CompiledView(View())
_NOTHING = _CompiledView(View(servers=()))


class _Scopes:
    """Scopes of a credential: `mcp:*`, `mcp:read`, `mcp:SERVER:PATTERN`. Others cover nothing."""

    def __init__(self, scopes: Iterable[str]) -> None:
        scopes = frozenset(scopes)
        self._all = "mcp:*" in scopes
        self._read = "mcp:read" in scopes
        parts = (scope.split(":", 2) for scope in scopes)
        self._patterns = [
            (part[1], _matcher(part[2])) for part in parts if part[0] == "mcp" and len(part) == 3
        ]

    def cover(self, server: str, name: str, risk: Risk) -> bool:
        return (
            self._all
            or (self._read and risk == "read")
            or any(
                server == each and (matches is None or bool(matches(name)))
                for each, matches in self._patterns
            )
        )


def _hash(*parts: Any) -> str:
    encoded = msgspec.json.encode(parts, enc_hook=_document, order="deterministic")
    return sha256(encoded).hexdigest()


def _document(condition: Any) -> JsonObject:
    if isinstance(condition, Condition):
        return condition.document
    raise NotImplementedError


# Warnings for the operator


def warnings(config: Config, catalogue: Iterable[Entry]) -> list[str]:
    """Return what is odd about the policy of a file, for `serve --check`, one line each.

    Args:
        config: The file.
        catalogue: The tools of its servers. Patterns of a server without tools are not checked,
            as the server may be down.
    """
    gateway = config.gateway
    if gateway is None:
        return []
    tools = list(catalogue)
    found: list[str] = []
    for name, view in gateway.views.items():
        for key, patterns in (("allow", view.allow or ()), ("deny", view.deny)):
            found += _unmatched(f"view {name}, {key}", patterns, tools)
    found += _unmatched("limits.tools", gateway.limits.tools, tools)
    if gateway.policy is None:
        return found
    policy = Policy.from_config(config)
    for rule in gateway.policy.rules:
        if rule.kind == "tools":
            found += _unmatched(f"rule {rule.id}", rule.patterns, tools)
            found += _odd_rule(rule, policy, tools)
    return found


def _unmatched(where: str, patterns: Iterable[str], tools: list[Entry]) -> Iterator[str]:
    servers = {tool.server for tool in tools}
    for pattern in patterns:
        matcher = _Patterns((pattern,))
        server = _Patterns((pattern.partition(":")[0] + ":*",))
        is_known = any(server.match(name, "") for name in servers)
        if is_known and not any(matcher.match(tool.server, tool.tool.name) for tool in tools):
            close = nearest(pattern, [tool.address for tool in tools])
            yield f"{where}: {pattern} matches no tool{close}"


def _odd_rule(rule: Rule, policy: Policy, tools: list[Entry]) -> Iterator[str]:
    patterns = _Patterns(rule.patterns)
    matched = [
        tool
        for tool in tools
        if patterns.match(tool.server, tool.tool.name) and rule.risk in (None, policy.risk(tool))
    ]
    names_any = any(patterns.match(tool.server, tool.tool.name) for tool in tools)
    if names_any and not matched:
        yield f"rule {rule.id}: no tool that it names has risk {rule.risk}"
    for name in rule.arguments:
        lacking = [tool.address for tool in matched if not _may_have_argument(tool, name)]
        # A denial for many tools is meant for those that have the argument.
        if lacking and (rule.effect != "deny" or len(lacking) == len(matched)):
            shown = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" * (len(lacking) > 3))
            yield f"rule {rule.id}: no argument {name!r} in {shown}"
    writes = [tool for tool in matched if policy.risk(tool) == "write"]
    if rule.effect == "ask" and rule.approvers == (CALLER,) and writes:
        yield (
            f"rule {rule.id}: the caller alone approves calls of risk write, such as "
            f"{writes[0].address}; name other approvers for what cannot be undone"
        )


def _may_have_argument(tool: Entry, name: str) -> bool:
    schema = tool.tool.input_schema
    properties = schema.get("properties", {})
    if name in properties or "patternProperties" in schema:
        return True
    # Combined schemas may have it in any part.
    return any(key in schema for key in ("$ref", "allOf", "anyOf", "oneOf", "if"))
