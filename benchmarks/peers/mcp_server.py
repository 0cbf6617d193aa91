"""The benchmark's server, with the `mcp` package."""

import sys

from mcp.server import MCPServer

server = MCPServer("bench")


@server.tool()
async def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]), json_response=True)
    else:
        server.run("stdio")
