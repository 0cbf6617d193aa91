"""Responses that refuse a request: status, reason, challenge, Retry-After."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.errors import (
    AuthError,
    AuthRequired,
    HttpError,
    InsufficientScope,
    InterlockError,
    RedirectRefused,
    RemoteError,
    StreamEnded,
    Unreachable,
)
from interlock.transports import http_endpoint as module
from interlock.transports.http_pool import HttpPool
from tests.servers import evil_http
from tests.servers.evil_http import Asked, EvilHttp
from tests.support.rows import each_row
from tests.transports.support import BODY, SECRET, Tokens, to


@pytest.fixture
async def server(nothing_is_left: object) -> AsyncIterator[EvilHttp]:
    async with EvilHttp() as server:
        yield server


@pytest.fixture
async def pool(nothing_is_left: object) -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


async def refused(server: EvilHttp, pool: HttpPool, code: int, **told: Any) -> InterlockError:
    """Return the error that a response means."""
    server.tell("x", "status", code=code, **told)
    endpoint = to(f"{server.url}?key={SECRET}", pool)
    async with endpoint.request("POST", {}, BODY) as response:
        error = await endpoint.refusal(response)
    assert SECRET not in str(error)
    return error


async def test_challenge_is_in_the_error(server: EvilHttp, pool: HttpPool):
    told = 'Bearer error="insufficient_scope", scope="a b"'
    error = await refused(server, pool, 403, headers={"WWW-Authenticate": told})
    assert isinstance(error, InsufficientScope)
    assert (tuple(error.scopes), error.challenge) == (("a", "b"), told)

    error = await refused(server, pool, 401, headers={"WWW-Authenticate": "Basic"})
    assert isinstance(error, AuthRequired)
    assert error.challenge == "Basic"

    error = await refused(server, pool, 403)
    assert type(error) is AuthError


async def test_a_check_by_cloudflare_is_named_and_starts_no_login(server: EvilHttp, pool: HttpPool):
    # https://github.com/anthropics/claude-ai-mcp/issues/279
    said = {"type": "text/html", "body": "<title>Just a moment...</title>"}
    error = await refused(server, pool, 403, headers={"cf-mitigated": "challenge"}, **said)
    assert isinstance(error, HttpError)
    assert not isinstance(error, AuthError)
    assert "a check by Cloudflare that only browsers pass" in str(error)


async def test_json_rpc_error_has_the_http_status(server: EvilHttp, pool: HttpPool):
    said = '{"jsonrpc":"2.0","error":{"code":-32022,"message":"m","data":{"supported":[]}}}'
    error = await refused(server, pool, 400, body=said)
    assert isinstance(error, RemoteError)
    assert (error.code, error.message, error.data, error.status) == (
        -32022,
        "m",
        {"supported": []},
        400,
    )


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_server_error_status_wins_over_its_body(server: EvilHttp, pool: HttpPool, code: int):
    said = '{"error":{"code":-32603,"message":"no\\u001b[31m\\nspace"}}'
    error = await refused(server, pool, code, body=said)
    assert isinstance(error, HttpError)
    assert error.status == code
    assert str(error).endswith(": no\ufffd[31m space")


REASONS = {
    "plain text": ("quota\n used\x1b up", "text/plain; charset=utf-8"),
    "one of OAuth": (
        '{"error":"x","error_description":"quota used\\u001b up"}',
        "application/json",
    ),
    "a problem (RFC 9457)": (
        '{"title":"x","detail":"quota\\n used\\u001b up"}',
        "application/json",
    ),
    "a message": ('{"message":"quota used\\u001b up","code":"E1"}', "text/plain"),
    "an error that is text": ('{"error":"quota used\\u001b up"}', "application/json"),
    "an error without code": ('{"error":{"message":"quota used\\u001b up"}}', "application/json"),
    "one of the protocol": (
        '{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"quota used\\u001b up"}}',
        "application/json",
    ),
}


@each_row("code", [401, 403, 500])
@each_row("form", REASONS)
async def test_reason_in_the_body_is_in_the_error(
    server: EvilHttp, pool: HttpPool, code: int, form: str
):
    body, type = REASONS[form]
    error = await refused(server, pool, code, body=body, type=type)
    assert str(error).endswith(": quota used\ufffd up")


@each_row(
    ("body", "type"),
    [
        ("<p>no</p>", "text/plain"),
        ("no", "text/html"),
        ("no", ""),
        (" \n", "text/plain"),
        ('{"detail":"forbidden"}', "application/json"),
        ('["no"]', "application/json"),
        ('{"detail":[{"loc":1}],"error":5}', "application/json"),
        ('{"error":' + "[" * 60_000, "application/json"),
    ],
    ids=[
        "page",
        "type of a page",
        "no type",
        "blank",
        "the status",
        "a list",
        "other values",
        "depth",
    ],
)
async def test_error_body_without_a_reason_is_left_out_of_the_error(
    server: EvilHttp, pool: HttpPool, body: str, type: str
):
    error = await refused(server, pool, 403, body=body, type=type)
    assert str(error).endswith("/mcp denied access (403)")


async def test_credentials_in_the_body_are_redacted(server: EvilHttp, pool: HttpPool):
    said = "key s3cret-key and token t0ken-t0ken are of no use, ab"
    server.tell("x", "status", code=403, body=said)
    headers = {"X-API-Key": "s3cret-key", "X-Tenant": "ab"}
    endpoint = to(server.url, pool, authorization=Tokens("t0ken-t0ken"), headers=headers)
    async with endpoint.request("POST", {}, BODY) as response:
        error = await endpoint.refusal(response)
    assert str(error).endswith(": key *** and token *** are of no use, ab")


@each_row("body", ["", "<html>", '{"error":', "[" * 100_000])
async def test_body_that_is_not_a_json_rpc_error_is_an_http_error(
    server: EvilHttp, pool: HttpPool, body: str
):
    error = await refused(server, pool, 404, body=body)
    assert isinstance(error, HttpError)
    assert str(error).endswith("/mcp answered 404 Not Found")


async def test_error_status_is_reported_though_its_body_never_ends(
    server: EvilHttp, pool: HttpPool, monkeypatch: pytest.MonkeyPatch
):
    """R-45."""
    monkeypatch.setattr(module, "ERROR_BODY_TIMEOUT", 0.01)

    async def begin(server: EvilHttp, asked: Asked) -> None:
        await asked.link.write(b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n{")
        await asked.gone.wait()

    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "begin", begin)
    server.tell("x", "begin")
    endpoint = to(server.url, pool)
    async with endpoint.request("POST", {}, BODY) as response:
        assert str(await endpoint.refusal(response)).endswith("answered 500 Internal Server Error")


async def test_error_of_a_redirect_out_of_tls_does_not_recommend_its_url(pool: HttpPool):
    endpoint = to("https://a.example/mcp", pool)
    response = SimpleNamespace(status=307, headers={"Location": "http://a.example/mcp/"})
    with pytest.raises(RedirectRefused, match=r"http://a.example/mcp/, which .*, without TLS$"):
        endpoint._target(response)  # type: ignore[arg-type]  # all that is looked at


async def test_invalid_host_is_unreachable(pool: HttpPool):
    endpoint = to("http://127.1/mcp", pool)
    with pytest.raises(Unreachable, match="its host is invalid"):
        async with endpoint.request("GET", {}):
            pass


@each_row(
    ("headers", "is_too_long"),
    [
        ({"X-A": "a" * 60_000}, False),
        ({f"X-{n}": "a" for n in range(200)}, False),
        ({"X-A": "a" * 70_000}, True),
        ({f"X-{n}": "a" for n in range(300)}, True),
    ],
    ids=["long", "many", "too long", "too many"],
)
async def test_response_headers_have_a_limit(
    server: EvilHttp, pool: HttpPool, headers: dict[str, str], is_too_long: bool
):
    server.tell("GET", "status", code=200, headers=headers)
    with pytest.raises(StreamEnded) if is_too_long else nullcontext() as caught:
        async with to(server.url, pool).request("GET", {}) as response:
            assert headers.items() <= dict(response.headers).items()
    assert caught is None or str(caught.value).endswith("/mcp: its headers are too long")


async def test_error_status_is_reported_though_its_body_is_cut(
    server: EvilHttp, pool: HttpPool, monkeypatch: pytest.MonkeyPatch
):
    async def cut(server: EvilHttp, asked: Asked) -> None:
        await asked.link.write(b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n{")
        asked.link.cut()

    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "cut", cut)
    server.tell("x", "cut")
    endpoint = to(server.url, pool)
    async with endpoint.request("POST", {}, BODY) as response:
        assert isinstance(await endpoint.refusal(response), HttpError)


def dates() -> Iterator[tuple[str, float | None]]:
    yield from (("0", 0.0), ("7", 7.0), (" 7 ", 7.0), ("3601", 3600.0), ("9" * 400, 3600.0))
    yield from ((each, None) for each in ("", "soon", "-1", "1.5", "²", "1e3"))
    yield from (
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -0000", None),
        ("Fri, 31 Dec 9999 23:59:59 +99999999999999999999", None),
    )


@each_row(("said", "seconds"), [*dates()])
async def test_retry_after_is_seconds_or_a_date_or_nothing(
    server: EvilHttp, pool: HttpPool, said: str, seconds: float | None
):
    error = await refused(
        server, pool, 503, headers={"Retry-After": said.encode().decode("latin-1")}
    )
    assert isinstance(error, HttpError)
    assert error.retry_after == seconds
    assert ("retry after" in str(error)) == (seconds is not None)


async def test_retry_after_date_is_relative_to_the_clock(server: EvilHttp, pool: HttpPool):
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    error = await refused(server, pool, 503, headers={"Retry-After": then})
    assert isinstance(error, HttpError)
    assert error.retry_after is not None
    assert 90 < error.retry_after <= 100


async def test_connection_closed_before_the_request_was_sent_is_unreachable(
    server: EvilHttp, pool: HttpPool, monkeypatch: pytest.MonkeyPatch
):
    """R-25: nothing was sent, so it may be sent again."""
    connector = pool.session.connector
    assert connector is not None
    connect = connector.connect

    async def connect_to_what_closes(*arguments: Any, **more: Any) -> Any:
        connection = await connect(*arguments, **more)
        monkeypatch.setattr(connection.transport, "is_closing", lambda: True)
        return connection

    monkeypatch.setattr(connector, "connect", connect_to_what_closes)
    with pytest.raises(Unreachable, match="closed the connection before the request was sent"):
        async with to(server.url, pool).request("POST", {}, BODY):
            pass
    assert server.asked == []
