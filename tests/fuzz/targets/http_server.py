"""The HTTP endpoint: every request gets one well-formed reply and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Annotated, Any
from unittest import mock

from msgspec import Meta

from interlock import Context, Server
from interlock.auth import static_tokens
from interlock.auth.principal import Principal
from interlock.server.http.app import HttpApp
from tests.fuzz.choices import Choices
from tests.support.clock import SteppedLoop

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
METHODS = [
    *("tools/call", "tools/call", "tools/list", "server/discover", "initialize", "ping"),
    *("resources/read", "prompts/get", "completion/complete", "subscriptions/listen"),
    *("notifications/initialized", "notifications/cancelled", "logging/setLevel", "tasks/get", "x"),
]
TOOLS: list[Any] = ["add", "slow", "fail", "ask_back", "remote", "none", 7]
ARGUMENTS: list[Any] = [{"a": 1}, {"a": "x"}, {}, {"region": "eu"}, {"region": "ü"}]
FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
REVISIONS = ["2026-07-28", "2025-11-25", "2025-03-26", "2024-11-05", "v9"]
TOKENS = [
    *(f'"{each}"'.encode() for each in METHODS),
    *(
        b'{"jsonrpc":"2.0","id":1,"method":',
        b'"params":{',
        b'"_meta":{',
        b'"name":"add"',
        b"=?base64?",
    ),
    *(b'"arguments":{"a":1}', b'"protocolVersion":"2025-11-25"', b'"progressToken":1', b"Bearer "),
]
NAMES = [
    *(b"mcp-name", b"mcp-method", b"mcp-protocol-version", b"mcp-session-id", b"mcp-param-a"),
    *(b"origin", b"host", b"content-length", b"content-type", b"accept", b"authorization"),
    *(b"mcp-param-region", b"last-event-id", b"content-encoding", b"transfer-encoding"),
    *(b"access-control-request-method", b"access-control-request-headers"),
]
VALUES = [
    *(
        b"",
        b"add",
        b"1",
        b"https://page.example",
        b"http://localhost:1",
        b"Bearer x",
        b"POST",
        b"eu",
    ),
    *(b"2026-07-28", b"99999999999999999999", b"=?base64?YWRk?=", b"=?base64?\xff?=", b"gzip"),
]
SECRET = "a-token-that-nobody-must-see"
_STATUSES = {200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 429, 503}
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_CLOCKS = ["interlock.server.http.sessions.monotonic"]


server = Server("fuzzed", sealing_key=bytes(32))


@server.tool
async def add(a: int, b: int = 1) -> int:
    return a + b


@server.tool
async def remote(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
    return region


@server.tool
async def slow(context: Context) -> str:
    await asyncio.sleep(20)
    context.progress(1, 2)
    return "done"


@server.tool
async def ask_back(context: Context) -> str:
    answer = await context.elicit("who?", FORM)
    return str(answer)


@server.tool
async def fail() -> str:
    raise ValueError(SECRET)


@server.resource("notes://{name}")
async def note(name: str) -> str:
    return name


@server.prompt
async def ask(topic: str) -> str:
    return topic


_VERIFY = static_tokens({SECRET: Principal("me", frozenset(("a",)), {})})


def target(data: bytes) -> None:
    choices = Choices(data)
    options: dict[str, Any] = {"sse": choices.flag(), "max_body_bytes": 5000, "max_sessions": 2}
    if choices.flag():
        options.update(verify_token=_VERIFY, resource="https://mcp.example/mcp")
    if choices.flag():
        options.update(cors=["https://page.example"], hosts=["mcp.example"])
    loop = SteppedLoop()
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    try:
        with contextlib.ExitStack() as clocks:
            for each in _CLOCKS:
                clocks.enter_context(mock.patch(each, loop.time, create=True))
            loop.run_until_complete(serve(server.asgi(**options), choices))
        assert asyncio.all_tasks(loop) == set()
        assert reported == []
    finally:
        loop.close()


async def serve(app: HttpApp, choices: Choices) -> None:
    """Send some requests, one after another or at once, and disconnect."""
    sessions = [b""]
    requests: list[tuple[HttpRequest, asyncio.Task[None]]] = []
    try:
        for _ in range(1 + choices.number(5)):
            request = HttpRequest(choices, sessions[-1])
            task = asyncio.create_task(app(request.scope, request.receive, request.send))
            requests.append((request, task))
            if choices.number(4):
                await asyncio.wait({task}, timeout=choices.one_of([100.0, 1.0]))
            sessions += [each.session for each, _ in requests if each.session]
    finally:
        for request, _ in requests:
            request.leave()
        for request, task in requests:
            await task
            request.check()
        await app.close()
        for _ in range(5):
            await asyncio.sleep(0)


class HttpRequest:
    """One request, and the reply to it."""

    def __init__(self, choices: Choices, session: bytes) -> None:
        modern = choices.flag()
        message = message_of(choices, modern)
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": choices.one_of(["POST"] * 9 + ["GET", "GET", "DELETE", "OPTIONS", "PUT"]),
            "path": choices.one_of(["/mcp"] * 9 + ["/sse", "/messages", "/messages", "/", "/mcp/"]),
            "root_path": choices.one_of(["", "", "", "", "/mcp", "/a"]),
            "query_string": choices.one_of([b"", b"session_id=" + session, choices.bytes(9)]),
            "server": choices.one_of([("127.0.0.1", 80), ("10.0.0.1", 80), None]),
            "headers": list(headers_of(choices, message, session)),
        }
        if self.scope["path"] == "/sse":
            self.scope["method"] = "GET"
        if not choices.number(8):
            message = choices.bytes()
        self._incoming = [
            {"type": "http.request", "body": piece, "more_body": True}
            for piece in choices.pieces(message if isinstance(message, bytes) else encode(message))
        ] or [{"type": "http.request", "body": b"", "more_body": True}]
        self._is_whole = choices.number(16) > 0
        if self._is_whole:
            self._incoming[-1]["more_body"] = False
        self._stay = choices.one_of([0.0, 5.0, 1000.0])  # seconds until the client goes away
        self._gone = asyncio.Event()
        self._sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if self._incoming:
            return self._incoming.pop(0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), self._stay)
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        """Disconnect the client now."""
        self._gone.set()

    async def send(self, message: dict[str, Any]) -> None:
        self._sent.append(message)

    @property
    def session(self) -> bytes:
        if not self._sent:
            return b""
        told = re.search(rb"session_id=([\w-]+)", b"".join(each["body"] for each in self._sent[1:]))
        return told[1] if told else dict(self._sent[0]["headers"]).get(b"mcp-session-id", b"")

    def check(self) -> None:
        if not self._sent:
            return  # a client that has disconnected gets no reply
        start, *rest = self._sent
        assert start["type"] == "http.response.start"
        assert start["status"] in _STATUSES
        for name, value in start["headers"]:
            assert name == name.lower()
            assert not _CONTROL.search(name + value)
        assert all(each["type"] == "http.response.body" for each in rest)
        assert all(each["more_body"] for each in rest[:-1])
        body = b"".join(each["body"] for each in rest)
        assert SECRET.encode() not in body + repr(start).encode()
        if rest and not rest[-1].get("more_body"):
            whole(dict(start["headers"]), start["status"], body)


def whole(headers: dict[bytes, bytes], status: int, body: bytes) -> None:
    """Check a complete reply."""
    if headers.get(b"content-type") != b"application/json":
        return
    assert int(headers[b"content-length"]) == len(body)
    read = json.loads(body)
    if status >= 400:
        assert read["jsonrpc"] == "2.0"
        assert isinstance(read["error"]["code"], int)
        assert "\n" not in read["error"]["message"]


def encode(message: Any) -> bytes:
    return json.dumps(message).encode()


def message_of(choices: Choices, modern: bool) -> Any:
    method = choices.one_of(METHODS)
    params: dict[str, Any] = {}
    can = choices.one_of([{}, {"elicitation": {"form": {}}}])
    if modern:
        params["_meta"] = {
            VERSION: choices.one_of(REVISIONS[:1] * 9 + REVISIONS),
            CAPABILITIES: can,
        }
    if method == "tools/call":
        params["name"] = choices.one_of(TOOLS)
        params["arguments"] = choices.one_of([*ARGUMENTS, choices.json(2)])
    elif method == "initialize":
        params.update(protocolVersion=choices.one_of(REVISIONS), capabilities=can)
        params["clientInfo"] = {"name": "x", "version": "1"}
    elif method == "resources/read":
        params["uri"] = choices.one_of(["notes://a", "notes://", choices.text()])
    elif method == "prompts/get":
        params.update(name="ask", arguments={"topic": choices.text()})
    elif method == "subscriptions/listen":
        params["notifications"] = {"toolsListChanged": True}
    elif choices.flag():
        params.update({choices.text(): choices.json(2)})
    message = {"jsonrpc": "2.0", "id": choices.one_of([1, 1, "a", 2]), "method": method}
    if method.startswith("notifications/"):
        del message["id"]
    if params or choices.flag():
        message["params"] = params
    if not choices.number(8):
        message[choices.one_of(["id", "method", "params", "result", "jsonrpc"])] = choices.json(2)
    return [message] * choices.number(4) if not choices.number(16) else message


def headers_of(choices: Choices, message: Any, session: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers of a good client, and then some that may contradict them."""
    first = message[0] if isinstance(message, list) and message else message or {}
    params = first.get("params") if isinstance(first.get("params"), dict) else {}
    yield b"host", choices.one_of([b"mcp.example", b"mcp.example:80", b"localhost", b"evil"])
    if choices.number(16):
        yield b"content-type", b"application/json"
        yield b"accept", choices.one_of([b"application/json, text/event-stream", b"*/*", b"text/x"])
    if choices.number(8):
        yield b"authorization", b"Bearer " + SECRET.encode()
    if meta := params.get("_meta"):
        yield b"mcp-protocol-version", str(meta.get(VERSION)).encode()
        yield b"mcp-method", str(first.get("method")).encode()
        name = params.get("name", params.get("uri"))
        if isinstance(name, str) and name.isascii():
            yield b"mcp-name", clean(name.encode())
    elif session and choices.number(8):
        yield b"mcp-session-id", session
        yield b"mcp-protocol-version", choices.one_of(REVISIONS[1:]).encode()
    for _ in range(choices.number(4)):
        yield choices.one_of(NAMES), choices.one_of([*VALUES, clean(choices.bytes(20))])


def clean(value: bytes) -> bytes:
    """Remove bytes that no HTTP server passes on in a header."""
    return _CONTROL.sub(b"", value).strip(b" \t")
