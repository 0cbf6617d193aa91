"""Decisions of a policy of 50 rules, beside the conditions alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter, process_time

from benchmarks.harness import BARE, US, Effort, Row, Sample, contest
from interlock.auth import Principal
from interlock.calls import Caller, Entry
from interlock.config.gateway import PolicyRules, Rule
from interlock.config.servers import ToolRisk
from interlock.policy import Policy
from interlock.schema import condition
from interlock.types import Tool

TITLE = "Decisions of a policy, 50 rules"
CALLER = Caller(
    Principal("user:anna", frozenset({"mcp:*"}), key_id="k", groups=frozenset({"support"}))
)
AMOUNT = condition.compile({"maximum": 50})
ENV = condition.compile({"pattern": "^prod"})
ARGUMENTS = {"amount": 30, "env": "dev", "note": "for the broken lamp"}


def entry(server: str, name: str) -> Entry:
    return Entry(server, Tool(name, {"type": "object"}), f"{server}:{name}", name, b"{}")


def rule(id: str, effect: str, who: str, pattern: str, **members: object) -> Rule:
    return Rule(id=id, effect=effect, who=(who,), kind="tools", patterns=(pattern,), **members)


def policy() -> Policy:
    rules = [
        rule("everybody-reads", "allow", "*", "*:*", risk="read"),
        rule("small-refunds", "allow", "group:support", "crm:refund", arguments={"amount": AMOUNT}),
        rule("never-prod", "deny", "*", "*:*", arguments={"env": ENV}),
    ]
    for index in range(47):
        who = "*" if index % 5 == 0 else f"group:team{index}"
        rules.append(rule(f"r{index}", "allow", who, f"server{index}:get_*"))
    risks = {"crm": ToolRisk(read=("get_*",))}
    return Policy.compile(PolicyRules(rules=tuple(rules)), risks=risks)


def rows(effort: Effort) -> Iterator[Row]:
    refund = entry("crm", "refund")
    compiled = policy()

    def decide() -> None:
        compiled.decide(CALLER, refund, ARGUMENTS)

    def conditions() -> None:
        ENV.may_hold(ARGUMENTS["env"])
        AMOUNT.holds(ARGUMENTS["amount"])

    def decide_anew() -> None:
        compiled.decide(CALLER, entry("crm", "refund"), ARGUMENTS)

    def make_entry() -> None:
        entry("crm", "refund")

    assert compiled.decide(CALLER, refund, ARGUMENTS).rule == "small-refunds"
    decided = contest({US: rate(decide, effort), BARE: rate(conditions, effort)}, effort.rounds)
    yield Row("a call with two conditions", "s", decided, {US: 1e-6})
    anew = contest({US: rate(decide_anew, effort), BARE: rate(make_entry, effort)}, effort.rounds)
    yield Row("the same, for a tool that is new", "s", anew, {US: 15e-6})
    tools = [entry(f"server{index % 50}", f"get_{index}") for index in range(1_000)]

    def list_tools() -> float:
        fresh, started = policy(), process_time()
        for each in tools:
            fresh.decide(CALLER, each)
        return process_time() - started

    yield Row("1,000 tools listed for a new caller", "s", contest({US: list_tools}, effort.rounds))


def rate(work: Callable[[], None], effort: Effort) -> Sample:
    """Return the processor time of one run, in seconds."""

    def sample() -> float:
        count, ends, started = 0, perf_counter() + effort.seconds, process_time()
        while perf_counter() < ends:
            for _ in range(1_000):
                work()
            count += 1_000
        return (process_time() - started) / count

    return sample
