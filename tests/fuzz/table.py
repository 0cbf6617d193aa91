"""Targets that take any bytes, and the inputs that were worth keeping.

`targets/NAME.py` has `target(data: bytes) -> None`, which raises when something is wrong, and
`TOKENS`, words that inputs of any use are likely to have.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path(__file__).parents[2] / "build" / "fuzz"


def names() -> list[str]:
    """Name every target."""
    return sorted(path.stem for path in (Path(__file__).parent / "targets").glob("[a-z]*.py"))


def load(name: str) -> ModuleType:
    """Import a target."""
    return importlib.import_module(f".targets.{name}", __package__)
