"""List the modules without a test file of their own: python -m tests.mirror."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "interlock"


def modules() -> Iterator[Path]:
    """Return the modules that a test file should mirror, relative to the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE)
        if path.name != "__init__.py" and "migrations" not in module.parts:
            yield module


def main() -> None:
    """Print the modules without a test file, and the share of the others."""
    found = list(modules())
    missing = [each for each in found if not (TESTS / each.parent / f"test_{each.name}").exists()]
    for each in missing:
        print(each)
    print(f"{1 - len(missing) / len(found):.0%} of {len(found)} modules have a test file")


if __name__ == "__main__":
    main()
