"""Behind nginx and HAProxy, with the configurations of docs/author/proxy.md."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from interlock import Client, Context, Server
from tests.docs.page import ROOT, blocks
from tests.server.http.on_a_port import call, served
from tests.support.reverse_proxies import free_port, haproxy, nginx

CLIENT = "127.0.0.5"  # the proxy itself is 127.0.0.1
SPOOFED = {
    "X-Forwarded-For": "203.0.113.1",
    "Forwarded": "for=203.0.113.1;host=evil.example",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Prefix": "/evil",
}

Write = Callable[[Path, str], list[str]]


def nginx_of_http_1_0(folder: Path, text: str) -> list[str]:
    """Without the setting, nginx speaks HTTP/1.0 with the server."""
    return nginx(folder, text.replace("proxy_http_version 1.1;", ""))


@pytest.fixture(params=[nginx, nginx_of_http_1_0, haproxy])
def reverse_proxy(request: pytest.FixtureRequest, tmp_path: Path):
    """Return a context that runs a proxy in front of a port, and yields the proxy's port."""
    write: Write = request.param
    page = (ROOT / "docs/author/proxy.md").read_text()
    file = "haproxy.cfg" if write is haproxy else "nginx.conf"
    (text,) = (each.text for each in blocks(page) if each.title == file)

    @asynccontextmanager
    async def run(port: int) -> AsyncIterator[int]:
        own = free_port()
        filled = re.sub(r"127\.0\.0\.1:8443", f"127.0.0.1:{own}", text)
        filled = re.sub(r"127\.0\.0\.1:8000", f"127.0.0.1:{port}", filled)
        program = await asyncio.create_subprocess_exec(*write(tmp_path, filled))
        try:
            while not await _accepts(own):
                assert program.returncode is None
                await asyncio.sleep(0.01)
            yield own
        finally:
            if program.returncode is None:
                program.terminate()
            await program.wait()

    return run


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@pytest.fixture
def server() -> Server:
    server = Server("proxied")

    @server.tool
    async def whoami(context: Context) -> str:
        return context.address

    @server.tool
    async def hold(context: Context) -> str:
        await asyncio.Event().wait()
        return ""

    return server


async def test_client_cannot_invent_its_address_through_a_proxy(server, reverse_proxy):
    connector = aiohttp.TCPConnector(local_addr=(CLIENT, 0))
    async with (
        served(server, proxies=["127.0.0.1"]) as (running, _),
        reverse_proxy(running.servers[0].sockets[0].getsockname()[1]) as port,
        aiohttp.ClientSession(connector=connector) as client,
    ):
        request = call("whoami")
        for more in ({}, SPOOFED):
            headers = request["headers"] | more
            url = f"http://127.0.0.1:{port}/team-a/mcp"
            async with client.post(url, data=request["data"], headers=headers) as reply:
                assert (await reply.json())["result"]["content"][0]["text"] == CLIENT


async def test_each_era_works_below_a_prefix_that_the_proxy_removes(server, reverse_proxy):
    async with (
        served(server, proxies=["127.0.0.1"], sse=True) as (running, _),
        reverse_proxy(running.servers[0].sockets[0].getsockname()[1]) as port,
    ):
        base = f"http://127.0.0.1:{port}/team-a"
        for path, options in (
            ("/mcp", {}),
            ("/mcp", {"revision": "legacy"}),
            ("/sse", {"transport": "sse", "headers": {"X-Forwarded-Prefix": "/evil"}}),
        ):
            async with Client.http(base + path, **options) as client:
                assert (await client.call_tool("whoami")).text == "127.0.0.1"


async def test_first_bytes_of_a_long_call_come_through_a_proxy_at_once(server, reverse_proxy):
    options = {"json_silence": 0.01, "keep_alive": 0.05}
    async with (
        served(server, proxies=["127.0.0.1"], **options) as (running, client),
        reverse_proxy(running.servers[0].sockets[0].getsockname()[1]) as port,
    ):
        url = f"http://127.0.0.1:{port}/team-a/mcp"
        async with client.post(url, **call("hold")) as reply:
            assert reply.headers["content-type"] == "text/event-stream"
            assert await reply.content.readexactly(6) == b": \n\n: "
