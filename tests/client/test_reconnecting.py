"""A client over HTTP: what it restores after a lost session, and how errors name the server."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest

from interlock.client import Client, retries
from interlock.errors import (
    AuthError,
    ConnectionClosed,
    HttpError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    StreamEnded,
)
from interlock.transports.http import HttpTransport
from interlock.transports.http_pool import HttpPool
from tests.servers import evil_http
from tests.servers.evil_http import LEGACY, MODERN, Asked, EvilHttp
from tests.support.bearer import BearerHeaders

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture
async def server(nothing_is_left: object) -> AsyncIterator[EvilHttp]:
    async with EvilHttp(LEGACY, "stream") as server:
        yield server


@pytest.fixture
async def modern(nothing_is_left: object) -> AsyncIterator[EvilHttp]:
    async with EvilHttp(MODERN) as server:
        yield server


async def test_new_session_restores_log_level_and_subscriptions(
    server: EvilHttp,
):
    for method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        server.tell(method, "result")

    async def told_again(client: Client) -> list[Any]:
        before = len(server.asked)
        server.forget_sessions()
        await client.call_tool("echo", {"text": "again"})
        asked = [each.message for each in server.asked[before:]]
        return [
            each["params"].get("level") or each["params"]["uri"]
            for each in asked
            if each.get("method") in ("logging/setLevel", "resources/subscribe")
        ]

    client = Client.http(server.url)
    async with client:
        await client.set_log_level("info")
        for uri in ("a:1", "a:2", "a:3"):
            await client.subscribe(uri)
        await client.unsubscribe("a:2")
        first, *rest = await told_again(client)
        assert (first, sorted(rest)) == ("info", ["a:1", "a:3"])
    async with client:  # which begins anew
        assert await told_again(client) == []


async def test_new_session_invalidates_the_lists(server: EvilHttp):
    changed: list[str] = []

    def fail(kind: str) -> None:
        changed.append(kind)
        raise RuntimeError("a bug of the user")

    server.tell("tools/list", "result", tools=[], ttlMs=60_000)
    async with Client.http(server.url, on_list_changed=fail) as client:
        for _ in range(2):
            await client.list_tools()
        assert server.times("tools/list") == 1
        server.forget_sessions()
        assert (await client.call_tool("echo", {"text": "well"})).text == "well"
        await client.list_tools()
        assert server.times("tools/list") == 2
    assert sorted(changed) == ["prompts", "resources", "tools"]


async def test_log_level_is_stated_after_a_new_modern_handshake(modern: EvilHttp):
    async with Client.http(modern.url) as client:
        await client.set_log_level("info")
        foreign = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "who?"}}
        modern.tell("tools/call", "status", times=1, code=400, body=json.dumps(foreign))
        await client.call_tool("echo", {"text": "again"})

    assert modern.times("server/discover") == 2
    meta = modern.asked[-1].message["params"]["_meta"]
    assert meta["io.modelcontextprotocol/logLevel"] == "info"


async def test_header_mismatch_lists_the_tools_again_despite_the_cache(modern: EvilHttp):
    modern.tell("tools/list", "result", tools=[], ttlMs=60_000)
    async with Client.http(modern.url) as client:
        await client.list_tools()
        mismatch = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32020, "message": "headers"}}
        modern.tell("tools/call", "status", times=1, code=400, body=json.dumps(mismatch))
        await client.call_tool("echo", {"text": "again"})

    assert modern.times("tools/list") == 2


async def test_list_timeout_names_the_unanswered_new_session(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    async with Client.http(server.url) as client:
        await server.heard("GET")
        server.forget_sessions()
        for method in ("server/discover", "initialize"):
            server.tell(method, "mute")
        monkeypatch.setattr(client._channel, "_timeout", 0.2)
        with pytest.raises(RequestTimeout, match=r"within 0\.2 s"):
            await client.list_tools()


@pytest.mark.parametrize("name", ["call", "type", "list", "late"])
async def test_protocol_error_names_the_server(
    modern: EvilHttp, name: str, monkeypatch: pytest.MonkeyPatch
):
    if name == "late":
        monkeypatch.setattr("interlock.client.client.LIST_TIMEOUT", 0.1)
    if name == "late":
        modern.tell("tools/list", "mute")
    else:
        modern.tell("tools/list", "result", items=[])
    kind = RequestTimeout if name == "late" else RemoteProtocolError
    said = {"type": {"resultType": "odd"}, "call": {"resultType": "complete", "content": 7}}
    async with Client.http(modern.url + "?key=secret") as client:
        asking = client.call_tool("result", said[name]) if name in said else client.list_tools()
        with pytest.raises(kind) as caught:
            await asking
    assert str(caught.value).startswith(f"{modern.url}: ")


async def test_error_text_of_the_server_is_unchanged(modern: EvilHttp):
    async with Client.http(modern.url) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("error", {"code": -32602})
    assert str(caught.value) == "error -32602 (-32602)"


async def test_very_long_error_body_is_replaced_by_its_status(modern: EvilHttp):
    said = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "x" * 100_000}}
    async with Client.http(modern.url) as client:
        with pytest.raises(HttpError, match=r"answered 400 Bad Request$"):
            await client.call_tool("status", {"code": 400, "body": json.dumps(said)})


# Asking again


async def test_each_request_adds_to_the_retry_budget(
    modern: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    """R-45."""
    for name, value in (("FIRST_PAUSE", 0.0), ("BUDGET", 1.0), ("EARNED", 1.0)):
        monkeypatch.setattr(retries, name, value)
    async with Client.http(modern.url) as client:
        for _ in range(3):
            modern.tell("tools/call", "status", times=1, code=429)
            assert (await client.call_tool("echo", {"text": "well"})).text == "well"


async def test_hard_timeout_covers_all_retries_of_a_call(
    modern: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    """R-02."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.1)
    modern.tell("tools/call", "status", times=1, code=429)
    async with Client.http(modern.url, hard_timeout=100) as client:
        calling = asyncio.create_task(client.call_tool("mute"))
        await modern.heard("tools/call")
        first = monotonic()
        await modern.heard("tools/call", 2)
        (pending,) = client._connection.protocol._pending.values()
        assert pending.hard_deadline <= first + 100
        calling.cancel()


async def test_timeout_of_a_call_names_the_server(modern: EvilHttp):
    async with Client.http(modern.url) as client:
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("mute", timeout=0.01)
    assert str(caught.value).startswith(f"{modern.url}: no answer to tools/call")


RPC = '{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"no session"}}'


@pytest.mark.parametrize(
    ("code", "body", "type"),
    [
        (400, "Invalid session ID", "text/plain"),
        (401, "Unauthorized: session not found", "text/plain"),
        (410, RPC % -32001, "application/json"),
        (422, "Unexpected message, expect initialize request", "text/plain"),
        (500, RPC % -32603, "application/json"),
        (200, RPC % -32602, "application/json"),
    ],
)
async def test_session_that_is_lost_in_any_words_is_replaced(
    server: EvilHttp, code: int, body: str, type: str
):
    async with Client.http(server.url) as client:
        await client.call_tool("echo", {"text": "first"})
        server.forget_sessions(code, body, type)
        calls = (client.call_tool("echo", {"text": "again"}) for _ in range(5))
        assert {each.text for each in await asyncio.gather(*calls)} == {"again"}
    assert (server.times("initialize"), server.times("ping")) == (2, 1)


@pytest.mark.parametrize("code", [400, 401, 500])
async def test_refusal_of_one_request_does_not_replace_the_session(server: EvilHttp, code: int):
    async with Client.http(server.url) as client:
        await client.call_tool("echo", {"text": "first"})
        with pytest.raises((HttpError, AuthError)):
            await client.call_tool("status", {"code": code})
    assert (server.times("initialize"), server.times("ping")) == (1, 1)


async def test_lost_session_leaves_nothing_behind(server: EvilHttp):
    async with Client.http(server.url) as client:
        for _ in range(2):
            server.forget_sessions()
            await client.call_tool("echo", {"text": "well"})
        await asyncio.gather(*client._channel._retired.values())
        await asyncio.sleep(0)
        assert client._channel._retired == {}


async def test_failed_reopening_clears_revision_and_info(modern: EvilHttp):
    client = Client.http(modern.url)
    async with client:
        assert client.revision == MODERN
    modern.tell("server/discover", "status", code=500)
    with pytest.raises(HttpError):
        await client.open()
    assert (client.revision, client.server_info.name) == ("", "")


# Meeting a server anew, while something else happens


class Gate:
    """A misbehaviour that waits, and then refuses with this status; 0 answers as it should."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opens = asyncio.Event()
        monkeypatch.setitem(evil_http.MISBEHAVIOURS, "gate", self)

    async def __call__(self, server: EvilHttp, asked: Asked, code: int = 0) -> None:
        await self.opens.wait()
        if code:
            await asked.reply(code)
        else:
            await server._answer_request(asked)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


async def test_session_lost_twice_is_renewed_once_per_request(server: EvilHttp, gate: Gate):
    async with Client.http(server.url) as client:
        server.tell("tools/call", "gate", times=1, code=404)
        late = asyncio.create_task(client.call_tool("echo", {"text": "late"}))
        await server.heard("tools/call")
        server.forget_sessions()
        await client.call_tool("echo", {"text": "anew"})
        gate.opens.set()
        assert (await late).text == "late"
    assert server.times("initialize") == 2


async def given_up(client: Client, server: EvilHttp) -> asyncio.Task[None]:
    """Give up a call while the server is met anew for it, which goes on."""
    call = asyncio.create_task(client.call_tool("echo", {"text": "?"}))
    await server.heard("initialize", 2)
    renewing = client._channel._renewing
    assert renewing is not None
    call.cancel()
    await asyncio.wait({call})
    return renewing


async def test_cancelled_caller_does_not_stop_the_renewal_for_others(server: EvilHttp, gate: Gate):
    async with Client.http(server.url) as client:
        server.forget_sessions()
        server.tell("initialize", "gate", times=1)
        renewing = await given_up(client, server)
        gate.opens.set()
        await renewing
        assert (await client.call_tool("echo", {"text": "well"})).text == "well"
    assert server.times("initialize") == 2


async def test_failed_renewal_without_callers_is_not_reported(server: EvilHttp, gate: Gate):
    async with Client.http(server.url) as client:
        server.forget_sessions()
        server.tell("initialize", "gate", code=500)
        renewing = await given_up(client, server)
        gate.opens.set()
        await asyncio.wait({renewing})
        del renewing
        gc.collect()  # a task that fails unseen is told of when it goes


class Slow(BearerHeaders):
    """An authorization that never has an answer, and takes its time to stop."""

    token = ""

    def __init__(self) -> None:
        self.asked, self.has_stopped = asyncio.Event(), False

    async def valid_token(self) -> str:
        return ""

    async def refresh_after(self, error: AuthError) -> None:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(1000):
                await asyncio.sleep(0)
            self.has_stopped = True


async def test_close_cancels_a_renewal_and_waits_for_it(modern: EvilHttp):
    foreign = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "who?"}}
    pool, auth = HttpPool(), Slow()
    client = Client.http(modern.url, auth=auth, pool=pool)
    await client.open()
    modern.tell("tools/call", "status", code=400, body=json.dumps(foreign))
    modern.tell("server/discover", "status", code=401)
    call = asyncio.create_task(client.call_tool("echo", {"text": "?"}))
    await auth.asked.wait()
    await client.close()
    assert auth.has_stopped
    with pytest.raises(ConnectionClosed, match="the client was closed"):
        await call
    await pool.close()


async def test_close_ends_requests_on_a_replaced_session(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    close = HttpTransport.close
    closed: defaultdict[HttpTransport, asyncio.Event] = defaultdict(asyncio.Event)

    async def close_slowly(self: HttpTransport) -> None:
        """Let who closes it, too, be the last to end."""
        is_first = self not in closed
        has_closed = closed[self]
        await close(self)
        if is_first:
            has_closed.set()
            return
        await has_closed.wait()
        for _ in range(100):
            await asyncio.sleep(0)

    monkeypatch.setattr(HttpTransport, "close", close_slowly)
    pool = HttpPool()
    async with Client.http(server.url, pool=pool) as client:
        server.tell("tools/call", "mute", times=1)
        under_way = asyncio.create_task(client.call_tool("echo"))
        await server.heard("tools/call")
        server.forget_sessions()
        await client.call_tool("echo", {"text": "anew"})
        (retiring,) = client._channel._retired.values()
        await client.close()
        assert retiring.done()
        with pytest.raises(ConnectionClosed):
            await under_way
    await pool.close()


# Whose answer it is


def answer_to(id: object, text: str) -> bytes:
    result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


@pytest.mark.parametrize("form", ["json", "stream", "resumed"])
async def test_response_on_the_stream_of_another_call_is_dropped(
    server: EvilHttp, form: str, monkeypatch: pytest.MonkeyPatch
):
    """R-09."""
    ids: list[int] = []
    asked_for_the_rest = asyncio.Event()

    async def wait(server: EvilHttp, asked: Asked) -> None:
        ids.append(asked.message["id"])
        await asked_for_the_rest.wait()
        await asked.send("json", answer_to(asked.message["id"], "mine"))

    async def misdirect(server: EvilHttp, asked: Asked) -> None:
        foreign = answer_to(ids[0], "of somebody else")
        if form == "resumed":
            await asked.stream()
            await asked.link.chunk(b"id: 7\nretry: 1\ndata:\n\n")
        else:
            await asked.send(form, foreign)

    async def resume(server: EvilHttp, asked: Asked) -> None:
        if "last-event-id" in asked.headers and server.times("GET") == 2:
            await asked.send("stream", answer_to(ids[0], "of somebody else"))
        else:
            await asked.reply(405)

    for behaviour in (wait, misdirect, resume):
        monkeypatch.setitem(evil_http.MISBEHAVIOURS, behaviour.__name__, behaviour)
    server.tell("GET", "resume")
    async with Client.http(server.url) as client:
        waiting = asyncio.create_task(client.call_tool("wait"))
        await server.heard("tools/call")
        with pytest.raises((HttpError, StreamEnded)):
            await client.call_tool("misdirect")
        asked_for_the_rest.set()
        assert (await waiting).text == "mine"
        dropped = client._connection.protocol.dropped
        assert dropped["response to another request"] == 1


async def test_ended_calls_leave_no_state_in_memory(modern: EvilHttp):
    async with Client.http(modern.url) as client:
        for text in ("a", "b"):
            await client.call_tool("echo", {"text": text})
        with pytest.raises(HttpError):
            await client.call_tool("status", {"code": 500})
        with pytest.raises(RequestTimeout):
            await client.call_tool("mute", timeout=0.01)
        cancelled = asyncio.create_task(client.call_tool("mute"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait({cancelled})
        transport = client._connection.transport
        assert isinstance(transport, HttpTransport)
        await asyncio.gather(*transport._posts.values(), return_exceptions=True)
        await asyncio.sleep(0)
        assert transport._posts == {}


async def test_bug_in_the_transport_fails_the_call(
    modern: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    def fail(_: object) -> None:
        raise RuntimeError("our own bug")

    async with Client.http(modern.url) as client:
        monkeypatch.setattr(HttpTransport, "_headers", lambda _, message: fail(message))
        with pytest.raises(ConnectionClosed, match="RuntimeError"):
            await client.call_tool("echo", {"text": "hi"})


# Sessions


async def test_name_that_headers_cannot_carry_is_encoded(modern: EvilHttp):
    """R-16."""
    for name in ("größe", " x", "a\r\nX-Evil: 1"):
        async with Client.http(modern.url) as client:
            modern.tell("tools/call", "echo", text="well")
            await client.call_tool(name)
        sent = modern.asked[-1].headers
        assert sent["mcp-name"] == f"=?base64?{base64.b64encode(name.encode()).decode()}?="
        assert "x-evil" not in sent


@pytest.mark.parametrize("how", ["status", "cut"])
async def test_refused_initialized_notification_leaves_the_client_usable(
    server: EvilHttp, how: str
):
    server.tell("notifications/initialized", how, **({"code": 500} if how == "status" else {}))
    async with Client.http(server.url) as client:
        assert (await client.call_tool("echo", {"text": "well"})).text == "well"


async def test_session_is_deleted_once(server: EvilHttp):
    client = Client.http(server.url)
    await client.open()
    await server.heard("GET")
    await client.close()
    await client.close()

    assert server.times("DELETE") == 1
