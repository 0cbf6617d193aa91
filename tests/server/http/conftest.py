"""Applications driven in this process, request by request, as an ASGI server would."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from interlock import Context, Server

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
JSON_AND_STREAM = "application/json, text/event-stream"


class Reply:
    """One request and the response so far."""

    def __init__(self, app: Any, scope: dict[str, Any], body: Iterable[bytes] | bytes) -> None:
        chunks = [body] if isinstance(body, bytes) else list(body)
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for number, chunk in enumerate(chunks, 1):
            more = number < len(chunks)
            self._incoming.put_nowait({"type": "http.request", "body": chunk, "more_body": more})
        self._started = asyncio.Event()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._takes_stream = b"text/event-stream" in dict(scope["headers"]).get(b"accept", b"")
        self._unread = b""
        self.body = b""
        self.ended = False
        self.task = asyncio.create_task(app(scope, self._incoming.get, self._send))

    async def _send(self, message: dict[str, Any]) -> None:
        await self._room.wait()
        if message["type"] == "http.response.start":
            assert not self._started.is_set()
            self._status, self._headers = message["status"], list(message["headers"])
            self._started.set()
        else:
            assert self._started.is_set()
            assert not self.ended
            self.body += message["body"]
            self._unread += message["body"]
            self.ended = not message.get("more_body", False)
        self._changed.set()

    # What the client does

    def disconnect(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})
        self._room.set()

    async def leave(self) -> None:
        """Disconnect, and let the application notice."""
        self.disconnect()
        for _ in range(5):
            await asyncio.sleep(0)

    def send_more(self, chunk: bytes, *, more: bool = True) -> None:
        self._incoming.put_nowait({"type": "http.request", "body": chunk, "more_body": more})

    def stop_reading(self) -> None:
        self._room.clear()

    def read_again(self) -> None:
        self._room.set()

    # What it sees

    async def status(self) -> int:
        waiting = asyncio.create_task(self._started.wait())
        await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.task.done():
            self.task.result()
        return self._status

    def header(self, name: str) -> str | None:
        found = [value for each, value in self._headers if each.lower() == name.encode()]
        assert len(found) < 2
        return found[0].decode() if found else None

    def headers(self, name: str) -> list[str]:
        return [value.decode() for each, value in self._headers if each.lower() == name.encode()]

    async def finished(self) -> Reply:
        await self.task
        return self

    async def complete(self) -> Reply:
        """Wait until the response is complete; the task of its request may go on."""
        while not self.ended:
            self._changed.clear()
            await self._changed.wait()
        return self

    @property
    def code(self) -> int:
        return self._status

    @property
    def json(self) -> Any:
        """The answer as JSON; on a busy machine, it may have come as the last event of a stream."""
        if self._takes_stream and self.header("content-type") == "text/event-stream":
            return json.loads(self.body.rpartition(b"data: ")[2])
        assert self.header("content-type") == "application/json", self.body
        return json.loads(self.body)

    @property
    def error(self) -> int:
        return self.json["error"]["code"]

    @property
    def text(self) -> str:
        assert "result" in self.json, self.json
        return self.json["result"]["content"][0]["text"]

    async def part(self) -> str:
        """The next block of a stream: the lines up to a blank one."""
        while b"\n\n" not in self._unread:
            assert not self.ended, f"the stream has ended: {self.body!r}"
            assert not self.task.done(), f"the stream was cut: {self.body!r}"
            self._changed.clear()
            changed = asyncio.create_task(self._changed.wait())
            await asyncio.wait({changed, self.task}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        block, _, self._unread = self._unread.partition(b"\n\n")
        return block.decode()

    async def message(self) -> Any:
        """The next message of a stream."""
        return (await self.event())[1]

    async def event(self) -> tuple[str, Any]:
        """The next event that has data: its id, and the message in it."""
        while True:
            fields = dict(line.split(": ", 1) for line in (await self.part()).splitlines())
            if fields.get("data"):
                return fields.get("id", ""), json.loads(fields["data"])


class Http:
    """A client of one application."""

    def __init__(self, app: Any, *, root: str = "", address: str = "127.0.0.1") -> None:
        self.app = app
        self.root = root
        self.address = address
        self.replies: list[Reply] = []

    def start(
        self,
        method: str,
        path: str = "/mcp",
        body: Iterable[bytes] | bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        repeated: Iterable[tuple[str, str]] = (),
        query: str = "",
    ) -> Reply:
        given = {"host": f"{self.address}:8000", "accept": JSON_AND_STREAM}
        if method == "POST":
            given["content-type"] = "application/json"
        given |= headers or {}
        pairs = [(name, value) for name, value in given.items() if value != "-"]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": self.root + path,
            "raw_path": (self.root + path).encode(),
            "query_string": query.encode(),
            "root_path": self.root,
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in (*pairs, *repeated)],
            "server": (self.address, 8000),
            "client": ("127.0.0.1", 50000),
        }
        reply = Reply(self.app, scope, body)
        self.replies.append(reply)
        return reply

    async def request(self, *args: Any, **options: Any) -> Reply:
        return await self.start(*args, **options).finished()

    @staticmethod
    def rpc(method: str, params: dict[str, Any] | None = None, **id: Any) -> bytes:
        return rpc(method, params, **id)

    # Modern

    def begin(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        id: Any = 1,
        meta: dict[str, Any] | None = None,
        capabilities: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        repeated: Iterable[tuple[str, str]] = (),
        path: str = "/mcp",
    ) -> Reply:
        """Send a modern request as it should be, except for what the arguments say."""
        params = dict(params or {})
        params["_meta"] = {
            PREFIX + "protocolVersion": MODERN,
            PREFIX + "clientCapabilities": capabilities or {},
            **(meta or {}),
        }
        given = {"mcp-protocol-version": MODERN, "mcp-method": method}
        name = params.get("name", params.get("uri"))
        if name is not None:
            given["mcp-name"] = name
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        body = json.dumps(message, separators=(",", ":")).encode()
        headers = given | (headers or {})
        return self.start("POST", path, body=body, headers=headers, repeated=repeated)

    async def ask(self, *args: Any, **options: Any) -> Reply:
        return await self.begin(*args, **options).finished()

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Reply:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, **more)

    # Legacy

    @staticmethod
    def initialize_body(**params: Any) -> bytes:
        """Return the body of an `initialize` with these members of its params."""
        whole = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        return rpc("initialize", whole | params, id=1)

    async def initialize(
        self,
        revision: str = "2025-11-25",
        *,
        capabilities: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> LegacyClient:
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "tests", "version": "1"},
        }
        reply = await self.request("POST", body=rpc("initialize", params, id=0), headers=headers)
        assert reply.code == 200, reply.body
        client = LegacyClient(self, reply.header("mcp-session-id") or "", revision, headers or {})
        assert (await client.notify("notifications/initialized")).code == 202
        return client


class LegacyClient:
    """One session."""

    def __init__(self, http: Http, id: str, revision: str, headers: dict[str, str]) -> None:
        self.http = http
        self.id = id
        self.headers = {"mcp-session-id": id, "mcp-protocol-version": revision, **headers}

    def post(self, body: bytes, headers: dict[str, str] | None = None) -> Reply:
        return self.http.start("POST", body=body, headers=self.headers | (headers or {}))

    def begin(self, method: str, params: dict[str, Any] | None = None, *, id: Any = 1) -> Reply:
        return self.post(rpc(method, params, id=id))

    async def ask(self, *args: Any, **options: Any) -> Reply:
        return await self.begin(*args, **options).finished()

    def begin_call(self, tool: str, arguments: Any = None, *, id: Any = 1, **meta: Any) -> Reply:
        params = {"name": tool, "arguments": arguments or {}, "_meta": meta}
        return self.begin("tools/call", params, id=id)

    async def call(self, *args: Any, **options: Any) -> Reply:
        return await self.begin_call(*args, **options).finished()

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> Reply:
        return await self.post(rpc(method, params)).finished()

    async def answer(self, id: Any, result: Any) -> Reply:
        body = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
        return await self.post(body).finished()

    def listen(self, last: str | None = None) -> Reply:
        headers = self.headers | ({} if last is None else {"last-event-id": last})
        return self.http.start("GET", headers=headers)

    async def delete(self) -> Reply:
        return await self.http.request("DELETE", headers=self.headers)


def rpc(method: str, params: dict[str, Any] | None = None, **id: Any) -> bytes:
    message = {"jsonrpc": "2.0", **id, "method": method}
    if params is not None:
        message["params"] = params
    return json.dumps(message, separators=(",", ":")).encode()


class Gate:
    """Events of the tool `hold`: a test waits until it runs, lets it end, or sees it cancelled."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def server(gate: Gate) -> Server:
    server = Server("demo", version="1", instructions="Ask.")

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @server.tool
    async def hold(context: Context, word: str = "done") -> str:
        gate.entered.set()
        try:
            await gate.opened.wait()
        except asyncio.CancelledError:
            gate.cancelled.set()
            raise
        return word

    @server.tool
    async def count(context: Context, to: int = 3) -> str:
        for number in range(to):
            context.progress(number, to)
        return f"counted to {to}"

    @server.tool
    async def tell_and_hold(context: Context) -> str:
        context.progress(1)
        return await hold(context)

    @server.tool
    async def sample(context: Context) -> str:
        answer = await context.sample("hello", 10)
        return f"the model said {answer.content.text}"  # type: ignore[union-attr] # a text

    @server.tool
    async def release(context: Context) -> str:
        context.close_stream(500)
        await gate.opened.wait()
        return "released"

    @server.tool
    async def fail() -> str:
        raise RuntimeError("hunter2")

    @server.resource("notes://one")
    async def note() -> str:
        return "a note"

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    return server


@pytest.fixture
async def make(server: Server) -> AsyncIterator[Callable[..., Http]]:
    """Yield a function that returns a client of the server's ASGI application with options."""
    clients: list[Http] = []

    def make(*, root: str = "", address: str = "127.0.0.1", **options: Any) -> Http:
        clients.append(Http(server.asgi(**options), root=root, address=address))
        return clients[-1]

    yield make
    for client in clients:
        for reply in client.replies:
            reply.disconnect()
        await client.app.close()
        for reply in client.replies:
            reply.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reply.task


@pytest.fixture
def http(make: Callable[..., Http]) -> Http:
    return make()
