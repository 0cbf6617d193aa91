"""Compare every pinned package with advisories.txt beside this file: python -m tests.advisories.

This finds a pin that falls back to a version with a known fault, without a network. It cannot know
advisories that nobody has added; `make audit` also asks the package index where it can be reached.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "requirements"
ADVISORIES = Path(__file__).with_suffix(".txt")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)


class Advisory(NamedTuple):
    """A fault of a package, up to the first version without it."""

    package: str
    fixed: str
    id: str


def advisories() -> list[Advisory]:
    lines = ADVISORIES.read_text().splitlines()
    return [Advisory(*line.split()) for line in lines if line and not line.startswith("#")]


def affected(pins: list[tuple[str, str]], known: list[Advisory]) -> Iterator[str]:
    """Yield a line for each pin that an advisory concerns."""
    for package, version in sorted(set(pins)):
        for each in known:
            if each.package == _normal(package) and _key(version) < _key(each.fixed):
                yield f"{package} {version}: {each.id}, mended in {each.fixed}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _key(version: str) -> list[int]:
    """Return a version's numbers for comparison; a suffix such as ".post1" does not count."""
    found = re.match(r"\d+(\.\d+)*", version)
    assert found is not None, f"{version!r} is not a version"
    numbers = [int(each) for each in found[0].split(".")]
    return numbers + [0] * (6 - len(numbers))


def main() -> int:
    """Print each affected pin, and each affected package of this environment."""
    pins = [pin for file in FOLDER.glob("*.txt") for pin in _PIN.findall(file.read_text())]
    pins += [(each.name, each.version) for each in distributions() if each.name]
    problems = list(affected(pins, advisories()))
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(set(pins))} pinned or installed versions, {len(problems)} with a known advisory")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
