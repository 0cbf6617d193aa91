"""List the modules without a test file of their own: python -m tests.mirror."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "interlock"
_NO_MODULES = {"__init__.py", "__main__.py"}


def modules() -> Iterator[Path]:
    """Return the modules that a test file should mirror, relative to the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE)
        if path.name not in _NO_MODULES and has_code(path):
            yield module


def has_code(path: Path) -> bool:
    """Return whether a module has a function that does something, not only declarations."""
    return any(
        not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant)
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
    )


def main() -> None:
    """Print the modules without a test file, and the share of the others."""
    found = list(modules())
    missing = [each for each in found if not (TESTS / each.parent / f"test_{each.name}").exists()]
    for each in missing:
        print(each)
    print(f"{1 - len(missing) / len(found):.0%} of {len(found)} modules have a test file")


if __name__ == "__main__":
    main()
