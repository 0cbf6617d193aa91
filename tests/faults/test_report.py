"""docs/reference/faults.md lists exactly the rows of the matrix."""

from __future__ import annotations

import re

from tests.faults.matrix import cases
from tests.faults.report import BEGIN, END, PAGE, by_row, chosen_by, columns, not_built


def test_page_lists_exactly_the_rows_and_their_transports():
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    listed = [line for line in table.splitlines() if line.startswith("| ")][1:]
    of_rows = [line for line in listed if line.count(" | ") >= 4]
    expected = [(columns(row), [case.transport for case in of]) for row, of in by_row(cases())]

    for line, (start, transports) in zip(of_rows, expected, strict=True):
        assert line.startswith(start)
        measured = line.removeprefix(start).split(" | ")[0]
        assert re.findall(r"([A-Za-z][\w+ -]*): [\d.]+ m?s", measured) == transports
    assert not_built() in table


def test_page_has_the_number_of_cases():
    assert f"{len(cases())} cases, run on" in PAGE.read_text()


def test_cases_are_chosen_by_parts_of_their_names():
    (chosen,) = chosen_by(["Schema bomb / ReDoS / remote `$ref` [", "STDIO"])

    assert chosen.name == "Schema bomb / ReDoS / remote `$ref` [stdio]"
    assert chosen_by([]) == cases()
    assert chosen_by(["no such fault"]) == []
