"""Test a server without a process or a network.

Run: python examples/notes_tested.py
"""

import asyncio

from notes_server import server

from interlock import Client
from interlock.types import ElicitResult


async def agree(question):
    print("asked:", question.message)
    return ElicitResult(action="accept", content={})


async def main() -> None:
    async with Client.memory(server, elicitation=agree) as client:
        await client.call_tool("write", {"name": "tea", "text": "Buy green tea."})
        await client.call_tool("write", {"name": "tea", "text": "Buy black tea."})
        result = await client.call_tool("search", {"query": "tea", "limit": 5})
        print(result.structured)
        refused = await client.call_tool("search", {"query": "tea", "limit": 500})
        print(refused.is_error, refused.text)
        print((await client.read_resource("notes://tea")).text)


if __name__ == "__main__":
    asyncio.run(main())
