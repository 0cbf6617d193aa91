"""Structs that have secrets in them, and do not show them."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class Discreet(Struct, frozen=True):
    """A struct of which only the members in `public` are shown, by Python and by rich alike.

    Structs show all of their members otherwise; `__repr__` alone is passed over by rich.
    """

    public: ClassVar[tuple[str, ...]] = ()

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in self.public]

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({members})"
