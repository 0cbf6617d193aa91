"""Policy: the decision whether a caller may make a call, with its reason.

1. A call needs all of these: the caller's view has the tool, one of its scopes covers it, and the
   policy allows it. Lists, calls and explanations use the same function, `Policy.decide`.
2. Rules have no order. A denial beats a question, and a question beats an allowance. Of several
   questions, one that the caller cannot answer itself comes first.
3. A call that no rule allows is denied. Without a policy, scopes and views alone decide.
4. For a value of another type, an allowance or a question does not hold, and a denial does.
5. Without arguments a rule that has conditions on them is uncertain: a tool is listed unless every
   call of it would be denied.
"""

from __future__ import annotations

from interlock.calls import Item
from interlock.calls.decision import Decision, Reason, RuleFact, Step
from interlock.policy.policy import LOCAL_USER, Policy, opens_any
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
    "opens_any",
]
