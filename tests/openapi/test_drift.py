"""Answers that differ from their document: what still fits, and what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interlock.openapi.drift import MAX_PLACES, Drift, fitting
from tests.support.rows import each_row

PET = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "additionalProperties": {"type": "string"},
}
SCHEMA = {"type": "array", "items": {"$ref": "#/$defs/pet"}, "$defs": {"pet": PET}}


@each_row(
    ("value", "fitted", "places"),
    [
        ([{"id": 1, "tags": ["a"], "more": "b"}], [{"id": 1, "tags": ["a"], "more": "b"}], []),
        ([{"id": 1.0}], [{"id": 1.0}], []),
        ([{"id": "one", "tags": ["a", 2]}], [{"tags": ["a"]}], ["[].id is text", "[].tags[] is 2"]),
        ([{"id": True}, {"id": 2}], [{}, {"id": 2}], ["[].id is true"]),
        ([{"more": 5}], [{}], ["[].* is 5"]),
        ({"error": "x"}, None, ["the answer is an object"]),
    ],
)
def test_valid_parts_are_kept_and_invalid_parts_are_named_without_their_value(
    value: Any, fitted: Any, places: list[str]
) -> None:
    found, named = fitting(value, SCHEMA, None)

    assert found == fitted
    assert [each.partition(" is ")[0] for each in named] == [
        each.partition(" is ")[0] for each in places
    ]
    assert "one" not in str(named)


def test_fitting_uses_the_alternative_with_the_fewest_violations() -> None:
    schema = {"anyOf": [{"type": "string"}, PET]}

    assert fitting("text", schema, None) == ("text", [])
    assert fitting({"id": "x", "tags": ["a"]}, schema, None)[0] == {"tags": ["a"]}


def test_counts_of_two_runs_add_up_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "state" / "drift.json"
    for times in (1, 2):
        drift = Drift()
        drift.note("list", ["id is text"], times)
        drift.keep(file)
        drift.keep(file)  # nothing is counted twice

    assert Drift.kept(file).lines == ["tool 'list': id is text (3 times)"]
    file.write_text("not JSON")
    assert Drift.kept(file).lines == []


def test_names_that_an_api_makes_up_do_not_grow_the_counts_without_end() -> None:
    drift = Drift()
    drift.note("list", [f"p{number} is text" for number in range(MAX_PLACES + 10)])

    assert len(drift.lines) == MAX_PLACES + 1
    assert "tool 'list': other places (10 times)" in drift.lines
