"""Use a server at a URL, here examples/math_server.py on a free port.

Run: python examples/http_client.py      (needs the extra "serve")
"""

import asyncio
from pathlib import Path

from interlock import Client
from interlock.errors import AuthError, HttpError, Unreachable

SERVER = Path(__file__).with_name("math_server.py")


async def main(url: str) -> None:
    """Call a tool and handle the errors of HTTP."""
    try:
        async with Client.http(url, headers={"X-API-Key": "secret"}) as client:
            print(client.server_info.name, "speaks", client.revision)
            print((await client.call_tool("add", {"a": 1, "b": 2})).text)
    except AuthError as error:
        print("the server requires authentication:", error)
    except Unreachable as error:
        print("the server cannot be reached:", error)
    except HttpError as error:
        print("the URL is not an MCP server:", error)


async def serve_and_call() -> None:
    """Start the server on a free port, use it, and stop it."""
    server = await asyncio.create_subprocess_exec(
        *("interlock", "run", SERVER, "--http", "127.0.0.1:0"), stderr=asyncio.subprocess.PIPE
    )
    try:
        async for line in server.stderr or ():
            if line.startswith(b"serving at "):
                await main(line.decode().split()[-1])
                break
    finally:
        server.terminate()
        await server.communicate()


if __name__ == "__main__":
    asyncio.run(serve_and_call())
