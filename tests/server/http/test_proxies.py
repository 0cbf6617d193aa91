"""Which headers of proxies are believed, from whom, and what follows from them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import aiohttp
import pytest

from interlock import Context, Server
from interlock.errors import ConfigError
from interlock.server.http import serve
from interlock.server.http.proxies import BEHIND_PROXY, PREFIX, Proxies
from interlock.server.http.proxies import HOST as STATED_HOST
from tests.server.http.on_a_port import call, connect, served, written
from tests.support.rows import each_row

TRUSTED = ["10.0.0.0/8", "::1", "192.0.2.7"]
PEER = "10.0.0.1"


def applied(*headers: tuple[str, str], peer: str = PEER) -> dict[str, Any]:
    """Return client, scheme, Host and prefix of a request that a trusted proxy passes on."""
    scope: dict[str, Any] = {
        "client": (peer, 5),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "headers": [
            (b"host", b"inside"),
            *((name.lower().encode(), value.encode()) for name, value in headers),
        ],
    }
    Proxies(TRUSTED).apply(scope)
    assert scope["server"] == (BEHIND_PROXY, 80)
    return {
        "for": scope["client"][0],
        "proto": scope["scheme"],
        "host": scope[STATED_HOST],
        "prefix": scope[PREFIX],
    }


FOR, PROTO = "X-Forwarded-For", "X-Forwarded-Proto"
HOST, BEFORE = "X-Forwarded-Host", "X-Forwarded-Prefix"
NOTHING = {"for": PEER, "proto": "http", "host": "", "prefix": ""}


@each_row(
    ("headers", "changed"),
    [
        ([], {}),
        ([(FOR, "198.51.100.9")], {"for": "198.51.100.9"}),
        ([(FOR, "198.51.100.9:4711")], {"for": "198.51.100.9"}),
        ([(FOR, "[2001:db8::1]:4711")], {"for": "2001:db8::1"}),
        ([(FOR, "::ffff:198.51.100.9")], {"for": "198.51.100.9"}),
        ([(FOR, "198.51.100.9, 10.0.0.3"), (FOR, "10.0.0.2")], {"for": "198.51.100.9"}),
        ([(FOR, "10.0.0.9, 10.0.0.3")], {"for": "10.0.0.9"}),
        ([(FOR, "unknown, 10.0.0.3")], {"for": "10.0.0.3"}),
        # The part before the last address that is not a proxy may be invented.
        ([(FOR, "203.0.113.1, 198.51.100.9")], {"for": "198.51.100.9"}),
        ([(FOR, "203.0.113.1"), (FOR, "198.51.100.9")], {"for": "198.51.100.9"}),
        ([(FOR, "localhost")], {}),
        ([(FOR, ", ".join(["198.51.100.9", *["10.0.0.3"] * 40]))], {"for": "10.0.0.3"}),
        ([(PROTO, "https")], {"proto": "https"}),
        ([(PROTO, "HTTPS")], {"proto": "https"}),
        ([(PROTO, "javascript")], {}),
        ([(PROTO, "http"), (PROTO, "https")], {"proto": "https"}),
        (
            [(FOR, "198.51.100.9, 10.0.0.3"), (PROTO, "https, http")],
            {"for": "198.51.100.9", "proto": "https"},
        ),
        ([(HOST, "tools.example.com:8443")], {"host": "tools.example.com:8443"}),
        ([(HOST, "evil.example/path")], {}),
        ([(HOST, "")], {}),
        ([(BEFORE, "/team-a/")], {"prefix": "/team-a"}),
        ([(BEFORE, "/first"), (BEFORE, "/second")], {"prefix": "/first/second"}),
        ([(BEFORE, "//evil.example")], {}),
        ([(BEFORE, "/a/../b")], {}),
        ([(BEFORE, "https://evil.example")], {}),
        ([(BEFORE, "/a\ndata: x")], {}),
        (
            [("Forwarded", 'for="[2001:db8::1]:4711";proto=https;host="tools.example.com"')],
            {"for": "2001:db8::1", "proto": "https", "host": "tools.example.com"},
        ),
        ([("Forwarded", "For=203.0.113.1, for=198.51.100.9")], {"for": "198.51.100.9"}),
        (
            [("Forwarded", "for=198.51.100.9;proto=https"), ("Forwarded", "for=10.0.0.3")],
            {"for": "198.51.100.9", "proto": "https"},
        ),
        ([("Forwarded", "for=_hidden;proto=https")], {"proto": "https"}),
        ([("Forwarded", "for 198.51.100.9")], {}),
        # Two headers that agree are both fine; otherwise one of them may be the client's own.
        ([("Forwarded", "for=198.51.100.9"), (FOR, "198.51.100.9")], {"for": "198.51.100.9"}),
        ([("Forwarded", "for=203.0.113.1"), (FOR, "198.51.100.9")], {}),
    ],
)
def test_headers_of_a_trusted_proxy_state_the_client(headers, changed):
    assert applied(*headers) == NOTHING | changed


@each_row(
    ("peer", "is_trusted"),
    [
        ("10.255.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("::1", True),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("11.0.0.1", False),
        ("", False),
    ],
)
def test_only_listed_networks_are_trusted(peer: str, is_trusted: bool):
    assert Proxies(TRUSTED).trusts(peer) is is_trusted


@each_row(
    ("name", "error"),
    [
        ("*", "must be an address or a network, such as 10.0.0.0/8"),
        ("nginx", "must be an address or a network"),
        ("10.0.0.1/8", "write 10.0.0.1 or 10.0.0.0/8"),
    ],
)
def test_name_that_is_not_a_network_is_refused(name: str, error: str):
    with pytest.raises(ConfigError, match=error):
        Proxies([name])


# On a port


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


FORWARDED = ("x-forwarded-for: 198.51.100.9", "x-forwarded-host: tools.example.com")


async def _address(running: Any, *more: str) -> str:
    reader, writer = await connect(running)
    writer.write(written(call("whoami"), *more).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    answer = json.loads(await reader.readexactly(length))
    return (
        answer["result"]["content"][0]["text"] if "result" in answer else head.split()[1].decode()
    )


@each_row(
    ("proxies", "address"),
    [((), "127.0.0.1"), (["10.0.0.0/8"], "127.0.0.1"), (["127.0.0.0/8"], "198.51.100.9")],
)
async def test_client_address_is_the_proxys_statement_only_if_it_is_trusted(
    server, proxies, address
):
    async with served(server, proxies=proxies) as (running, _):
        assert await _address(running, *FORWARDED) == address


async def test_repeated_heads_keep_their_own_clients(server):
    async with served(server, proxies=["127.0.0.1"]) as (running, _):
        reader, writer = await connect(running)
        for last in (1, 2, 1, 2, 2, 1):
            writer.write(written(call("whoami"), f"x-forwarded-for: 198.51.100.{last}").encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            answer = await reader.readexactly(length)
            assert f"198.51.100.{last}".encode() in answer
        assert not running.config.http_protocol_class.addresses


async def test_cap_of_an_address_counts_a_proxys_requests_by_client(server, monkeypatch):
    monkeypatch.setattr(serve, "MAX_PER_ADDRESS", 2)
    async with served(server, proxies=["127.0.0.1"]) as (running, _):
        held = [await connect(running) for _ in range(3)]
        for _, writer in held[:2]:
            writer.write(written(call("hold"), "x-forwarded-for: 198.51.100.1").encode())
        addresses = running.config.http_protocol_class.addresses
        while addresses["198.51.100.1"] < 2:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0)
        reader, writer = held[2]
        writer.write(written(call("hold"), "x-forwarded-for: 198.51.100.1").encode())
        refused = await reader.read()

        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after" in refused
        assert await _address(running, "x-forwarded-for: 198.51.100.2") == "198.51.100.2"
        for _, writer in held:
            writer.transport.abort()
        while addresses:  # noqa: ASYNC110
            await asyncio.sleep(0)


@each_row(
    ("more", "status"),
    [
        ([], "198.51.100.9"),
        (["origin: http://localhost:3000"], "403"),  # its page is on another machine
        (["origin: http://evil.example.com", "x-forwarded-host: tools.example.com"], "403"),
        (
            ["origin: http://tools.example.com", "x-forwarded-host: tools.example.com"],
            "198.51.100.9",
        ),
    ],
)
async def test_page_of_loopback_is_refused_behind_a_proxy(server, more, status):
    async with served(server, proxies=["127.0.0.1"]) as (running, _):
        assert await _address(running, "x-forwarded-for: 198.51.100.9", *more) == status


@each_row("stated", [(), ("x-forwarded-for: 198.51.100.9", "x-forwarded-host: 127.0.0.1")])
async def test_page_that_connects_without_the_proxy_is_refused_by_its_host(server, stated):
    """A page can resolve its own name to loopback, and state any header at its own origin."""
    async with served(server, proxies=["127.0.0.1"]) as (running, _):
        request = call("whoami")
        request["headers"] = {"host": "evil.example.com", **request["headers"]}
        reader, writer = await connect(running)
        writer.write(written(request, *stated).replace("host: 127.0.0.1\r\n", "", 1).encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")


# The endpoint event of 2024-11-05


@each_row(
    ("proxies", "prefix", "url"),
    [
        (["127.0.0.1"], "/team-a", "/team-a/message?session_id="),
        (["127.0.0.1"], None, "/message?session_id="),
        ((), None, "/message?session_id="),
        # Untrusted: a relative reference is right, whatever prefix the proxy has removed.
        ((), "/team-a", "message?session_id="),
        ((), "//evil.example/", "message?session_id="),
    ],
)
async def test_endpoint_event_leads_back_through_the_proxy(server, proxies, prefix, url):
    async with served(server, proxies=proxies, sse=True) as (running, _):
        reader, writer = await connect(running)
        more = "" if prefix is None else f"x-forwarded-prefix: {prefix}\r\n"
        writer.write(f"GET /sse HTTP/1.1\r\nhost: 127.0.0.1\r\n{more}\r\n".encode())
        await reader.readuntil(b"data: ")

        assert (await reader.readuntil(b"=")).decode() == url


# WebSockets


class Sockets:
    """An application that accepts WebSockets, and notes the client of each."""

    path = "/ws"
    under_way = 0

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self.clients: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            self.clients.append(scope["client"][0])
            assert (await receive())["type"] == "websocket.connect"
            await send({"type": "websocket.close", "code": 1000})
        else:
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None: ...

    def end_streams(self) -> None: ...


@each_row(("proxies", "client"), [((), "127.0.0.1"), (["127.0.0.1"], "198.51.100.9")])
async def test_socket_through_a_proxy_has_its_own_client(proxies, client):
    app = Sockets()
    running = serve.UvicornServer(app, "127.0.0.1", 0, takes_sockets=True, proxies=proxies)
    task = asyncio.create_task(running.serve())
    while not running.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.001)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(running.url, headers={"X-Forwarded-For": "198.51.100.9"})
    running.should_exit = True
    await task

    assert app.clients == [client]
    assert not running.config.http_protocol_class.addresses
