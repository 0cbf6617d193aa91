"""The client of `mcp` 1 or 2: it calls a tool in one session until its stdin ends.

python python_calls.py URL KEY. It runs in an environment without interlock.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import mcp
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

LIMIT = 10.0  # seconds of a call


@asynccontextmanager
async def connected(url: str, key: str) -> AsyncGenerator[Any, None]:
    async with create_mcp_http_client({"Authorization": f"Bearer {key}"}) as http:
        transport = streamable_http_client(url, http_client=http)
        if hasattr(mcp, "Client"):
            async with mcp.Client(transport, mode="legacy") as client:
                yield client
            return
        async with transport as (read, write, _), mcp.ClientSession(read, write) as session:
            await session.initialize()
            yield session


async def main(url: str, key: str) -> None:
    answered, failed = 0, []
    stop = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with connected(url, key) as client:
        while not stop.done():
            try:
                async with asyncio.timeout(LIMIT):  # otherwise `mcp` waits for ever
                    result = await client.call_tool("c__put", {"id": "rolling"})
                assert result.content[0].text == "rolling", result
                answered += 1
            except Exception as error:
                failed.append(repr(error))
            await asyncio.sleep(0.1)
    print(json.dumps([answered, failed]))


asyncio.run(main(*sys.argv[1:]))
