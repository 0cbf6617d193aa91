"""Warnings to the operator about a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from interlock.calls import Entry
from interlock.config import Config
from interlock.config.gateway import CALLER, GatewaySettings, Rule
from interlock.config.section import nearest
from interlock.policy.policy import Policy
from interlock.policy.rules import Patterns


def find_warnings(config: Config, catalogue: Iterable[Entry]) -> list[str]:
    """Return warnings about a configuration's policy, one per line, for `serve --check`.

    Args:
        config: The configuration.
        catalogue: The tools of its servers. If a server has no tools here, patterns for it are not
            checked, because the server may be unavailable.
    """
    gateway = config.gateway
    if gateway is None:
        return []
    tools = list(catalogue)
    found: list[str] = []
    for where, patterns in _outside_rules(gateway):
        found += _unmatched(where, patterns, tools)
    policy = Policy.from_config(config)
    for rule in _tool_rules(gateway):
        found += _unmatched(f"rule {rule.id}", rule.patterns, tools)
        found += _odd_rule(rule, policy, tools)
    return found


def find_unchecked(config: Config, catalogue: Iterable[Entry]) -> list[str]:
    """Return the patterns that cannot be checked without tools, one line for each place.

    The pattern `*`, which matches all tools of a server, needs no check.
    """
    gateway = config.gateway
    if gateway is None:
        return []
    servers = {tool.server for tool in catalogue}
    found = {where: _unknown(patterns, servers) for where, patterns in _outside_rules(gateway)}
    for rule in _tool_rules(gateway):
        names = _unknown(rule.patterns, servers)
        if not all(_is_known(pattern, servers) for pattern in rule.patterns):
            names += [f"risk {rule.risk}"] if rule.risk else []
            names += [f"argument {name!r}" for name in rule.arguments]
            names += ["writes that the caller alone approves"] if _is_self_approved(rule) else []
        found[f"rule {rule.id}"] = names
    return [f"{where}: {', '.join(names)}" for where, names in found.items() if names]


def find_unasked(config: Config, catalogue: Iterable[Entry]) -> list[str]:
    """Return warnings about tools that need no approval only because of auto-approve lists."""
    trusting = Policy.for_local_user(config)
    asking = Policy.for_local_user(config, trusts_lists=False)
    found: dict[str, list[str]] = {}
    for tool in catalogue:
        if trusting.risk(tool) != asking.risk(tool):
            found.setdefault(tool.server, []).append(tool.tool.name)
    return [
        f"server {server!r}: autoApprove or alwaysAllow lets {', '.join(names[:3])}"
        + (f" and {len(names) - 3} more" * (len(names) > 3))
        + " run unasked, but it may change something; remove the name to be asked"
        for server, names in found.items()
    ]


def _outside_rules(gateway: GatewaySettings) -> Iterator[tuple[str, Iterable[str]]]:
    for name, view in gateway.views.items():
        yield f"view {name}, allow", view.allow or ()
        yield f"view {name}, deny", view.deny
    yield "limits.tools", gateway.limits.tools


def _tool_rules(gateway: GatewaySettings) -> list[Rule]:
    rules = () if gateway.policy is None else gateway.policy.rules
    return [rule for rule in rules if rule.kind == "tools"]


def _unmatched(where: str, patterns: Iterable[str], tools: list[Entry]) -> Iterator[str]:
    servers = {tool.server for tool in tools}
    for pattern in patterns:
        matcher = Patterns((pattern,))
        matched = any(matcher.match(tool.server, tool.tool.name) for tool in tools)
        if _is_known(pattern, servers) and not matched:
            close = nearest(pattern, [tool.address for tool in tools])
            yield f"{where}: {pattern} matches no tool{close}"


def _unknown(patterns: Iterable[str], servers: set[str]) -> list[str]:
    named = (pattern for pattern in patterns if pattern.partition(":")[2] != "*")
    return [pattern for pattern in named if not _is_known(pattern, servers)]


def _is_known(pattern: str, servers: set[str]) -> bool:
    server = Patterns((pattern.partition(":")[0] + ":*",))
    return any(server.match(name, "") for name in servers)


def _odd_rule(rule: Rule, policy: Policy, tools: list[Entry]) -> Iterator[str]:
    patterns = Patterns(rule.patterns)
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
        # A denial of many tools is meant for those that have the argument, so only warn if none has
        # it.
        if lacking and (rule.effect != "deny" or len(lacking) == len(matched)):
            shown = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" * (len(lacking) > 3))
            yield f"rule {rule.id}: no argument {name!r} in {shown}"
    writes = [tool for tool in matched if policy.risk(tool) == "write"]
    if _is_self_approved(rule) and writes:
        yield (
            f"rule {rule.id}: the caller alone approves calls of risk write, such as "
            f"{writes[0].address}; name other approvers for what cannot be undone"
        )


def _is_self_approved(rule: Rule) -> bool:
    return rule.effect == "ask" and rule.approvers == (CALLER,)


def _may_have_argument(tool: Entry, name: str) -> bool:
    schema = tool.tool.input_schema
    properties = schema.get("properties", {})
    if name in properties or "patternProperties" in schema:
        return True
    # In a combined schema any part may declare the argument.
    return any(key in schema for key in ("$ref", "allOf", "anyOf", "oneOf", "if"))
