"""HTTP+SSE of 2024-11-05: where messages go, and what happens when the stream does."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from interlock.client import Client
from interlock.errors import (
    ConnectionClosed,
    HttpError,
    InterlockError,
    RemoteProtocolError,
    StreamEnded,
)
from interlock.transports import http_endpoint, http_sse
from interlock.transports.http_pool import HttpPool
from interlock.transports.http_sse import SseTransport
from tests.servers import evil_http
from tests.servers.evil_http import OLDEST, Asked, EvilHttp
from tests.support.recording_receiver import RecordingReceiver, call_frame
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_left")

SECRET = "canary"


@pytest.fixture
async def server(nothing_is_left: object) -> AsyncIterator[EvilHttp]:
    async with EvilHttp(OLDEST, "stream") as server:
        yield server


@pytest.fixture
def begin(server: EvilHttp, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Make the stream begin with these bytes and last as long as its client."""

    def begin(said: bytes) -> None:
        async def stream(server: EvilHttp, asked: Asked) -> None:
            await asked.stream()
            await asked.link.chunk(said)
            await asked.gone.wait()

        monkeypatch.setitem(evil_http.MISBEHAVIOURS, "begin", stream)
        server.tell("GET", "begin")

    return begin


def client_of(server: EvilHttp) -> Client:
    return Client.http(f"{server.url}?key={SECRET}", transport="sse", headers={"X-Key": SECRET})


@asynccontextmanager
async def transport_to(server: EvilHttp) -> AsyncIterator[SseTransport]:
    """Make a transport of its own, which is closed in the end."""
    connections = HttpPool()
    transport = SseTransport(http_endpoint.HttpEndpoint(server.url, connections, None, None, 1000))
    try:
        yield transport
    finally:
        await transport.close()
        await connections.close()


async def test_client_falls_back_to_http_sse(server: EvilHttp):
    async with Client.http(server.url) as client:
        assert client.revision == OLDEST
        assert (await client.call_tool("echo", {"text": "a"})).text == "a"
    assert [asked.verb for asked in server.asked[:3]] == ["POST", "POST", "GET"]


async def test_configured_sse_server_gets_no_other_requests(server: EvilHttp):
    async with client_of(server) as client:
        await client.list_tools()
    assert [asked.method for asked in server.asked] == [
        "GET",
        "initialize",
        "notifications/initialized",
        "tools/list",
    ]
    assert {asked.headers["x-key"] for asked in server.asked} == {SECRET}


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("http://127.0.0.1:1/messages", "at http://127.0.0.1:1, which is not its origin"),
        ("//b.example/messages", "at http://b.example, which"),
        ("https://$HOST/messages", "which is not its origin"),
        (f"http://user:{SECRET}@$HOST/messages", "sent an invalid URL"),
        ("http://$HOST/messages#x", "sent an invalid URL"),
        ("http://[::1/", "sent an invalid URL"),
        ("http://h:99999/", "sent an invalid URL"),
        ("file:///etc/passwd", "sent an invalid URL"),
    ],
)
async def test_endpoint_of_another_origin_is_refused(
    server: EvilHttp, begin: Callable[[bytes], None], target: str, why: str
):
    """R-43."""
    target = target.replace("$HOST", server.url.split("/")[2])
    begin(b"event: endpoint\ndata: %b\n\n" % target.encode())
    with pytest.raises(RemoteProtocolError, match=why) as told:
        await client_of(server).open()
    assert SECRET not in str(told.value)
    assert [asked.verb for asked in server.asked] == ["GET"]


async def test_endpoint_is_relative_to_the_streams_url(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    async def stream(server: EvilHttp, asked: Asked) -> None:
        server._sessions["1"] = asked.link
        await asked.stream()
        await asked.link.chunk(b"event: endpoint\ndata: ?session=1\n\n")
        await asked.gone.wait()

    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "begin", stream)
    server.tell("GET", "status", times=1, code=307, headers={"Location": "/messages"})
    server.tell("GET", "begin")
    async with client_of(server) as client:
        assert (await client.call_tool("echo", {"text": "a"})).text == "a"


async def test_second_endpoint_event_is_ignored(server: EvilHttp, monkeypatch: pytest.MonkeyPatch):
    async def stream(server: EvilHttp, asked: Asked) -> None:
        server._sessions["1"] = asked.link
        await asked.stream()
        for target in (b"/messages?session=1", b"/nowhere"):
            await asked.link.chunk(b"event: endpoint\ndata: %b\n\n" % target)
        await asked.gone.wait()

    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "begin", stream)
    server.tell("GET", "begin")
    async with client_of(server) as client:
        assert (await client.call_tool("echo", {"text": "a"})).text == "a"


async def test_message_before_the_endpoint_event_is_ignored(
    server: EvilHttp, begin: Callable[[bytes], None]
):
    before = b": hello\n\ndata: {}\n\nevent: other\ndata: x\n\n"
    begin(before + b"event: endpoint\ndata: /nowhere\n\n")
    receiver = RecordingReceiver()
    async with transport_to(server) as transport:
        await transport.open(receiver)
        assert receiver.frames == []


async def test_requests_are_sent_after_initialized(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    may_begin = asyncio.Event()

    async def late(server: EvilHttp, asked: Asked) -> None:
        await may_begin.wait()
        await asked.accept()

    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "late", late)
    server.tell("notifications/initialized", "late")
    async with client_of(server) as client:
        listing = asyncio.create_task(client.list_tools())
        await server.heard("notifications/initialized")
        for _ in range(50):  # turns in which it would come
            await asyncio.sleep(0)
        assert server.times("tools/list") == 0
        may_begin.set()
        await listing


async def test_cancelled_call_stops_being_sent(server: EvilHttp, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "mute_post", mute_post)
    server.tell("tools/call", "mute_post")
    async with client_of(server) as client:
        calling = asyncio.create_task(client.call_tool("echo"))
        await server.heard("tools/call")
        (called,) = (asked for asked in server.asked if asked.method == "tools/call")
        calling.cancel()
        await called.link.gone.wait()


async def test_requests_that_the_server_leaves_open_are_closed_after_their_answer(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    async def leave_open(server: EvilHttp, asked: Asked) -> None:
        answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % asked.message["id"]
        await asked.out.chunk(b"data: %b\n\n" % answer)
        await asked.link.gone.wait()

    monkeypatch.setattr(http_sse, "MAX_LEFT_OPEN", 3)
    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "leave_open", leave_open)
    server.tell("tools/call", "leave_open")
    async with client_of(server) as client:
        for _ in range(10):
            await client.call_tool("echo")
        calls = [asked for asked in server.asked if asked.method == "tools/call"]
        await calls[6].link.gone.wait()


@each_row(
    ("body", "is_answer"),
    [
        # https://github.com/modelcontextprotocol/csharp-sdk/pull/445
        (b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"body"}]}}', True),
        (b'{"status":"accepted"}', False),
        (b"Accepted", False),
        (b'{"jsonrpc":"2.0","id":999,"result":{"content":[]}}', False),
    ],
)
async def test_answer_in_the_body_of_a_post_counts_and_other_bodies_do_not(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch, body: bytes, is_answer: bool
):
    async def in_body(server: EvilHttp, asked: Asked) -> None:
        written = body % asked.message["id"] if b"%d" in body else body
        await asked.reply(200, written)
        if not is_answer:
            content = b'{"content":[{"type":"text","text":"stream"}]}'
            answer = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (asked.message["id"], content)
            await asked.out.chunk(b"data: %b\n\n" % answer)

    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "in_body", in_body)
    server.tell("tools/call", "in_body")
    async with client_of(server) as client:
        result = await client.call_tool("echo")
        assert result.text == ("body" if is_answer else "stream")


async def test_sent_messages_leave_no_task(server: EvilHttp):
    async with transport_to(server) as transport:
        await transport.open(RecordingReceiver())
        transport.send([call_frame("mute"), b'{"jsonrpc":"2.0","method":"notifications/x"}'])
        await asyncio.wait(set(transport._tasks))
        assert not transport._tasks
        assert not transport._posts


async def test_close_waits_for_all_tasks_and_sends_no_more(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "mute_post", mute_post)
    server.tell("tools/call", "mute_post")
    async with transport_to(server) as transport:
        await transport.open(RecordingReceiver())
        transport.send([call_frame("echo")])
        await server.heard("tools/call")
        posts = list(transport._tasks)
        await transport.close()
        assert [post.cancelled() for post in posts] == [True]
        before = asyncio.all_tasks()
        transport.send([call_frame("echo")])
        assert asyncio.all_tasks() == before


async def test_loss_is_reported_once_and_not_after_close(server: EvilHttp):
    receiver = RecordingReceiver()
    loss = ConnectionClosed("lost")
    async with transport_to(server) as transport:
        await transport.open(receiver)
        transport.abort(loss)
        transport.abort(ConnectionClosed("lost again"))
        await transport.close()
        transport.abort(ConnectionClosed("closed"))
    assert receiver.losses == [loss]


@pytest.mark.slow("works through much data")
async def test_close_before_open_leaves_no_resources(
    server: EvilHttp, nothing_is_left: list[object]
):
    async with transport_to(server):
        pass
    gc.collect()
    assert nothing_is_left == []


async def test_cancelled_open_leaves_no_stream(server: EvilHttp, begin: Callable[[bytes], None]):
    begin(b": wait\n\n")
    async with transport_to(server) as transport:
        opening = asyncio.create_task(transport.open(RecordingReceiver()))
        await server.heard("GET")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await server.asked[0].gone.wait()


async def test_connection_ends_when_too_many_responses_are_not_accepted(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    """R-118."""
    monkeypatch.setattr(http_endpoint, "MAX_PENDING_REPLIES", 3)

    async def ask(server: EvilHttp, asked: Asked) -> None:
        pings = (b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number for number in range(9))
        await asked.send("stream", *pings)
        await asked.gone.wait()

    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "ask", ask)
    server.tell("answer", "mute_post")
    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "mute_post", mute_post)
    async with client_of(server) as client:
        with pytest.raises(
            ConnectionClosed, match=r"does not accept our responses \(3 are waiting\)"
        ):
            await client.call_tool("ask")
    assert server.times("answer") <= 3


async def mute_post(server: EvilHttp, asked: Asked) -> None:
    await asked.link.gone.wait()


async def test_message_that_is_not_accepted_in_time_is_dropped(
    server: EvilHttp, monkeypatch: pytest.MonkeyPatch
):
    loop = asyncio.get_running_loop()
    arm, give_up = loop.call_later, []

    def note(delay: float, act: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        if delay == http_endpoint.REPLY_TIMEOUT:
            give_up.append(act)
        return arm(delay, act, *arguments)

    monkeypatch.setattr(loop, "call_later", note)
    monkeypatch.setitem(evil_http.MISBEHAVIOURS, "mute_post", mute_post)
    server.tell("notifications/cancelled", "mute_post")
    async with client_of(server) as client:
        calling = asyncio.create_task(client.call_tool("mute"))
        await server.heard("tools/call")
        calling.cancel()
        await server.heard("notifications/cancelled")
        for act in give_up:
            act()
        await server.asked[-1].link.gone.wait()
        assert (await client.call_tool("echo", {"text": "a"})).text == "a"


@each_row(
    ("told", "error", "why"),
    [
        ({"code": 404}, HttpError, "answered 404 Not Found"),
        (
            {"code": 200, "body": "<html>", "type": "text/html"},
            HttpError,
            "did not answer with an event stream",
        ),
        ({"code": 200, "type": "text/event-stream"}, StreamEnded, "ended the stream"),
    ],
    ids=["404", "html", "empty"],
)
async def test_open_fails_if_the_response_is_not_a_stream(
    server: EvilHttp, told: dict[str, object], error: type[InterlockError], why: str
):
    server.tell("GET", "status", **told)
    with pytest.raises(error, match=why) as raised:
        await client_of(server).open()
    assert SECRET not in str(raised.value)


@pytest.mark.slow("waits for a timeout")
async def test_lost_stream_fails_all_calls_and_is_reported_once(server: EvilHttp):
    losses: list[InterlockError] = []
    client = Client.http(server.url, transport="sse", on_loss=losses.append)
    async with client:
        calls = [asyncio.create_task(client.call_tool("mute")) for _ in range(3)]
        await server.heard("tools/call", 3)
        server.asked[0].link.cut()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [StreamEnded] * 3
        with pytest.raises(StreamEnded):
            await client.list_tools()
    assert [type(loss) for loss in losses] == [StreamEnded]


async def test_refused_message_fails_only_its_call(server: EvilHttp):
    async with client_of(server) as client:
        server.tell("tools/call", "status", times=1, code=500)
        with pytest.raises(HttpError, match=r"/messages answered 500"):
            await client.call_tool("echo")
        assert (await client.call_tool("echo", {"text": "b"})).text == "b"


async def test_close_ends_a_pending_open(server: EvilHttp, begin: Callable[[bytes], None]):
    """R-28: it does not wait for an address that does not come."""
    begin(b": wait\n\n")
    client = client_of(server)
    opening = asyncio.create_task(client.open())
    await server.heard("GET")
    await client.close()
    with pytest.raises(ConnectionClosed, match="was closed"):
        await opening


async def test_open_can_be_cancelled(server: EvilHttp, begin: Callable[[bytes], None]):
    begin(b": wait\n\n")
    opening = asyncio.create_task(client_of(server).open())
    await server.heard("GET")
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await server.asked[0].gone.wait()
