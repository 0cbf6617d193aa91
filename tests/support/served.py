"""Programs that serve at an address of their own, for tests that need a real peer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

END = 10.0  # seconds that a program gets to end


@contextmanager
def serving(command: Sequence[str], log: Path, **environment: str) -> Iterator[str]:
    """Run a server; gives the URL that is the first line of its stdout.

    It must end when its stdin does, so that it ends even when this process is killed.

    Args:
        command: Program and arguments.
        log: File for what it writes to stderr.
        environment: Variables besides our own.
    """
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url, f"{command} ended: {log.read_text()}"
            yield url
            process.stdin.close()
            process.wait(END)
        finally:
            process.kill()
