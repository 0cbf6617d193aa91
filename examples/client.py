"""Speak to one server: its tools, a call with progress, and what can go wrong.

Run: python examples/client.py      (needs mcp-server-time)
"""

import asyncio

from interlock import Client
from interlock.errors import RemoteError, RequestTimeout


async def main() -> None:
    async with Client.stdio("mcp-server-time") as client:
        print(client.server_info.name, "speaks", client.revision)
        for tool in await client.list_tools():
            print("-", tool.name)
        try:
            arguments = {"timezone": "Europe/Zurich"}
            result = await client.call_tool("get_current_time", arguments, timeout=10)
        except RequestTimeout:
            print("it did not answer within 10 seconds, and was told to stop")
        except RemoteError as error:
            print("it refused:", error.message)
        else:
            print("failed:" if result.is_error else "result:", result.text)


if __name__ == "__main__":
    asyncio.run(main())
