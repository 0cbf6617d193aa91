"""Counts the tools that a key can call now, and explains why it cannot call the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from interlock.cli.server_status import is_broken, problem_of
from interlock.cli.terminal import safe_line, working

if TYPE_CHECKING:
    from interlock.auth.stored_key import StoredKey
    from interlock.calls import Entry
    from interlock.config import Config
    from interlock.toolbox import ServerStatus

IDLE_TIMEOUT = 5.0  # seconds; stop waiting if no server becomes ready or fails for so long

_NOT_COUNTED = "not counted, as each user needs a credential of their own: the tools of server"
_WORDS = {
    "read_only": "are risk write, and the policy is read-only",
    "not_in_view": "are not in its view",
    "denied_by_rule": "are denied by a rule",
    "no_rule": "are allowed by no rule",
}


async def describe_reach(config: Config, key: StoredKey) -> list[str]:
    """Start the configured servers briefly; return lines about the tools that a key can call.

    The lines name each server that does not start in time, or needs each user's credential.
    """
    from interlock.toolbox import Toolbox
    from interlock.toolbox.user_credentials import needs_of

    if not any(scope.startswith("mcp:") for scope in key.scopes):
        return ["the key opens the admin listener, and no tools"]
    if not any(each.enabled for each in config.servers.values()):
        return ["no servers are configured yet; add one with `interlock servers add NAME COMMAND`"]
    personal = [name for name, each in config.servers.items() if needs_of(each)]
    toolbox = Toolbox({n: each for n, each in config.servers.items() if n not in personal})
    try:
        with working("listing the tools that the key can call"):
            await toolbox.open(idle_timeout=IDLE_TIMEOUT)
        lines = [_summary(config, key, toolbox.tools)]
        lines += _missing(toolbox.status.values())
        return lines + [safe_line(f"{_NOT_COUNTED} {name!r}") for name in personal]
    finally:
        await toolbox.close()


def _summary(config: Config, key: StoredKey, tools: Iterable[Entry]) -> str:
    from interlock.auth.key_ring import principal_of
    from interlock.calls import Caller
    from interlock.policy import Policy

    policy, caller = Policy.from_config(config), Caller(principal_of(key))
    total, reasons = 0, Counter[str]()
    for entry in tools:
        total += 1
        decision = policy.decide(caller, entry)
        reason: str = decision.reason if decision.effect != "allow" else ""
        if reason == "scope":
            reason = f"scope {policy.risk(entry)}"
        reasons[reason] += 1
    callable_now = reasons.pop("", 0)
    scopes = ", ".join(key.scopes)
    words = _WORDS | {
        "scope write": "are risk write: add --scope mcp:*, or mark what only reads in tools.risk",
        "scope read": f"are not covered by {scopes}",
        "approval_required": "need an approval for each call",
    }
    others = [_count(number, words[reason]) for reason, number in reasons.most_common()]
    return "; ".join([f"the key can call {callable_now} of {total} tools now", *others])


def _count(number: int, words: str) -> str:
    if number == 1:
        words = words.replace("are ", "is ", 1).replace("need ", "needs ", 1)
    return f"{number} {words}"


def _missing(servers: Iterable[ServerStatus]) -> list[str]:
    lines = []
    for each in servers:
        if each.state == "starting":
            lines.append(f"server {each.name} did not answer within {IDLE_TIMEOUT:g} s")
        elif is_broken(each):
            lines.append(problem_of(each))
    return [safe_line(line) for line in lines]
