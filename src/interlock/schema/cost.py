"""The cost of a validation: the number of rules that may apply, counted before it starts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from interlock.errors import SchemaError
from interlock.schema.inspection import MAX_JSON_DEPTH, SchemaRule, Survey

MAX_RULES_PER_VALUE = 100_000  # rules for one value, with all references followed
MAX_REFERENCE_CHAIN = 100
MAX_PATHS = 20_000
MAX_WORK = 10_000_000  # rules times values; applying a rule to a value takes 5 to 12 ns
MAX_STEPS = 20_000  # steps of counting, for all depths together; a step takes about 1 µs


def by_depth(survey: Survey) -> list[int]:
    """Count the rules that may apply to one value, by how deep the value is nested.

    Entry d is for a value with d levels below it. The last entry also covers deeper values; it
    exceeds `MAX_WORK` if the count of a recursive schema explodes.

    Raises:
        SchemaError: There are too many rules, or a rule leads back to itself for the same value.
    """
    if survey.is_tree():
        return [sum(rule.weight for rule in survey.rules.values()) or 1]
    if survey.root is None:
        return [1]
    flats = _flatten_all(survey.root, survey.repeats)
    level = dict.fromkeys(flats, 0)
    belows = {id(flat.below): flat.below for flat in flats.values()}  # many rules share one
    steps = len(flats) + sum(len(each) for below in belows.values() for each in below.values())
    counted = max(3, MAX_STEPS // steps)
    costs: list[int] = []
    for _ in range(MAX_JSON_DEPTH + 1):
        inside = {key: _cost(below, level) for key, below in belows.items()}
        deeper = {rule: flat.weight + inside[id(flat.below)] for rule, flat in flats.items()}
        if deeper == level:
            break
        costs.append(deeper[survey.root])
        if costs[-1] > MAX_WORK:
            break
        if len(costs) == counted:
            costs += _at_most(costs[-1], max(deeper[rule] / level[rule] for rule in flats))
            break
        level = deeper
    return costs


def _at_most(cost: int, growth: float) -> Iterator[int]:
    """Return upper bounds for greater depths, where counting would take too long.

    A count is a sum and a maximum of the counts below, times constants. So no count grows by a
    greater factor per level than the largest factor so far.
    """
    for _ in range(MAX_JSON_DEPTH):
        cost = math.ceil(cost * growth)
        yield cost
        if cost > MAX_WORK:
            return


class _Flat:
    """A rule together with all rules that apply to the same value.

    Attributes:
        weight: Their summed weight, for the value itself.
        below: The rules that apply to each member or item, with their number of uses.
    """

    __slots__ = ("below", "weight")

    def __init__(self, weight: int, below: dict[str | int, dict[SchemaRule, int]]) -> None:
        self.weight = weight
        self.below = below


def _flatten_all(root: SchemaRule, repeats: int) -> dict[SchemaRule, _Flat]:
    """Flatten all rules that are reachable from the root."""
    flats: dict[SchemaRule, _Flat | None] = {}
    reached = {root: None}
    queue = [root]
    entries = 0
    for rule in queue:  # the queue grows in the loop
        flat = _flatten(rule, flats, repeats, 0)
        for members in flat.below.values():
            entries += len(members)
            queue += [member for member in members if member not in reached]
            reached.update(dict.fromkeys(members))
        if entries > MAX_PATHS:
            raise SchemaError(
                f"the schema is too complex: its references form over {MAX_PATHS:,} paths"
            )
    return {rule: flat for rule, flat in flats.items() if flat is not None}


def _flatten(
    rule: SchemaRule, flats: dict[SchemaRule, _Flat | None], repeats: int, depth: int
) -> _Flat:
    """Add up the rules for the same value, including those behind references."""
    if rule in flats:
        flat = flats[rule]
        if flat is None:
            raise SchemaError(
                "a reference leads back to its own place without going deeper into the value, "
                "so checking would never end"
            )
        return flat
    if depth > MAX_REFERENCE_CHAIN:
        raise SchemaError(f"more than {MAX_REFERENCE_CHAIN} rules lead from one to the next")
    flats[rule] = None  # marks the rule as being counted
    inner = [_flatten(other, flats, repeats, depth + 1) for other in rule.here]
    weight = rule.weight + repeats * sum(flat.weight for flat in inner)
    if weight > MAX_RULES_PER_VALUE:
        raise SchemaError(
            f"with its references followed, the schema has more than {MAX_RULES_PER_VALUE:,} "
            "rules for one value"
        )
    if len(inner) == repeats == 1 and not rule.below:
        below = inner[0].below
    else:
        below = {}
        for flat in inner:
            for label, members in flat.below.items():
                counted = below.setdefault(label, {})
                for member, times in members.items():
                    counted[member] = counted.get(member, 0) + times * repeats
        for label, member in rule.below:
            counted = below.setdefault(label, {})
            counted[member] = counted.get(member, 0) + 1
    flats[rule] = flat = _Flat(weight, below)
    return flat


def _cost(below: dict[str | int, dict[SchemaRule, int]], level: dict[SchemaRule, int]) -> int:
    """Count the rules for the members of a value, along the most expensive path."""
    named = indexed = every_property = every_item = 0
    for label, members in below.items():
        cost = sum([times * level[member] for member, times in members.items()])
        if label == "{}":
            every_property = cost
        elif label == "[]":
            every_item = cost
        elif isinstance(label, int):
            indexed = max(indexed, cost)
        else:
            named = max(named, cost)
    return max(named + every_property, indexed + every_item)
