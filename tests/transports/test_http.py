"""Streamable HTTP as a client of it lives through it: sessions, streams, and their ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlock.client import Client
from interlock.errors import (
    AuthError,
    ConnectionClosed,
    HttpError,
    ParseError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    RevisionError,
    StreamEnded,
)
from interlock.protocol.headers import ToolHeaders
from interlock.transports import http, http_endpoint, http_pool
from interlock.transports.http import HttpTransport
from interlock.types import ElicitResult
from tests.servers import evil_http
from tests.servers.evil_http import LEGACY, MODERN, Asked, EvilHttp, text_result
from tests.support.bearer import BearerHeaders
from tests.support.recording_receiver import RecordingReceiver, call_frame, request_frame
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Behaviour = Callable[[EvilHttp, Asked], Awaitable[None]]
Teach = Callable[[str, Behaviour], None]
SESSION = "mcp-session-id"


@pytest.fixture
async def server(nothing_is_left: object) -> AsyncIterator[EvilHttp]:
    async with EvilHttp(LEGACY, "stream") as server:
        yield server


@pytest.fixture
async def modern(nothing_is_left: object) -> AsyncIterator[EvilHttp]:
    async with EvilHttp(MODERN) as server:
        yield server


@pytest.fixture
def teach(monkeypatch: pytest.MonkeyPatch) -> Teach:
    """Add a tool to the servers, or a way to answer by the name of a method."""

    def teach(name: str, behaviour: Behaviour) -> None:
        monkeypatch.setitem(evil_http.MISBEHAVIOURS, name, behaviour)

    return teach


def answer(asked: Asked, text: str = "done") -> bytes:
    message = {"jsonrpc": "2.0", "id": asked.message["id"], "result": text_result(text)}
    return b"data: %b\n\n" % json.dumps(message).encode()


def headers(server: EvilHttp, method: str) -> list[dict[str, str]]:
    return [asked.headers for asked in server.asked if asked.method == method]


INITIALIZE = request_frame("initialize")
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


@asynccontextmanager
async def transport_to(
    server: EvilHttp, receiver: RecordingReceiver
) -> AsyncIterator[HttpTransport]:
    """Open a transport; close it afterwards."""
    connections = http_pool.HttpPool()
    to = http_endpoint.HttpEndpoint(server.url, connections, None, None, 1000)
    transport = HttpTransport(to, ToolHeaders())
    await transport.open(receiver)
    try:
        yield transport
    finally:
        await transport.close()
        await connections.close()


async def tell(transport: HttpTransport, frame: bytes) -> None:
    """Send a message, and wait until nothing is done for it any more."""
    transport.send([frame])
    await asyncio.wait(list(transport._posts.values()))


# Headers


async def test_modern_headers_repeat_the_request(modern: EvilHttp):
    modern.tools = [
        {
            "name": "echo",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string", "x-mcp-header": "Text"}},
            },
        },
        {"name": "bad", "inputSchema": {"properties": {"x": {"x-mcp-header": "X"}}}},
    ]
    async with Client.http(modern.url) as client:
        tools = await client.list_tools()
        await client.call_tool("echo", {"text": "ä"})

    assert [tool.name for tool in tools] == ["echo"]
    assert "tool 'bad' is left out" in tools.skipped[0]
    for asked in modern.asked:
        assert asked.headers["mcp-protocol-version"] == MODERN
        assert asked.headers["mcp-method"] == asked.method
        assert asked.headers["content-type"] == "application/json"
        assert asked.headers["accept"] == "application/json, text/event-stream"
        assert SESSION not in asked.headers
    (called,) = headers(modern, "tools/call")
    assert called["mcp-name"] == "echo"
    assert called["mcp-param-text"] == "=?base64?w6Q=?="
    assert [asked.verb for asked in modern.asked] == ["POST"] * 3  # no notification, GET, DELETE


@each_row("is_modern", [True, False])
async def test_a_trace_context_is_sent_in_meta_and_in_headers(
    server: EvilHttp, modern: EvilHttp, is_modern: bool
):
    asked_of = modern if is_modern else server
    trace = {"traceparent": f"00-{'4b' * 16}-{'00f0' * 4}-01", "tracestate": "vendor=a"}
    async with Client.http(asked_of.url) as client:
        await client.call_tool("echo", meta={**trace, "other": 1})
        await client.call_tool("echo")

    traced, plain = (each for each in asked_of.asked if each.method == "tools/call")
    assert trace.items() <= traced.headers.items()
    assert trace.items() <= traced.message["params"]["_meta"].items()
    assert "traceparent" not in plain.headers
    assert "traceparent" not in plain.message["params"].get("_meta", {})


async def test_session_id_of_a_modern_server_is_ignored(modern: EvilHttp, teach: Teach):
    async def discover(server: EvilHttp, asked: Asked) -> None:
        result = evil_http.honest("server/discover", MODERN, [])
        body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": result})
        await asked.reply(200, body.encode(), headers={"Mcp-Session-Id": "s"})

    teach("discover", discover)
    modern.tell("server/discover", "discover")
    async with Client.http(modern.url) as client:
        await client.list_tools()
    assert all(SESSION not in asked.headers for asked in modern.asked)


async def test_legacy_session_ignores_the_session_id_of_a_failed_discover(server: EvilHttp):
    server.tell("server/discover", "status", code=400, headers={"Mcp-Session-Id": "stray"})
    async with Client.http(server.url) as client:
        assert client.revision == LEGACY
        await client.list_tools()

    (first,) = headers(server, "initialize")
    assert not {"mcp-protocol-version", "mcp-method", SESSION} & first.keys()
    for method in ("notifications/initialized", "GET", "tools/list", "DELETE"):
        for sent in headers(server, method):
            assert sent["mcp-protocol-version"] == LEGACY
            assert sent[SESSION].startswith("session-")


@each_row("id", ["a b", "\xe4", "a\tb"])
async def test_session_id_with_invalid_characters_is_a_protocol_error(
    server: EvilHttp, teach: Teach, id: str
):
    async def begin(server: EvilHttp, asked: Asked) -> None:
        result = evil_http.honest("initialize", LEGACY, [])
        body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": result})
        await asked.reply(200, body.encode(), headers={"Mcp-Session-Id": id})

    teach("begin", begin)
    server.tell("initialize", "begin")
    with pytest.raises(RemoteProtocolError, match="sent an invalid Mcp-Session-Id"):
        await Client.http(server.url).open()


async def test_revision_that_is_unfit_for_a_header_is_a_revision_error(
    server: EvilHttp, teach: Teach
):
    async def begin(server: EvilHttp, asked: Asked) -> None:
        result = evil_http.honest("initialize", LEGACY + "\r\nX-Evil: 1", [])
        body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": result})
        await asked.reply(200, body.encode(), headers={"Mcp-Session-Id": "session"})

    teach("begin", begin)
    server.tell("initialize", "begin")
    with pytest.raises(RevisionError):
        await Client.http(server.url).open()


async def test_refused_initialize_begins_no_session(server: EvilHttp, teach: Teach):
    async def refuse(server: EvilHttp, asked: Asked) -> None:
        error = {"code": -32000, "message": "full"}
        body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "error": error})
        await asked.reply(200, body.encode(), headers={"Mcp-Session-Id": "stray"})

    teach("refuse", refuse)
    server.tell("initialize", "refuse")
    async with transport_to(server, RecordingReceiver(1)) as transport:
        await tell(transport, INITIALIZE)
    assert [asked.method for asked in server.asked] == ["initialize"]  # nothing is to be deleted


async def test_modern_request_has_no_session_id(server: EvilHttp):
    meta = f'"io.modelcontextprotocol/protocolVersion":"{MODERN}"'.encode()
    async with transport_to(server, RecordingReceiver(1, 2)) as transport:
        await tell(transport, INITIALIZE)
        await tell(transport, request_frame("tools/list", meta, id=2))
    (sent,) = headers(server, "tools/list")
    assert sent["mcp-protocol-version"] == MODERN
    assert SESSION not in sent
    assert SESSION in headers(server, "DELETE")[0]


# The standing stream


async def test_requests_wait_for_the_standing_stream(server: EvilHttp, teach: Teach):
    may_begin = asyncio.Event()

    async def late(server: EvilHttp, asked: Asked) -> None:
        await may_begin.wait()
        await asked.stream()
        await asked.gone.wait()

    teach("late", late)
    server.tell("GET", "late")
    async with Client.http(server.url) as client:
        listing = asyncio.create_task(client.list_tools())
        await server.heard("GET")
        assert server.times("tools/list") == 0
        may_begin.set()
        await listing


async def test_requests_wait_for_the_answer_to_initialized_only_until_a_timeout(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "REPLY_TIMEOUT", 0.01)
    server.tell("notifications/initialized", "mute")
    async with Client.http(server.url) as client:
        await client.list_tools()
        await server.heard("GET")


async def test_requests_wait_for_the_listening_stream_no_longer_than_a_timeout(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "LISTEN_TIMEOUT", 0.01)
    server.tell("GET", "mute")
    async with Client.http(server.url) as client:
        await client.list_tools()


@pytest.mark.parametrize(
    "told",
    [
        {"code": 200, "body": "<html>", "type": "text/html"},
        {"code": 200, "body": "{}", "type": "application/json"},
        *({"code": code} for code in (204, 400, 403, 404, 405, 406, 501)),
    ],
    ids=["html", "json", "204", "400", "403", "404", "405", "406", "501"],
)
async def test_standing_stream_that_is_not_offered_is_requested_once(
    server: EvilHttp,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    told: dict[str, Any],
):
    monkeypatch.setattr(http, "RETRY", 0.0)
    server.tell("GET", "status", **told)
    receiver = RecordingReceiver(1)
    async with transport_to(server, receiver) as transport:
        await tell(transport, INITIALIZE)
        await tell(transport, INITIALIZED)
        assert server.times("GET") == 1
    assert (len(receiver.frames), receiver.failures, receiver.losses) == (1, [], [])
    assert caplog.records == []


async def test_standing_stream_is_resumed_after_its_last_event(server: EvilHttp, teach: Teach):
    async def end(server: EvilHttp, asked: Asked) -> None:
        await asked.stream()
        changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
        await asked.link.chunk(b"id: e%d\nretry: 1\ndata: %b\n\n" % (server.times("GET"), changed))

    teach("end", end)
    server.tell("GET", "end", times=2)
    server.tell("GET", "mute_stream")
    changes: list[str] = []
    async with Client.http(server.url, on_list_changed=changes.append):
        await server.heard("GET", 3)
    assert [each.get("last-event-id") for each in headers(server, "GET")] == [None, "e1", "e2"]
    assert changes == ["tools", "tools"]


async def test_standing_stream_without_events_is_reopened_a_limited_number_of_times(
    server: EvilHttp, teach: Teach, monkeypatch: pytest.MonkeyPatch
):
    """Each pause is longer than the one before; any event resets it."""

    async def end(server: EvilHttp, asked: Asked) -> None:
        await asked.stream()
        if server.times("GET") == 3:
            await asked.link.chunk(b"data: {}\n\n")

    pauses: list[float] = []
    paused, sleep = asyncio.Event(), asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
            paused.set()
        await sleep(0)

    monkeypatch.setattr(http, "MAX_LISTENS", 3)
    monkeypatch.setattr(http.asyncio, "sleep", note)
    teach("end", end)
    server.tell("GET", "end")
    async with Client.http(server.url) as client:
        while len(pauses) < 5:
            paused.clear()
            await paused.wait()
        for _ in range(5):
            await client.list_tools()
        assert server.times("GET") == 5
    assert pauses == [1, 2, 1, 2, 4]


class Pauses:
    """Records the pauses between requests for the standing stream, and skips them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        self._paused, self._sleep = asyncio.Event(), asyncio.sleep
        monkeypatch.setattr(http.asyncio, "sleep", self._note)

    async def _note(self, seconds: float) -> None:
        if seconds:
            self.seconds.append(seconds)
            self._paused.set()
        await self._sleep(0)

    async def first(self, times: int) -> list[float]:
        """Wait for so many."""
        while len(self.seconds) < times:
            self._paused.clear()
            await self._paused.wait()
        return self.seconds[:times]


async def brief(server: EvilHttp, asked: Asked, text: str) -> None:
    """Answer with this much of a stream, and end it."""
    await asked.stream()
    await asked.link.chunk(text.encode())
    asked.link.cut()


EVENT = 'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'


@pytest.mark.parametrize(
    ("text", "pauses"),
    [
        (f"retry: 1\n{EVENT}", [0.1, 0.1, 0.1]),
        (f"retry: 250\n{EVENT}", [0.25, 0.25, 0.25]),
        ("retry: 1\n\n: nothing\n\n", [1, 2, 4]),
        ("retry: 3000\n\n", [3, 3, 4]),
    ],
    ids=["at once", "soon", "nothing at once", "nothing soon"],
)
async def test_standing_stream_that_ends_at_once_is_reopened_after_a_pause(
    server: EvilHttp,
    teach: Teach,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    pauses: list[float],
):
    teach("brief", brief)
    server.tell("GET", "brief", text=text)
    waited = Pauses(monkeypatch)
    async with Client.http(server.url):
        assert await waited.first(3) == pauses


async def test_standing_stream_that_lasted_is_always_reopened(
    server: EvilHttp, teach: Teach, monkeypatch: pytest.MonkeyPatch
):
    """A proxy may cut each one after a minute of silence."""
    monkeypatch.setattr(http, "MAX_LISTENS", 2)
    monkeypatch.setattr(http, "WELL", -1.0)
    teach("brief", brief)
    server.tell("GET", "brief", text=": still here\n\n")
    waited = Pauses(monkeypatch)
    async with Client.http(server.url):
        assert await waited.first(5) == [1] * 5


async def test_an_event_that_is_too_large_does_not_end_the_standing_stream(
    server: EvilHttp, teach: Teach, monkeypatch: pytest.MonkeyPatch
):
    teach("brief", brief)
    huge = f"id: 1\ndata: 1\n\nid: 2\ndata: {'x' * 100_000}\n\n"
    server.tell("GET", "brief", times=1, text=huge)
    waited, changed = Pauses(monkeypatch), asyncio.Event()
    server.tell("GET", "brief", text=EVENT)
    async with Client.http(
        server.url, max_frame_bytes=50_000, on_list_changed=lambda _: changed.set()
    ):
        await waited.first(1)
        await changed.wait()
    assert "last-event-id" not in headers(server, "GET")[1]  # it would come again


async def test_standing_stream_of_a_busy_server_is_reopened_after_its_retry_after(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    server.tell("GET", "status", code=503, headers={"Retry-After": "60"})
    waited = Pauses(monkeypatch)
    async with Client.http(server.url):
        assert await waited.first(2) == [60, 60]


async def test_standing_stream_that_never_opens_is_retried_for_an_hour_and_then_given_up(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(http.asyncio, "sleep", note)
    server.tell("GET", "status", code=503)
    async with transport_to(server, RecordingReceiver(1)) as transport:
        await tell(transport, INITIALIZE)
        await tell(transport, INITIALIZED)
    assert max(pauses) == 30
    assert 3000 < sum(pauses) < 3600  # without the time that the server takes


async def test_standing_stream_uses_no_connection_of_requests(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_pool, "MAX_CONNECTIONS", 1)
    async with Client.http(server.url) as client:
        await server.heard("GET")
        await client.list_tools()


async def test_subscription_uses_no_connection_of_requests(
    modern: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_pool, "MAX_CONNECTIONS", 1)
    modern.tell("subscriptions/listen", "mute")
    receiver = RecordingReceiver(1, 2)
    listen = request_frame("subscriptions/listen", id=2)
    async with transport_to(modern, receiver) as transport:
        transport.send([listen])
        await modern.heard("subscriptions/listen")
        transport.send([call_frame("echo")])
        await modern.heard("tools/call")


class Renewing(BearerHeaders):
    """Tokens of which a request gets the next one, and nobody else."""

    def __init__(self) -> None:
        self.token = "token-1"
        self.asked = 0

    async def valid_token(self) -> str:
        return ""

    async def refresh_after(self, error: AuthError) -> None:
        assert error.token_used == self.token
        self.asked += 1
        self.token = f"token-{self.asked + 1}"


async def refuse_first_token(server: EvilHttp, asked: Asked) -> None:
    if asked.headers["authorization"] == "Bearer token-1":
        await asked.reply(401)
    elif asked.verb == "GET":
        await asked.stream()
        await asked.gone.wait()
    else:
        await evil_http.echo(server, asked, "let in")


async def test_standing_stream_waits_for_the_token_of_a_request(
    server: EvilHttp, teach: Teach, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "RETRY", 0.0)
    monkeypatch.setattr(http, "LONGEST_RETRY", 0.0)
    teach("refuse", refuse_first_token)
    server.tell("GET", "refuse")
    tokens = Renewing()
    async with Client.http(server.url, auth=tokens) as client:
        await client.list_tools()
        for _ in range(50):  # a turn is a pause now
            await asyncio.sleep(0)
        assert server.times("GET") == 1
        assert tokens.asked == 0  # a person might be asked
        assert (await client.call_tool("refuse")).text == "let in"
        await server.heard("GET", 2)
    assert [each["authorization"] for each in headers(server, "GET")] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


async def test_standing_stream_refused_with_every_token_is_not_reopened(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "RETRY", 0.0)
    monkeypatch.setattr(http, "LONGEST_RETRY", 0.0)
    server.tell("GET", "status", code=401)
    async with Client.http(server.url, headers={"Authorization": "Bearer x"}) as client:
        for _ in range(3):
            await client.list_tools()
        assert server.times("GET") == 1


# Answers that go on elsewhere


def at_resumption(server: EvilHttp, behaviour: str, **told: Any) -> None:
    """Misbehave when a client resumes a response. Offer no standing stream."""
    server.tell("GET", "status", times=1, code=405)
    server.tell("GET", behaviour, **told)


async def prime(server: EvilHttp, asked: Asked) -> None:
    """Begin an answer, and let the client come for the rest."""
    await asked.stream()
    await asked.link.chunk(b"id: p\nretry: 1\ndata:\n\n")


async def test_legacy_response_stream_that_was_cut_is_resumed(server: EvilHttp, teach: Teach):
    async def go_on(server: EvilHttp, asked: Asked) -> None:
        call = next(each for each in server.asked if each.method == "tools/call")
        await asked.stream()
        if asked.headers["last-event-id"] == "p":
            await asked.link.chunk(b"id: q\ndata:\n\n")
        else:
            await asked.link.chunk(answer(call))

    teach("prime", prime)
    teach("go_on", go_on)
    at_resumption(server, "go_on")
    async with Client.http(server.url) as client:
        assert (await client.call_tool("prime")).text == "done"
    assert [each.get("last-event-id") for each in headers(server, "GET")] == [None, "p", "q"]
    assert server.times("tools/call") == 1


async def test_resumed_stream_is_closed_after_the_response(server: EvilHttp, teach: Teach):
    async def linger(server: EvilHttp, asked: Asked) -> None:
        call = next(each for each in server.asked if each.method == "tools/call")
        await asked.stream()
        await asked.link.chunk(answer(call))
        await asked.gone.wait()

    teach("prime", prime)
    teach("linger", linger)
    at_resumption(server, "linger")
    async with Client.http(server.url) as client:
        assert (await client.call_tool("prime")).text == "done"
        await server.asked[-1].gone.wait()


async def test_modern_response_stream_that_was_cut_is_not_resumed(modern: EvilHttp):
    async with Client.http(modern.url) as client:
        with pytest.raises(StreamEnded, match="ended its answer before the result"):
            await client.call_tool("leave")
    assert modern.times("GET") == 0


async def test_pause_before_resuming_is_the_servers_retry(
    server: EvilHttp, teach: Teach, monkeypatch: pytest.MonkeyPatch
):
    async def slow(server: EvilHttp, asked: Asked) -> None:
        await asked.stream()
        await asked.link.chunk(b"id: p\nretry: 450\ndata:\n\n")

    waited: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    teach("slow", slow)
    at_resumption(server, "quiet")
    async with Client.http(server.url) as client:
        monkeypatch.setattr(http.asyncio, "sleep", note)
        with pytest.raises(StreamEnded, match="the rest of an answer was lost"):
            await client.call_tool("slow")
        monkeypatch.undo()
    assert [each for each in waited if each] == [0.45] * http.MAX_RESUMPTIONS


class Tokens(BearerHeaders):
    token = "a"

    async def valid_token(self) -> str:
        return ""

    async def refresh_after(self, error: AuthError) -> None:
        pass


@pytest.mark.parametrize("code", [400, 401, 403, 404, 429, 500, 503])
async def test_call_whose_stream_cannot_be_resumed_is_not_retried(
    server: EvilHttp, teach: Teach, code: int
):
    """R-25: the server has taken it."""
    said = '{"jsonrpc":"2.0","error":{"code":-32000,"message":"no session"}}'
    teach("prime", prime)
    at_resumption(server, "status", code=code, body=said, type="application/json")
    async with Client.http(server.url, auth=Tokens()) as client:
        with pytest.raises(StreamEnded, match="the rest of an answer was lost"):
            await client.call_tool("prime")
        assert server.times("tools/call") == 1
        assert server.times("initialize") == 1


@pytest.mark.parametrize(
    ("code", "type"),
    [
        (200, "text/html"),
        (200, "application/json"),
        (202, "text/event-stream"),
        (404, "text/event-stream"),
    ],
    ids=["html", "json", "202", "404"],
)
async def test_resuming_fails_if_the_response_is_not_a_stream(
    server: EvilHttp, teach: Teach, code: int, type: str
):
    async def tell_otherwise(server: EvilHttp, asked: Asked) -> None:
        call = next(each for each in server.asked if each.method == "tools/call")
        await asked.reply(code, answer(call), type)

    teach("prime", prime)
    teach("otherwise", tell_otherwise)
    at_resumption(server, "otherwise")
    async with Client.http(server.url) as client:
        with pytest.raises(StreamEnded, match="the rest of an answer was lost"):
            await client.call_tool("prime")
        assert server.times("GET") == 2  # the first is for the standing stream
        assert server.times("tools/call") == 1


@pytest.mark.slow("waits for a timeout")
async def test_call_whose_server_disappears_is_not_retried(server: EvilHttp, teach: Teach):
    """R-25: that nobody can be reached now does not mean that nobody was."""

    async def prime_and_leave(server: EvilHttp, asked: Asked) -> None:
        server._server.close()
        for other in {each.link for each in server.asked} - {asked.link}:
            other.cut()
        await prime(server, asked)
        await asked.end()
        asked.link.cut()

    teach("leave", prime_and_leave)
    at_resumption(server, "mute")
    async with Client.http(server.url) as client:
        with pytest.raises(StreamEnded, match=r"was lost: .*cannot be reached"):
            await client.call_tool("leave")
    assert server.times("tools/call") == 1


async def test_cancelled_call_stops_resuming(server: EvilHttp, teach: Teach):
    teach("prime", prime)
    at_resumption(server, "mute_stream")
    async with Client.http(server.url) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("prime", timeout=0.05)
        await server.heard("notifications/cancelled")
        resumed = [each for each in server.asked if "last-event-id" in each.headers]
        await asyncio.gather(*(each.gone.wait() for each in resumed))


# One request


@each_row(
    ("told", "why"),
    [
        ({"code": 202}, "answered 202, but it sent nothing"),
        ({"code": 200, "type": "application/json"}, "answered 200, but it sent nothing"),
        ({"code": 200, "body": "<p>", "type": "text/html"}, "it sent text/html, not JSON"),
        ({"code": 200, "body": "words", "type": ""}, "it sent no Content-Type, not JSON"),
        ({"code": 200, "body": "words", "type": "text/plain"}, "it sent text/plain, not JSON"),
        ({"code": 200, "body": ": words\n\n", "type": ""}, "it sent no Content-Type"),
        ({"code": 200, "type": ""}, "it sent nothing"),
        (
            {
                "code": 200,
                "body": '{"jsonrpc":"2.0","id":99,"result":{}}',
                "type": "application/json",
            },
            "its JSON does not answer the request",
        ),
    ],
)
async def test_response_without_a_result_fails_at_once(
    modern: EvilHttp, told: dict[str, Any], why: str
):
    """R-01, R-09."""
    async with Client.http(modern.url) as client:
        with pytest.raises(HttpError, match=why):
            await client.call_tool("status", {"type": "", **told})


async def test_long_content_type_is_shortened_in_the_error(modern: EvilHttp):
    async with Client.http(modern.url) as client:
        with pytest.raises(HttpError, match=r"it sent x{80}…, not JSON"):
            await client.call_tool("status", {"code": 200, "type": "x" * 1000})


async def test_content_type_in_an_error_can_be_printed(modern: EvilHttp):
    async with Client.http(modern.url) as client:
        with pytest.raises(HttpError) as failed:
            await client.call_tool("status", {"code": 200, "type": "\x1b[31m/\xff"})
    assert str(failed.value).isprintable()


NOTE = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'
SAID = '{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}'


@each_row(
    ("type", "body"),
    [
        ("Application/JSON; charset=utf-8", SAID),
        ("application/vnd.example+json", SAID),
        ("text/plain; charset=utf-8", SAID),  # Go's HTTP server, for an answer without a type
        ("", SAID),
        ("", f"event: message\ndata: {SAID}\n\n"),
        ("application/json", f"\ufeff{SAID}"),
        ("application/json", f" [{SAID}]"),
        ("application/json", SAID.replace("2,", '"2",')),
        # PHP and Django, for an answer without a type
        ("text/html; charset=UTF-8", SAID),
        ("text/html", f"<br />\n<b>Deprecated</b>: x() in <b>/x.php</b>\n{SAID}"),
        ("application/json", f"\nWarning: x() in /x.php on line 3\n{SAID}\n"),
        ('"application/json"', SAID),
        ("application/json", f"event: message\ndata: {SAID}\n\n"),
        ("application/json", f"{NOTE}\n{SAID}\n"),
        ("text/event-stream", f"{SAID}\n"),
        ("text/event-stream, text/event-stream", f"data: {SAID}\n\n"),
        ("text/event-stream", f"data: {NOTE}\ndata: {SAID}\n\n"),
        ("text/event-stream", f"data: data: {SAID}\n\n"),
        ("text/event-stream", f"data: {SAID}"),  # no blank line, and no line end
        ("text/event-stream", f"event: response\ndata: {SAID}\n\n"),
        ("text/event-stream", f"event: ping\ndata: {{}}\n\ndata: {SAID}\n\n"),
        # https://github.com/PhilflowIO/dav-mcp/issues/31
        ("text/event-stream", f'data: {{"type":"heartbeat"}}\n\ndata: ping\n\ndata: {SAID}\n\n'),
    ],
)
async def test_an_answer_whose_meaning_is_plain_is_read(modern: EvilHttp, type: str, body: str):
    async with Client.http(modern.url) as client:
        told = {"code": 200, "body": body, "type": type}
        assert (await client.call_tool("status", told)).content == []


@pytest.mark.parametrize(
    "body",
    [
        f"Fatal error: bad value {SAID} in /x.php on line 3",  # a text that quotes a message
        f"Warning: bad value {SAID}\n{SAID}",
        "Warning: " + SAID.replace('"id":2', '"id":3'),
    ],
)
async def test_a_message_within_another_text_is_refused(modern: EvilHttp, body: str):
    told = {"code": 200, "body": body, "type": "application/json"}
    async with Client.http(modern.url) as client:
        with pytest.raises(ParseError, match="message is not JSON"):
            await client.call_tool("status", told)


@pytest.mark.parametrize("charset", ["ISO-8859-1", "windows-1252", "utf-16"])
async def test_an_answer_is_read_in_the_charset_of_its_label(
    modern: EvilHttp, teach: Teach, charset: str
):
    async def say(server: EvilHttp, asked: Asked) -> None:
        text = SAID.replace("[]", '[{"type":"text","text":"Grün"}]')
        await asked.reply(200, text.encode(charset), f"application/json; charset={charset}")

    teach("prime", say)
    async with Client.http(modern.url) as client:
        assert (await client.call_tool("prime")).text == "Grün"


@pytest.mark.parametrize("body", [f"data: {SAID[:-1]}", "event: ping\ndata: {}\n\n"])
async def test_a_stream_that_ends_before_a_whole_answer_is_an_error(modern: EvilHttp, body: str):
    told = {"code": 200, "body": body, "type": "text/event-stream"}
    async with Client.http(modern.url) as client:
        with pytest.raises(StreamEnded, match="ended its answer before the result"):
            await client.call_tool("status", told)


@pytest.mark.parametrize("form", ["\ufeff%s", "[%s]"])
async def test_the_session_of_an_oddly_formed_initialize_is_kept(
    server: EvilHttp, teach: Teach, form: str
):
    async def initialize(server: EvilHttp, asked: Asked) -> None:
        result = {"protocolVersion": LEGACY, "capabilities": {}, "serverInfo": {"name": "x"}}
        message = {"jsonrpc": "2.0", "id": json.loads(asked.id), "result": result}
        server._sessions["abc"] = None
        await asked.reply(200, (form % json.dumps(message)).encode(), headers={SESSION: "abc"})

    teach("initialize", initialize)
    server.tell("initialize", "initialize")
    async with Client.http(server.url, revision="legacy") as client:
        await client.list_tools()
    assert server.asked[-2].headers[SESSION] == "abc"


async def test_stream_that_continues_after_the_response_is_closed(
    modern: EvilHttp, teach: Teach, monkeypatch: pytest.MonkeyPatch
):
    async def linger(server: EvilHttp, asked: Asked) -> None:
        await asked.stream()
        await asked.link.chunk(answer(asked))
        await asked.gone.wait()

    monkeypatch.setattr(http, "LAST_EVENTS_TIMEOUT", 0.01)
    teach("linger", linger)
    async with Client.http(modern.url) as client:
        assert (await client.call_tool("linger")).text == "done"
        await modern.asked[-1].gone.wait()


async def test_a_cancelled_call_closes_its_request(modern: EvilHttp):
    """R-24."""
    async with Client.http(modern.url) as client:
        calling = asyncio.create_task(client.call_tool("mute"))
        await modern.heard("tools/call")
        calling.cancel()
        await modern.asked[-1].gone.wait()
        await client.list_tools()
    assert [asked.method for asked in modern.asked] == [
        "server/discover",
        "tools/call",
        "tools/list",
    ]


async def test_modern_server_gets_no_notifications(modern: EvilHttp):
    before = asyncio.all_tasks()
    async with transport_to(modern, RecordingReceiver()) as transport:
        transport.send([b'{"jsonrpc":"2.0","method":"notifications/cancelled"}'])
        assert asyncio.all_tasks() == before


async def test_call_forgotten_at_once_leaves_no_task(modern: EvilHttp):
    async with transport_to(modern, RecordingReceiver(1)) as transport:
        transport.send([call_frame("mute")])
        transport.forget(1)
        await asyncio.wait(transport._posts.values())
        assert transport._posts == {}


async def test_stream_that_ends_after_its_response_is_not_a_failure(
    nothing_is_left: object,
):
    receiver = RecordingReceiver(1)
    async with EvilHttp(MODERN, "stream") as server, transport_to(server, receiver) as transport:
        transport.send([call_frame("echo")])
        await asyncio.wait(transport._posts.values())
    assert len(receiver.frames) == 1
    assert receiver.failures == []


async def test_connection_ends_when_too_many_responses_are_not_accepted(
    server: EvilHttp, teach: Teach, monkeypatch: pytest.MonkeyPatch
):
    """R-118."""

    async def ask(server: EvilHttp, asked: Asked) -> None:
        pings = (b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number for number in range(9))
        await asked.send("stream", *pings)
        await asked.gone.wait()

    monkeypatch.setattr(http_endpoint, "MAX_PENDING_REPLIES", 3)
    teach("ask", ask)
    server.tell("answer", "mute")
    async with Client.http(server.url) as client:
        with pytest.raises(
            ConnectionClosed, match=r"does not accept our responses \(3 are waiting\)"
        ):
            await client.call_tool("ask")
    assert server.times("answer") <= 3


async def test_message_that_is_not_accepted_in_time_is_dropped(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    """R-118."""
    loop = asyncio.get_running_loop()
    arm, give_up = loop.call_later, []

    def note(delay: float, act: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        if delay == http_endpoint.REPLY_TIMEOUT:
            give_up.append(act)
        return arm(delay, act, *arguments)

    monkeypatch.setattr(loop, "call_later", note)
    server.tell("notifications/cancelled", "mute")
    async with Client.http(server.url) as client:
        calling = asyncio.create_task(client.call_tool("mute"))
        await server.heard("tools/call")
        calling.cancel()
        await server.heard("notifications/cancelled")
        for act in give_up:
            act()
        await server.asked[-1].gone.wait()
        assert (await client.call_tool("echo", {"text": "a"})).text == "a"


async def test_our_response_does_not_wait_for_open_calls(
    server: EvilHttp, teach: Teach, monkeypatch: pytest.MonkeyPatch
):
    answered = asyncio.Event()

    async def ask(server: EvilHttp, asked: Asked) -> None:
        question = {
            "jsonrpc": "2.0",
            "id": "q",
            "method": "elicitation/create",
            "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
        }
        await asked.stream()
        await asked.link.chunk(b"data: %b\n\n" % json.dumps(question).encode())
        await answered.wait()
        await asked.link.chunk(answer(asked))

    async def take(server: EvilHttp, asked: Asked) -> None:
        await asked.accept()
        answered.set()

    async def accept(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={})

    monkeypatch.setattr(http_pool, "MAX_CONNECTIONS", 1)
    teach("ask", ask)
    teach("take", take)
    server.tell("answer", "take")
    async with Client.http(server.url, elicitation=accept) as client:
        assert (await client.call_tool("ask")).text == "done"


# The end


async def test_close_waits_for_requests_and_sends_no_more(modern: EvilHttp):
    async with transport_to(modern, RecordingReceiver(1)) as transport:
        transport.send([call_frame("mute")])
        await modern.heard("tools/call")
        posts = list(transport._posts.values())
        await transport.close()
        assert [post.cancelled() for post in posts] == [True]
        before = asyncio.all_tasks()
        transport.send([call_frame("mute")])
        assert asyncio.all_tasks() == before


async def test_loss_is_reported_once_and_not_after_close(modern: EvilHttp):
    receiver = RecordingReceiver()
    loss = ConnectionClosed("lost")
    async with transport_to(modern, receiver) as transport:
        transport.abort(loss)
        transport.abort(ConnectionClosed("lost again"))
        await transport.close()
        transport.abort(ConnectionClosed("closed"))
    assert receiver.losses == [loss]


@pytest.mark.parametrize("behaviour", ["status", "mute", "cut"])
async def test_close_deletes_the_session_and_ignores_failures(
    server: EvilHttp, behaviour: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "DELETE_TIMEOUT", 0.5)
    server.tell("DELETE", behaviour, **({"code": 405} if behaviour == "status" else {}))
    async with Client.http(server.url) as client:
        await server.heard("GET")
    assert server.times("DELETE") >= 1  # what ends nothing twice may be tried twice
    with pytest.raises(ConnectionClosed):
        await client.list_tools()


async def test_expired_session_is_replaced_by_a_new_one(server: EvilHttp):
    """R-26."""
    async with Client.http(server.url) as client:
        await client.list_tools()
        server.forget_sessions()
        assert (await client.call_tool("echo", {"text": "again"})).text == "again"
        assert server.times("initialize") == 2
    assert SESSION not in headers(server, "initialize")[1]


@pytest.mark.parametrize("code", [400, 404, 500])
async def test_call_succeeds_though_a_new_session_refuses_the_restored_state(
    server: EvilHttp, teach: Teach, code: int, caplog: pytest.LogCaptureFixture
):
    async def refuse(server: EvilHttp, asked: Asked) -> None:
        await asked.reply(code)

    teach("refuse", refuse)
    for method in ("logging/setLevel", "resources/subscribe"):
        server.tell(method, "result", times=1)
        server.tell(method, "refuse")
    async with Client.http(server.url) as client:
        await client.set_log_level("info")
        await client.subscribe("file:///a")
        server.forget_sessions()
        assert (await client.call_tool("echo", {"text": "well"})).text == "well"
        assert server.times("initialize") == 2
    assert "evil: logging/setLevel could not be restored: " in caplog.text
    assert "evil: resources/subscribe could not be restored: " in caplog.text


async def test_discovery_requests_are_not_repeated_in_the_session(modern: EvilHttp):
    """R-23."""
    shared = http_pool.HttpPool()
    with pytest.raises((HttpError, RemoteError)):
        await Client.http(modern.url, revision="legacy", pool=shared).open()
    assert shared.eras == {}
    async with Client.http(modern.url, pool=shared):
        assert shared.eras == {modern.url: "modern"}
    shared.eras[modern.url] = "sse"  # as somebody may have found out, for another transport
    async with Client.http(modern.url, pool=shared, transport="streamable") as client:
        assert client.revision == MODERN
    shared.eras[modern.url] = "sse"
    async with Client.http(modern.url, pool=shared, revision=MODERN) as client:
        assert client.revision == MODERN
    await shared.close()


async def test_opening_twice_leaves_one_connection(server: EvilHttp):
    client = Client.http(server.url)
    await client.open()
    await server.heard("GET")
    await client.open()
    assert server.times("DELETE") == 1
    await client.list_tools()
    await client.close()
    assert server.times("DELETE") == 2
