"""Every row of the fault matrix, on every transport that it applies to."""

from __future__ import annotations

import pytest

from tests.faults.harness import run
from tests.faults.matrix import FAULTS, NOT_BUILT, Case, cases

CASES = cases()
pytestmark = pytest.mark.slow("each case waits to see that nothing happens after it")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case_keeps_its_promise_and_leaks_nothing(case: Case):
    run(case)


def test_every_fault_of_the_matrix_has_a_row():
    have = {case.row.fault.partition(":")[0] for case in CASES}

    assert have == set(FAULTS)
    assert not have & NOT_BUILT.keys()


def test_case_names_are_unique():
    names = [case.name for case in CASES]

    assert len(set(names)) == len(names)
