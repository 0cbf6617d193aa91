"""A server whose tool appends the id of each call to `~/executed` before it answers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from interlock import Server

server = Server("counting")
_file = os.open(Path.home() / "executed", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


@server.tool
async def put(id: str, seconds: float = 0.0) -> str:
    """Store an id, and answer after some seconds."""
    os.write(_file, f"{id}\n".encode())
    await asyncio.sleep(seconds)
    return id


if __name__ == "__main__":
    server.run()
