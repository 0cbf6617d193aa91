"""Large results in parts, because a page that loads 15 MB at once does not respond meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from interlock.web.inspector.wire import SHOWN

TEXT = 64 * 1024  # characters of a text at first
MORE_TEXT = 1024 * 1024  # characters of a text that one part adds
MEMBERS = 200  # members of a list or an object in one part
MOST = 256 * 1024  # characters, about; beyond them, lists and objects of a part are left empty
PICTURE = 8 * 1024 * 1024  # characters of a picture or of binary data, which is useless in parts
_BINARY = ("data", "blob")

# By JSON pointer: the offset of the next part, and the whole size, in characters or members.
Cuts: TypeAlias = dict[str, tuple[int, int]]


class ResultPart:
    """A part of a result.

    Attributes:
        value: The value, without what is left out.
        cuts: The places at which something is left out.
    """

    def __init__(self, whole: Any, pointer: str = "", offset: int = 0) -> None:
        self.cuts: Cuts = {}
        self._left = MOST
        found = _at(whole, pointer)
        if offset and isinstance(found, str):
            self.value = self._text(found, pointer, offset, MORE_TEXT)
        else:
            self.value = self._branch(found, pointer, offset)

    def _branch(self, value: Any, pointer: str, offset: int = 0) -> Any:
        if isinstance(value, dict):
            kept = self._members(list(value), pointer, offset)
            return {name: self._member(value[name], name, pointer) for name in kept}
        if isinstance(value, list):
            kept = self._members(range(len(value)), pointer, offset)
            return [self._branch(value[at], f"{pointer}/{at}") for at in kept]
        if isinstance(value, str):
            return self._text(value, pointer, offset, TEXT)
        self._left -= 8
        return value

    def _member(self, value: Any, name: str, pointer: str) -> Any:
        inner = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        self._left -= len(name)
        if name in _BINARY and isinstance(value, str):
            return self._text(value, inner, 0, PICTURE)
        return self._branch(value, inner)

    def _members(self, names: Sequence[Any], pointer: str, offset: int) -> Sequence[Any]:
        end = offset + MEMBERS if self._left > 0 else offset
        if end < len(names):
            self.cuts[pointer] = (end, len(names))
        return names[offset:end]

    def _text(self, text: str, pointer: str, offset: int, most: int) -> str:
        end = offset + (most if self._left > 0 else SHOWN)
        if end < len(text):
            self.cuts[pointer] = (end, len(text))
        part = text[offset:end]
        self._left -= len(part)
        return part


def _at(value: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer.

    Raises:
        LookupError: There is none.
    """
    for step in pointer.split("/")[1:]:
        if isinstance(value, list) and step.isdecimal():
            value = value[int(step)]
        elif isinstance(value, dict):
            value = value[step.replace("~1", "/").replace("~0", "~")]
        else:
            raise LookupError(pointer)
    return value
