"""What is odd about a policy, for its operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from interlock.calls import Entry
from interlock.config import Config
from interlock.config.gateway import CALLER, Rule
from interlock.config.section import nearest
from interlock.policy.policy import Policy
from interlock.policy.rules import Patterns


def find_warnings(config: Config, catalogue: Iterable[Entry]) -> list[str]:
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
        matcher = Patterns((pattern,))
        server = Patterns((pattern.partition(":")[0] + ":*",))
        is_known = any(server.match(name, "") for name in servers)
        if is_known and not any(matcher.match(tool.server, tool.tool.name) for tool in tools):
            close = nearest(pattern, [tool.address for tool in tools])
            yield f"{where}: {pattern} matches no tool{close}"


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
