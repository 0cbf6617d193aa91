"""Tables of values in one test."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.rows import each_row


def test_each_row_of_a_table_is_tested_with_the_same_fixtures():
    seen = []

    @each_row("name, value", [("a", 1), ("b", 2)])
    @each_row("more", [10, 20])
    def test(fixture: list[int], name: str, value: int, more: int):
        seen.append((fixture, name, value + more))

    test(fixture=[0])

    assert seen == [([0], "a", 11), ([0], "a", 21), ([0], "b", 12), ([0], "b", 22)]


def test_a_failing_row_is_named_by_its_values_or_its_id():
    @each_row("value", [2, 3])
    def test(value: int):
        assert value % 2 == 0

    @each_row("value", [2, 3], ids=["even", "odd"])
    async def test_later(value: int):
        await asyncio.sleep(0)
        assert value % 2 == 0

    for call, row in ((test, "value=3"), (lambda: asyncio.run(test_later()), "odd")):
        with pytest.raises(AssertionError) as caught:
            call()
        assert caught.value.__notes__ == [f"in the row {row}"]


def test_a_table_without_rows_or_with_marks_is_refused():
    for table in ([], [pytest.param(1, id="one")]):
        with pytest.raises(ValueError, match="needs rows"):
            each_row("value", table)
