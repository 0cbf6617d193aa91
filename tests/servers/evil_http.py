"""A server on HTTP that misbehaves as it is told. Raw sockets, standard library only.

    python evil_http.py [revision=2025-11-25] [form=json] [seed=N] [METHOD=MISBEHAVIOUR ...]

It prints its URL and serves until its stdin ends. Each misbehaviour is a tool, so that one server
has all of them and a test spells out what it wants: `call_tool("status", {"code": 500})`. What is
no tool call misbehaves by `tell`: the next request of that method, or the next few, or all.
The tool `anything` does what comes next in a script, which is the same for the same seed.

Of the eras it is one of three, as its revision says: modern (each POST by itself), legacy with
sessions, or 2024-11-05 (HTTP+SSE). Its answers are JSON or streams, as its form says.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import socket
import ssl
import struct
import sys
import zlib
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Self

Json = dict[str, Any]
Line = str | list[tuple[str, int]]  # text, or pieces of text and how often each comes

MODERN, LEGACY, OLDEST = "2026-07-28", "2025-11-25", "2024-11-05"
PATHS = ("/mcp", "/sse", "/messages")
MIB = 2**20
HTML = "<html><body><h1>It works!</h1></body></html>"


class Asked:
    """One HTTP request, and the connection to answer on.

    Attributes:
        verb: Of the request line, such as "POST".
        path, query: Of its URL, such as "/mcp".
        headers: By lower-case name.
        message: The JSON-RPC message in the body; {} for none.
        old: The stream that answers come by in HTTP+SSE; None where they come in the reply.
        accepted: Set when the reply has been written and the answer is still to come.
    """

    def __init__(self, link: Link, verb: str, path: str, headers: dict[str, str], body: bytes):
        self.link = link
        self.verb = verb
        self.path, _, self.query = path.partition("?")
        self.headers = headers
        self.message: Json = json.loads(body) if body else {}
        self.old: Link | None = None
        self.accepted = asyncio.Event()
        self._streams = False

    @property
    def method(self) -> str:
        """The JSON-RPC method, else the HTTP method."""
        return self.message.get("method") or ("answer" if self.message else self.verb)

    @property
    def id(self) -> str:
        """The id of the request, encoded."""
        return json.dumps(self.message.get("id"))

    @property
    def out(self) -> Link:
        """Where the bytes of an answer go."""
        return self.old or self.link

    @property
    def gone(self) -> asyncio.Event:
        """Set when the client has disconnected."""
        return self.out.gone

    # Honest answers

    async def send(self, form: str, *frames: bytes) -> None:
        """Answer with one frame as JSON, or with frames as events of a stream that stays open."""
        if form == "json" and self.old is None:
            await self.reply(200, frames[0])
            return
        await self.stream()
        for frame in frames:
            await self.out.chunk(b"data: %b\n\n" % frame)

    async def stream(self) -> None:
        """Send the stream's headers, unless they were sent."""
        if self._streams:
            return
        self._streams = True
        if self.old is None:
            head = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
            await self.link.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        else:
            await self.accept()

    async def accept(self) -> None:
        """Accept the message (202); its response, if any, is sent on another stream."""
        await self.link.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        self.accepted.set()

    async def end(self) -> None:
        """End the response stream normally; the separate stream of HTTP+SSE stays open."""
        if self._streams and self.old is None:
            await self.link.write(b"0\r\n\r\n")

    async def reply(
        self,
        code: int,
        body: bytes = b"",
        type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Write a whole reply."""
        lines = [f"HTTP/1.1 {code} Said", f"Content-Length: {len(body)}"]
        lines += [f"Content-Type: {type}"] if type else []
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.link.write("\r\n".join([*lines, "", ""]).encode() + body)


class Reader(asyncio.StreamReader):
    """A stream that sets `gone` when the client disconnects, even with unread data."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)
        self.gone.set()


class Link:
    """One connection of a client. `gone` is set when the client disconnects."""

    def __init__(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.gone = reader.gone
        self.dies_at_reuse = False

    async def read(self) -> Asked | None:
        """Read one request; None when there are no more."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            request, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            verb, path, _ = request.split(" ")
            pairs = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Asked(self, verb, path, headers, body)

    async def write(self, data: bytes) -> None:
        """Write the data, unless the client has disconnected."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        """Write one chunk of a chunked response."""
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def half_close(self) -> None:
        """Close the writing side; go on reading."""
        if not self._writer.is_closing():
            self._writer.write_eof()

    def cut(self, *, reset: bool = False) -> None:
        """Close without waiting; with `reset`, send a TCP reset."""
        if reset and not self._writer.is_closing():
            raw = self._writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        else:
            self._writer.close()

    async def close(self) -> None:
        """Close, and wait until the connection is closed."""
        self._writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self._writer.wait_closed()


class EvilHttp:
    """A misbehaving HTTP server. Use it as an async context manager.

    Args:
        revision: The only protocol revision it supports.
        form: "json" or "stream".
        seed: Of the script of `anything`.
        tls: Serve https with this context.

    Attributes:
        asked: All received requests, in order.
        kept: Answers that a client fetches by resuming a stream, by event id.
        tools: The tools that it lists; by default one for each misbehaviour.
        url: The URL of its endpoint, once it is open.
    """

    def __init__(
        self,
        revision: str = MODERN,
        form: str = "json",
        *,
        seed: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.revision = revision
        self.form = form
        self.asked: list[Asked] = []
        self.kept: dict[str, bytes] = {}
        self.url = ""
        self.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in MISBEHAVIOURS]
        self.script = script(seed)
        self._tls = tls
        self._told: dict[str, deque[tuple[str, Json]]] = defaultdict(deque)
        self._always: dict[str, tuple[str, Json]] = {}
        self.lost: Json = {"code": 404}
        self._sessions: dict[str, Link | None] = {}  # and the stream of each, in HTTP+SSE
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reserved = socket.socket()  # no other program gets the port while we do not listen
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        self._reserved.close()

    async def start(self) -> None:
        """Start serving; after `stop`, at the same port."""
        loop = asyncio.get_running_loop()
        make = lambda: asyncio.StreamReaderProtocol(Reader(), self._greet)  # noqa: E731
        port = self._reserved.getsockname()[1]
        self._server = await loop.create_server(make, "127.0.0.1", port, ssl=self._tls)
        path = "/sse" if self.revision == OLDEST else "/mcp"
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{port}{path}"

    async def stop(self) -> None:
        """Stop serving, and close all connections."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    # Misbehaviour

    def tell(self, method: str, misbehaviour: str, *, times: int = 0, **arguments: Any) -> None:
        """Misbehave at the next `times` requests of a method or verb; 0 means all."""
        if times:
            self._told[method].extend([(misbehaviour, arguments)] * times)
        else:
            self._always[method] = (misbehaviour, arguments)

    def behave(self) -> None:
        """Answer correctly again."""
        self._told.clear()
        self._always.clear()

    def forget_sessions(self, code: int = 404, body: str = "", type: str = "text/plain") -> None:
        """Forget all sessions, as after a restart; answer their requests by this status."""
        self.lost = {"code": code, "body": body, "type": type}
        self._sessions.clear()

    def times(self, method: str) -> int:
        """Count the requests of a method or verb."""
        return sum(each.method == method for each in self.asked)

    async def heard(self, method: str, times: int = 1) -> None:
        """Wait until a method was requested this many times."""
        while self.times(method) < times:
            self._news.clear()
            await self._news.wait()

    # Connections

    def _greet(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self._start(self._serve(Link(reader, writer)))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, link: Link) -> None:
        try:
            while (asked := await link.read()) and not link.dies_at_reuse:
                self.asked.append(asked)
                self._news.set()
                # The next request is read when this one is answered, or will be elsewhere.
                answering = self._start(self._answer(asked))
                accepted = asyncio.ensure_future(asked.accepted.wait())
                try:
                    await asyncio.wait({answering, accepted}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    accepted.cancel()
        finally:
            await link.close()

    # Answering

    async def _answer(self, asked: Asked) -> None:
        name, arguments = self._misbehaviour(asked)
        if asked.path == "/messages":
            asked.old = self._sessions.get(asked.query.removeprefix("session="))
        if name:
            await MISBEHAVIOURS[name](self, asked, **arguments)
        elif asked.path not in PATHS or (asked.path == "/messages" and asked.old is None):
            await status(self, asked, 404)
        elif asked.verb == "GET":
            await self._open_stream(asked)
        elif asked.verb == "DELETE":
            self._sessions.pop(asked.headers.get("mcp-session-id", ""), None)
            await asked.reply(204)
        elif asked.path == "/sse":
            await asked.reply(405, headers={"Allow": "GET"})
        elif "id" not in asked.message or "method" not in asked.message:
            await asked.accept()
        elif self._lacks_session(asked):
            await status(self, asked, **self.lost)
        else:
            await self._answer_request(asked)
        await asked.end()

    def _misbehaviour(self, asked: Asked) -> tuple[str, Json]:
        if self._told[asked.method]:
            return self._told[asked.method].popleft()
        if asked.method in self._always:
            return self._always[asked.method]
        params = asked.message.get("params", {})
        if asked.method != "tools/call" or self._lacks_session(asked):
            return "", {}
        return params["name"], params.get("arguments", {})

    def _lacks_session(self, asked: Asked) -> bool:
        if self.revision != LEGACY or asked.method in ("initialize", "server/discover"):
            return False
        return asked.headers.get("mcp-session-id") not in self._sessions

    async def _open_stream(self, asked: Asked) -> None:
        if self.revision == MODERN:
            await asked.reply(405)
            return
        await asked.stream()
        if "last-event-id" in asked.headers:
            await asked.send("stream", self.kept.pop(asked.headers["last-event-id"]))
            return
        if self.revision == OLDEST:
            number = str(next(self._numbers))
            self._sessions[number] = asked.link
            await asked.link.chunk(
                b"event: endpoint\ndata: /messages?session=%b\n\n" % number.encode()
            )
        await asked.gone.wait()

    async def _answer_request(self, asked: Asked) -> None:
        result = honest(asked.method, self.revision, self.tools)
        if result is None:
            await self.refuse(asked, -32601)
            return
        answer = {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}
        frame = json.dumps(answer).encode()
        if asked.method == "initialize" and self.revision == LEGACY:
            session = f"session-{next(self._numbers)}"
            self._sessions[session] = None
            await asked.reply(200, frame, headers={"Mcp-Session-Id": session})
        else:
            await asked.send(self.form, frame)

    async def refuse(self, asked: Asked, code: int, **more: Any) -> None:
        """Answer with an error: by its status where the era has one."""
        error = {"code": code, "message": f"error {code}", **more}
        frame = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}).encode()
        if self.revision == OLDEST:
            await asked.send(self.form, frame)
        else:
            await asked.reply(404 if self.revision == MODERN else 400, frame)


def honest(method: str, revision: str, tools: list[Json]) -> Json | None:
    """Return a correct result; None for an unknown method."""
    capabilities = {"tools": {}}
    info = {"name": "evil", "version": "1"}
    more = {"resultType": "complete"} if revision == MODERN else {}
    if method == "tools/list":
        return {"tools": tools, **more}
    if method == "server/discover" and revision == MODERN:
        meta = {"io.modelcontextprotocol/serverInfo": info}
        return {"supportedVersions": [revision], "capabilities": capabilities, "_meta": meta}
    if method == "initialize" and revision != MODERN:
        return {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": info}
    return {} if method == "ping" and revision != MODERN else None


# Misbehaviours of messages; they are the same on every transport


def text_result(text: str) -> Json:
    """Make the result of a call that gives a text."""
    return {"resultType": "complete", "content": [{"type": "text", "text": text}]}


async def result(server: EvilHttp, asked: Asked, **result: Any) -> None:
    """Answer with this result."""
    answer = {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}
    await asked.send(server.form, json.dumps(answer).encode())


async def pages(server: EvilHttp, asked: Asked) -> None:
    """List one tool a page, and always another page."""
    place = int(asked.message.get("params", {}).get("cursor", 0))
    tool = {"name": f"tool{place}", "inputSchema": {"type": "object"}}
    await result(server, asked, tools=[tool], nextCursor=str(place + 1))


async def echo(server: EvilHttp, asked: Asked, text: str = "") -> None:
    """Answer with the same text."""
    await result(server, asked, **text_result(text))


async def error(server: EvilHttp, asked: Asked, code: int, **more: Any) -> None:
    """Answer with a JSON-RPC error."""
    await server.refuse(asked, code, **more)


async def frame(server: EvilHttp, asked: Asked, size: int) -> None:
    """Answer with a message of exactly this many bytes."""
    answer = {"jsonrpc": "2.0", "id": asked.message["id"], "result": text_result("")}
    space = size - len(json.dumps(answer))
    answer["result"] = text_result("x" * space)
    await asked.send(server.form, json.dumps(answer).encode())


async def say(server: EvilHttp, asked: Asked, lines: list[Line]) -> None:
    """Answer with these messages; each character is a byte, and $ID is the id of the call."""
    frames = []
    for line in lines:
        pieces = [(line, 1)] if isinstance(line, str) else line
        frames.append("".join(text.replace("$ID", asked.id) * times for text, times in pieces))
    await asked.send(server.form, *(frame.encode("latin-1") for frame in frames))


async def mute(server: EvilHttp, asked: Asked) -> None:
    """Never answer. In HTTP+SSE the message is accepted, as always."""
    if asked.old is not None:
        await asked.accept()
    await asked.gone.wait()


async def mute_stream(server: EvilHttp, asked: Asked) -> None:
    """Begin a stream, but send no event."""
    await asked.stream()
    await asked.gone.wait()


async def progress(server: EvilHttp, asked: Asked, every: float = 0.002) -> None:
    """Send progress until the client disconnects; never answer."""
    token = asked.message["params"]["_meta"]["progressToken"]
    for number in itertools.count(1):
        params = {"progressToken": token, "progress": number}
        told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        await asked.send("stream", json.dumps(told).encode())
        with suppress(TimeoutError):
            await asyncio.wait_for(asked.gone.wait(), every)
        if asked.gone.is_set() or _is_cancelled(server, asked):
            return


def _is_cancelled(server: EvilHttp, asked: Asked) -> bool:
    return any(
        each.method == "notifications/cancelled"
        and each.message["params"].get("requestId") == asked.message["id"]
        for each in reversed(server.asked)
    )


# Misbehaviours of HTTP


async def status(
    server: EvilHttp,
    asked: Asked,
    code: int,
    body: str = "",
    type: str = "text/plain",
    headers: dict[str, str] | None = None,
) -> None:
    """Answer with this status, body and headers."""
    await asked.reply(code, body.encode(), type, headers)


async def cut(server: EvilHttp, asked: Asked, at: str = "start", *, reset: bool = False) -> None:
    """Close the connection at the "start", in the "headers", in the "body" or in an "event"."""
    begun = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[' % asked.id.encode()
    if at == "headers":
        await asked.link.write(b"HTTP/1.1 200 OK\r\nContent-Ty")
    elif at == "body":
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        await asked.link.write(head + begun)
    elif at == "event":
        await asked.stream()
        await asked.out.chunk(b"data: " + begun)
    elif asked.old is not None:
        await asked.accept()
    asked.out.cut(reset=reset)


async def quiet(server: EvilHttp, asked: Asked) -> None:
    """End the stream normally, without the answer."""
    await asked.stream()
    if asked.old is not None:
        await asked.old.write(b"0\r\n\r\n")
        asked.old.cut()


async def leave(server: EvilHttp, asked: Asked, text: str = "") -> None:
    """End the stream after an event id, with which a legacy client can resume it."""
    answer = {"jsonrpc": "2.0", "id": asked.message["id"], "result": text_result(text)}
    server.kept[asked.id] = json.dumps(answer).encode()
    await asked.stream()
    await asked.out.chunk(f"id: {asked.id}\nretry: 10\ndata:\n\n".encode())


async def bomb(
    server: EvilHttp, asked: Asked, size: int = 400 * MIB, encoding: str = "gzip"
) -> None:
    """Answer with `size` blanks, compressed to about a thousandth."""
    type = "application/json" if server.form == "json" else "text/event-stream"
    headers = {"Content-Encoding": encoding}
    await asked.reply(200, _bomb(size, encoding), type, headers)


def _bomb(size: int, encoding: str) -> bytes:
    if encoding == "gzip":  # one member after the other is gzip, too
        return gzip.compress(b" " * MIB) * (size // MIB)
    packer = zlib.compressobj(9)
    head = packer.compress(b" ") + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush nothing refers back, so the same bytes may come again and again.
    return head + (packer.compress(b" " * MIB) + packer.flush(zlib.Z_FULL_FLUSH)) * (size // MIB)


async def drip(server: EvilHttp, asked: Asked, every: float) -> None:
    """Answer byte by byte, this many seconds apart."""
    answer = {"jsonrpc": "2.0", "id": asked.message["id"], "result": text_result("late")}
    body = json.dumps(answer).encode()
    if server.form == "json" and asked.old is None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        await asked.link.write(f"{head}\r\n\r\n".encode())
        write = asked.link.write
    else:
        await asked.stream()
        body, write = b"data: %b\n\n" % body, asked.out.chunk
    for byte in body:
        await write(bytes([byte]))
        with suppress(TimeoutError):
            await asyncio.wait_for(asked.gone.wait(), every)
        if asked.gone.is_set() or _is_cancelled(server, asked):
            return


async def endless(server: EvilHttp, asked: Asked, what: str = "line") -> None:
    """Never end a "header", the JSON "body", a "line" of a stream or an "event" of many lines."""
    block = b"x" * 65536 if what != "event" else (b"x" * 1000 + b"\ndata: ") * 64
    if what == "header":
        await asked.link.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    elif what == "body":
        await asked.link.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    else:
        await asked.stream()
        await asked.out.chunk(b"data: ")
    write = asked.link.write if what in ("header", "body") else asked.out.chunk
    while not asked.gone.is_set():
        await write(block)
        await asyncio.sleep(0)


async def half_close(server: EvilHttp, asked: Asked) -> None:
    """Close the writing side, but keep the connection open."""
    asked.out.half_close()
    await asked.gone.wait()


async def garbage(server: EvilHttp, asked: Asked) -> None:
    """Answer with bytes that are not HTTP."""
    await asked.link.write(b"\x16\x03\x01 hello, this is a banner\r\n\r\n")
    asked.link.cut()


async def die_at_reuse(server: EvilHttp, asked: Asked, text: str = "") -> None:
    """Answer correctly, but close the connection at its next request."""
    asked.link.dies_at_reuse = True
    await echo(server, asked, text)


async def lose_sessions(server: EvilHttp, asked: Asked) -> None:
    """Forget all sessions, this one included."""
    server.forget_sessions()
    await status(server, asked, 404)


async def anything(server: EvilHttp, asked: Asked) -> None:
    """Run the next misbehaviour of the script."""
    name, arguments = next(server.script)
    await MISBEHAVIOURS[name](server, asked, **arguments)


Misbehaviour = Callable[..., Awaitable[None]]
MISBEHAVIOURS: dict[str, Misbehaviour] = {
    each.__name__: each
    for each in (
        *(result, pages, echo, error, frame, say, mute, mute_stream, progress),
        *(status, cut, quiet, leave, bomb, drip, endless, half_close, garbage),
        *(die_at_reuse, lose_sessions, anything),
    )
}


def script(seed: int) -> Iterator[tuple[str, Json]]:
    """Yield random misbehaviours with arguments, without end; a quarter are correct answers."""
    chance = random.Random(seed)
    while True:
        code = chance.choice([400, 401, 403, 404, 405, 429, 500, 503])
        nonsense = ["\xff", "[]", '{"jsonrpc":"2.0","id":99,"result":{}}']
        yield chance.choice(
            [
                *[("echo", {"text": "hi"})] * 4,
                ("status", {"code": code, "headers": {"Retry-After": "600"}}),
                ("status", {"code": 200, "body": HTML, "type": "text/html"}),
                ("cut", {"at": chance.choice(["start", "headers", "body", "event"])}),
                ("cut", {"at": "event", "reset": True}),
                *[(name, {}) for name in ("quiet", "garbage", "half_close", "mute", "mute_stream")],
                ("die_at_reuse", {"text": "hi"}),
                ("lose_sessions", {}),
                ("say", {"lines": nonsense}),
                ("bomb", {"size": 20 * MIB}),
            ]
        )


async def main() -> None:
    """Serve until the end of input."""
    told = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    seed = int(told.pop("seed", 0))
    server = EvilHttp(told.pop("revision", MODERN), told.pop("form", "json"), seed=seed)
    for method, misbehaviour in told.items():
        server.tell(method, misbehaviour)
    async with server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
