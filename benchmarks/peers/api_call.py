"""What a call of an API costs: processor time of this process, and memory.

    python -m benchmarks.peers.api_call WAY SECONDS

WAY is "interlock" for a tool of an `OpenApiServer`, "toolbox" for one in a toolbox, or "bare" for
the request alone, by aiohttp. The API is a child process. Prints JSON: seconds of a call, and the
memory that the second half of the calls added, in MB.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import aiohttp

Work = Callable[[], Awaitable[Any]]
ANSWER = b'{"id":7,"item":"tea","count":2}'
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/orders/{id}": {
            "get": {
                "operationId": "getOrder",
                "parameters": [
                    {"name": "id", "in": "path", "schema": {"type": "integer"}, "required": True},
                    {"name": "fields", "in": "query", "schema": {"type": "string"}},
                ],
                "responses": {
                    "200": {
                        "description": "The order",
                        "content": {"application/json": {"schema": {"type": "object"}}},
                    }
                },
            }
        }
    },
}
ARGUMENTS = {"id": 7, "fields": "item"}


async def serve() -> None:
    """Answer every request with the same order."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    whole = head % (len(ANSWER), ANSWER)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # the end
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(whole)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def bare(url: str) -> AsyncIterator[Work]:
    async with aiohttp.ClientSession() as session:

        async def get() -> None:
            async with session.get(f"{url}/orders/7?fields=item") as response:
                json.loads(await response.read())

        yield get


@asynccontextmanager
async def ours(url: str, *, in_toolbox: bool) -> AsyncIterator[Work]:
    from interlock import Client, Toolbox
    from interlock.openapi import OpenApiServer

    shop = OpenApiServer(document=DOCUMENT, base_url=url, tools={"get_order": "getOrder"})
    if in_toolbox:
        async with Toolbox({"shop": shop}) as toolbox:
            yield lambda: toolbox.call("shop:get_order", ARGUMENTS)
    else:
        async with Client.memory(shop) as client:
            yield lambda: client.call_tool("get_order", ARGUMENTS)


async def measure(way: str, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.peers.api_call", "serve"]
    pipe = asyncio.subprocess.PIPE
    api = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert api.stdin is not None
    assert api.stdout is not None
    url = f"http://127.0.0.1:{int(await api.stdout.readline())}"
    opened = bare(url) if way == "bare" else ours(url, in_toolbox=way == "toolbox")
    async with opened as work:
        for _ in range(100):
            await work()
        used = [await _cost(work, seconds) for _ in range(2)]
    api.stdin.close()
    await api.wait()
    return {"seconds": min(each[0] for each in used), "growth": used[1][1] - used[0][1]}


async def _cost(work: Work, seconds: float) -> tuple[float, float]:
    count, ends, started = 0, perf_counter() + seconds, process_time()
    while perf_counter() < ends:
        await work()
        count += 1
    return (process_time() - started) / count, _memory()


def _memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        print(json.dumps(asyncio.run(measure(sys.argv[1], float(sys.argv[2])))))
