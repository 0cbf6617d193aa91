"""Measure, and print the table.

python -m benchmarks [GROUP ...] [--rounds N] [--seconds S] [--write]
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from time import perf_counter

from benchmarks import harness

GROUPS = (
    "stdio", "http", "memory", "sizes", "lists", "starting", "toolbox", "agent", "path", "models",
    "audit", "policy", "langchain", "sockets", "layers", "metrics", "openapi", "gateway", "budgets",
    "claude", "web", "telemetry", "front_door", "many_tools",
)  # fmt: skip
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, default=5, help="how often everybody is asked")
    parser.add_argument("--seconds", type=float, default=0.2, help="of one sample of a rate")
    parser.add_argument("--write", action="store_true", help="put the rows into README.md")
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    effort = harness.Effort(options.rounds, options.seconds)
    groups: dict[str, list[harness.Row]] = {}
    for name in options.groups or GROUPS:
        group = importlib.import_module(f"benchmarks.groups.{name}")
        started = perf_counter()
        print(name, end=" ", file=sys.stderr, flush=True)
        groups[group.TITLE] = list(group.rows(effort))
        print(f"{perf_counter() - started:.0f} s", file=sys.stderr)
    head, lines = harness.surroundings(), harness.lines_of(groups)
    print(head, harness.table(lines), sep="\n\n")
    if options.write:
        before, rest = README.read_text().split(BEGIN)
        old, after = rest.split(END)
        if options.groups:  # the other rows stay
            head, lines = old.partition("\n")[0], {**harness.lines_in(old), **lines}
        text = f"{head}\n\n{harness.table(lines)}"
        README.write_text(f"{before}{BEGIN}{text}{END}{after}")


if __name__ == "__main__":
    main()
