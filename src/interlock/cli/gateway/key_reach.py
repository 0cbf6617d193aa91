"""Counts the tools that a key can call now, and explains why it cannot call the others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from interlock.cli.terminal import safe_line
from interlock.errors import ConfigError

if TYPE_CHECKING:
    from interlock.auth.stored_key import StoredKey
    from interlock.calls import Entry
    from interlock.config import Config
    from interlock.policy import Policy
    from interlock.toolbox import Toolbox

_NOT_LISTED = (
    "the tools of {} are not counted: no gateway has listed them yet; "
    "the first `interlock serve` does"
)
_NOT_STORED = 'the tools of {} are not counted: "lock.mode" is "off", which stores no lists'
_WORDS = {
    "read_only": "are risk write, and the policy is read-only",
    "not_in_view": "are not in its view",
    "denied_by_rule": "are denied by a rule",
    "no_rule": "are allowed by no rule",
}


async def describe_reach(config: Config, key: StoredKey) -> list[str]:
    """Return lines about the tools that a key can call, by the lists that a gateway stored.

    The lines name the servers that no gateway has listed yet. No server is started.
    """
    from interlock.cli.database_options import database_of
    from interlock.cli.gateway.last_lists import stored_lists
    from interlock.gateway.parts import make_parts
    from interlock.store.database.location import find

    if not any(scope.startswith("mcp:") for scope in key.scopes):
        note = "the key opens the admin listener, and no tools"
        needed = "" if "admin:read" in key.scopes else "; the board also needs --scope admin:read"
        return [note + needed]
    if not any(each.enabled for each in config.servers.values()):
        return ["no servers are configured yet; add one with `interlock servers add NAME COMMAND`"]
    try:
        parts = make_parts(config, os.environ)
    except ConfigError as error:
        return [safe_line(f"the tools that the key can call are not counted: {error}")]
    async with stored_lists(parts.servers, find(database_of(config))) as (toolbox, _):
        lines = _without_server(key, toolbox)
        unlisted = [
            each.name for each in toolbox.status.values() if each.state not in ("ok", "disabled")
        ]
        if toolbox.tools or not unlisted:
            lines.insert(0, _summary(parts.policy, key, toolbox.tools))
    if unlisted:
        is_stored = parts.settings.lock.mode != "off"
        text = _NOT_LISTED if is_stored else _NOT_STORED
        lines.append(safe_line(text.format(", ".join(map(repr, unlisted)))))
    return lines


def _without_server(key: StoredKey, toolbox: Toolbox) -> list[str]:
    """Return a line for each scope that names a server which is not configured."""
    from interlock.config.gateway import OWN
    from interlock.config.section import nearest

    named = {scope.split(":")[1] for scope in key.scopes if scope.count(":") > 1}
    unknown = sorted(named - toolbox.upstreams.keys() - {OWN})
    return [
        safe_line(f"no server is named {name!r}{nearest(name, toolbox.upstreams)}: see --scope")
        for name in unknown
    ]


def _summary(policy: Policy, key: StoredKey, tools: Iterable[Entry]) -> str:
    from interlock.auth.key_ring import principal_of
    from interlock.calls import Caller

    caller = Caller(principal_of(key))
    total, reasons = 0, Counter[str]()
    for entry in tools:
        total += 1
        decision = policy.decide(caller, entry)
        reason: str = decision.reason if decision.effect != "allow" else ""
        if reason == "scope" and policy.risk(entry) == "write" and "mcp:read" in key.scopes:
            reason = "scope write"
        reasons[reason] += 1
    callable_now = reasons.pop("", 0)
    scopes = ", ".join(key.scopes)
    words = _WORDS | {
        "scope write": "are risk write: add --scope mcp:*, or mark what only reads in tools.risk",
        "scope": f"are not covered by {scopes}",
        "approval_required": "need an approval for each call",
    }
    others = [_count(number, words[reason]) for reason, number in reasons.most_common()]
    return "; ".join([f"the key can call {callable_now} of {total} tools now", *others])


def _count(number: int, words: str) -> str:
    if number == 1:
        words = words.replace("are ", "is ", 1).replace("need ", "needs ", 1)
    return f"{number} {words}"
