"""The functions of interlock that a call passes through."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import interlock
from interlock.types import CallToolResult

OURS = str(Path(interlock.__file__).parent)


async def passed(call: Callable[[], Awaitable[CallToolResult]], text: str) -> list[str]:
    """Return the functions that a call passes through; a coroutine that goes on is the same one.

    Args:
        call: Makes the call.
        text: The text of its result.
    """
    frames: dict[FrameType, None] = {}

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            frames[frame] = None

    for _ in range(2):
        await call()  # what is done once, such as compiling a schema
    sys.setprofile(note_call)
    try:
        result = await call()
    finally:
        sys.setprofile(None)
    assert result.text == text
    return [frame.f_code.co_qualname for frame in frames]
