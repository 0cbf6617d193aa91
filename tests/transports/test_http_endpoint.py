"""One URL: what is sent to it, and what its answers are called."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from interlock.errors import (
    AuthRequired,
    AuthUnavailable,
    ConfigError,
    MessageTooLarge,
    OutOfMemory,
    RedirectRefused,
    StreamEnded,
    Unreachable,
)
from interlock.protocol.content_encoding import PIECE
from interlock.protocol.event_stream import SseParser
from interlock.transports.http_pool import HttpPool
from tests.servers import evil_http
from tests.servers.evil_http import Asked, EvilHttp
from tests.support.bearer import BearerHeaders
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


# URLs and headers


@each_row(
    ("url", "why"),
    [
        ("ftp://a.example/mcp", "invalid server URL"),
        ("/mcp", "invalid server URL"),
        ("http:///mcp", "invalid server URL"),
        ("http://a.example:99999/", "invalid server URL"),
        ("http://[::1/", "invalid server URL"),
        ("http://a..b/mcp", "invalid server URL"),
        (f"http://user:{SECRET}@a.example/", "contains a user name"),
        (f"http://a.example/#{SECRET}", "has a fragment"),
    ],
)
def test_invalid_url_is_refused(url: str, why: str):
    with pytest.raises(ConfigError, match=why) as told:
        to(url, HttpPool())
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


async def test_a_large_request_is_sent_without_a_warning_also_after_a_redirect(
    server: EvilHttp, pool: HttpPool
):
    server.tell("x", "status", times=1, code=307, headers={"Location": "/messages"})
    server.tell("x", "status", code=404)

    async with to(server.url, pool).request("POST", {}, BODY + b" " * 2**20) as response:
        assert response.status == 404
    assert [asked.path for asked in server.asked] == ["/mcp", "/messages"]


@each_row(
    ("path", "location", "told"),
    [
        ("/mcp", "/other", r"/mcp \(redirected to http://[\d.:]+/other\) answered 404"),
        ("/team/mcp", "/mcp/", r"/mcp/; if a proxy adds /team, configure http://.*/team/mcp/\)"),
        ("/mcp", "/mcp/", r"\(redirected to http://[\d.:]+/mcp/\) answered 404"),
        ("/mcp", "", r"/mcp answered 404"),
    ],
)
async def test_error_after_a_redirect_names_where_it_leads(
    server: EvilHttp, pool: HttpPool, path: str, location: str, told: str
):
    if location:
        server.tell("x", "status", times=1, code=307, headers={"Location": location})
    server.tell("x", "status", code=404)
    endpoint = to(server.url.removesuffix("/mcp") + path, pool)
    async with endpoint.request("POST", {}, BODY) as response:
        assert re.search(told, str(await endpoint.refusal(response)))


@each_row(
    ("code", "location", "why"),
    [
        (307, "http://127.0.0.1:1/mcp", "to http://127.0.0.1:1/mcp, which is not its origin"),
        (307, "https://$HOST/mcp", "which is not its origin"),
        (
            307,
            "//b.example/mcp?a=b",
            "to http://b.example/mcp, which .*; configure that URL",
        ),
        (307, f"http://user:{SECRET}@$HOST/mcp", "to a URL that contains a user name"),
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
async def test_a_body_at_the_limit_is_accepted_and_one_byte_more_is_refused(
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
    await server.asked[0].gone.wait()  # its connection is closed, too


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
