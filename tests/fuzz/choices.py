"""Random bytes -> what a target needs: the same bytes always give the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")

_NUMBERS = [0, 1, -1, 2**31, 2**53, -(2**53) - 1, 2**64, 10**19, 0.5, -0.0, 1e300, 1e-9]
_WORDS = ["", "a", "name", "type", "a/b", "ü", "\u2028", "\U0001f600", "\x00", "\r\n", "$ref", "~1"]


class Choices:
    """Reads bytes as decisions. When they have run out, every decision is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Tell whether there are bytes left."""
        return self._at < len(self._data)

    def number(self, below: int) -> int:
        """Choose a number from 0 on; `below` is at most 65,536."""
        taken = self._data[self._at : self._at + (1 if below <= 256 else 2)]
        self._at += len(taken)
        return int.from_bytes(taken, "big") % below

    def flag(self) -> bool:
        """Choose yes or no."""
        return self.number(2) == 1

    def one_of(self, options: Sequence[_T]) -> _T:
        """Choose an option."""
        return options[self.number(len(options))]

    def some_of(self, options: Sequence[_T], most: int) -> list[_T]:
        """Choose any number of options up to `most`; one may be chosen again."""
        return [self.one_of(options) for _ in range(self.number(most + 1))]

    def bytes(self, most: int = 255) -> bytes:
        """Take a number of bytes as they are."""
        size = self.number(most + 1)
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def rest(self) -> bytes:
        """Take all bytes that are left."""
        taken = self._data[self._at :]
        self._at = len(self._data)
        return taken

    def pieces(self, data: bytes) -> list[bytes]:
        """Cut bytes into pieces, most of them small; an empty one now and then."""
        pieces = []
        while data:
            size = self.number(256) if self else len(data)
            size = size if size < 16 else (size - 15) ** 2
            pieces.append(data[:size])
            data = data[size:]
        return pieces

    def text(self, most: int = 30) -> str:
        """Take text, which may have anything in it but half of a surrogate pair."""
        if self.flag():
            return self.one_of(_WORDS)
        return self.bytes(most).decode(errors="ignore")

    def json(self, depth: int = 4) -> Any:
        """Take a JSON value."""
        match self.number(8 if depth else 5):
            case 0:
                return self.text()
            case 1:
                return self.one_of(_NUMBERS)
            case 2:
                return self.number(65536) - 5
            case 3:
                return self.flag()
            case 4:
                return None
            case 5:
                return [self.json(depth - 1) for _ in range(self.number(5))]
            case _:
                return {self.text(): self.json(depth - 1) for _ in range(self.number(5))}
