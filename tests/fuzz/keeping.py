"""Which inputs are worth keeping: the smallest ones that reach what others do not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

import interlock

MAX_KEPT = 60  # inputs for each target
MAX_BYTES = 2048

_OURS = str(Path(interlock.__file__).parent)
_CHOSEN = re.compile(r"[0-9a-f]{12}")  # a name of one that was chosen, and may go again

Step = tuple[object, int, int]  # from one line to another


def choose(target: Callable[[bytes], None], inputs: Iterable[bytes]) -> list[bytes]:
    """Choose inputs; where there are too many, those that alone reach the most."""
    seen: set[Step] = set()
    chosen: list[tuple[int, bytes]] = []
    for data in sorted({each for each in inputs if len(each) <= MAX_BYTES}, key=len):
        new = steps(target, data) - seen
        if new:
            seen |= new
            chosen.append((len(new), data))
    chosen.sort(key=lambda each: each[0], reverse=True)
    return [data for _, data in chosen[:MAX_KEPT]]


def steps(target: Callable[[bytes], None], data: bytes) -> set[Step]:
    """Try an input and note every step from line to line in our code."""
    taken: set[Step] = set()

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        last = 0

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            taken.add((frame.f_code, last, frame.f_lineno))
            last = frame.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        target(data)
    finally:
        sys.settrace(before)
    return taken


def replace(folder: Path, inputs: Iterable[bytes]) -> None:
    """Keep these inputs in a folder, besides those that have a name of their own."""
    for path in folder.iterdir():
        if _CHOSEN.fullmatch(path.name):
            path.unlink()
    for data in inputs:
        (folder / name_of(data)).write_bytes(data)


def name_of(data: bytes) -> str:
    """Name an input by what is in it."""
    return sha256(data).hexdigest()[:12]
