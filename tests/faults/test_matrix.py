"""Every row of the fault matrix, on every transport that it applies to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from tests.faults.failing_disk import FailingDisk
from tests.faults.harness import run
from tests.faults.matrix import FAULTS, NOT_BUILT, Case, cases

CASES = cases()
IN_TURN = [case for case in CASES if case.name.startswith(("Disk full", "SQLite locked"))]
KEPT = 3  # transports of a row that `make test` tries; the others are left to `make soak`
pytestmark = [
    pytest.mark.slow("each case waits to see that nothing happens after it"),
    pytest.mark.usefixtures("created_databases"),  # as in the report, which runs without fixtures
]


def _marked() -> Iterator[Any]:
    """Yield the cases; of a row with many transports, all but the first and two others as product.

    Which two depends on the row, so every transport has its share.
    """
    for number, (_, each) in enumerate(groupby(CASES, key=lambda case: case.row.fault)):
        of_row = list(each)
        others = of_row[1:]
        turn = number % max(len(others), 1)
        kept = [*of_row[:1], *(others[turn:] + others[:turn])[: KEPT - 1]]
        for case in of_row:
            marks = [] if case in kept else [pytest.mark.product]
            yield pytest.param(case, marks=marks, id=case.name)


@pytest.mark.parametrize("case", list(_marked()))
def test_case_keeps_its_promise_and_leaks_nothing(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FailingDisk, "step", 3)
    run(case)


@pytest.mark.product
@pytest.mark.parametrize("case", IN_TURN, ids=lambda case: case.name)
def test_each_operation_of_a_disk_can_fail(case: Case):
    run(case)


def test_every_fault_of_the_matrix_has_a_row():
    have = {case.row.fault.partition(":")[0] for case in CASES}

    assert have == set(FAULTS)
    assert not have & NOT_BUILT.keys()


def test_case_names_are_unique():
    names = [case.name for case in CASES]

    assert len(set(names)) == len(names)
