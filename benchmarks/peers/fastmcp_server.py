"""The benchmark's server, with FastMCP."""

import sys

from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool
async def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("http", port=int(sys.argv[1]), json_response=True, show_banner=False)
    else:
        server.run("stdio", show_banner=False)
