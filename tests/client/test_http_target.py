"""The era of a server at a URL: every way in which it may answer the first request."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from interlock.client import Client
from interlock.errors import (
    AuthError,
    HttpError,
    InterlockError,
    LoginRequired,
    MessageTooLarge,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    RevisionError,
    StreamEnded,
)
from interlock.transports.http_pool import HttpPool
from tests.servers.evil_http import LEGACY, MIB, MODERN, OLDEST, EvilHttp
from tests.support.bearer import BearerHeaders
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def error(code: int, data: Any = None, status: int = 400) -> dict[str, Any]:
    """Make a server answer with a JSON-RPC error."""
    said = {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "m", "data": data}}
    return {"code": status, "body": json.dumps(said), "type": "application/json"}


LATER = {"headers": {"Retry-After": "600"}}
AT_ONCE = {"headers": {"Retry-After": "0"}}


def supports(*revisions: str) -> dict[str, Any]:
    return error(-32022, {"supported": list(revisions)})


@each_row(
    "told",
    [
        *({"code": code} for code in (400, 404, 405, 406, 415, 422, 500, 501)),
        {"code": 200, "body": "<p>", "type": "text/html"},
        {"code": 200, "body": '{"jsonrpc":"2.0","id":1,"result":{}}', "type": "application/json"},
        *(error(code) for code in (-32000, -32001, -32600, -32601, -32602)),
        error(-32601, status=200),
        *(error(code, status=500) for code in (-32601, -32603)),
        supports(LEGACY),
        {"code": 400, "body": '{"id":null,"error":{"code":-32600,"message":"m"}}'},
    ],
)
async def test_response_that_is_not_modern_means_legacy(told: dict[str, Any]):
    async with EvilHttp(LEGACY) as server:
        server.tell("server/discover", "status", **told)
        async with Client.http(server.url) as client:
            assert client.revision == LEGACY
        assert server.times("server/discover") == 1


@each_row(
    ("told", "kind"),
    [
        *(({"code": code}, AuthError) for code in (401, 403)),
        *(({"code": code}, HttpError) for code in (301, 505)),
        *(({"code": code, **LATER}, HttpError) for code in (429, 502, 503)),
        *((error(code), RemoteError) for code in (-32020, -32021)),
        (supports("2031-01-01"), RevisionError),
    ],
)
async def test_response_that_does_not_reveal_the_era_is_raised(
    told: dict[str, Any], kind: type[InterlockError]
):
    async with EvilHttp(MODERN) as server:
        server.tell("server/discover", "status", **told)
        with pytest.raises(kind):
            await Client.http(server.url).open()
        tries = server.times("initialize")
    assert tries == (kind is AuthError)  # without authorization, the legacy handshake is also tried


@pytest.mark.slow("waits for a timeout")
@each_row("code", [429, 502, 503, 504])
async def test_busy_server_is_retried_after_its_retry_after(code: int):
    async with EvilHttp(MODERN) as server:
        server.tell("server/discover", "status", times=2, code=code, **AT_ONCE)
        async with Client.http(server.url) as client:
            assert client.revision == MODERN
        assert server.times("server/discover") == 3

        server.tell("server/discover", "status", code=code, **LATER)  # longer than the client waits
        with pytest.raises(HttpError, match=f"answered {code} .*retry after 600 s"):
            await Client.http(server.url).open()
        assert server.times("server/discover") == 4


async def test_malformed_discover_result_is_reported():
    async with EvilHttp(MODERN) as server:
        said = {"jsonrpc": "2.0", "id": 1, "result": {"supportedVersions": "2026-07-28"}}
        server.tell(
            "server/discover", "status", code=200, body=json.dumps(said), type="application/json"
        )
        server.tell("initialize", "status", **error(-32601, status=404))
        with pytest.raises(RemoteProtocolError, match="malformed server/discover result: "):
            await Client.http(server.url, transport="streamable").open()


async def test_a_modern_server_that_is_broken_is_reported_as_broken():
    async with EvilHttp(MODERN) as server:
        server.tell("server/discover", "status", code=500)
        with pytest.raises(HttpError, match="answered 500"):
            await Client.http(server.url, transport="streamable").open()


async def test_truncated_response_is_raised_without_trying_another_era():
    async with EvilHttp(LEGACY) as server:
        server.tell("server/discover", "cut")
        with pytest.raises(StreamEnded):
            await Client.http(server.url).open()
        assert server.times("initialize") == 0


async def test_oversized_response_is_raised_without_trying_another_era():
    async with EvilHttp(LEGACY) as server:
        server.tell("server/discover", "frame", size=2 * MIB)
        with pytest.raises(MessageTooLarge):
            await Client.http(server.url, max_frame_bytes=MIB).open()
        assert server.times("initialize") == 0


async def test_common_revision_is_requested_once_more_even_if_unchanged():
    async with EvilHttp(MODERN) as server:
        server.tell("server/discover", "status", times=1, **supports(MODERN))
        async with Client.http(server.url) as client:
            assert client.revision == MODERN
        assert server.times("server/discover") == 2


async def test_discover_is_repeated_for_a_server_that_started_slowly():
    async with EvilHttp(MODERN) as server:
        server.tell("server/discover", "status", times=1, code=404)
        server.tell("initialize", "status", **supports(MODERN))
        async with Client.http(server.url) as client:
            assert client.revision == MODERN


@each_row("code", [400, 404, 405])
async def test_refused_handshakes_fall_back_to_http_sse(code: int):
    async with EvilHttp(OLDEST) as server:
        for method in ("server/discover", "initialize"):
            server.tell(method, "status", times=1, code=code)
        async with Client.http(server.url) as client:
            assert client.revision == OLDEST


async def test_modern_error_does_not_fall_back_to_http_sse():
    async with EvilHttp(OLDEST) as server:
        server.tell("initialize", "status", **error(-32021))
        with pytest.raises(RemoteError):
            await Client.http(server.url).open()
        assert server.times("GET") == 0


async def test_refused_http_sse_raises_the_first_refusal():
    async with EvilHttp(LEGACY) as server:
        for method in ("server/discover", "initialize"):
            server.tell(method, "status", code=400)
        server.tell("GET", "status", code=410)
        with pytest.raises(HttpError) as caught:
            await Client.http(server.url).open()
        assert server.times("GET") == 1
    assert caught.value.status == 400
    assert caught.value.__suppress_context__


class Helpful(BearerHeaders):
    """An authorization whose refresh succeeds, unless `alone` is set."""

    token = ""
    alone = False

    def __init__(self) -> None:
        self.asked = 0

    async def valid_token(self) -> str:
        return ""

    async def refresh_after(self, error: AuthError) -> None:
        self.asked += 1
        if self.alone:
            raise LoginRequired("nobody is there")


async def test_unauthorized_client_gets_a_token_before_another_era_is_tried():
    async with EvilHttp(MODERN) as server:
        server.tell("server/discover", "status", times=1, code=401)
        async with Client.http(server.url, auth=Helpful()) as client:
            assert client.revision == MODERN
        assert server.times("initialize") == 0


async def test_unresolved_401_is_raised_after_the_legacy_attempt():
    auth = Helpful()
    auth.alone = True
    async with EvilHttp(MODERN) as server:
        for method in ("server/discover", "initialize"):
            server.tell(method, "status", code=401)
        client = Client.http(server.url, auth=auth)
        with pytest.raises(LoginRequired, match="nobody is there"):
            await client.open()
        assert (auth.asked, server.times("initialize")) == (1, 1)

        server.behave()
        server.tell("server/discover", "status", times=1, code=401)
        auth.alone = False
        async with client:  # who can be helped now needs no last resort
            assert client.revision == MODERN
        assert (auth.asked, server.times("initialize")) == (2, 1)


async def test_time_for_reading_the_keyring_does_not_count_towards_the_timeout():
    loop = asyncio.get_running_loop()

    class Slow(Helpful):
        async def valid_token(self) -> str:
            now = loop.time()
            if not self.asked:
                self.asked += 1
                setattr(loop, "time", lambda: time.monotonic() + 60)  # noqa: B010 - mypy
                assert loop.time() >= now + 60
                await asyncio.sleep(0)
            return ""

    try:
        async with (
            EvilHttp(MODERN) as server,
            Client.http(server.url, auth=Slow(), connect_timeout=20.0) as client,
        ):
            assert client.revision == MODERN
    finally:
        del loop.time  # type: ignore[method-assign]


async def test_remembered_http_sse_era_is_corrected():
    pool = HttpPool()
    async with EvilHttp(LEGACY) as server:
        pool.eras[server.url] = "sse"
        server.tell("GET", "status", times=1, code=200, type="text/event-stream")  # and its end
        async with Client.http(server.url, pool=pool) as client:
            assert client.revision == LEGACY

        pool.eras[server.url] = "sse"  # its stream stays open, and nothing comes
        with pytest.raises(RequestTimeout):
            await Client.http(server.url, pool=pool, connect_timeout=0.2).open()
        async with Client.http(server.url, pool=pool) as client:
            assert client.revision == LEGACY
    await pool.close()


async def test_session_of_a_server_that_became_modern_is_renewed():
    async with EvilHttp(LEGACY) as server, Client.http(server.url) as client:
        wrong = error(-32602)
        server.tell("tools/call", "status", times=1, **wrong)
        with pytest.raises(RemoteError, match="-32602"):  # as a ping is answered
            await client.call_tool("echo")
        assert client.revision == LEGACY

        server.revision = MODERN
        for method in ("tools/call", "ping"):
            server.tell(method, "status", times=1, **wrong)
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
        assert client.revision == MODERN


async def test_remembered_era_is_used_until_it_fails():
    pool = HttpPool()
    async with EvilHttp(LEGACY) as server:
        for _ in range(2):
            async with Client.http(server.url, pool=pool):
                pass
        assert server.times("server/discover") == 1

        server.revision = MODERN  # deployed anew
        async with Client.http(server.url, pool=pool) as client:
            assert client.revision == MODERN
        assert pool.eras == {server.url: "modern"}
    await pool.close()
