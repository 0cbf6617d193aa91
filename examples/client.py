"""Use one server: list its tools, call one, and handle the errors.

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
            print("no answer within 10 seconds; the call was cancelled")
        except RemoteError as error:
            print("the server refused the call:", error.message)
        else:
            print("failed:" if result.is_error else "result:", result.text)


if __name__ == "__main__":
    asyncio.run(main())
