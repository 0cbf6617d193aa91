"""HTTPS through a proxy, by a program that knows both only from its environment."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.servers.certificate_authority import CertificateAuthority
from tests.servers.connect_proxy import ConnectProxy
from tests.servers.evil_http import EvilHttp

HOST = "mcp.example"
USER, PASSWORD = "me", "s3cret-of-the-proxy"
KEY = "canary-of-the-server"

# Names are looked up in a table, so that nothing of the system's is asked for.
PROGRAM = f"""
import asyncio, logging, socket, sys
from interlock import Client
from interlock.errors import InterlockError

logging.basicConfig(level=logging.DEBUG)
url, *known = sys.argv[1:]
look_up = socket.getaddrinfo

def getaddrinfo(host, *rest, **more):
    if host in known:
        host = "127.0.0.1"
    elif host != "127.0.0.1":
        raise socket.gaierror(socket.EAI_NONAME, "no such name")
    return look_up(host, *rest, **more)

socket.getaddrinfo = getaddrinfo

async def main():
    headers = {{"X-Api-Key": {KEY!r}}}
    async with Client.http(url + "?key={KEY}", headers=headers) as client:
        print((await client.call_tool("echo", {{"text": "through"}})).text)

try:
    asyncio.run(main())
except InterlockError as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


@pytest.fixture
async def server(authority: CertificateAuthority) -> AsyncIterator[EvilHttp]:
    async with EvilHttp(tls=authority.server(HOST)) as server:
        yield server


def port_of(server: EvilHttp) -> int:
    return int(server.url.rpartition(":")[2].removesuffix("/mcp"))


async def run(url: str, *known: str, **environment: str) -> str:
    """Run the program; give all that it prints and logs, which has no secret in it."""
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE")
    kept = {name: value for name, value in os.environ.items() if name.upper() not in proxies}
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, url, *known],
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    text: str = ran.stdout
    assert PASSWORD not in text
    assert base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode() not in text
    assert KEY not in text
    return text


def proxy_url(proxy: ConnectProxy, password: str = PASSWORD) -> str:
    return f"http://{USER}:{password}@127.0.0.1:{proxy.port}"


@pytest.mark.slow("makes certificates")
async def test_https_call_is_tunnelled_through_the_proxy(
    authority: CertificateAuthority, server: EvilHttp
):
    routes = {f"{HOST}:443": port_of(server)}
    async with ConnectProxy(routes, user=USER, password=PASSWORD) as proxy:
        trusted = str(authority.file)
        said = await run(f"https://{HOST}/mcp", HTTPS_PROXY=proxy_url(proxy), SSL_CERT_FILE=trusted)

        assert said.splitlines()[-1] == "through"
        assert proxy.heads
        for head in proxy.heads:
            assert head.startswith(f"CONNECT {HOST}:443 HTTP/1.1\r\n")
            assert KEY not in head
        for plain in (KEY, "tools/call", "through", "/mcp", "Mcp-Method"):
            assert plain.encode() not in proxy.passed
    assert [asked.method for asked in server.asked] == ["server/discover", "tools/call"]
    for asked in server.asked:
        assert asked.headers["x-api-key"] == KEY
        assert asked.headers["host"] == HOST
        assert "proxy-authorization" not in asked.headers


@pytest.mark.slow("makes certificates")
async def test_proxy_that_requires_authentication_is_named_in_the_error(
    authority: CertificateAuthority, server: EvilHttp
):
    routes = {f"{HOST}:443": port_of(server)}
    async with ConnectProxy(routes, user=USER, password="another") as proxy:
        trusted = str(authority.file)
        said = await run(f"https://{HOST}/mcp", HTTPS_PROXY=proxy_url(proxy), SSL_CERT_FILE=trusted)

    assert said.splitlines()[-1] == (
        f"Unreachable: the proxy refused https://{HOST}/mcp: 407; check user and password in "
        "HTTPS_PROXY"
    )
    assert server.asked == []


@pytest.mark.slow("makes certificates")
@pytest.mark.parametrize("how", ["of an unknown authority", "of another host"])
async def test_certificate_is_checked_through_the_tunnel(authority: CertificateAuthority, how: str):
    """A proxy may send us wherever it likes."""
    is_of_host = how == "of an unknown authority"
    environment = {} if is_of_host else {"SSL_CERT_FILE": str(authority.file)}
    tls = authority.server(HOST if is_of_host else "other.example")
    async with (
        EvilHttp(tls=tls) as server,
        ConnectProxy({f"{HOST}:443": port_of(server)}) as proxy,
    ):
        said = await run(f"https://{HOST}/mcp", HTTPS_PROXY=proxy_url(proxy), **environment)

        last = f"Unreachable: https://{HOST}/mcp cannot be reached: its certificate is not trusted"
        assert said.splitlines()[-1].startswith(last)
        assert server.asked == []


@pytest.mark.slow("makes certificates")
async def test_no_proxy_host_is_reached_without_the_tunnel(
    authority: CertificateAuthority, server: EvilHttp
):
    async with ConnectProxy({}) as proxy:
        said = await run(
            f"https://{HOST}:{port_of(server)}/mcp",
            HOST,  # now we have to look its name up
            ALL_PROXY=proxy_url(proxy),
            NO_PROXY=f"elsewhere.example,{HOST}",
            SSL_CERT_FILE=str(authority.file),
        )

        assert said.splitlines()[-1] == "through"
        assert proxy.heads == []
