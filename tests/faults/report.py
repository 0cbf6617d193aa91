"""docs/reference/faults.md: the fault matrix with what a run of it has measured.

python -m tests.faults.report               run all cases, and write the table
python -m tests.faults.report "Gzip bomb"   run those with these words in their name, and print them
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tests.faults.harness import Measured, measure
from tests.faults.matrix import NOT_BUILT, Case, Row, cases

PAGE = Path(__file__).parents[2] / "docs/reference/faults.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HEAD = """\
| Fault | Promise | Within | On: measured | What came |
|---|---|---|---|---|
"""
_LONGEST = 110  # characters of an outcome


def main() -> None:
    """Run the cases that the arguments select; without arguments, run all and write the page."""
    chosen = chosen_by(sys.argv[1:])
    if not chosen:
        sys.exit(f"error: no case has {' and '.join(map(repr, sys.argv[1:]))} in its name")
    measured: dict[str, Measured] = {}
    for case in chosen:
        measured[case.name] = measure(case)
        took = _time(measured[case.name].seconds)
        print(f"{case.name}: {took}, {_what_came(measured[case.name])}", flush=True)
    if len(sys.argv) == 1:
        PAGE.write_text(page(PAGE.read_text(), chosen, measured))


def chosen_by(words: Iterable[str]) -> list[Case]:
    """Return the cases whose names contain all words, ignoring case."""
    wanted = [each.casefold() for each in words]
    return [case for case in cases() if all(each in case.name.casefold() for each in wanted)]


def page(text: str, ran: list[Case], measured: dict[str, Measured]) -> str:
    """Return the page's text with its tables replaced by those of a run."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    busiest = max(each.idle for each in measured.values())
    python = f"{platform.python_implementation()} {platform.python_version()}"
    lines = [
        f"{len(ran)} cases, run on {os.cpu_count()} cores with {python}. When each was over and "
        f"everything still open, at most {busiest:.1%} of a core was used; when all was closed, "
        "no task, thread, descriptor, child or reported error was left.",
        "",
        HEAD + "\n".join(_line(row, of, measured) for row, of in by_row(ran)),
    ]
    return "\n".join([before + BEGIN, "", *lines, "", not_built(), END + after])


def by_row(ran: Iterable[Case]) -> Iterator[tuple[Row, list[Case]]]:
    """Group cases by row."""
    for _, group in groupby(ran, lambda case: id(case.row)):
        of = list(group)
        yield of[0].row, of


def columns(row: Row) -> str:
    """Return the cells of a row that do not depend on a run."""
    return f"| {_cell(row.fault)} | {_cell(row.promise)} | {_time(row.within)} |"


def _line(row: Row, of: list[Case], measured: dict[str, Measured]) -> str:
    times = ", ".join(f"{case.transport}: {_time(measured[case.name].seconds)}" for case in of)
    return f"{columns(row)} {times} | {_cell(_what_came(measured[of[0].name]))} |"


def not_built() -> str:
    """Return the table of faults that no test makes, with the reasons."""
    lines = [f"| {fault} | {why} |" for fault, why in NOT_BUILT.items()]
    return "\n".join(["| Not tested | Why |", "|---|---|", *lines])


def _time(seconds: float) -> str:
    if seconds < 0.0095:
        return f"{max(seconds * 1000, 0.1):.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 0.995 else f"{seconds:.3g} s"


def _what_came(measured: Measured) -> str:
    """Shorten an outcome, and replace ports and paths, which differ between machines."""
    text = measured.outcome.partition("; ")[0]
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", r"\1:PORT", text)
    text = text.replace(sys.executable, "python")
    text = re.sub(r"/\S*/(\S+\.db)", r"\1", text)
    text = re.sub(r"PostgreSQL /\S*/", "PostgreSQL ", text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    main()
