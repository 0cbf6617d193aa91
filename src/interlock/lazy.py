"""Loads the names that a package exports when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a package, which imports a name's module on first use.

    Args:
        package: The package's name.
        homes: The module that defines each name, relative to `interlock`.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"interlock.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
