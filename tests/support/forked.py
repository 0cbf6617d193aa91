"""Run a program in a process of its own that need not load the packages of the store again.

The process is forked from one that has loaded them, which starts once for all tests of a worker.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

_context = get_context("forkserver")
_context.set_forkserver_preload(
    [
        "aiosqlite",
        "alembic.command",
        "interlock.agent",
        "interlock.store.audit",
        "interlock.store.conversations",
        "mako.template",
        "sqlalchemy.dialects.postgresql.asyncpg",
        "sqlalchemy.dialects.sqlite.aiosqlite",
        "sqlalchemy.ext.asyncio",
    ]
)


def run_forked(
    program: str, *arguments: object, before: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Run a program; return its exit code, negative for a signal, and its output.

    Args:
        program: Python source. It sees itself as `__main__`.
        arguments: Its `sys.argv`.
        before: Called in the process first.
    """
    with TemporaryDirectory() as folder:
        output = Path(folder, "output")
        process = _context.Process(target=_run, args=(program, arguments, before, output))
        process.start()
        process.join()
        assert process.exitcode is not None
        code, text = process.exitcode, output.read_text()
        process.close()
    return code, text


def _run(
    program: str, arguments: tuple[object, ...], before: Callable[[], None] | None, output: Path
) -> None:
    with output.open("wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.argv = ["program", *map(str, arguments)]
    warnings.simplefilter("error")
    if before is not None:
        before()
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})
