"""The application in others, and what is opened and closed with it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from interlock import Server
from tests.support.rows import each_row


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def living(events) -> Server:
    @asynccontextmanager
    async def lifespan(_server):
        events.append("opened")
        yield
        events.append("closed")

    server = Server("living", lifespan=lifespan)

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    return server


def fastapi(app):
    api = FastAPI()

    @api.get("/health")
    async def health() -> str:
        return "well"

    api.mount("/tools", app)
    return api


def starlette(app):
    async def health(_request):
        return PlainTextResponse("well")

    return Starlette(routes=[Route("/health", health), Mount("/tools", app)])


@each_row("host", [fastapi, starlette])
@each_row("options", [{}, {"path": "/"}, {"path": "/deep/er/"}])
async def test_app_is_mounted_under_any_prefix(make, host, options):
    http = make(**options)
    http.app, inner = host(http.app), http.app
    path = "/tools/" + options.get("path", "/mcp").strip("/")

    assert (await http.call("add", {"a": 1}, path=path)).text == "2"
    assert (await http.request("GET", "/health")).code == 200
    assert (await http.call("add", {"a": 1}, path="/tools/other")).code == 404
    http.app = inner


@pytest.mark.parametrize("host", [fastapi, starlette])
async def test_streams_and_disconnects_pass_through_a_host(make, gate, host):
    http = make()
    http.app, inner = host(http.app), http.app
    call = {"name": "tell_and_hold"}
    reply = http.begin("tools/call", call, meta={"progressToken": 1}, path="/tools/mcp")
    assert (await reply.message())["params"]["progress"] == 1
    reply.disconnect()
    await reply.finished()

    assert gate.cancelled.is_set()
    http.app = inner


async def test_the_root_path_of_a_proxy_is_respected(make):
    http = make(root="/api/v1")

    assert (await http.call("add", {"a": 1})).text == "2"


async def live(app):
    """Begin a lifespan; give a function that ends it."""
    incoming: asyncio.Queue = asyncio.Queue()
    outgoing: asyncio.Queue = asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan"}, incoming.get, outgoing.put))
    incoming.put_nowait({"type": "lifespan.startup"})

    async def end():
        incoming.put_nowait({"type": "lifespan.shutdown"})
        await task
        return await outgoing.get()

    return await outgoing.get(), end


async def test_application_runs_inside_the_lifespan_of_the_server(living, events):
    started, end = await live(living.asgi())
    assert started == {"type": "lifespan.startup.complete"}
    assert events == ["opened"]

    assert await end() == {"type": "lifespan.shutdown.complete"}
    assert events == ["opened", "closed"]


async def test_application_without_lifespan_events_opens_at_the_first_request(living, events, make):
    http = make()
    http.app = living.asgi()
    assert events == []
    calls = [http.begin("tools/call", {"name": "add", "arguments": {"a": 1}}) for _ in range(5)]
    assert [(await each.finished()).text for each in calls] == ["2"] * 5
    assert events == ["opened"]

    await http.app.close()
    assert events == ["opened", "closed"]
    assert (await http.call("add", {"a": 1})).text == "2"
    assert events == ["opened", "closed", "opened"]
    await http.app.close()


@pytest.mark.parametrize("host", [FastAPI, Starlette])
async def test_the_lifespan_of_a_host_opens_and_closes_the_server_once(
    living, events, make, host, caplog
):
    http, tools = make(), living.asgi()

    @asynccontextmanager
    async def own(app):
        async with tools.lifespan(app), tools.lifespan(app):  # as nested hosts do
            events.append("ready")
            yield

    for lifespan, begun in ((tools.lifespan, ["opened"]), (own, ["opened", "ready"])):
        http.app = host(lifespan=lifespan)
        http.app.mount("/tools", tools)
        _, end = await live(http.app)
        assert (await http.call("add", {"a": 1}, path="/tools/mcp")).text == "2"
        assert events == begun
        await end()
        assert events == [*begun, "closed"]
        events.clear()

    assert caplog.text == ""
    http.app = tools


async def test_a_lifespan_that_a_request_has_opened_is_reported_once(living, make, caplog):
    http = make()
    http.app = living.asgi()
    for _ in range(3):
        await http.call("add", {"a": 1})
    await http.app.close()
    await http.call("add", {"a": 1})

    assert caplog.text.count("FastAPI(lifespan=tools.lifespan)") == 1
    await http.app.close()


HOST = """
import asyncio
import uvicorn
from contextlib import asynccontextmanager
from fastapi import FastAPI
from interlock import Server

@asynccontextmanager
async def opened(server):
    print("opened", flush=True)
    yield
    print("closed", flush=True)

server = Server("s", lifespan=opened)
tools = server.asgi(health="/healthz")
app = FastAPI(lifespan=tools.lifespan)
app.mount("/tools", tools)

class Announced(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

Announced(uvicorn.Config(app, port=0, log_level="warning")).run()
"""


@pytest.mark.slow("starts a program")
async def test_sigterm_closes_the_server_in_a_host_once(tmp_path):
    (tmp_path / "host.py").write_text(HOST)
    program = await asyncio.create_subprocess_exec(
        sys.executable, tmp_path / "host.py", stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    assert await program.stdout.readline() == b"opened\n"
    port = int(await program.stdout.readline())
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{port}/tools/healthz") as response,
    ):
        assert response.status == 200
    program.terminate()

    assert await program.stdout.read() == b"closed\n"
    await program.wait()


async def test_requests_wait_until_everything_is_open(make):
    ready = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_server):
        await ready.wait()
        yield

    server = Server("slow", lifespan=lifespan)
    http = make()
    http.app = server.asgi()
    replies = [http.begin("server/discover") for _ in range(3)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(each.task.done() for each in replies)
    ready.set()

    assert [(await each.finished()).code for each in replies] == [200, 200, 200]
    await http.app.close()


async def test_request_cancelled_while_waiting_does_not_affect_others(make):
    opening, ready = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(_server):
        opening.set()
        await ready.wait()
        yield

    http = make()
    http.app = Server("slow", lifespan=lifespan).asgi()
    first, second = http.begin("server/discover"), http.begin("server/discover")
    await opening.wait()
    first.task.cancel()
    await asyncio.wait([first.task])
    ready.set()

    assert (await second.finished()).code == 200
    await http.app.close()


async def test_failed_lifespan_is_retried_with_the_next_request(make):
    tried = []

    @asynccontextmanager
    async def lifespan(_server):
        tried.append(1)
        if len(tried) == 1:
            raise RuntimeError("not yet")
        yield

    http = make()
    http.app = Server("late", lifespan=lifespan).asgi()
    with pytest.raises(RuntimeError, match="not yet"):
        await http.ask("server/discover")

    assert (await http.ask("server/discover")).code == 200
    http.replies.pop(0)  # has been looked at
    await http.app.close()


async def test_closing_ends_sessions_and_their_streams(make):
    http = make()
    client = await http.initialize()
    stream = client.listen()
    await stream.status()
    await http.app.close()

    assert (await stream.finished()).ended
    assert len(http.app.sessions) == 0
    assert http.app.sessions._timer is None


async def test_failed_lifespan_is_reported_without_its_text(caplog):
    @asynccontextmanager
    async def lifespan(_server):
        raise RuntimeError("hunter2")
        yield

    server = Server("failing", lifespan=lifespan)
    incoming: asyncio.Queue = asyncio.Queue()
    outgoing: asyncio.Queue = asyncio.Queue()
    incoming.put_nowait({"type": "lifespan.startup"})
    await server.asgi()({"type": "lifespan"}, incoming.get, outgoing.put)

    told = outgoing.get_nowait()
    assert told["type"] == "lifespan.startup.failed"
    assert "hunter2" not in told["message"]


async def test_websockets_are_closed(make):
    sent: asyncio.Queue = asyncio.Queue()

    async def receive():
        return {"type": "websocket.connect"}

    await make().app({"type": "websocket"}, receive, sent.put)
    assert sent.get_nowait()["type"] == "websocket.close"
