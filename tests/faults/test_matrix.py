"""Every row of the fault matrix: on one transport, or on all of them and in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pytest

from tests.faults.failing_disk import FailingDisk
from tests.faults.harness import measure, run
from tests.faults.matrix import FAULTS, NOT_BUILT, Case, cases

CASES = cases()
IN_TURN = [case for case in CASES if case.name.startswith(("Disk full", "SQLite locked"))]
pytestmark = [
    pytest.mark.slow("each case waits to see that nothing happens after it"),
    pytest.mark.usefixtures("created_databases"),  # as in the report, which runs without fixtures
]


def _marked(chosen: Iterable[Case]) -> Iterator[Any]:
    for case in chosen:
        marks = [pytest.mark.program("PostgreSQL")] if "Postgres" in case.name else []
        yield pytest.param(case, marks=marks, id=case.name)


def _one_of_each_row() -> Iterator[Case]:
    """Yield each row on one of its transports, so that every transport has its share."""
    for number, (_, each) in enumerate(groupby(CASES, key=lambda case: case.row.fault)):
        of_row = list(each)
        yield of_row[number % len(of_row)]


@pytest.mark.parametrize("case", list(_marked(_one_of_each_row())))
def test_case_has_its_outcome_and_leaks_nothing(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FailingDisk, "step", 3)
    run(case)


@pytest.mark.product
@pytest.mark.parametrize("case", list(_marked(CASES)))
def test_case_keeps_its_promise_in_time(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FailingDisk, "step", 3)
    measure(case)


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
