"""Which way requests go: proxies, certificates, connections."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from aiohttp.abc import ResolveResult

from interlock.client import Client
from interlock.errors import ConfigError, HttpError, RequestTimeout, Unreachable
from interlock.transports import http_pool
from interlock.transports.http_pool import HttpPool
from tests.faults.rows_http import self_signed
from tests.servers.evil_http import MODERN, EvilHttp
from tests.servers.ports import free_port
from tests.support.rows import each_row

PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@each_row(
    ("variable", "url", "proxy"),
    [
        ("HTTP_PROXY", "http://a.example/mcp", PROXY),
        ("HTTP_PROXY", "https://a.example/mcp", None),
        ("HTTPS_PROXY", "https://a.example/mcp", PROXY),
        ("https_proxy", "https://a.example/mcp", PROXY),
        ("ALL_PROXY", "http://a.example/mcp", PROXY),
        ("ALL_PROXY", "https://a.example:8443/mcp", PROXY),
        ("ALL_PROXY", "http://localhost:1/mcp", None),
        ("ALL_PROXY", "http://a.localhost/mcp", None),
        ("ALL_PROXY", "http://127.0.0.9/mcp", None),
        ("ALL_PROXY", "http://[::1]:8000/mcp", None),
        ("ALL_PROXY", "http://10.0.0.1/mcp", PROXY),
    ],
)
def test_proxy_is_used_for_its_scheme_but_not_for_loopback(
    environment: pytest.MonkeyPatch, variable: str, url: str, proxy: str | None
):
    with environment.context() as only:
        only.setenv(variable, PROXY)
        assert HttpPool().proxy(url) == proxy


@each_row(
    ("excepted", "is_direct"),
    [
        ("a.example", True),
        ("example", True),
        (".example", True),
        ("b.example, a.example", True),
        ("a.example:8443", True),
        ("*", True),
        ("a.example:1", False),
        ("b.example", False),
    ],
)
def test_no_proxy_hosts_are_reached_directly(
    environment: pytest.MonkeyPatch, excepted: str, is_direct: bool
):
    environment.setenv("HTTPS_PROXY", PROXY)
    environment.setenv("NO_PROXY", excepted)
    assert (HttpPool().proxy("https://a.example:8443/mcp") is None) == is_direct


def test_proxy_without_scheme_is_an_http_proxy(environment: pytest.MonkeyPatch):
    environment.setenv("HTTP_PROXY", "proxy.example:3128")
    assert HttpPool().proxy("http://a.example/") == PROXY


@each_row("kind", ["socks4", "socks5", "socks5h", "ftp"])
def test_unsupported_proxy_kind_is_refused_with_a_remedy(
    environment: pytest.MonkeyPatch, kind: str
):
    environment.setenv("HTTPS_PROXY", f"{kind}://user:secret@proxy.example:1080")
    with pytest.raises(ConfigError, match=f"of kind '{kind}'.*HTTPS_PROXY.*NO_PROXY") as told:
        Client.http("https://a.example/mcp")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("proxy", ["http://[::1", "http://user:secret@proxy.example:99999"])
def test_invalid_proxy_url_is_refused(environment: pytest.MonkeyPatch, proxy: str):
    environment.setenv("HTTP_PROXY", proxy)
    with pytest.raises(
        ConfigError, match=r"for a\.example is not a valid URL; change HTTP_PROXY"
    ) as told:
        HttpPool().proxy("http://a.example/mcp")
    assert "secret" not in str(told.value)


async def test_refusal_of_a_proxy_is_reported(
    environment: pytest.MonkeyPatch, nothing_is_left: list[object]
):
    async with EvilHttp() as proxy:
        for method in ("server/discover", "initialize"):
            proxy.tell(method, "status", code=407)
        port = proxy.url.rpartition(":")[2].removesuffix("/mcp")
        environment.setenv("HTTP_PROXY", f"http://user:secret@127.0.0.1:{port}")
        with pytest.raises(HttpError, match=r"a\.example/mcp answered 407") as told:
            await Client.http("http://a.example/mcp?key=secret").open()
        assert "secret" not in str(told.value)
        assert proxy.asked[0].path == "http://a.example/mcp"
        assert proxy.asked[0].headers["host"] == "a.example"


async def test_unreachable_proxy_is_named_in_the_error(
    environment: pytest.MonkeyPatch, nothing_is_left: list[object]
):
    why = r"a\.example/mcp cannot be reached through its proxy"
    with free_port() as port:
        environment.setenv("HTTP_PROXY", f"http://user:secret@127.0.0.1:{port}")
        with pytest.raises(Unreachable, match=why) as told:
            await Client.http("http://a.example/mcp?key=secret").open()
    assert "secret" not in str(told.value)


PROGRAM = """
import asyncio, sys
from interlock import Client
async def main():
    async with Client.http(sys.argv[1]) as client:
        print(client.revision)
asyncio.run(main())
"""


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize(("is_named", "said"), [(False, "is not trusted"), (True, MODERN)])
async def test_certificates_may_come_from_a_file_that_the_environment_names(
    tmp_path: Path, is_named: bool, said: str
):
    async with EvilHttp(tls=self_signed(tmp_path)) as server:
        named = {"SSL_CERT_FILE": str(tmp_path / "certificate.pem")} if is_named else {}
        run = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", PROGRAM, server.url],
            env={**os.environ, **named},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert said in run.stdout


async def test_a_pool_that_was_closed_opens_again(nothing_is_left: list[object]):
    pool = HttpPool()
    await pool.close()
    for _ in range(2):
        async with EvilHttp() as server, Client.http(server.url, pool=pool) as client:
            await client.list_tools()
        await pool.close()
        await pool.close()


async def test_clients_of_a_pool_share_its_connections(nothing_is_left: list[object]):
    pool = HttpPool()
    async with EvilHttp() as server:
        for _ in range(3):
            async with Client.http(server.url, pool=pool) as client:
                await client.list_tools()
        assert len({asked.link for asked in server.asked}) == 1
        await pool.close()


async def test_requests_over_the_limit_of_one_host_wait(
    monkeypatch: pytest.MonkeyPatch, nothing_is_left: list[object]
):
    monkeypatch.setattr(http_pool, "MAX_CONNECTIONS", 1)
    async with EvilHttp() as server, Client.http(server.url) as client:
        calling = asyncio.create_task(client.call_tool("mute"))
        await server.heard("tools/call")
        with pytest.raises(RequestTimeout):
            await client.call_tool("echo", timeout=0.05)
        assert server.times("tools/call") == 1
        calling.cancel()
        await client.list_tools()


async def test_sessions_have_the_configured_limits(nothing_is_left: list[object]):
    shared = HttpPool()
    found = []
    for session in (shared.session, shared.streams):
        connector, timeout = session.connector, session.timeout
        assert connector is not None
        found.append((connector.limit_per_host, connector.limit, timeout.sock_connect))
    await shared.close()
    # 0 means unlimited.
    assert found == [
        (http_pool.MAX_CONNECTIONS, 0, http_pool.CONNECT_TIMEOUT),
        (0, 0, http_pool.CONNECT_TIMEOUT),
    ]


class Clock:
    """The clock by which aiohttp keeps connections and addresses, as a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("aiohttp.connector.monotonic", lambda: self.now)


async def test_idle_connection_is_closed_after_four_seconds(
    monkeypatch: pytest.MonkeyPatch, nothing_is_left: list[object]
):
    clock = Clock(monkeypatch)
    async with EvilHttp() as server, Client.http(server.url) as client:
        clock.now += 3.9
        await client.call_tool("echo")
        clock.now += 4.9
        await client.call_tool("echo")
        first, second, third = (asked.link for asked in server.asked)
        assert first is second is not third


async def test_dns_answer_is_cached_for_half_a_minute(
    monkeypatch: pytest.MonkeyPatch, nothing_is_left: list[object]
):
    asked_for: list[str] = []

    async def resolve(
        self: object, host: str, port: int = 0, family: int = socket.AF_INET
    ) -> list[ResolveResult]:
        asked_for.append(host)
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=port, family=family, proto=0, flags=0
            )
        ]

    clock = Clock(monkeypatch)
    monkeypatch.setattr(http_pool._Names, "resolve", resolve)
    async with EvilHttp() as server:
        by_name = server.url.replace("127.0.0.1", "a.example")
        async with Client.http(by_name) as client:
            clock.now += 29
            await client.call_tool("echo")
            assert asked_for == ["a.example"]
            clock.now += 5
            await client.call_tool("echo")
            assert asked_for == ["a.example"] * 2


def ended(before: list[threading.Thread]) -> None:
    """Wait until the threads that have begun since then have ended, except the event loop's own."""
    for each in set(threading.enumerate()) - {*before}:
        if not each.name.startswith("asyncio_"):
            each.join(10)


async def test_dns_lookup_that_hangs_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
):
    before = threading.enumerate()
    real, answered = socket.getaddrinfo, threading.Event()
    everybody_waits = threading.Barrier(41, timeout=30)

    def look_up(host: str, *args: object, **named: object) -> object:
        if host.endswith(".silent"):
            everybody_waits.wait()
            answered.wait()
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    names = http_pool._Names()
    silent = [asyncio.create_task(names.resolve(f"{n}.silent", 80)) for n in range(40)]
    await asyncio.to_thread(everybody_waits.wait)  # more than any pool of threads would let run

    found = await names.resolve("localhost", 80)

    assert {(each["hostname"], each["port"]) for each in found} == {("localhost", 80)}
    assert {each["host"] for each in found} <= {"127.0.0.1", "::1"}
    for each in silent:
        each.cancel()
    await asyncio.wait(silent)
    answered.set()
    ended(before)


async def test_dns_lookup_that_hangs_times_out(monkeypatch: pytest.MonkeyPatch):
    before, answered = threading.enumerate(), threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answered.wait())
    monkeypatch.setattr(http_pool, "CONNECT_TIMEOUT", 0.01)
    with pytest.raises(OSError, match="the lookup of its name timed out"):
        await http_pool._Names().resolve("a.silent", 80)
    answered.set()
    ended(before)


async def test_dns_lookup_without_threads_fails(monkeypatch: pytest.MonkeyPatch):
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(OSError, match="its name cannot be looked up: can't start new thread"):
        await http_pool._Names().resolve("a.example", 80)


async def test_cookies_are_not_kept(environment: pytest.MonkeyPatch, nothing_is_left: list[object]):
    async with EvilHttp() as proxy:  # an address has no cookies, but a name behind a proxy has
        for method in ("server/discover", "initialize"):
            proxy.tell(method, "status", code=500, headers={"Set-Cookie": "session=1"})
        environment.setenv("HTTP_PROXY", proxy.url.removesuffix("/mcp"))
        shared = HttpPool()
        for _ in range(2):
            with pytest.raises(HttpError):
                await Client.http("http://a.example/mcp", pool=shared).open()
        await shared.close()
        assert len(proxy.asked) > 1
        assert all("cookie" not in asked.headers for asked in proxy.asked)


def test_cached_facts_about_urls_have_a_limit(monkeypatch: pytest.MonkeyPatch):
    """R-118."""
    monkeypatch.setattr(http_pool, "MAX_REMEMBERED", 3)
    shared = HttpPool()
    for number in [*range(5), 2]:
        shared.eras[f"https://{number}.example"] = "modern"
        shared.proxy(f"https://{number}.example")
    shared.eras["https://5.example"] = "legacy"

    assert list(shared.eras) == [f"https://{number}.example" for number in (4, 2, 5)]
    assert len(shared._proxies) == 3
