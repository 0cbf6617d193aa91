"""Faults of clients and of tools, and what a server promises for them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from unittest import mock

import jwt as pyjwt
from cryptography.hazmat.primitives.asymmetric import ec

from interlock import Client, Context, Server
from interlock.auth.jwt import JwtVerifier
from interlock.errors import ConnectionClosed, RemoteError
from interlock.server import watchdog
from interlock.server.http import serve
from interlock.server.server_connection import ServerConnection
from interlock.server.workers import THREADS
from interlock.transports.pipes import PipeTransport
from tests.faults.ground import SERVERS, Ground, all_of, until
from tests.faults.matrix import JSON, MEMORY, OLDEST, SESSION, SSE, STDIO, row
from tests.faults.rows_processes import no_descriptors_left, processes_of
from tests.servers import evil_client
from tests.servers.evil_client import BAD_MESSAGES, RESPONSE, EvilClient, Wire

ITSELF = (STDIO, MEMORY, JSON, SSE, SESSION, OLDEST)  # a client of ours reaches a server of ours


class Stage:
    """A server, and the state of its tools.

    Attributes:
        entered: Set when `hold` or `flood` runs.
        ended: Set when they have ended.
        told: How many notifications `flood` has sent.
    """

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.ended = asyncio.Event()
        self.opened = asyncio.Event()
        self.told = 0
        self.server = server = Server("stage")
        server.tool(self.hold)
        server.tool(self.flood)
        server.tool(echo)
        server.tool(block)
        server.tool(spin)
        server.tool(leave)

    async def hold(self, context: Context, tells: bool = False) -> str:
        """Wait until `opened` is set."""
        if tells:
            context.progress(1)
        self.entered.set()
        try:
            await self.opened.wait()
        finally:
            self.ended.set()
        return "held"

    async def flood(self, context: Context) -> str:
        """Send progress without end."""
        self.entered.set()
        try:
            while True:
                self.told += 1
                context.progress(self.told, message="x" * 1000)
                await asyncio.sleep(0)
        finally:
            self.ended.set()

    # Over HTTP

    @asynccontextmanager
    async def on_a_port(self, **options: Any) -> AsyncIterator[EvilClient]:
        """Serve over HTTP; yield a raw client of it."""
        running = serve.UvicornServer(self.server.asgi(**options), "127.0.0.1", 0)
        task = asyncio.create_task(running.serve())
        await until(lambda: running.started or task.done())
        client = EvilClient(running.url)
        try:
            yield client
        finally:
            client.close()
            running.should_exit = True
            await task

    @asynccontextmanager
    async def reached(self, transport: str, **options: Any) -> AsyncIterator[Client]:
        """Serve, and yield a connected `Client`."""
        if transport == MEMORY:
            async with Client.memory(self.server) as client:
                yield client
            return
        if transport == STDIO:
            async with Piped(self.server) as piped, Client.memory(piped) as client:
                yield client
            return
        ways: dict[str, dict[str, Any]] = {
            JSON: {},
            SSE: {"json_silence": 0.0},
            SESSION: {},
            OLDEST: {"sse": True},
        }
        async with self.on_a_port(**ways[transport], **options) as raw:
            path = "/sse" if transport == OLDEST else "/mcp"
            url = f"http://127.0.0.1:{raw.port}{path}"
            revision = "2025-11-25" if transport == SESSION else "auto"
            async with Client.http(url, revision=revision) as client:
                yield client

    @asynccontextmanager
    async def on_pipes(self) -> AsyncIterator[Pipes]:
        """Serve on a pair of pipes, as on stdin and stdout; yield the client's ends."""
        to_server, from_server = os.pipe(), os.pipe()
        fcntl.fcntl(to_server[1], fcntl.F_SETPIPE_SZ, 2**20)  # for what a test sends at once
        peer = ServerConnection(self.server, PipeTransport(to_server[0], from_server[1]))
        serving = asyncio.create_task(peer.serve())
        pipes = Pipes(to_server[1], from_server[0], serving)
        try:
            yield pipes
        finally:
            pipes.hang_up()
            await serving
            os.close(to_server[0])
            os.close(from_server[1])


class Piped:
    """A server that a client of the same program reaches through pipes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def connect(self) -> PipeTransport:
        """Return the client's end of a connection."""
        (source, to_server), (from_server, target) = os.pipe(), os.pipe()
        serving = asyncio.create_task(
            ServerConnection(self._server, PipeTransport(source, target)).serve()
        )
        self._stack.push_async_callback(asyncio.wait, {serving})
        for each in (to_server, from_server):
            self._stack.callback(os.close, each)
        for each in (source, target):
            serving.add_done_callback(lambda _, each=each: os.close(each))
        return PipeTransport(from_server, to_server)


class Pipes:
    """The client's ends of a pair of pipes. `serving` is done when the server has ended."""

    def __init__(self, target: int, source: int, serving: asyncio.Task[None]) -> None:
        self.serving = serving
        self._target: int | None = target
        self._source = source
        self._read = b""
        os.set_blocking(source, False)

    def send(self, data: bytes) -> None:
        assert self._target is not None
        os.write(self._target, data)

    def call(self, tool: str, id: int = 1, **arguments: Any) -> None:
        """Call a tool."""
        client = EvilClient("http://none:1/")
        params = {"name": tool, "arguments": arguments}
        self.send(client.message("tools/call", params, id=id) + b"\n")

    async def receive(self) -> Any:
        """Read one message."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._source, ready.set)
        try:
            while b"\n" not in self._read:
                await ready.wait()
                ready.clear()
                with suppress(BlockingIOError):
                    self._read += os.read(self._source, 65536)
        finally:
            loop.remove_reader(self._source)
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    def hang_up(self) -> None:
        """Close both pipes."""
        if self._target is not None:
            os.close(self._target)
            os.close(self._source)
            self._target = None


async def echo(text: str) -> str:
    """Return the text."""
    return text


def block(seconds: float) -> str:
    """Block a thread."""
    time.sleep(seconds)
    return "done"


def spin(seconds: float) -> str:
    """Keep the processor busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    return "done"


def leave(how: str) -> str:
    """Try to end the program, which a tool must not do."""
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "deep":
        return leave("deep")
    raise MemoryError


def fine(answer: tuple[int, bytes]) -> bool:
    """Whether this is the right answer to a call of `echo`."""
    return answer[0] == 200 and json.loads(answer[1])["result"]["content"][0]["text"] == "hi"


# Clients that go away


@row("Client disconnects mid-call", "the handler is cancelled", JSON, SSE, within=1.0)
async def hangs_up(ground: Ground) -> None:
    for reset in (False, True):
        stage = Stage()
        async with stage.on_a_port() as client:
            wire = await client.connect()
            await wire.send(client.call("hold", tells=ground.transport == SSE))
            await stage.entered.wait()
            if ground.transport == SSE:
                assert b"progress" in await wire.receive()
            with ground.promise(outcome="cancelled"):
                wire.close(reset=reset)
                await stage.ended.wait()


@row("Client disconnects mid-call: its pipes", "the handler is cancelled", STDIO, within=1.0)
async def closes_its_pipes(ground: Ground) -> None:
    stage = Stage()
    async with stage.on_pipes() as pipes:
        pipes.call("hold")
        await stage.entered.wait()
        with ground.promise(outcome="cancelled"):
            pipes.hang_up()
            await stage.ended.wait()


@row(
    "Client disconnects mid-call: our own client, which closes",
    "the handler is cancelled",
    *(MEMORY, SESSION, OLDEST),  # of the others, above
    within=1.0,
)
async def closes_its_client(ground: Ground) -> None:
    stage = Stage()
    async with stage.reached(ground.transport) as client:
        held = asyncio.create_task(client.call_tool("hold"))
        await stage.entered.wait()
        with ground.promise(outcome="cancelled"):
            await client.close()
            await stage.ended.wait()
        await all_of(held)


@row(
    "Client disconnects mid-call: our own client, which cancels the call",
    "the handler is cancelled; the next call is answered",
    *ITSELF,
    within=1.0,
)
async def cancels_its_call(ground: Ground) -> None:
    stage = Stage()
    async with stage.reached(ground.transport) as client:
        held = asyncio.create_task(client.call_tool("hold"))
        await stage.entered.wait()
        with ground.promise(outcome="cancelled"):
            held.cancel()
            await stage.ended.wait()
        await all_of(held)
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"


# Clients that do not go on


@row(
    "Client never reads / half-sends: headers",
    "the connection is closed after 10 s; others are served",
    JSON,
    within=12.5,
)
async def sends_half_a_request(ground: Ground) -> None:
    stage = Stage()
    async with stage.on_a_port() as client:
        half = [
            await misbehave(client)
            for misbehave in (evil_client.half_headers, evil_client.silence)
            for _ in range(50)
        ]
        assert fine(await client.ask(client.call("echo", text="hi")))
        with ground.flying_time(grace=0.001), ground.promise(outcome="closed"):
            await asyncio.gather(*(wire.closed() for wire in half))
        assert fine(await client.ask(client.call("echo", text="hi")))


@row("Client never reads / half-sends: a body", "408 after 30 s", JSON, within=31.0)
async def sends_half_a_body(ground: Ground) -> None:
    stage = Stage()
    async with stage.on_a_port() as client:
        wire = await evil_client.half_body(client)
        with ground.flying_time(grace=0.001), ground.promise(outcome="408"):
            assert (await wire.answer())[0] == 408
        assert not stage.entered.is_set()


@row(
    "Client never reads / half-sends: a body that is too long",
    "413 before it is read",
    JSON,
    within=1.0,
)
async def sends_too_much(ground: Ground) -> None:
    async with Stage().on_a_port() as client:
        with ground.promise(outcome="413"):
            assert (await (await evil_client.huge_body(client)).answer())[0] == 413


@row(
    "Client never reads / half-sends: a stream that it does not read",
    "closed when 1 MiB waits; the handler is cancelled",
    SSE,
    within=5.0,
)
async def does_not_read_a_stream(ground: Ground) -> None:
    stage = Stage()
    async with stage.on_a_port() as client:
        with ground.promise(outcome="closed and cancelled"):
            wire = await evil_client.never_read(client)
            await stage.ended.wait()
        assert stage.told * 1000 < 20_000_000
        await wire.closed()


@row(
    "Client never reads / half-sends: a pipe that it does not read",
    "the connection is given up when too much waits (256 MiB; here 4)",
    STDIO,
    within=5.0,
)
async def does_not_read_a_pipe(ground: Ground) -> None:
    stage = Stage()
    with mock.patch("interlock.transports.pipes.MAX_UNSENT_BYTES", 2**22):
        async with stage.on_pipes() as pipes:
            with ground.promise(outcome="given up, and cancelled"):
                pipes.call("flood")
                await stage.ended.wait()
                await asyncio.wait({pipes.serving})


@row(
    "Client never reads / half-sends: a script of 300 misbehaviours",
    "a good client is answered all the time",
    JSON,
    within=1.0,
)
async def misbehaves_at_random(ground: Ground) -> None:
    stage = Stage()
    async with stage.on_a_port() as client:
        playing = asyncio.create_task(evil_client.play(client, seed=20, times=300))
        while not playing.done():
            with ground.promise(outcome="answered"):
                assert fine(await client.ask(client.call("echo", text="hi")))
        assert len(playing.result()) == len(evil_client.MISBEHAVIOURS)


# Clients that talk nonsense


@row(
    "Garbage / invalid UTF-8 line: from a client",
    "an error for each message; the next request is answered",
    *(STDIO, JSON),
    within=1.0,
)
async def talks_nonsense(ground: Ground) -> None:
    stage = Stage()
    if ground.transport == JSON:
        async with stage.on_a_port() as client:
            with ground.promise(outcome="400 for each, then answered"):
                for body in BAD_MESSAGES:
                    assert (await client.ask(client.post(body)))[0] == 400, body
                assert fine(await client.ask(client.call("echo", text="hi")))
            wire = await evil_client.garbage(client)
            assert (await wire.answer())[0] == 400
        return
    async with stage.on_pipes() as pipes:
        requests = [each for each in BAD_MESSAGES if each and each != RESPONSE]
        with ground.promise(outcome="an error for each, then answered"):
            pipes.send(b"\n".join([*BAD_MESSAGES, b""]))
            errors = [await pipes.receive() for _ in requests]
            pipes.call("echo", text="hi")
            assert (await pipes.receive())["result"]["content"][0]["text"] == "hi"
        assert {error["error"]["code"] for error in errors} <= {-32700, -32600}


@row(
    "Unknown id / wrong id type: an id that is in use",
    "the second request is refused, the first one is answered",
    STDIO,
    within=1.0,
)
async def uses_an_id_twice(ground: Ground) -> None:
    stage = Stage()
    async with stage.on_pipes() as pipes:
        with ground.promise(outcome="one answer for the id"):
            pipes.call("hold", id=7)
            await stage.entered.wait()
            pipes.call("echo", id=7, text="hi")
            refusal = await pipes.receive()
            assert "is still running" in refusal["error"]["message"]
            assert "id" not in refusal
            stage.opened.set()
            answer = await pipes.receive()
            assert (answer["id"], answer["result"]["content"][0]["text"]) == (7, "held")


@row(
    "10k idle legacy sessions",
    "503 at the cap; those that are used go on; idle ones end after 30 minutes",
    SESSION,
    within=1.0,
)
async def opens_sessions_for_ever(ground: Ground) -> None:
    stage = Stage()
    asgi = stage.server.asgi()
    ground.stack.push_async_callback(asgi.close)
    sessions = [await initialize(asgi) for _ in range(10_000)]
    assert {status for status, _ in sessions} == {200}
    with ground.promise(outcome="503"):
        assert (await initialize(asgi))[0] == 503
    with ground.promise(outcome="those in use are answered"):
        assert (await request(asgi, b'{"jsonrpc":"2.0","id":1,"method":"ping"}', sessions[-1][1]))[
            0
        ] == 200
    with ground.flying_time():
        await asyncio.sleep(1801)
    with ground.promise(outcome="room again"):
        assert (await initialize(asgi))[0] == 200


async def initialize(asgi: Any) -> tuple[int, str]:
    """Begin a session; return the status and the session's id."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return await request(asgi, json.dumps(message).encode())


async def request(asgi: Any, body: bytes, session: str = "") -> tuple[int, str]:
    """Send one request to an application; return the status and the session's id."""
    started: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        started.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    headers += [(b"accept", b"application/json, text/event-stream")]
    headers += [(b"mcp-session-id", session.encode())] if session else []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "root_path": "",
        "headers": headers,
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 5),
        "query_string": b"",
        "raw_path": b"/mcp",
        "scheme": "http",
        "http_version": "1.1",
    }
    await asgi(scope, receive, send)
    answered = dict(started[0]["headers"])
    return started[0]["status"], answered.get(b"mcp-session-id", b"").decode()


# Tools of ours


@row(
    "Sync or CPU-bound tool",
    "others are answered (98 of 100)",
    *ITSELF,
    within=0.05,
)
async def has_blocking_tools(ground: Ground) -> None:
    await call_beside(ground, "block")


@row(
    "Sync or CPU-bound tool: four that use the processor",
    "others are answered (98 of 100), not sooner than the interpreter lets them",
    *ITSELF,
    within=0.5,
)
async def has_busy_tools(ground: Ground) -> None:
    await call_beside(ground, "spin")


async def call_beside(ground: Ground, tool: str) -> None:
    """Measure calls of `echo` while four calls of a plain function run."""
    stage = Stage()
    async with stage.reached(ground.transport) as client:
        slow = [asyncio.create_task(client.call_tool(tool, {"seconds": 0.4})) for _ in range(4)]
        times = []
        while len(times) < 100 and not all(each.done() for each in slow):
            began = time.monotonic()
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
            times.append(time.monotonic() - began)
        await asyncio.gather(*slow)
    ground.keep(sorted(times)[int(len(times) * 0.98)], "answered")


@row(
    "Sync or CPU-bound tool: one that ends the program",
    "an error for its own call; the server goes on",
    *ITSELF,
    within=1.0,
)
async def has_tools_that_leave(ground: Ground) -> None:
    stage = Stage()
    async with stage.reached(ground.transport) as client:
        for how in ("exit", "interrupt", "deep", "memory"):
            with ground.promise(outcome="an error with a reference to the log"):
                result = await client.call_tool("leave", {"how": how})
                assert result.is_error
                assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"


@row("Stdout pollution by our own tool", "the client sees nothing of it", STDIO, within=1.0)
async def has_tools_that_print(ground: Ground) -> None:
    client = Client.stdio(sys.executable, str(SERVERS / "noisy.py"))
    async with client:
        with ground.promise(outcome="answered, and nothing dropped"):
            assert (await client.call_tool("shout")).text == "''b''"
        assert client.dropped == {}


@row(
    "Event loop blocked > 1 s",
    "the log names the tool and shows where it stands",
    *ITSELF,
    within=1.5,
)
async def blocks_the_loop(ground: Ground) -> None:
    stage = Stage()

    @stage.server.tool
    async def think() -> str:
        while not any("tool think" in record.getMessage() for record in told.records):
            time.sleep(0.01)  # noqa: ASYNC251 - this is the fault
        return "thought"

    with logged() as told, mock.patch.object(watchdog, "INTERVAL", 0.05):
        async with stage.reached(ground.transport) as client:
            with ground.promise(outcome="told"):
                await client.call_tool("think")
    (record,) = (each for each in told.records if "tool think" in each.getMessage())
    assert "tool think has blocked the event loop" in record.getMessage()
    assert "time.sleep" in str(record.stack_info)


class Told(logging.Handler):
    """Collects warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:  # in words, which keep nothing alive
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        self.records.append(record)


@contextmanager
def logged() -> Iterator[Told]:
    """Collect the warnings of servers."""
    told = Told()
    logging.getLogger("interlock.server").addHandler(told)
    try:
        yield told
    finally:
        logging.getLogger("interlock.server").removeHandler(told)


@row(
    "Server exits mid-call: a server in this program that cannot start",
    "ConnectionClosed; the log says why",
    MEMORY,
    within=0.1,
)
async def cannot_start(ground: Ground) -> None:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        raise ValueError("no such database")
        yield

    with logged() as told:
        client = Client.memory(Server("stage", lifespan=lifespan))
        with ground.promise(ConnectionClosed, "the other end"):
            await client.open()
    assert "no such database" in str(told.records[0].exc_text)


# The machine


@row(
    "fd / memory / pid limit reached: a server",
    "open connections are served; new ones wait, and are served when there is room",
    JSON,
    within=2.5,
)
async def has_no_descriptors(ground: Ground) -> None:
    ground.expected_reports.add("socket.accept() out of system resource")
    async with Stage().on_a_port() as client:
        old, new = await client.connect(), await client.connect()
        await old.send(client.call("echo", text="hi"))
        assert fine(await old.answer())
        raw = socket.socket()
        raw.setblocking(False)
        late = Wire(raw)
        with no_descriptors_left():
            await asyncio.get_running_loop().sock_connect(raw, (client.host, client.port))
            await late.send(client.call("echo", text="hi"))
            await asyncio.sleep(0.01)
            with ground.promise(outcome="open ones are served"):
                await new.send(client.call("echo", text="hi"))
                assert fine(await new.answer())
        with ground.flying_time(), ground.promise(outcome="a new one a second later"):
            assert fine(await late.answer())
        late.close()
        with ground.flying_time():
            await asyncio.sleep(2)  # asyncio tries more than once, and must not after the end


@row(
    "fd / memory / pid limit reached: a server that gets no thread",
    "plain functions are busy and do not run later; all else is served",
    *ITSELF,
    within=1.0,
)
async def has_no_threads(ground: Ground) -> None:
    ran: list[str] = []

    def plain(text: str) -> None:
        ran.append(text)

    stage = Stage()
    stage.server.tool(plain)
    no_more = mock.patch("threading.Thread.start", side_effect=RuntimeError)
    with logged():
        with no_more:
            client = await ground.stack.enter_async_context(stage.reached(ground.transport))
            for number in range(THREADS + 1):  # more often than there may be threads
                with ground.promise(outcome="busy"):
                    result = await client.call_tool("plain", {"text": str(number)})
                    assert "busy" in result.text
                    assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
        with ground.promise(outcome="busy, then served"):
            assert not (await client.call_tool("plain", {"text": "later"})).is_error
    assert ran == ["later"]


@row(
    "Clock jump ±1 h / suspend",
    "no early timeout; sessions and calls go on",
    *ITSELF,
    within=1.0,
)
async def has_its_clock_set(ground: Ground) -> None:
    stage = Stage()
    async with stage.reached(ground.transport) as client:
        held = asyncio.create_task(client.call_tool("hold"))
        await stage.entered.wait()
        for seconds in (3600, -3600):
            now = time.time() + seconds
            with mock.patch("time.time", return_value=now), ground.promise(outcome="answered"):
                assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
        stage.opened.set()
        with ground.promise(outcome="answered"):
            assert (await held).text == "held"


@row(
    "Clock jump ±1 h / suspend: a server that stands still",
    "answered when it goes on",
    STDIO,
    within=1.0,
)
async def stands_still(ground: Ground) -> None:
    client = await ground.open()
    (id,) = await processes_of(client)
    os.kill(id, signal.SIGSTOP)
    calling = asyncio.create_task(client.call_tool("echo", {"text": "hi"}))
    await asyncio.sleep(0.2)
    assert not calling.done()
    with ground.promise(outcome="answered"):
        os.kill(id, signal.SIGCONT)
        assert (await calling).text == "hi"


@row(
    "Clock jump ±1 h / suspend: tokens",
    "good for 60 s more, and no longer",
    "JWT",
    within=1.0,
)
async def judges_tokens_with_leeway(ground: Ground) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = pyjwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    issuer, audience = "https://issuer.example", "https://api.example/mcp"
    verify = JwtVerifier(issuer=issuer, audience=audience, jwks={"keys": [public]})
    now = time.time()
    for expired, is_good in ((0, True), (50, True), (70, False)):
        claims = {"iss": issuer, "aud": audience, "sub": "ada", "exp": now - expired}
        token = pyjwt.encode(claims, key, "ES256", headers={"typ": "at+jwt"})
        with ground.promise(outcome="judged so"):
            assert (await verify(token) is not None) == is_good


# The end


@row(
    "SIGTERM",
    "what runs is answered within 30 s; nothing new is taken; then it ends",
    JSON,
    within=2.0,
)
async def is_asked_to_end(ground: Ground) -> None:
    notes = ground.folder / "notes"
    with serving_program(notes) as (server, client):
        wire = await client.connect()
        await wire.send(client.call("nap", seconds=0.5))
        await until(lambda: "waiting" in notes.read_text())
        with ground.promise(outcome="answered, then ended"):
            server.terminate()
            await refused(client)
            status, body = await wire.answer()
            assert status == 200
            assert b"rested" in body
            await wire.closed()
            await asyncio.to_thread(server.wait)
        assert notes.read_text().split() == ["entered", "waiting", "left"]


@row(
    "SIGTERM: what runs does not end",
    "it is ended after 30 s, and then the server",
    JSON,
    SSE,
    within=32.0,
)
async def is_kept_from_ending(ground: Ground) -> None:
    stage = Stage()
    async with AsyncExitStack() as serving:
        given = await serving.enter_async_context(stage.on_a_port())
        client = EvilClient(f"http://{given.host}:{given.port}{given.path}")
        wire = await client.connect()
        await wire.send(client.call("hold", tells=ground.transport == SSE))
        await stage.entered.wait()
        with ground.flying_time(grace=0.001), ground.promise(outcome="ended"):
            await serving.aclose()
    assert stage.ended.is_set()
    await wire.closed()
    client.close()
    if ground.transport == JSON:
        assert ground.kept[-1][0] >= 30


@row("SIGTERM: twice", "the server ends at once, whatever runs", JSON, within=1.0)
async def is_asked_to_end_twice(ground: Ground) -> None:
    notes = ground.folder / "notes"
    with serving_program(notes) as (server, client):
        wire = await client.connect()
        await wire.send(client.call("wait"))
        await until(lambda: "waiting" in notes.read_text())
        server.terminate()
        await refused(client)
        with ground.promise(outcome="ended"):
            server.terminate()
            await wire.closed()
            await asyncio.to_thread(server.wait)
        assert notes.read_text().split() == ["entered", "waiting"]


@contextmanager
def serving_program(notes: Path) -> Iterator[tuple[subprocess.Popen[bytes], EvilClient]]:
    """Run a program that serves over HTTP; yield it and a raw client of it."""
    program = [sys.executable, str(SERVERS / "noisy.py"), str(notes), "http"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, **quiet) as server:
        assert server.stderr is not None
        told = b""
        while b"serving at " not in told:
            told = server.stderr.readline()
        client = EvilClient(told.split()[-1].decode())
        try:
            yield server, client
        finally:
            client.close()
            server.kill()


async def refused(client: EvilClient) -> None:
    """Wait until the server accepts no more connections."""
    with suppress(OSError):
        while True:
            (await client.connect()).close()
            await asyncio.sleep(0.01)


@row(
    "SIGTERM: to a server on stdio",
    "what runs is answered within 30 s; nothing new is taken; then it ends with code 0",
    STDIO,
    within=2.0,
)
async def is_asked_to_end_on_stdio(ground: Ground) -> None:
    notes = ground.folder / "notes"
    client = Client.stdio(sys.executable, str(SERVERS / "noisy.py"), str(notes))
    await client.open()
    calling = asyncio.create_task(client.call_tool("nap", {"seconds": 0.5}))
    await until(lambda: "waiting" in notes.read_text())
    with ground.promise(outcome="answered, then ended"):
        _terminate(client)
        assert (await calling).text == "rested"
        await until(lambda: "over" in notes.read_text())
    (end,) = await all_of(client.ping())
    assert "exited with code 0" in str(end)
    assert notes.read_text().split() == ["entered", "waiting", "left", "over"]
    await client.close()


@row(
    "SIGTERM: to a server on stdio, twice",
    "it ends at once and in order, whatever runs",
    STDIO,
    within=2.0,
)
async def is_asked_to_end_on_stdio_twice(ground: Ground) -> None:
    notes = ground.folder / "notes"
    client = Client.stdio(sys.executable, str(SERVERS / "noisy.py"), str(notes))
    await client.open()
    calling = asyncio.create_task(client.call_tool("wait"))
    await until(lambda: "waiting" in notes.read_text())
    _terminate(client)
    refused: object = None
    while not isinstance(refused, RemoteError):  # until it has seen the signal
        (refused,) = await all_of(client.call_tool("size", {"text": ""}))
    with ground.promise(outcome="left in order"):
        _terminate(client)
        (end,) = await all_of(calling)
    assert "exited with code 0" in str(end)
    assert notes.read_text().split() == ["entered", "waiting", "cancelled", "left", "over"]
    await client.close()


def _terminate(client: Client) -> None:
    os.kill(client._connection.transport.process_id, signal.SIGTERM)  # type: ignore[attr-defined]
