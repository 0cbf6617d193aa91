"""Programs in processes of their own that need not load their packages again.

They are forked from a process that has loaded them, which starts once for all tests of a worker.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

_context = get_context("forkserver")
_context.set_forkserver_preload(
    [
        "aiosqlite",
        "interlock.cli.chat.chat",
        "interlock.cli.servers.kept_inputs",
        "interlock.cli.servers.local_toolbox",
        "interlock.cli.log",
        "interlock.cli.chat.repl",
        "interlock.cli.chat.repl_completion",
        "interlock.cli.chat.rich_output",
        "interlock.client.http_target",
        "interlock.store.audit.writer",
        "interlock.store.chat.conversations",
        "interlock.toolbox",
        "jsonschema_rs",
        "prompt_toolkit.shortcuts",
        "rich.console",
        "rich.live",
        "rich.markdown",
        "rich.status",
        "sqlalchemy.dialects.postgresql.asyncpg",
        "sqlalchemy.dialects.sqlite.aiosqlite",
        "tests.support.forked",
    ]
)

# Otherwise nothing would wait for it, and its CPU time would not be counted.
atexit.register(forkserver._forkserver._stop)


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


def start_in_terminal(
    arguments: Sequence[object], terminal: str, environment: dict[str, str], *, controls: bool
) -> ForkServerProcess:
    """Start the command line in a session of its own; return once it has opened its terminal.

    Args:
        arguments: Of `interlock`.
        terminal: The path of its terminal.
        environment: All of its environment variables.
        controls: Whether the terminal sends it signals.
    """
    words = [*map(str, arguments)]
    opened, opens = _context.Pipe(duplex=False)
    process = _context.Process(
        target=_run_in_terminal,
        args=(words, terminal, environment, str(Path.cwd()), controls, opens),
    )
    process.start()
    opens.close()
    with opened, suppress(EOFError):
        opened.recv_bytes()
    return process


def _run_in_terminal(
    words: list[str],
    terminal: str,
    environment: dict[str, str],
    folder: str,
    controls: bool,
    opens: Connection,
) -> None:
    from interlock.cli import main

    os.setsid()
    opened = os.open(terminal, os.O_RDWR | (0 if controls else os.O_NOCTTY))
    for number in range(3):
        os.dup2(opened, number)
    os.close(opened)
    opens.close()
    os.chdir(folder)
    if "PYTHONPATH" in environment:  # it has other packages
        program = Path(sys.executable).with_name("interlock")
        os.execve(program, [str(program), *words], environment)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = open(0)  # noqa: SIM115
    sys.stdout = open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = ["interlock", *words]
    try:
        main()
    except SystemExit as left:  # multiprocessing would end otherwise than the interpreter
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # the terminal was closed
                stream.flush()
        os._exit(left.code if isinstance(left.code, int) else 0)
