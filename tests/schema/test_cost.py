from itertools import pairwise
from typing import Any

import pytest

from interlock.errors import SchemaError
from interlock.schema import cost
from interlock.schema.inspection import Survey
from tests.schema.documents import doubling
from tests.support.rows import each_row


def cost_by_depth(document: Any) -> list[int]:
    return cost.by_depth(Survey(document))


@each_row(
    ("document", "expected"),
    [
        (True, [1]),
        ({}, [1]),
        ({"type": "integer"}, [2]),
        ({"properties": {"a": {"type": "integer"}}}, [4]),
        ({"enum": list(range(32))}, [4]),
        ({"multipleOf": 0.5}, [302]),
        # For each level below: the rule with the reference, and the one it leads to.
        ({"items": {"$ref": "#"}}, [2, 2 + 4, 2 + 4 + 4]),
    ],
)
def test_rules_are_counted_by_depth(document: Any, expected: list[int]) -> None:
    assert cost_by_depth(document)[: len(expected)] == expected


@each_row(
    ("one", "every"),
    [
        ({"properties": {"a": {"$ref": "#"}}}, {"patternProperties": {"a": {"$ref": "#"}}}),
        ({"prefixItems": [{"$ref": "#"}]}, {"contains": {"$ref": "#"}}),
    ],
)
def test_member_with_its_own_rule_and_a_rule_for_all_members_counts_twice(
    one: dict[str, Any], every: dict[str, Any]
) -> None:
    """Both rules apply to the same member, so the count doubles with each level."""
    growth = [later - earlier for earlier, later in pairwise(cost_by_depth(one | every)[:6])]

    assert all(later == 2 * earlier for earlier, later in pairwise(growth))


def test_counting_stops_when_the_count_exceeds_the_limit() -> None:
    each = {"properties": {"a": {"$ref": "#"}}}
    *within, last = cost_by_depth({"anyOf": [each, each]})

    assert max(within) <= cost.MAX_WORK < last


def web(size: int, ways: int) -> dict[str, Any]:
    """Return a schema of `size` kinds of objects, each with `ways` members of other kinds."""
    kinds = {
        f"k{i}": {
            "properties": {f"p{j}": {"$ref": f"#/$defs/k{i * j % size}"} for j in range(ways)}
        }
        for i in range(size)
    }
    return {"$ref": "#/$defs/k1", "$defs": kinds}


@each_row(
    "document",
    [
        web(5, 3),
        web(40, 9),
        {"items": {"$ref": "#"}, "minItems": 1},
        {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}, "title": "x"}]},
        {"additionalProperties": {"items": {"allOf": [{"$ref": "#"}, {"title": "x"}]}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"items": {"items": {"type": "null"}}}}}},
    ],
)
def test_estimated_bounds_beyond_the_counted_depths_are_never_too_small(
    document: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "MAX_STEPS", 10**9)
    counted = cost_by_depth(document)
    monkeypatch.setattr(cost, "MAX_STEPS", 0)
    bounded = cost_by_depth(document)

    assert bounded[:3] == counted[:3]
    for depth, each in enumerate(counted):
        assert bounded[min(depth, len(bounded) - 1)] >= min(each, cost.MAX_WORK)


def test_the_number_of_counting_steps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    count = cost._cost

    def counted(below: Any, level: Any) -> int:
        steps.append(len(below))
        return count(below, level)

    monkeypatch.setattr(cost, "_cost", counted)
    costs = cost_by_depth(web(80, 12))

    assert sum(steps) < cost.MAX_STEPS
    assert costs[-1] > costs[5] > costs[4]


def test_a_rule_that_leads_back_to_itself_is_refused() -> None:
    with pytest.raises(SchemaError, match="checking would never end"):
        cost_by_depth({"$ref": "#"})


@each_row("keyword", ["anyOf", "allOf", "oneOf"])
@each_row("steps", [17, 25, 45])
def test_references_that_double_with_each_step_are_refused(keyword: str, steps: int) -> None:
    with pytest.raises(SchemaError, match="more than 100,000 rules for one value"):
        cost_by_depth(doubling(keyword, steps))


def test_nested_unevaluated_keywords_are_refused() -> None:
    document: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(15):
        document = {"allOf": [document], "unevaluatedProperties": False}

    with pytest.raises(SchemaError, match="more than 100,000 rules"):
        cost_by_depth(document)


def test_a_long_chain_of_references_is_refused() -> None:
    places = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(200)}

    with pytest.raises(SchemaError, match="more than 100 rules lead from one to the next"):
        cost_by_depth({"$ref": "#/$defs/d0", "$defs": {**places, "d200": {}}})


def test_references_along_too_many_paths_are_refused() -> None:
    places = {
        f"a{i}": {"properties": {f"x{k}": {"$ref": f"#/$defs/a{(i * 7 + k) % 40}"}}}
        | {"allOf": [{"$ref": "#/$defs/all"}]}
        for i in range(40)
        for k in range(2)
    }
    every = {"properties": {f"y{k}": {"$ref": "#"} for k in range(900)}}

    with pytest.raises(SchemaError, match="its references form over 20,000 paths"):
        cost_by_depth(
            {"properties": {n: {"$ref": f"#/$defs/{n}"} for n in places}}
            | {"$defs": {**places, "all": every}}
        )
