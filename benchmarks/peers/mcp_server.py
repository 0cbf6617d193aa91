"""The benchmark's server, with the `mcp` package: `mcp_server.py [tools=N] [port=PORT]`."""

import sys

from mcp.server import MCPServer

server = MCPServer("bench", log_level="WARNING")


@server.tool()
async def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
async def text(size: int) -> str:
    """Write a text of this many characters."""
    return "x" * size


async def further(path: str, limit: int = 10, verbose: bool = False) -> str:
    """Read the first lines of a file, as many as wanted."""
    return f"{path} {limit} {verbose}"


if __name__ == "__main__":
    told = dict(argument.split("=") for argument in sys.argv[1:])
    for number in range(int(told.get("tools", 0))):
        server.tool(name=f"tool{number}")(further)
    if "port" in told:
        server.run("streamable-http", port=int(told["port"]), json_response=True)
    else:
        server.run("stdio")
