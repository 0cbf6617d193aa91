"""A server on a port, asked over real connections."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import re
import signal
import subprocess
import sys
import weakref
from contextlib import suppress
from typing import Any

import pytest

from interlock import Context, Server
from interlock.errors import ConfigError
from interlock.server.http import app, connections, serve
from interlock.server.http.request import HttpRequest
from interlock.server.http.serve import UvicornServer
from tests.server.http.on_a_port import (
    INITIALIZE,
    META,
    call,
    connect,
    initialize,
    legacy,
    served,
    written,
)
from tests.support.rows import each_row


async def test_thirty_two_calls_at_once_get_their_own_answers(server):
    async with served(server) as (running, client):

        async def ask(number):
            async with client.post(running.url, **call("add", {"a": number}, id=7)) as reply:
                return (await reply.json())["result"]["structuredContent"]

        for _ in range(3):
            answers = await asyncio.gather(*map(ask, range(32)))
            assert answers == [number + 1 for number in range(32)]


async def test_answers_to_requests_sent_together_come_in_order_and_honour_close(server):
    async with served(server) as (running, client):
        session = await initialize(running, client)
        requests = [
            written(call("add", {"a": 1}, id=1)),
            written(legacy("tools/call", {"name": "add", "arguments": {"a": 2}}, session, id=2)),
            written(call("add", {"a": 3}, id=3), "connection: close"),
        ]
        reader, writer = await connect(running)
        writer.write("".join(requests).encode())
        replies = (await reader.read()).decode().split("HTTP/1.1 200 OK\r\n")
        writer.close()

    heads, bodies = zip(*(each.split("\r\n\r\n") for each in replies if each), strict=True)
    assert [json.loads(body)["id"] for body in bodies] == [1, 2, 3]
    assert ["connection: close" in head for head in heads] == [False, False, True]
    for head, body in zip(heads, bodies, strict=True):
        assert f"content-length: {len(body)}\r\n" in f"{head}\r\n"
        assert "date: " in head


async def test_a_closed_connection_cancels_the_call_soon(server, gate):
    async with served(server) as (running, client):
        asking = asyncio.create_task(client.post(running.url, **call("hold")))
        await gate.entered.wait()
        asking.cancel()
        await gate.cancelled.wait()


async def test_a_closed_stream_cancels_the_call_soon(server, gate):
    async with served(server) as (running, client):
        reply = await client.post(running.url, **call("tell_and_hold"))
        assert b"progress" in await reply.content.readline()
        reply.close()
        await gate.cancelled.wait()


@pytest.mark.slow("works through much data")
async def test_a_client_that_stops_reading_is_cut_off(server):
    ended = asyncio.Event()
    told = 0

    @server.tool
    async def flood(context: Context) -> str:
        nonlocal told
        try:
            while True:
                told += 1
                context.progress(told, message="x" * 1000)
                await asyncio.sleep(0)
        finally:
            ended.set()

    async with served(server) as (running, _):
        _, writer = await connect(running)
        body = call("flood")["data"].encode()
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        lines = "".join(f"{name}: {value}\r\n" for name, value in call("flood")["headers"].items())
        writer.write(f"{head}{lines}\r\n".encode() + body)
        await ended.wait()
        assert told * 1000 < 20_000_000


async def test_an_idle_server_ends_without_waiting_for_its_next_tick(server, monkeypatch):
    monkeypatch.setattr(serve, "_TICK", 3_600.0)
    async with served(server) as (running, _):
        running.end()


async def test_a_stream_does_not_keep_the_server_from_ending(server):
    async with served(server) as (running, client):
        filter = {"notifications": {"toolsListChanged": True}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": filter}
        headers = call("x")["headers"] | {"mcp-method": "subscriptions/listen"}
        reply = await client.post(running.url, data=json.dumps(message), headers=headers)
        await reply.content.readline()
        running.should_exit = True

        rest = await reply.content.read()
        assert b"notifications/cancelled" in rest
        assert b'"resultType":"complete"' in rest


async def test_a_legacy_call_is_answered_while_the_server_ends(server, gate):
    async with served(server) as (running, client):
        idle, busy = await initialize(running, client), await initialize(running, client)
        headers = {"mcp-protocol-version": "2025-11-25", "accept": "text/event-stream"}
        listening = [
            await client.get(running.url, headers=headers | {"mcp-session-id": each})
            for each in (idle, busy)
        ]
        calling = asyncio.create_task(
            client.post(running.url, **legacy("tools/call", {"name": "hold"}, busy))
        )
        await gate.entered.wait()
        running.should_exit = True
        for each in listening:
            await each.read()
        assert not gate.cancelled.is_set()
        gate.opened.set()

        answer = await (await calling).json()
        assert answer["result"]["content"][0]["text"] == "done"


@pytest.mark.slow("waits for a timeout")
async def test_a_call_of_the_oldest_revision_is_answered_while_the_server_ends(server, gate):
    async with served(server, sse=True) as (running, client):
        base = running.url.removesuffix("/mcp")
        stream = await client.get(f"{base}/sse", headers={"accept": "text/event-stream"})
        await stream.content.readline()
        url = base + (await stream.content.readline()).decode().removeprefix("data: ").strip()
        await client.post(url, **legacy("initialize", INITIALIZE, id=0))
        await client.post(url, **legacy("tools/call", {"name": "hold"}))
        await gate.entered.wait()
        running.should_exit = True
        asyncio.get_running_loop().call_later(0.2, gate.opened.set)

        assert b'"text":"done"' in await stream.content.read()


async def test_a_call_that_outlasts_the_drain_is_cancelled(server, gate, monkeypatch):
    monkeypatch.setattr(serve, "DRAIN", 0.0)
    async with served(server) as (running, client):
        asking = asyncio.create_task(client.post(running.url, **call("hold")))
        await gate.entered.wait()
        running.should_exit = True
        await gate.cancelled.wait()
        await asyncio.gather(asking, return_exceptions=True)


async def test_an_idle_connection_is_closed(server, monkeypatch):
    monkeypatch.setattr(serve, "IDLE_CONNECTION", 0.0)
    async with served(server) as (running, _):
        reader, writer = await connect(running)
        writer.write(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = await reader.read()  # to the end

        assert answer.startswith(b"HTTP/1.1 405")
        writer.close()


async def test_responses_have_no_server_header(server):
    async with (
        served(server) as (running, client),
        client.post(running.url, **call("add", {"a": 1})) as reply,
    ):
        assert reply.status == 200
        assert "server" not in reply.headers


async def read_refusal(reader) -> None:
    """Read the whole answer to a GET."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405")
    await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))


async def test_connections_that_do_not_send_their_headers_are_ended(server, monkeypatch):
    now = 1000.0
    for module in (serve, connections):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    get = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with served(server) as (running, client):
        silent = [await connect(running) for _ in range(3)]
        silent[1][1].write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow")
        async with client.post(running.url, **call("add", {"a": 1})) as reply:
            assert reply.status == 200
        silent[2][1].write(get)
        await read_refusal(silent[2][0])
        running._end_late_connections(now)
        now += serve.HEADER_DEADLINE + 0.1
        running._end_late_connections(now)

        for reader, _ in silent[:2]:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        silent[2][1].write(get)
        await read_refusal(silent[2][0])
        async with client.post(running.url, **call("add", {"a": 1})) as reply:
            assert reply.status == 200
        assert server.dropped == {"connection without headers": 2, "HTTP 405": 2}


@pytest.mark.parametrize("what", ["one header", "many headers", "the path"])
async def test_headers_without_end_are_refused(server, what, monkeypatch):
    monkeypatch.setattr(connections, "MAX_HEAD", 100_000)
    piece = {"one header": b"x", "many headers": b"a: b\r\n", "the path": b"/x"}[what] * 1000
    begin = b"GET /" if what == "the path" else b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nA: "
    async with served(server) as (running, client):
        reader, writer = await connect(running)
        writer.write(begin + (b"b\r\n" if what == "many headers" else b""))
        sent = 0
        with suppress(ConnectionError):
            while sent < 5_000_000 and not reader.at_eof():
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
                sent += len(piece)
        assert sent < 2_000_000
        assert server.dropped["HTTP 431"] == 1 or what == "the path"  # by the parser
        with suppress(ConnectionError):  # the refusal is lost when more comes than is read
            assert b"431" in await reader.read()
        async with client.post(running.url, **call("add", {"a": 1})) as reply:
            assert reply.status == 200


@pytest.mark.parametrize("what", ["one trailer", "many trailers", "the size of a chunk"])
async def test_framing_and_trailers_of_a_chunked_body_are_limited(server, what):
    piece = b"a: b\r\n" * 1000 if what == "many trailers" else b"x" * 6000
    begin = b"1;" if what == "the size of a chunk" else b"2\r\n{}\r\n0\r\na: "
    head = [f"{name}: {value}" for name, value in call("add")["headers"].items()]
    lines = ["POST /mcp HTTP/1.1", "host: 127.0.0.1", *head, "transfer-encoding: chunked", "", ""]
    async with served(server) as (running, _):
        reader, writer = await connect(running)
        writer.write("\r\n".join(lines).encode() + begin)
        sent = 0
        with suppress(ConnectionError):
            while sent < 5_000_000 and not reader.at_eof():
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
                sent += len(piece)

    assert sent < 2_000_000
    assert server.dropped == {"HTTP 431": 1}


async def test_trailers_are_not_added_to_the_headers(server, monkeypatch):
    request = call("add", {"a": 1})
    head = [f"{name}: {value}" for name, value in request["headers"].items()]
    lines = ["POST /mcp HTTP/1.1", "host: 127.0.0.1", *head, "transfer-encoding: chunked", "", ""]
    scopes = []
    noted = lambda scope, *rest: scopes.append(scope) or HttpRequest(scope, *rest)  # noqa: E731
    monkeypatch.setattr(app, "HttpRequest", noted)
    async with served(server) as (running, _):
        reader, writer = await connect(running)
        chunk = f"{len(request['data']):x}\r\n{request['data']}\r\n0\r\n"
        writer.write(("\r\n".join(lines) + chunk).encode())
        writer.write(b"authorization: Bearer x\r\n\r\n")
        assert b"200" in await reader.readline()

    assert b"authorization" not in dict(scopes[0]["headers"])


async def system_takes_no_more(running: UvicornServer) -> None:
    """Wait until the buffers between the server and clients that do not read are full."""
    before = None
    while before != (waiting := [*map(waiting_of, running.server_state.connections)]):
        before = waiting
        for _ in range(100):
            await asyncio.sleep(0)


def waiting_of(connection: Any) -> int:
    return connection.transport.get_write_buffer_size()


@pytest.mark.slow("works through much data")
async def test_a_connection_that_reads_nothing_does_not_keep_its_answer(server, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(serve, "monotonic", lambda: now)  # the server itself looks every 5 s

    @server.tool
    def big() -> str:
        return "x" * 20_000_000

    async with served(server) as (running, _):
        slow = [await connect(running, receives=65_536) for _ in range(2)]
        for reader, writer in slow:
            writer.write(written(call("big")).encode())
            assert b"200" in await reader.readline()
        await system_takes_no_more(running)
        running._end_unread_connections(now)
        now += serve.READ_DEADLINE
        await slow[1][0].readexactly(15_000_000)  # more than the system keeps for a connection
        running._end_unread_connections(now)
        now += 0.1
        running._end_unread_connections(now)

        assert server.dropped == {"connection that is not read": 1}
        assert (await slow[1][0].read(1)) == b"x"


async def test_successive_requests_with_long_headers_and_bodies_are_accepted(server):
    async with served(server) as (running, client):
        for _ in range(5):
            request = call("add", {"a": 1})
            request["headers"] |= {"x-long": "x" * 8000, "x-longer": "y" * 8000}
            request["data"] += " " * 500_000
            async with client.post(running.url, **request) as reply:
                assert reply.status == 200


async def test_ended_connections_do_not_count_towards_the_limit_of_their_address(
    server, monkeypatch
):
    monkeypatch.setattr(serve, "MAX_PER_ADDRESS", 1)
    async with served(server) as (running, _):
        for _ in range(3):
            reader, writer = await connect(running)
            writer.write(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert b"405" in await reader.read()
            writer.close()


async def test_connection_that_has_ended_is_freed_without_the_garbage_collector(server):
    async with served(server) as (running, client):
        async with client.post(running.url, **call("add", {"a": 1, "b": 2})) as reply:
            assert reply.status == 200
        connections = running.server_state.connections
        (connection,) = map(weakref.ref, connections)
        gc.disable()
        try:
            await client.close()
            while connections:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
            assert connection() is None
        finally:
            gc.enable()


async def test_connections_from_one_address_are_limited(server, monkeypatch):
    monkeypatch.setattr(serve, "MAX_PER_ADDRESS", 2)
    async with served(server) as (running, _):
        opened = [await connect(running) for _ in range(3)]
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await opened[2][0].readexactly(1)

        opened[0][1].write(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"405" in await opened[0][0].readline()
        assert server.dropped == {"too many connections of an address": 1, "HTTP 405": 1}


@each_row(("count", "status"), [(55, b"405"), (70, b"431"), (180, b"431")])
async def test_the_sum_of_small_headers_is_limited(server, count, status):
    async with served(server) as (running, _):
        reader, writer = await connect(running)
        headers = b"".join(b"X-%03d: %b\r\n" % (number, b"x" * 1015) for number in range(count))
        writer.write(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + b"\r\n")
        assert status in await reader.readline()


@each_row(
    ("target", "status"),
    [
        ("/mcp", b"405"),
        ("/mcp/", b"405"),
        ("//mcp", b"404"),
        ("///mcp", b"404"),
        ("/mcp//", b"404"),
        ("/%6dcp", b"404"),
        ("/x/../mcp", b"404"),
        ("http://127.0.0.1/mcp", b"405"),
        ("http://other/mcp", b"403"),
        ("HTTP://user@other:80/mcp", b"403"),
        ("*", b"404"),
    ],
)
async def test_only_the_raw_path_of_the_endpoint_reaches_it(server, target, status):
    """R-18."""
    async with served(server) as (running, _):
        reader, writer = await connect(running)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert status in await reader.readline()


async def test_an_ordinary_client_that_still_sends_reads_that_its_body_is_too_large(server):
    def post(port):
        client = http.client.HTTPConnection("127.0.0.1", port)
        client.request("POST", "/mcp", b" " * 20_000_000, {"content-type": "application/json"})
        with client.getresponse() as response:
            return response.status, json.loads(response.read())["error"]["message"]

    async with served(server) as (running, _):
        port = running.servers[0].sockets[0].getsockname()[1]
        status, text = await asyncio.to_thread(post, port)

    assert (status, text) == (413, "body too large (limit 4194304 bytes)")


@pytest.mark.parametrize("header", ["Transfer-Encoding: chunked", "Content-Length: 2000000"])
async def test_large_bodies_are_refused_on_the_wire(server, header):
    async with served(server, max_body_bytes=100_000) as (running, _):
        reader, writer = await connect(running)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{header}"
        )
        writer.write(f"{head}\r\n\r\n".encode())
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        if "chunked" in header:
            writer.write(chunk * 2)
        assert b"413" in await reader.readline()


@each_row("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
def test_public_address_without_authentication_is_refused(host):
    with pytest.raises(ConfigError, match="unprotected=True"):
        serve.check_exposure(host, protected=False)
    serve.check_exposure(host, protected=True)


@each_row(
    ("host", "name"),
    [("127.0.0.1:21400", "127.0.0.1"), ("[::1]:21400", "::1"), (":21400", "127.0.0.1")],
)
def test_host_with_a_port_is_refused_with_the_remedy(host, name):
    remedy = f"host {host!r} contains a port; use host={name!r}, port=21400"
    with pytest.raises(ConfigError, match=f"^{re.escape(remedy)}$"):
        Server("x").run_http(host)


@each_row("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_address_needs_no_authentication(host):
    serve.check_exposure(host, protected=False)


@pytest.mark.slow("starts a program")
def test_program_on_a_public_address_without_authentication_does_not_start():
    program = "from interlock import Server; Server('x').run_http('0.0.0.0', 0)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ended.returncode == 1
    assert "unprotected=True" in ended.stderr


@pytest.mark.slow("starts a program")
@each_row("by", [signal.SIGINT, signal.SIGTERM])
def test_program_prints_its_url_and_ends_on_a_signal(by):
    program = "from interlock import Server; Server('x').run_http(port=0)"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()
    assert line.startswith("serving at http://127.0.0.1:")
    process.send_signal(by)

    _, rest = process.communicate()
    assert rest == ""


@pytest.mark.slow("starts a program")
def test_missing_uvicorn_is_an_error_that_names_the_extra():
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from interlock import Server; Server('x').run_http(port=0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "serving HTTP needs the extra serve: " in ended.stderr
