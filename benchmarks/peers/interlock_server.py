"""The benchmark's server, with interlock."""

import sys

from interlock import Server

server = Server("bench", version="1")


@server.tool
async def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run_http(port=int(sys.argv[1]))
    else:
        server.run()
