"""One URL: what is sent to it, and what its answers are called."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from interlock.errors import (
    AuthError,
    AuthRequired,
    AuthUnavailable,
    ConfigError,
    HttpError,
    InsufficientScope,
    InterlockError,
    MessageTooLarge,
    OutOfMemory,
    RedirectRefused,
    RemoteError,
    StreamEnded,
    Unreachable,
)
from interlock.protocol.content_encoding import PIECE
from interlock.protocol.event_stream import SseParser
from interlock.transports import http_endpoint as module
from interlock.transports.http_endpoint import HttpEndpoint
from interlock.transports.http_pool import HttpPool
from tests.servers import evil_http
from tests.servers.evil_http import Asked, EvilHttp
from tests.support.bearer import BearerHeaders

SECRET = "canary"
BODY = b'{"jsonrpc":"2.0","id":1,"method":"x"}'


@pytest.fixture
async def server(nothing_is_left: object) -> AsyncIterator[EvilHttp]:
    async with EvilHttp() as server:
        yield server


@pytest.fixture
async def pool(nothing_is_left: object) -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


def to(url: str, pool: HttpPool, *, max_bytes: int = 1000, **more: Any) -> HttpEndpoint:
    return HttpEndpoint(url, pool, more.get("headers"), more.get("authorization"), max_bytes)


async def refused(server: EvilHttp, pool: HttpPool, code: int, **told: Any) -> InterlockError:
    """Return the error that a response means."""
    server.tell("x", "status", code=code, **told)
    endpoint = to(f"{server.url}?key={SECRET}", pool)
    async with endpoint.request("POST", {}, BODY) as response:
        error = await endpoint.refusal(response)
    assert SECRET not in str(error)
    return error


# URLs and headers


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a.example/mcp", "invalid server URL"),
        ("/mcp", "invalid server URL"),
        ("http:///mcp", "invalid server URL"),
        ("http://a.example:99999/", "invalid server URL"),
        ("http://[::1/", "invalid server URL"),
        ("http://a..b/mcp", "invalid server URL"),
        (f"http://user:{SECRET}@a.example/", "has a user in it"),
        (f"http://a.example/#{SECRET}", "has a fragment"),
    ],
)
def test_invalid_url_is_refused(url: str, why: str):
    with pytest.raises(ConfigError, match=why) as told:
        to(url, HttpPool())
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("", "x", "is not a valid name of an HTTP header"),
        ("X Y", "x", "is not a valid name of an HTTP header"),
        ("X\r\nY", "x", "is not a valid name of an HTTP header"),
        ("X-Key", f"{SECRET}\r\nHost: b", "has an invalid character"),
        ("X-Key", f"{SECRET}\0", "has an invalid character"),
        ("X-Key", f"{SECRET}\u2028", "has an invalid character"),
        *((name, "x", "is set by the client") for name in sorted(module._RESERVED)),
        ("Mcp-Param-Region", "x", "is set by the client"),
        ("MCP-SESSION-ID", "x", "is set by the client"),
    ],
)
def test_invalid_header_is_refused(name: str, value: str, why: str):
    with pytest.raises(ConfigError, match=why) as told:
        to("http://a.example/", HttpPool(), headers={name: value})
    assert SECRET not in str(told.value)


async def test_configured_headers_replace_the_defaults(server: EvilHttp, pool: HttpPool):
    server.tell("x", "status", code=200)
    async with to(server.url, pool, headers={"user-agent": "mine"}).request("POST", {}, BODY):
        pass
    assert server.asked[0].headers["user-agent"] == "mine"


# Redirects


@pytest.mark.parametrize("code", [307, 308])
async def test_a_redirect_inside_the_origin_is_followed_and_kept(
    server: EvilHttp, pool: HttpPool, code: int
):
    server.tell("x", "status", times=1, code=code, headers={"Location": "/messages?a=b"})
    server.tell("x", "status", code=200)
    endpoint = to(server.url, pool, headers={"X-Key": SECRET})
    for _ in range(2):
        async with endpoint.request("POST", {}, BODY) as response:
            assert response.status == 200
    paths = [(asked.path, asked.query) for asked in server.asked]
    assert paths == [("/mcp", ""), ("/messages", "a=b"), ("/messages", "a=b")]
    assert {asked.headers["x-key"] for asked in server.asked} == {SECRET}
    assert [asked.method for asked in server.asked] == ["x"] * 3


async def test_redirect_of_a_stream_does_not_apply_to_posts(server: EvilHttp, pool: HttpPool):
    server.tell("GET", "status", times=1, code=307, headers={"Location": "/messages"})
    server.tell("GET", "status", code=200)
    server.tell("x", "status", code=200)
    endpoint = to(server.url, pool)
    for method, body in (("GET", None), ("POST", BODY), ("GET", None)):
        async with endpoint.request(method, {}, body) as response:
            assert response.status == 200
    assert [(asked.verb, asked.path) for asked in server.asked] == [
        ("GET", "/mcp"),
        ("GET", "/messages"),
        ("POST", "/mcp"),
        ("GET", "/mcp"),
    ]


async def test_redirect_to_a_failing_url_is_not_kept(server: EvilHttp, pool: HttpPool):
    server.tell("x", "status", times=1, code=307, headers={"Location": "/messages"})
    server.tell("x", "status", code=404)
    endpoint = to(server.url, pool)
    for _ in range(2):
        async with endpoint.request("POST", {}, BODY):
            pass
    assert [asked.path for asked in server.asked] == ["/mcp", "/messages", "/mcp"]


@pytest.mark.parametrize(
    ("code", "location", "why"),
    [
        (307, "http://127.0.0.1:1/mcp", "to http://127.0.0.1:1/mcp, which is not its origin"),
        (307, "https://$HOST/mcp", "which is not its origin"),
        (
            307,
            "//b.example/mcp?a=b",
            "to http://b.example/mcp, which .*; configure that URL",
        ),
        (307, f"http://user:{SECRET}@$HOST/mcp", "to a URL with a user in it"),
        (307, "http://[::1/", "to an invalid URL"),
        (307, "http://$HOST:99999/", "to an invalid URL"),
        (307, "/mcp", "redirects a second time"),
        (301, "/x", "with 301, which does not keep the request"),
        (302, "/x", "with 302"),
        (303, "/x", "with 303"),
        (304, "/x", "with 304"),
        (304, "", "answered 304 without a Location"),
        (307, "", "answered 307 without a Location"),
    ],
)
async def test_any_other_redirect_is_refused(
    server: EvilHttp, pool: HttpPool, code: int, location: str, why: str
):
    """R-43."""
    host = server.url.split("/")[2]
    location = location.replace("$HOST:", host.partition(":")[0] + ":").replace("$HOST", host)
    server.tell("x", "status", code=code, headers={"Location": location})
    with pytest.raises(RedirectRefused, match=why) as told:
        async with to(f"{server.url}?key={SECRET}", pool).request("POST", {}, BODY):
            pass
    assert told.value.status == code
    assert SECRET not in str(told.value)


# Tokens


class Tokens(BearerHeaders):
    def __init__(self, token: str, fresh: str | AuthError = "") -> None:
        self.token = token
        self._fresh = fresh

    async def valid_token(self) -> str:
        if isinstance(self._fresh, AuthError):
            raise self._fresh
        self.token = self._fresh
        return self.token

    async def refresh_after(self, error: AuthError) -> None:
        raise error


@pytest.mark.parametrize(
    ("tokens", "sent"),
    [(Tokens("a"), "Bearer a"), (Tokens("", "b"), "Bearer b"), (Tokens(""), "Basic own")],
    ids=["kept", "renewed", "none"],
)
async def test_refused_token_is_in_the_error_but_not_in_its_text(
    server: EvilHttp, pool: HttpPool, tokens: Tokens, sent: str
):
    server.tell("x", "status", code=401)
    endpoint = to(server.url, pool, authorization=tokens, headers={"authorization": "Basic own"})
    async with endpoint.request("POST", {}, BODY) as response:
        error = await endpoint.refusal(response)
    assert server.asked[0].headers["authorization"] == sent
    assert isinstance(error, AuthRequired)
    assert error.token_used == sent.removeprefix("Bearer ")
    assert sent not in repr(error)


class Proving(BearerHeaders):
    """Sends a header for each request, and wants it sent once more when it was refused."""

    token = "a"

    def headers(self, method: str, url: str) -> dict[str, str]:
        return {"DPoP": f"{method} {url}"}

    def needs_resend(self, status: int, headers: Mapping[str, str]) -> bool:
        return status == 401 and "DPoP-Nonce" in headers


async def test_a_request_refused_for_its_nonce_is_sent_once_more_with_new_headers(
    server: EvilHttp, pool: HttpPool
):
    server.tell("x", "status", code=401, headers={"DPoP-Nonce": "n"})
    async with to(server.url, pool, authorization=Proving()).request("POST", {}, BODY) as response:
        assert response.status == 401
    proof = f"POST {server.url}"
    assert [asked.headers["dpop"] for asked in server.asked] == [proof, proof]


async def test_the_request_after_a_redirect_has_headers_for_its_own_url(
    server: EvilHttp, pool: HttpPool
):
    server.tell("x", "status", code=307, headers={"Location": "/elsewhere"}, times=1)
    async with to(server.url, pool, authorization=Proving()).request("POST", {}, BODY):
        pass
    target = server.url.replace("/mcp", "/elsewhere")
    assert [asked.headers["dpop"] for asked in server.asked] == [
        f"POST {server.url}",
        f"POST {target}",
    ]


async def test_error_of_the_authorization_is_raised_unchanged(server: EvilHttp, pool: HttpPool):
    why = AuthUnavailable("the authorization server is away")
    endpoint = to(server.url, pool, authorization=Tokens("", why))
    with pytest.raises(AuthUnavailable, match="is away"):
        async with endpoint.request("GET", {}):
            pass
    assert server.asked == []


async def test_interlock_errors_in_a_request_are_raised_unchanged(server: EvilHttp, pool: HttpPool):
    why = Unreachable("somebody else")  # an OSError, as are those of the network
    server.tell("x", "status", code=200)
    with pytest.raises(Unreachable, match="somebody else"):
        async with to(server.url, pool).request("POST", {}, BODY):
            raise why


# Refusals


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


@pytest.mark.parametrize("code", [401, 403, 500])
@pytest.mark.parametrize("form", REASONS)
async def test_reason_in_the_body_is_in_the_error(
    server: EvilHttp, pool: HttpPool, code: int, form: str
):
    body, type = REASONS[form]
    error = await refused(server, pool, code, body=body, type=type)
    assert str(error).endswith(": quota used\ufffd up")


@pytest.mark.parametrize(
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
async def test_body_without_a_reason_is_not_in_the_error(
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


@pytest.mark.parametrize("body", ["", "<html>", '{"error":', "[" * 100_000])
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(("said", "seconds"), [*dates()])
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


# Bodies


async def body_of(server: EvilHttp, pool: HttpPool, body: bytes, **headers: str) -> bytes:
    async def answer(server: EvilHttp, asked: Asked) -> None:
        await asked.reply(200, body, headers=headers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evil_http.MISBEHAVIOURS, "answer", answer)
        server.tell("x", "answer")
        endpoint = to(server.url, pool)
        async with endpoint.request("POST", {}, BODY) as response:
            return await endpoint.body(response)


@pytest.mark.parametrize("pack", [lambda body: body, gzip.compress], ids=["plain", "gzip"])
async def test_a_body_of_the_limit_passes_and_one_byte_more_does_not(
    server: EvilHttp, pool: HttpPool, pack: Any
):
    """R-03, R-44."""
    headers = {} if pack(b"") == b"" else {"Content-Encoding": "gzip"}
    whole = b"x" * 1000
    assert await body_of(server, pool, pack(whole), **headers) == whole
    with pytest.raises(MessageTooLarge, match="over the limit"):
        await body_of(server, pool, pack(whole + b"x"), **headers)


async def test_body_of_unknown_length_has_the_same_limit(server: EvilHttp, pool: HttpPool):
    """R-03."""

    async def grow(server: EvilHttp, asked: Asked) -> None:
        await asked.stream()
        await asked.link.chunk(b"x" * 1001)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evil_http.MISBEHAVIOURS, "grow", grow)
        server.tell("x", "grow")
        endpoint = to(server.url, pool)
        async with endpoint.request("POST", {}, BODY) as response:
            with pytest.raises(MessageTooLarge, match="over the limit"):
                await endpoint.body(response)


async def test_compressed_body_that_was_cut_is_refused(server: EvilHttp, pool: HttpPool):
    packed = gzip.compress(b"x" * 500)
    with pytest.raises(StreamEnded, match="in the middle of its gzip"):
        await body_of(server, pool, packed[:-4], **{"Content-Encoding": "gzip"})


# Streams


@asynccontextmanager
async def streaming(
    server: EvilHttp, pool: HttpPool, chunks: list[bytes], encoding: str = "identity"
) -> AsyncIterator[Any]:
    async def stream(server: EvilHttp, asked: Asked) -> None:
        head = f"Content-Encoding: {encoding}\r\nTransfer-Encoding: chunked"
        await asked.link.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        for chunk in chunks:
            await asked.link.chunk(chunk)
        await asked.gone.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evil_http.MISBEHAVIOURS, "stream", stream)
        server.tell("GET", "stream")
        endpoint = to(server.url, pool)
        async with endpoint.request("GET", {}) as response:
            yield endpoint.events(response, SseParser(100))


async def test_events_are_yielded_as_they_arrive(server: EvilHttp, pool: HttpPool):
    async with streaming(server, pool, [b"data: a\n\nda", b"ta: b\n\n"]) as events:
        assert [(await anext(events)).data for _ in "ab"] == [b"a", b"b"]
        await events.aclose()
    await asyncio.wait_for(server.asked[0].gone.wait(), 20)  # its connection is closed, too


async def test_an_event_over_the_limit_ends_its_stream(server: EvilHttp, pool: HttpPool):
    async with streaming(server, pool, [b"data: " + b"x" * 200]) as events:
        with pytest.raises(MessageTooLarge):
            await anext(events)


async def test_compressed_stream_that_was_cut_is_refused(server: EvilHttp, pool: HttpPool):
    """A chunk without bytes is the end."""
    packed = gzip.compress(b"data: a\n\n" + b": more\n\n")
    async with streaming(server, pool, [packed[:-4], b""], "gzip") as events:
        assert (await anext(events)).data == b"a"
        with pytest.raises(StreamEnded, match="in the middle of its gzip"):
            await anext(events)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.slow("reads a hundred thousand lines")
async def test_many_tiny_lines_do_not_block_the_event_loop(
    server: EvilHttp, pool: HttpPool, packed: bool
):
    loop, turns = asyncio.get_running_loop(), 0

    def count() -> None:
        nonlocal turns, timer
        turns += 1
        timer = loop.call_soon(count)

    flood = b"data: a\n\n" + b"\n" * (20 * PIECE) + b"data: b\n\n"
    body, encoding = (gzip.compress(flood), "gzip") if packed else (flood, "")
    async with streaming(server, pool, [body], encoding) as events:
        assert (await anext(events)).data == b"a"
        timer = loop.call_soon(count)
        assert (await anext(events)).data == b"b"
        timer.cancel()
        await events.aclose()
    assert turns >= 19


async def test_memory_error_anywhere_in_aiohttp_is_out_of_memory(pool: HttpPool):
    endpoint = to("http://127.0.0.1:1/mcp", pool)
    ours, theirs = MemoryError(), aiohttp.ClientPayloadError("not completed. MemoryError()")
    caused = aiohttp.ClientOSError("gone")
    caused.__cause__ = MemoryError()

    for error in (ours, theirs, caused):
        assert isinstance(endpoint.failure(error), OutOfMemory)
    assert not isinstance(endpoint.failure(aiohttp.ClientPayloadError("cut")), OutOfMemory)


async def test_error_that_aiohttp_keeps_has_no_traceback(pool: HttpPool):
    endpoint = to("http://127.0.0.1:1/mcp", pool)
    try:
        raise aiohttp.ClientPayloadError("cut")
    except aiohttp.ClientError as reason:
        error = reason
    endpoint.failure(error)

    assert error.__traceback__ is None
