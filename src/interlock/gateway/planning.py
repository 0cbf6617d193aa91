"""Plans: how another configuration would change servers, tools, names and rights.

A plan does not start any server. The tools of new and changed servers are therefore unknown, and
the plan lists these servers instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from interlock.auth.key_ring import KnownKey
from interlock.calls import Caller, Entry
from interlock.config import Config, ToolFilter
from interlock.gateway.assembly import Assembly
from interlock.gateway.parts import Parts, make_parts, restart_needed
from interlock.policy import Policy
from interlock.toolbox.names import plain_name
from interlock.types import JsonObject

MAX_KEYS = 1_000  # active keys whose rights are compared
MAX_LISTED = 500  # tools or keys that a plan lists


async def plan_of(assembly: Assembly, config: Config) -> JsonObject:
    """Return the changes that a configuration would make.

    Raises:
        ConfigError: The configuration is not valid.
    """
    now = assembly.parts
    parts = make_parts(config, assembly.services.environ, now)
    servers = compared(now.servers, parts.servers)
    gone, hidden = _tools_that_go(assembly, parts)
    tools = [each for each in assembly.server.toolbox.tools if each.address not in gone]
    return {
        "servers": servers,
        "views": compared(now.settings.views, parts.settings.views),
        "tools": {
            "removed": sorted(gone)[:MAX_LISTED],
            "added": sorted(hidden)[:MAX_LISTED],
            "changed": _changed_risks(tools, now.policy, parts.policy),
            "unknown": [*servers["added"], *servers["changed"]],
        },
        "names": _changed_names(assembly, parts, tools),
        "rights": await _changed_rights(assembly, tools, parts.policy),
        "restart": restart_needed(assembly.started, parts.settings),
        "warnings": list(parts.written.warnings),
    }


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return which members of a mapping are added, changed and removed."""
    return {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(name for name in before if name in after and before[name] != after[name]),
        "removed": sorted(before.keys() - after.keys()),
    }


def _tools_that_go(assembly: Assembly, parts: Parts) -> tuple[set[str], set[str]]:
    """Return the addresses of tools that disappear, and of hidden tools that would appear."""
    gone, added = set[str](), set[str]()
    by_name = {getattr(each, "namespace", "") or name: each for name, each in parts.servers.items()}
    for name, upstream in assembly.server.toolbox.upstreams.items():
        server = by_name.get(name)
        if server is None or not getattr(server, "enabled", True):
            gone |= {each.address for each in upstream.entries}
            continue
        filter = getattr(server, "tools", None)
        if not isinstance(filter, ToolFilter):
            continue
        gone |= {each.address for each in upstream.entries if not filter.admits(each.tool.name)}
        hidden = [each.name for each in upstream.unusable if each.is_hidden]
        added |= {f"{name}:{each}" for each in hidden if filter.admits(each)}
    return gone, added


def _changed_risks(tools: Iterable[Entry], before: Policy, after: Policy) -> list[JsonObject]:
    changed = [
        {"address": each.address, "risk": after.risk(each), "before": before.risk(each)}
        for each in tools
        if before.risk(each) != after.risk(each)
    ]
    return changed[:MAX_LISTED]


def _changed_names(assembly: Assembly, parts: Parts, tools: Iterable[Entry]) -> list[JsonObject]:
    """Return the tools whose names change because `names` of their view changes."""
    now, then = assembly.parts.settings.views, parts.settings.views
    views = [name for name in now if name in then and now[name].names != then[name].names]
    changed = []
    for view in views:
        for each in tools:
            plain = plain_name(each.server, each.tool.name)
            names = {"plain": plain, "wire": each.wire_name}
            before, after = names[now[view].names], names[then[view].names]
            changed.append({"view": view, "address": each.address, "name": after, "before": before})
    return changed[:MAX_LISTED]


async def _changed_rights(
    assembly: Assembly, tools: list[Entry], after: Policy
) -> list[JsonObject]:
    """Return the keys that gain or lose access to tools that remain."""
    before = assembly.parts.policy
    changed = []
    for known in assembly.services.keys.active()[:MAX_KEYS]:
        gains, loses = _difference(known, tools, before, after)
        if gains or loses:
            stored = known.stored
            changed.append(
                {
                    "key": stored.id,
                    "user": f"user:{stored.user}",
                    "gains": gains[:MAX_LISTED],
                    "loses": loses[:MAX_LISTED],
                }
            )
        await asyncio.sleep(0)  # lets other tasks run, because there may be many keys
        if len(changed) == MAX_LISTED:
            break
    return changed


def _difference(
    known: KnownKey, tools: Iterable[Entry], before: Policy, after: Policy
) -> tuple[list[str], list[str]]:
    caller = Caller(known.principal)
    gains, loses = [], []
    for each in tools:
        could = before.decide(caller, each).effect != "deny"
        can = after.decide(caller, each).effect != "deny"
        if can and not could:
            gains.append(each.address)
        elif could and not can:
            loses.append(each.address)
    return gains, loses
