"""Conditions against a second, naive implementation, and what a wrong one says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import SchemaError
from interlock.schema import condition
from tests.support.rows import each_row


@each_row(
    ("document", "holds", "fails", "another_type"),
    [
        ({"maximum": 50}, [50, 0.5], [51], ["50", True, None, [50]]),
        ({"pattern": "^prod"}, ["prod-1"], ["dev"], [["prod"], 5, {"prod": 1}]),
        ({"const": "acme"}, ["acme"], ["Acme", "acme "], [["acme"], None]),
        ({"const": 1}, [1, 1.0], [2], [True, "1"]),
        ({"enum": ["a", None]}, ["a", None], ["b"], [0, []]),
        ({"type": "integer", "maximum": 5}, [5], [6], [4.5, "4"]),
        ({"type": ["string", "null"], "pattern": "a"}, ["a", None], ["b"], [1]),
        ({"type": "string"}, ["", "a"], [1, None, []], []),
        ({"items": {"pattern": "^a"}}, [[], ["ab"]], [["b"]], ["a"]),
        ({"properties": {"a": {"minimum": 1}}}, [{"a": 1}, {}], [{"a": 0}], [[], 1]),
        ({"not": {"pattern": "^dev"}}, ["prod"], ["dev"], [5]),
        ({"anyOf": [{"pattern": "^a"}, {"minimum": 5}]}, ["a", 5], ["b", 4], [None, []]),
        ({"allOf": [{"minLength": 2}, {"pattern": "^a"}]}, ["ab"], ["a", "bb"], [5]),
        ({"uniqueItems": True}, [[1, 2]], [[1, 1]], ["11"]),
        ({"required": ["a"]}, [{"a": 1}], [{}], [["a"]]),
        ({}, [None, 1, "a", []], [], []),
    ],
)
def test_condition_is_met_failed_or_not_applicable_by_type(
    document: dict[str, Any], holds: list[Any], fails: list[Any], another_type: list[Any]
):
    compiled = condition.compile(document)

    assert [(compiled.holds(value), compiled.may_hold(value)) for value in holds] == (
        [(True, True)] * len(holds)
    )
    assert [(compiled.holds(value), compiled.may_hold(value)) for value in fails] == (
        [(False, False)] * len(fails)
    )
    assert [(compiled.holds(value), compiled.may_hold(value)) for value in another_type] == (
        [(False, True)] * len(another_type)
    )


@each_row(
    ("document", "value"),
    [
        ({"items": {"pattern": "^prod"}}, [["prod"]]),
        ({"properties": {"env": {"pattern": "^prod"}}}, {"env": ["prod"]}),
        ({"contains": {"const": "prod"}}, [["prod"]]),
        ({"not": {"items": {"not": {"pattern": "^prod"}}}}, [["prod"]]),
        ({"additionalProperties": {"maximum": 1}}, {"a": "2"}),
    ],
)
def test_parts_of_a_value_are_read_as_strictly_or_leniently_as_the_whole(document: Any, value: Any):
    compiled = condition.compile(document)

    assert not compiled.holds(value)
    assert compiled.may_hold(value)


@each_row(
    ("value", "holds", "may_hold"),
    [
        ("/srv/data", True, True),
        ("/srv/data/", True, True),
        ("/srv/data/a/b.txt", True, True),
        ("/srv/data/..a/...", True, True),
        ("/srv/database", False, False),
        ("/srv", False, False),
        ("/", False, False),
        ("/srv/data/../secret", False, True),
        ("/srv/./data/a", False, True),
        ("/srv//data/a", False, True),
        ("/srv/data/a\n", False, True),
        ("/srv/data/..\\..\\a", False, True),
        ("data/a", False, True),
        ("", False, True),
        (["/srv/data"], False, True),
    ],
)
def test_under_condition_accepts_no_path_that_leaves_the_folder(
    value: Any, holds: bool, may_hold: bool
):
    compiled = condition.compile({"under": "/srv/data"})

    assert (compiled.holds(value), compiled.may_hold(value)) == (holds, may_hold)


def test_under_condition_matches_the_folder_name_literally():
    compiled = condition.compile({"under": "/srv/a+b (c)/[d].e/"})

    assert compiled.holds("/srv/a+b (c)/[d].e/file")
    assert not compiled.holds("/srv/aab (c)/[d].e/file")
    assert not compiled.holds("/srv/a+b (c)/[d]xe/file")


@each_row(
    ("document", "value", "keyword"),
    [
        ({"maximum": 50}, 80, "maximum"),
        ({"maximum": 50}, "80", "type"),
        ({"under": "/srv"}, "/etc", "under"),
        ({"pattern": "^a", "under": "/srv"}, "/etc", "pattern"),
        ({"items": {"maxLength": 1}}, ["aa"], "maxLength"),
        ({"not": {"const": "a"}}, "a", "not"),
        ({"maximum": 50}, 20, ""),
        ({"maxLength": 1}, "\ud800", "type"),
    ],
)
def test_the_failed_keyword_is_named(document: dict[str, Any], value: Any, keyword: str):
    assert condition.compile(document).failed_keyword(value) == keyword


def test_every_schema_keyword_has_an_error_text():
    for keyword in (*condition.KEYWORDS, "falseSchema"):
        assert condition.problem(keyword)
    assert condition.problem("maximum") == "is over its maximum"


@each_row(
    ("document", "problem"),
    [
        ([], "must be an object of JSON Schema, not a list"),
        ({"maximun": 3}, "unknown keyword 'maximun' (did you mean 'maximum'?)"),
        ({"items": {"format": "email"}}, "items: unknown keyword 'format'"),
        ({"$ref": "https://a.example"}, "unknown keyword '$ref'"),
        ({"oneOf": []}, "unknown keyword 'oneOf' (did you mean 'anyOf'?)"),
        ({"anyOf": []}, "anyOf: must be a list of conditions"),
        ({"properties": []}, "properties: must be an object of conditions"),
        ({"not": 5}, "not: must be an object, not a number"),
        ({"minimum": "1"}, "minimum: must be of type number"),
        ({"items": {"minLength": -1}}, "items.minLength: is not valid for this keyword"),
        ({"type": "strng"}, "type: is not valid for this keyword"),
        ({"pattern": "a{1000}{1000}"}, "pattern: is not a regular expression that runs in linear"),
        ({"pattern": r"(a)\1"}, "pattern: is not a regular expression that runs in linear time"),
        ({"maximum": 3, "pattern": "a"}, "has keywords of different types, so no value fits"),
        ({"type": "string", "maximum": 3}, "has keywords of different types, so no value fits"),
        ({"allOf": [{"maximum": 3}, {"pattern": "a"}]}, "has keywords of different types"),
        ({"under": 5}, "under: must be the path of a folder"),
        ({"under": "srv"}, "under: must be an absolute path without . and .. segments"),
        ({"absent": 1}, "absent: must be true or false"),
        ({"items": {"absent": True}}, "items: unknown keyword 'absent'"),
    ],
)
def test_a_wrong_condition_is_refused_with_its_place(document: Any, problem: str):
    with pytest.raises(SchemaError) as caught:
        condition.compile(document)

    assert str(caught.value).startswith(problem)


def test_a_deep_condition_is_refused():
    document: dict[str, Any] = {"const": 1}
    for _ in range(40):
        document = {"not": document}

    with pytest.raises(SchemaError, match="nested deeper than 16 levels"):
        condition.compile(document)


def test_conditions_with_equal_members_are_equal_and_their_repr_has_no_value():
    compiled = condition.compile({"const": "canary", "absent": True})

    assert compiled == condition.compile({"absent": True, "const": "canary"})
    assert compiled != condition.compile({"const": "canary"})
    assert compiled.accepts_absence
    assert "canary" not in repr(compiled)


# A second implementation, which is slow and has no schema in it

STRINGS = st.text("abp/.", max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | STRINGS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
LEAVES = st.one_of(
    st.fixed_dictionaries({"maximum": st.integers(-2, 2)}),
    st.fixed_dictionaries({"exclusiveMinimum": st.integers(-2, 2)}),
    st.fixed_dictionaries({"pattern": st.sampled_from(["^a", "b$", "p"])}),
    st.fixed_dictionaries({"maxLength": st.integers(0, 2)}),
    st.fixed_dictionaries({"const": st.integers(-2, 2) | STRINGS}),
    st.fixed_dictionaries({"under": st.sampled_from(["/a", "/", "/a/b"])}),
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("ab"), inner)}),
    ),
    max_leaves=4,
)


def kind(value: Any) -> str:
    for type, name in ((bool, "boolean"), (int, "number"), (str, "string"), (list, "array")):
        if isinstance(value, type):
            return name
    return "null" if value is None else "object"


def types(document: dict[str, Any]) -> set[str] | None:
    """The types that a document of one keyword is for; None: all."""
    ((keyword, operand),) = document.items()
    match keyword:
        case "maximum" | "exclusiveMinimum":
            return {"number"}
        case "pattern" | "maxLength" | "under":
            return {"string"}
        case "const":
            return {kind(operand)}
        case "items":
            return {"array"}
        case "properties":
            return {"object"}
        case "not":
            return types(operand)
    branches = [types(each) for each in operand]
    return set().union(*(each or () for each in branches))


def segments_are_plain(path: str) -> bool:
    names = path.removesuffix("/").split("/")[1:]
    return path[:1] == "/" and all(name not in ("", ".", "..") for name in names)


def fits(document: dict[str, Any], value: Any, lenient: bool) -> bool:
    if kind(value) not in (types(document) or ()):
        return lenient
    return inside(document, value, lenient)


def inside(document: dict[str, Any], value: Any, lenient: bool) -> bool:
    """Whether a value fits; one of another type does not, as only a whole value may."""
    if kind(value) not in (types(document) or ()):
        return False
    ((keyword, operand),) = document.items()
    match keyword:
        case "maximum":
            return value <= operand
        case "exclusiveMinimum":
            return value > operand
        case "pattern":
            return re.search(operand, value) is not None
        case "maxLength":
            return len(value) <= operand
        case "const":
            return value == operand
        case "under":
            folder = operand.rstrip("/")
            is_below = value == folder or value.startswith(folder + "/")
            return (is_below and segments_are_plain(value)) or (
                lenient and not segments_are_plain(value)
            )
        case "items":
            return all(fits(operand, each, lenient) for each in value)
        case "properties":
            return all(
                fits(inner, value[name], lenient)
                for name, inner in operand.items()
                if name in value
            )
        case "not":
            return not inside(operand, value, not lenient)
    return any(inside(each, value, lenient) for each in operand)


@given(DOCUMENTS, st.lists(VALUES, min_size=1, max_size=4))
def test_conditions_give_the_same_results_as_a_naive_implementation(
    document: dict[str, Any], values: list[Any]
):
    compiled = condition.compile(document)

    for value in values:
        assert compiled.holds(value) == fits(document, value, lenient=False), value
        assert compiled.may_hold(value) == fits(document, value, lenient=True), value
        assert bool(compiled.failed_keyword(value)) != compiled.holds(value)
        assert compiled.may_hold(value) or not compiled.holds(value)
