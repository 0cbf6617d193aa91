"""Servers with `debug`: which failures show the exception and the author's line, and to whom."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

import pytest
from msgspec import Raw

from interlock import Client, Context, Server, ToolError
from interlock.errors import ConfigError, InterlockError, RemoteError
from interlock.protocol import Request
from interlock.server.debugging import debugged
from interlock.types import ClientCapabilities
from tests.support.rows import each_row


def failing(**options: Any) -> Server:
    server = Server("shop", **options)

    @server.tool
    def price(item: str) -> float:
        return of(item, {})

    @server.tool
    async def parsed(text: str) -> int:
        number: int = json.loads(text)
        return number

    @server.tool
    async def wait() -> None:
        raise ToolError("try again at noon")

    @server.resource("shop://{item}")
    def stock(item: str) -> float:
        return of(item, {})

    return server


def of(item: str, prices: dict[str, float]) -> float:
    return prices[item]


@each_row(
    ("tool", "arguments", "ends"),
    [
        ("price", {"item": "tea"}, ["KeyError: 'tea'", ", in of: return prices[item]"]),
        # The last line is that of the author, not that of a library.
        ("parsed", {"text": "{"}, ["JSONDecodeError", ", in parsed: number: int = json.loads("]),
    ],
)
async def test_failed_call_shows_the_exception_and_the_authors_line(
    tool: str, arguments: dict[str, Any], ends: list[str]
):
    async with Client(failing(debug=True)) as client:
        text = (await client.call_tool(tool, arguments)).text

    assert text.startswith(f"tool {tool} failed; the server's log on stderr has the details under")
    assert f"{__file__}, line " in text
    assert all(each in text for each in ends)


async def test_failed_resource_shows_the_exception_and_a_tool_error_stays_as_it_is():
    async with Client(failing(debug=True)) as client:
        assert (await client.call_tool("wait")).text == "try again at noon"
        with pytest.raises(RemoteError, match=r"resources/read failed: KeyError: 'tea'.*return"):
            await client.read_resource("shop://tea")


@each_row(
    ("variable", "given", "shows"),
    [("1", None, True), ("0", None, False), ("", None, False), ("1", False, False)],
)
async def test_environment_variable_decides_unless_the_debug_argument_does(
    variable: str, given: bool | None, shows: bool
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERLOCK_DEBUG", variable)
        server = failing(debug=given)
    async with Client(server) as client:
        assert ("KeyError" in (await client.call_tool("price", {"item": "tea"})).text) is shows


@each_row(("address", "shows"), [("", True), ("::1", True), ("192.0.2.7", False)])
async def test_clients_on_other_machines_see_no_exception(address: str, shows: bool):
    async def handle(request: Request, context: Context) -> NoReturn:
        raise KeyError("secret")

    link: Any = None
    context = Context(
        revision="2026-07-28",
        request_id=1,
        link=link,
        loop=asyncio.get_running_loop(),
        client_capabilities=ClientCapabilities(),
        address=address,
    )
    with pytest.raises(InterlockError if shows else KeyError):
        await debugged(handle)(Request(1, "resources/read", Raw(b"{}")), context)


@each_row(
    "serve",
    [
        lambda server: server.run_http("0.0.0.0", 0, unprotected=True),
        lambda server: server.asgi(hosts=["localhost:8000", "tools.example.com"]),
        lambda server: server.asgi(hosts=["*"]),
    ],
)
def test_debug_is_refused_where_other_machines_can_reach_the_server(serve: Any):
    with pytest.raises(ConfigError, match=r"debug would send exceptions to other machines.*leave"):
        serve(Server("shop", debug=True))


def test_debug_is_allowed_on_loopback():
    assert Server("shop", debug=True).asgi(hosts=["localhost:8000", "127.0.0.1", "[::1]:80"])
