"""Policy: the decision whether a caller may make a call, with the reason.

1. A call is made only if the caller's view contains the tool, a scope of the caller includes the
   tool, and the policy allows the call. Lists, calls and explanations all use `Policy.decide`.
2. The order of rules does not matter. Of all matching rules, "deny" takes precedence over "ask",
   and "ask" over "allow". Among "ask" rules, those that callers cannot approve themselves come
   first.
3. A call that no rule allows is denied. Without a policy, only scopes and views decide.
4. If a value has another type than a condition implies, the condition of an "allow" or "ask" rule
   fails, but that of a "deny" rule is met.
5. If no arguments are given, rules with conditions on arguments are uncertain. A tool is then
   listed unless every call of it would be denied.
"""

from __future__ import annotations

from interlock.calls import Item
from interlock.calls.decision import Decision, Reason, RuleFact, Step
from interlock.policy.policy import LOCAL_USER, Policy
from interlock.policy.rules import CompiledView
from interlock.policy.warnings import find_unasked, find_unchecked, find_warnings

__all__ = [
    "LOCAL_USER",
    "CompiledView",
    "Decision",
    "Item",
    "Policy",
    "Reason",
    "RuleFact",
    "Step",
    "find_unasked",
    "find_unchecked",
    "find_warnings",
]
