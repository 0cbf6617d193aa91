"""The HTTP client: whatever a server answers, each call ends once, at this server only."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any
from unittest import mock

import aiohttp
from multidict import CIMultiDict

from interlock.client import Client
from interlock.errors import InterlockError
from tests.client.world import CLOCKS, Peer, elicit, sample
from tests.fuzz.choices import Choices
from tests.fuzz.watch import check_text
from tests.support.clock import SteppedLoop

ORIGIN = "https://mcp.example"
SECRET = "a-key-that-goes-to-one-server-only"
TOKENS = [b"data: ", b"\n\n", b"id: 1\n", b"retry: 1\n", b'"result":{', b'"error":{', b"event: "]
STATUSES = [*[200] * 12, 202, 204, 301, 307, 400, 401, 403, 404, 405, 429, 500, 503]
KINDS = ["application/json", "text/event-stream", "text/html", "", "application/json; charset=x"]
HEADERS = [
    *(
        ("Mcp-Session-Id", "s1"),
        ("Mcp-Session-Id", "a b"),
        ("Retry-After", "2"),
        ("Location", "/x"),
    ),
    *(("Retry-After", "Wed, 99"), ("Location", "https://evil.example/"), ("Location", "//[")),
    *(("WWW-Authenticate", 'Bearer error="insufficient_scope", scope="a"'), ("X", "y")),
    *(
        ("Content-Encoding", "gzip"),
        ("Content-Encoding", "br"),
        ("Location", "https://u@mcp.example/"),
    ),
]
FAILURES: list[Exception] = [
    aiohttp.ClientPayloadError("cut"),
    aiohttp.ServerDisconnectedError(),
    ConnectionResetError("reset"),
    TimeoutError(),
    aiohttp.ClientOSError(1, "x"),
]
MOST_REQUESTS = 1500  # of one client, however long it lives


def target(data: bytes) -> None:
    choices = Choices(data)
    loop = SteppedLoop()
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    try:
        with contextlib.ExitStack() as clocks:
            for each in CLOCKS:
                clocks.enter_context(mock.patch(f"{each}.monotonic", loop.time))
            loop.run_until_complete(use(choices))
        assert asyncio.all_tasks(loop) == set()
        assert reported == []
    finally:
        loop.close()


async def use(choices: Choices) -> None:
    web: Any = Web(choices)
    client = Client.http(
        f"{ORIGIN}/mcp",
        headers={"X-Key": SECRET},
        transport=choices.one_of(["auto", "streamable", "sse"]),
        pool=web,
        revision=choices.one_of(["auto", "auto", "legacy", "2026-07-28", "2025-03-26"]),
        elicitation=elicit,
        sampling=sample,
        on_list_changed=lambda _: None,
        max_frame_bytes=5000,
    )
    if await ended(client.open()):
        calls = [client.call_tool("x"), client.list_tools(), client.subscribe("x:y")]
        await asyncio.gather(*map(ended, calls))
        await ended(client.call_tool("asks", idempotent=choices.flag()))
    await client.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert web.open == 0
    connection = client._channel._agreed
    assert connection is None or connection.protocol.pending == 0


async def ended(work: Any) -> bool:
    """Wait for the end of a call; tell whether it was good."""
    try:
        await work
    except InterlockError as error:
        told = str(error)
    else:
        return True
    check_text(told[:900])
    assert SECRET not in told
    return False


class Web:
    """A pool of connections that all lead to what the input says."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._peers = [Peer(each) for each in ("2026-07-28", "2025-11-25", "2025-03-26")]
        self._peer = choices.one_of(self._peers)
        self.eras: dict[str, str] = {}
        self.session = self.streams = self
        self.requests = self.open = 0

    def proxy(self, url: str) -> None:
        return None

    async def close(self) -> None:
        pass

    async def request(
        self, method: str, url: str, *, data: bytes | None, headers: Mapping[str, str], **_: Any
    ) -> Response:
        assert url.startswith(f"{ORIGIN}/")
        assert headers["X-Key"] == SECRET
        self.requests += 1
        assert self.requests < MOST_REQUESTS
        await asyncio.sleep(0.01)
        if not self._choices.number(24):
            raise copy(self._choices.one_of(FAILURES))  # one that is raised keeps its traceback
        return Response(self, self._choices, headers, self._answers(data))

    def _answers(self, data: bytes | None) -> list[Any]:
        """Return a mostly correct answer."""
        message = json.loads(data or b"{}")
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            return []
        choices = self._choices
        peer = self._peer if choices.number(12) else choices.one_of(self._peers)
        answers: list[Any] = list(
            peer._answer(message["id"], message["method"], message.get("params", {}))
        )
        match choices.number(24):
            case 0:
                answers.append(choices.json(2))
            case 1:
                answers.insert(0, {"jsonrpc": "2.0", "id": 99, "method": "elicitation/create"})
            case 2:
                answers = [{**each, "id": choices.one_of([1, "1", None, 99])} for each in answers]
            case 3:
                answers.clear()
            case 4:
                answers = [answers]
            case 5:
                error = {"code": choices.one_of([-32022, -32000, -32020, 1]), "message": "no\x1b"}
                answers = [{"jsonrpc": "2.0", "id": message["id"], "error": error}]
        return answers


class Response:
    """One answer, as aiohttp gives it."""

    def __init__(
        self, web: Web, choices: Choices, headers: Mapping[str, str], answers: list[Any]
    ) -> None:
        web.open += 1
        self._web = web
        self._choices = choices
        self.request_info = SimpleNamespace(headers=headers)
        self.content = self
        self.status = choices.one_of(STATUSES)
        kind = choices.one_of([KINDS[0]] * 6 + [KINDS[1]] * 6 + KINDS)
        self.headers: CIMultiDict[str] = CIMultiDict({"Content-Type": kind} if kind else {})
        for name, value in choices.some_of(HEADERS, 2) if not choices.number(4) else []:
            self.headers.add(name, value)
        if kind.startswith("text/event-stream"):
            body = b"".join(b"data: %b\n\n" % encode(each) for each in answers)
            if choices.flag():
                body = b"id: 1\nretry: 5\n" + body
        else:
            body = b"".join(map(encode, answers[-1:]))
        if not choices.number(12):
            at = choices.number(len(body) + 1)
            body = body[:at] + choices.bytes(20) + body[at + choices.number(9) :]
        if not choices.number(12):
            body = body[: choices.number(len(body) + 1)]
        self._pieces = choices.pieces(body) if choices.flag() else [body][: len(body)]
        self._is_cut = not choices.number(12)
        self._lasts = not choices.number(6)  # as a stream of news does
        self.content_length = None if choices.flag() else len(body)
        self._is_open = True

    async def readany(self) -> bytes:
        await asyncio.sleep(0.01)
        if self._pieces:
            return self._pieces.pop(0) or await self.readany()
        if self._is_cut:
            raise copy(self._choices.one_of(FAILURES[:3]))
        if self._lasts:
            await asyncio.sleep(3600)
        return b""

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self])

    async def __aiter__(self) -> Any:
        while piece := await self.readany():
            yield piece

    def release(self) -> None:
        self._web.open -= self._is_open
        self._is_open = False

    def close(self) -> None:
        self.release()


def encode(message: Any) -> bytes:
    return json.dumps(message).encode()
