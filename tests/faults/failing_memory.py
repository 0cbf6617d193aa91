"""Memory that runs out at the Nth step of our code, once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import interlock

_OURS = str(Path(interlock.__file__).parent)


class FailingMemory:
    """Counts the C calls of interlock's code, and raises MemoryError in the nth.

    Attributes:
        count: Calls so far.
        where: The function and line of the failed call; "" before it.
    """

    def __init__(self, nth: int) -> None:
        self._nth = nth
        self.count = 0
        self.where = ""

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Count and fail calls of this thread inside this context."""
        sys.setprofile(self._step)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _step(self, frame: FrameType, event: str, _: object) -> None:
        if event != "c_call" or not frame.f_code.co_filename.startswith(_OURS):
            return
        self.count += 1
        if self.count == self._nth:
            sys.setprofile(None)
            self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            raise MemoryError
