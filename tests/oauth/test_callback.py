"""The loopback server where a login ends."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from msgspec.structs import replace

from interlock.errors import AuthError, ConfigError
from interlock.oauth import AuthorizationRequest
from interlock.oauth import callback as callback_module
from interlock.oauth.callback import Callback, callback_server, open_browser
from tests.support.rows import each_row


async def visit(callback: Callback, path: str, method: str = "GET", **headers: str) -> Any:
    url = f"http://127.0.0.1:{callback.port}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers) as response,
    ):
        return response.status, await response.text(), response.headers


async def send(callback: Callback, request: bytes) -> bytes:
    """Send bytes; return everything received until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", callback.port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def login(callback: Callback, state: str = "s") -> AuthorizationRequest:
    """Return an authorization request that is redirected here."""
    return AuthorizationRequest(
        url="https://as.example/authorize",
        server_url="https://mcp.example/mcp",
        issuer="https://as.example",
        scopes=(),
        redirect_uri=callback.redirect_uri,
        state=state,
    )


@asynccontextmanager
async def waiting(state: str = "s") -> AsyncIterator[tuple[Callback, asyncio.Task[Any]]]:
    """Wait for the redirect of one login."""
    async with callback_server() as callback:
        answer = asyncio.create_task(callback.query(login(callback, state)))
        await asyncio.sleep(0)  # it is waiting now
        try:
            yield callback, answer
        finally:
            answer.cancel()
            await asyncio.wait({answer})


def head(callback: Callback, line: str, host: str = "127.0.0.1:{port}") -> bytes:
    return f"{line}\r\nHost: {host.format(port=callback.port)}\r\n\r\n".encode("latin-1")


async def test_query_returns_all_parameters_of_the_redirect(nothing_is_left: list[Any]):
    async with waiting() as (callback, answer):
        assert callback.redirect_uri == f"http://127.0.0.1:{callback.port}/callback"

        status, text, headers = await visit(callback, "/callback?code=a%20b&state=s&iss=&é=%C3%A9")

        assert status == 200
        assert "You can close this page" in text
        assert "a b" not in text
        assert headers["Cache-Control"] == "no-store"
        assert headers["Content-Security-Policy"] == "default-src 'none'"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert await answer == {"code": "a b", "state": "s", "iss": "", "é": "é"}


async def test_a_redirect_with_another_state_is_refused_and_the_wait_continues(
    nothing_is_left: list[Any],
):
    async with waiting("secret") as (callback, answer):
        for state in ("x", "", "secre", "secrets", "é"):
            assert (await visit(callback, f"/callback?code=1&state={state}"))[0] == 400
        assert not answer.done()

        assert (await visit(callback, "/callback?error=access_denied&state=secret"))[0] == 200
        assert await answer == {"error": "access_denied", "state": "secret"}


async def test_redirects_of_two_simultaneous_logins_reach_the_right_login(
    nothing_is_left: list[Any],
):
    async with callback_server() as callback:
        one = asyncio.create_task(callback.query(login(callback, "one")))
        other = asyncio.create_task(callback.query(login(callback, "other")))
        await asyncio.sleep(0)  # both are waiting now

        await visit(callback, "/callback?code=2&state=other")
        await visit(callback, "/callback?code=1&state=one")

        assert (await one)["code"] == "1"
        assert (await other)["code"] == "2"


async def test_a_redirect_to_the_path_of_another_login_is_refused(nothing_is_left: list[Any]):
    async with callback_server() as callback:
        ours = callback.redirect_uri_of("https://as.example")
        request = replace(login(callback), redirect_uri=ours)
        answer = asyncio.create_task(callback.query(request))
        await asyncio.sleep(0)  # it is waiting now
        path = urlsplit(ours).path

        assert path.startswith("/callback/")
        assert (await visit(callback, "/callback?code=1&state=s"))[0] == 404
        assert (await visit(callback, f"{path}x?code=1&state=s"))[0] == 404
        assert (await visit(callback, f"{path}?code=2&state=s"))[0] == 200
        assert (await answer)["code"] == "2"


def test_two_issuers_have_different_redirect_uris():
    issuers = [f"https://as.example/{number}" for number in range(1_000)]

    assert len({Callback().redirect_uri_of(issuer) for issuer in issuers}) == len(issuers)


async def test_a_redirect_before_or_after_a_login_gets_404(nothing_is_left: list[Any]):
    async with callback_server() as callback:
        assert (await visit(callback, "/callback?code=1&state=s"))[0] == 404
        answer = asyncio.create_task(callback.query(login(callback)))
        await asyncio.sleep(0)  # it is waiting now
        await visit(callback, "/callback?code=2&state=s")
        assert (await answer)["code"] == "2"

        assert (await visit(callback, "/callback?code=3&state=s"))[0] == 404
        assert not callback._logins


async def test_a_second_redirect_of_a_login_is_ignored():
    async with waiting() as (callback, answer):
        head_of = b"GET /callback?code=%d&state=s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
        first = callback._accept(head_of % (1, callback.port))
        second = callback._accept(head_of % (2, callback.port))

        assert (first[0], second[0]) == ("200 OK", "404 Not Found")
        assert (await answer)["code"] == "1"


@each_row(
    ("line", "host", "status"),
    [
        ("GET /favicon.ico HTTP/1.1", "127.0.0.1:{port}", 404),
        ("GET /callback/x?state=s HTTP/1.1", "127.0.0.1:{port}", 404),
        ("GET //callback?state=s HTTP/1.1", "127.0.0.1:{port}", 404),
        ("GET http://127.0.0.1/callback?state=s HTTP/1.1", "127.0.0.1:{port}", 404),
        ("POST /callback?state=s HTTP/1.1", "127.0.0.1:{port}", 405),
        ("HEAD /callback?state=s HTTP/1.1", "127.0.0.1:{port}", 405),
        ("GET /callback?state=s HTTP/1.1", "evil.example", 421),
        ("GET /callback?state=s HTTP/1.1", "evil.example:{port}", 421),
        ("GET /callback?state=s HTTP/1.1", "127.0.0.1", 421),
        ("GET /callback?state=s HTTP/1.1", "127.0.0.1:{port}\r\nHost: evil.example", 421),
        ("GET /callback HTTP/1.1", "127.0.0.1:{port}", 400),
        ("GET /callback?code=c HTTP/1.1", "127.0.0.1:{port}", 400),
        ("GET /callback?state=s&state=t HTTP/1.1", "127.0.0.1:{port}", 400),
        ("GET /callback?state=s&code=%FF HTTP/1.1", "127.0.0.1:{port}", 400),
        ("GET /callback?state=s" + "&a=b" * 200 + " HTTP/1.1", "127.0.0.1:{port}", 400),
        ("GET /callback?state=s&code=1&code=2 HTTP/1.1", "127.0.0.1:{port}", 400),
        ("nonsense", "127.0.0.1:{port}", 404),
        ("", "127.0.0.1:{port}", 404),
    ],
)
async def test_a_malformed_redirect_is_refused_and_the_wait_continues(
    nothing_is_left: list[Any], line: str, host: str, status: int
):
    async with waiting() as (callback, answer):
        reply = await send(callback, head(callback, line, host))

        assert reply.startswith(f"HTTP/1.1 {status} ".encode())
        assert (await visit(callback, "/callback?state=s"))[0] == 200
        assert await answer == {"state": "s"}


@pytest.mark.parametrize("host", ["Host: 127.0.0.1:{port}", "host:localhost:{port} "])
async def test_a_redirect_to_127_0_0_1_or_localhost_is_accepted(
    nothing_is_left: list[Any], host: str
):
    async with waiting() as (callback, answer):
        line = f"GET /callback?state=s HTTP/1.1\r\n{host.format(port=callback.port)}\r\n\r\n"

        assert (await send(callback, line.encode())).startswith(b"HTTP/1.1 200 ")
        assert await answer == {"state": "s"}


async def test_a_request_without_host_is_refused(nothing_is_left: list[Any]):
    async with waiting() as (callback, answer):
        reply = await send(callback, b"GET /callback?state=s HTTP/1.1\r\n\r\n")

        assert reply.startswith(b"HTTP/1.1 421 ")
        assert not answer.done()


async def test_a_connection_that_is_cut_off_is_closed(nothing_is_left: list[Any]):
    async with callback_server() as callback:
        _, writer = await asyncio.open_connection("127.0.0.1", callback.port)
        writer.write(b"GET /")
        await visit(callback, "/")  # by now the other one was accepted
        linger = struct.pack("ii", 1, 0)  # closing it resets the connection
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()
        await writer.wait_closed()
        await visit(callback, "/")  # by now the reset was noticed


@pytest.fixture
def endless_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test hang that would wait for the time limit of a request."""
    monkeypatch.setattr(callback_module, "REQUEST_TIMEOUT", 3600.0)


@pytest.mark.usefixtures("endless_requests")
async def test_a_request_over_the_size_limit_is_cut_off(nothing_is_left: list[Any]):
    async with waiting() as (callback, _):
        assert await send(callback, b"GET /callback?state=" + b"a" * 100_000) == b""
        assert (await visit(callback, "/callback?state=s"))[0] == 200


async def test_a_request_over_the_time_limit_is_cut_off(
    nothing_is_left: list[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(callback_module, "REQUEST_TIMEOUT", 0.05)
    async with callback_server() as callback:
        assert await send(callback, b"GET /callback?state=s HTTP/1.1\r\n") == b""


@pytest.mark.usefixtures("endless_requests")
async def test_idle_connections_do_not_delay_closing(nothing_is_left: list[Any]):
    async with callback_server() as callback:
        idle = [await asyncio.open_connection("127.0.0.1", callback.port) for _ in range(3)]
        await visit(callback, "/callback?state=s")
    for reader, writer in idle:
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.usefixtures("endless_requests")
async def test_connections_over_the_limit_are_closed(nothing_is_left: list[Any]):
    async with callback_server() as callback:
        many = [
            await asyncio.open_connection("127.0.0.1", callback.port)
            for _ in range(callback_module.MAX_CONNECTIONS - 1)
        ]
        assert await send(callback, head(callback, "GET / HTTP/1.1"))
        many.append(await asyncio.open_connection("127.0.0.1", callback.port))
        assert await send(callback, b"") == b""
        for _, writer in many:
            writer.close()
            await writer.wait_closed()


async def test_closed_connections_do_not_count_towards_the_limit(nothing_is_left: list[Any]):
    async with callback_server() as callback:
        for _ in range(callback_module.MAX_CONNECTIONS + 1):
            assert await send(callback, head(callback, "GET / HTTP/1.1"))


async def test_a_login_times_out_after_five_minutes(
    nothing_is_left: list[Any], monkeypatch: pytest.MonkeyPatch
):
    assert callback_module.LOGIN_TIMEOUT == 300.0
    monkeypatch.setattr(callback_module, "LOGIN_TIMEOUT", 0.05)
    async with callback_server() as callback:
        with pytest.raises(AuthError, match="the login was not completed within 0 minutes"):
            await callback.query(login(callback))


async def test_a_given_port_is_used_or_named_in_the_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=f"port {port} of 127.0.0.1 cannot be opened: .*in use"
        ):
            async with callback_server(port):
                raise AssertionError("never")

    async with callback_server(port) as callback:
        assert callback.port == port


async def test_the_default_port_is_used_if_it_is_free(
    nothing_is_left: list[Any], monkeypatch: pytest.MonkeyPatch
):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(callback_module, "PORT", port)

    async with callback_server() as first, callback_server() as second:
        assert first.port == port
        assert second.port not in (0, port)
    async with callback_server() as third:
        assert third.port == port


async def test_the_server_listens_on_loopback_only():
    async with callback_server() as callback:
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", callback.port), timeout=1.0)


# Browsers


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    urls: list[Any] = []
    monkeypatch.setattr(webbrowser, "open", lambda *given: urls.append(given) or True)
    return urls


async def test_open_browser_passes_the_url_as_one_argument(opened: list[Any]):
    assert await open_browser("https://as.example/authorize?a=b&c=$(d)")

    assert opened == [("https://as.example/authorize?a=b&c=$(d)",)]


async def test_a_browser_that_blocks_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    goes_on = threading.Event()
    monkeypatch.setattr(webbrowser, "open", lambda _: goes_on.wait())

    opening = asyncio.create_task(open_browser("https://as.example/authorize"))
    await asyncio.sleep(0)
    goes_on.set()

    assert await opening


@each_row(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "--help", "http://as.example/", "x.html"]
)
async def test_open_browser_refuses_an_unsafe_url(opened: list[Any], url: str):
    with pytest.raises(AuthError, match="the URL of the login is"):
        await open_browser(url)

    assert opened == []
