"""A host of Claude Code in a process of its own; `NAME_claude.py` opens one.

It reads prompts for the stand-in program from stdin, and writes [figure, CPU seconds of ours].
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from time import process_time

PROGRAM = str(Path(__file__).with_name("claude_program.py"))
TEXT = "x"

Ask = Callable[[str], Awaitable[str]]


def serve(opened: Callable[[bool], AbstractAsyncContextManager[Ask]]) -> None:
    """Answer prompts; with the argument "decides" every call needs a decision."""

    async def run() -> None:
        async with opened("decides" in sys.argv) as ask:
            while line := await asyncio.to_thread(sys.stdin.readline):
                before = process_time()
                answer = json.loads(await ask(line.strip()))
                print(json.dumps([answer, process_time() - before]), flush=True)

    asyncio.run(run())
