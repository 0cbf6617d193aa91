"""Starts `interlock serve` again and again without the time of its imports.

`python -m tests.gateway.forked_gateway CONFIG`: for each line on stdin, forks a process that runs
`interlock serve --config CONFIG --http 127.0.0.1:0`, and prints its process id. Its stderr is that
of this program.
"""

from __future__ import annotations

import os
import sys

import aiohttp  # noqa: F401  # what `serve` imports
import aiosqlite  # noqa: F401
import sqlalchemy.dialects.sqlite  # noqa: F401
import uvicorn  # noqa: F401
from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: F401

import interlock.client.client
import interlock.gateway.assembly
import interlock.gateway.serving.endpoint
import interlock.gateway.serving.http
import interlock.store.audit.upkeep  # noqa: F401
from interlock import cli
from interlock.cli.gateway import serve  # noqa: F401


def main() -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            sys.argv = ["interlock", "serve", "--config", sys.argv[1], "--http", "127.0.0.1:0"]
            cli.main()
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
