"""Faults of servers over HTTP, in both eras and on HTTP+SSE."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from unittest import mock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from interlock.client import Client
from interlock.errors import (
    AuthError,
    AuthRequired,
    HttpError,
    InsufficientScope,
    MessageTooLarge,
    RedirectRefused,
    RemoteProtocolError,
    RequestTimeout,
    SessionExpired,
    StreamEnded,
    Unreachable,
)
from interlock.oauth.storage import Tokens as StoredTokens
from interlock.oauth.storage import UserTokenStore
from interlock.oauth.token_source import TokenSource
from tests.faults.ground import CANARY, Ground, all_of, good, until
from tests.faults.matrix import HTTP, JSON, OLDEST, SESSION, SSE, row
from tests.faults.rows_processes import no_descriptors_left
from tests.servers.evil_http import EvilHttp
from tests.servers.ports import free_port as free_port  # rows_postgres.py uses it, too
from tests.support.bearer import BearerHeaders

POSTED = (JSON, SSE, SESSION)  # where the answer comes on the request


class Tokens(BearerHeaders):
    """An authorization that issues a new token after each refusal."""

    def __init__(self) -> None:
        self.token = f"{CANARY}-0"
        self.refused: list[str] = []

    async def valid_token(self) -> str:
        return self.token

    async def refresh_after(self, error: AuthError) -> None:
        self.refused.append(error.token_used)
        self.token = f"{CANARY}-{len(self.refused)}"


def challenge(kind: str) -> dict[str, str]:
    """Return a Bearer challenge with this error code."""
    return {"WWW-Authenticate": f'Bearer error="{kind}", scope="files:write"'}


# Unauthenticated and forbidden


@row("HTTP 401", "AuthRequired", *HTTP, within=1.0)
async def responds_401_to_a_call(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(AuthRequired, r"\(401\)"):
        await client.call_tool("status", {"code": 401, "headers": challenge("invalid_token")})
    await good(client)


@row("HTTP 401: at the start", "AuthRequired", *HTTP, within=1.0)
async def responds_401_to_the_handshake(ground: Ground) -> None:
    client = await ground.client()
    for method in ("server/discover", "initialize", "GET"):
        ground.http.tell(method, "status", code=401)
    with ground.promise(AuthRequired, r"\(401\)"):
        await client.open()


@row("HTTP 401: and a better token helps", "the call is answered; one new token", *HTTP, within=1.0)
async def responds_401_until_the_token_is_renewed(ground: Ground) -> None:
    tokens = Tokens()
    client = await ground.open(auth=tokens)
    ground.http.tell("tools/call", "status", times=1, code=401)
    with ground.promise(outcome="answered"):
        await good(client)
    assert tokens.refused == [f"{CANARY}-0"]
    assert ground.http.asked[-1].headers["authorization"] == f"Bearer {CANARY}-1"


class Renewal(TokenSource):
    """A token source that renews its token once `refused` calls wait for it."""

    def __init__(self, refused: int) -> None:
        super().__init__("http://127.0.0.1/mcp", UserTokenStore(), (), None, None)
        self.renewals = 0
        self._refused = refused
        self._give()

    def _give(self) -> None:
        self._tokens = StoredTokens(access_token=f"{CANARY}-{self.renewals}")

    async def _renew(self, error: AuthError) -> None:
        await until(lambda: self._waiting == self._refused)
        self.renewals += 1
        self._give()

    async def _renew_expired(self) -> None:
        raise AssertionError("none of its tokens expires")


@row("HTTP 401: to fifty calls at once", "all are answered; one new token", *HTTP, within=2.0)
async def responds_401_to_fifty_calls(ground: Ground) -> None:
    renewal = Renewal(50)
    client = await ground.open(auth=renewal)
    ground.http.tell("tools/call", "status", times=50, code=401)
    with ground.promise(outcome="answered"):
        await asyncio.gather(*(good(client) for _ in range(50)))
    assert renewal.renewals == 1
    assert ground.http.times("tools/call") == 100


@row("HTTP 401: whatever the token", "AuthRequired after 3 new tokens", *HTTP, within=1.0)
async def never_lets_in(ground: Ground) -> None:
    tokens = Tokens()
    client = await ground.open(auth=tokens)
    ground.http.tell("tools/call", "status", code=401)
    with ground.promise(AuthRequired, r"\(401\)"):
        await good(client)
    assert len(tokens.refused) == 3
    assert ground.http.times("tools/call") == 4


@row("HTTP 403 insufficient scope", "InsufficientScope with the scopes", *HTTP, within=1.0)
async def wants_more_scopes(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(InsufficientScope, "files:write"):
        told = {"code": 403, "headers": challenge("insufficient_scope")}
        await client.call_tool("status", told)
    assert ground.http.times("tools/call") == 1


@row(
    "HTTP 403 insufficient scope: whatever the token",
    "InsufficientScope after 3 new tokens",
    *HTTP,
    within=1.0,
)
async def always_wants_more_scopes(ground: Ground) -> None:
    tokens = Tokens()
    client = await ground.open(auth=tokens)
    told = {"code": 403, "headers": challenge("insufficient_scope")}
    with ground.promise(InsufficientScope, "files:write"):
        await client.call_tool("status", told)
    assert len(tokens.refused) == 3


@row("HTTP 403 insufficient scope: no word of scopes", "AuthError", *HTTP, within=1.0)
async def forbids(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(AuthError, r"\(403\)"):
        await client.call_tool("status", {"code": 403})
    assert ground.http.times("tools/call") == 1


# Statuses


@row("HTTP 404", "a new session, once; the call is answered", SESSION, within=1.0)
async def forgets_the_session(ground: Ground) -> None:
    client = await ground.open()
    ground.http.forget_sessions()
    with ground.promise(outcome="answered"):
        await asyncio.gather(*(good(client) for _ in range(5)))
    assert ground.http.times("initialize") == 2
    sessions = {each.headers.get("mcp-session-id") for each in ground.http.asked}
    assert len(sessions - {None}) == 2


@row("HTTP 404: again and again", "SessionExpired after one new session", SESSION, within=1.0)
async def forgets_every_session(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(SessionExpired, "does not know the session any more"):
        await client.call_tool("lose_sessions")
    assert ground.http.times("initialize") == 2


@row("HTTP 404: without a session", "HttpError with status", JSON, SSE, OLDEST, within=1.0)
async def does_not_find_it(ground: Ground) -> None:
    client = await ground.open()
    for code in (404, 405, 410):
        with ground.promise(HttpError, f"answered {code}") as told:
            await client.call_tool("status", {"code": code})
        assert told.error.status == code
    await good(client)


ERRORS: tuple[dict[str, Any], ...] = (
    {"code": 500, "body": "Traceback (most recent call last)"},
    {"code": 500, "body": "<html><h1>Oops</h1></html>", "type": "text/html"},
    {"code": 502, "body": "", "type": ""},
    {"code": 500, "body": '{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"no"}}'},
    {"code": 418, "body": "{}", "type": "application/json"},
    {"code": 599, "body": "x" * 1_000_000},
)
NOT_MCP: tuple[dict[str, Any], ...] = (
    {"code": 200, "body": "<html><h1>It works!</h1></html>", "type": "text/html"},
    {"code": 200, "body": "", "type": "application/json"},
    {"code": 200, "body": "", "type": ""},
    {"code": 200, "body": "hello", "type": "text/plain"},
    {"code": 200, "body": "{}", "type": "application/vnd.api+json"},
    {"code": 202, "body": "", "type": ""},
    {"code": 204, "body": "", "type": ""},
)


@row("HTTP 500 / HTML / empty body", "HttpError with status", *HTTP, within=1.0)
async def fails(ground: Ground) -> None:
    client = await ground.open()
    for status in ERRORS:
        with ground.promise(HttpError, f"answered {status['code']}") as told:
            await client.call_tool("status", status)
        assert told.error.status == status["code"]
    assert ground.http.times("tools/call") == len(ERRORS)
    await good(client)


@row(
    "HTTP 500 / HTML / empty body: with a status of success",
    "HttpError that says what came",
    *POSTED,
    within=1.0,
)
async def is_something_else(ground: Ground) -> None:
    client = await ground.open()
    for status in NOT_MCP:
        with ground.promise(HttpError, f"{status['code']}"):
            await client.call_tool("status", status)
    assert ground.http.times("tools/call") == len(NOT_MCP)
    await good(client)


@row("HTTP 500 / HTML / empty body: at the start", "HttpError", *HTTP, within=1.0)
async def fails_at_the_start(ground: Ground) -> None:
    client = await ground.client()
    for status in (ERRORS[1], NOT_MCP[0], NOT_MCP[2]):
        for method in ("server/discover", "initialize", "GET"):
            ground.http.tell(method, "status", **status)
        with ground.promise(HttpError, f"{status['code']}|did not answer with an event stream"):
            await client.open()


@row("HTTP 500 / HTML / empty body: to the standing stream", "as usual", SESSION, within=1.0)
async def has_no_standing_stream(ground: Ground) -> None:
    for status in (*ERRORS[:3], *NOT_MCP[:3], {"code": 405}, {"code": 404}):
        client = await ground.client()
        ground.http.tell("GET", "status", **status)
        ground.http.tell("DELETE", "status", **status)
        with ground.promise():
            async with client:
                await good(client)


@row("HTTP 429/503", "asked again when the server says", *HTTP, within=3.5)
async def is_busy(ground: Ground) -> None:
    client = await ground.open()
    busy = {"code": 429, "headers": {"Retry-After": "3"}}
    ground.http.tell("tools/call", "status", times=1, **busy)
    with ground.flying_time(), ground.promise(outcome="answered after 3 s"):
        await good(client)
    assert ground.http.times("tools/call") == 2


@row("HTTP 429/503: later than the deadline", "HttpError with the time, at once", *HTTP, within=1.0)
async def is_busy_for_long(ground: Ground) -> None:
    client = await ground.open(hard_timeout=60.0)
    for code in (429, 503):
        busy = {"code": code, "headers": {"Retry-After": "61"}}
        with ground.promise(HttpError, "retry after 61 s") as told:
            await client.call_tool("status", busy)
        assert told.error.retry_after == 61
    assert ground.http.times("tools/call") == 2


@row("HTTP 429/503: without a time", "asked twice more, then HttpError", *HTTP, within=3.0)
async def is_always_busy(ground: Ground) -> None:
    client = await ground.open()
    ground.http.tell("tools/list", "status", code=503)
    with ground.flying_time():
        with ground.promise(HttpError, "429"):
            await client.call_tool("status", {"code": 429})
        with ground.promise(HttpError, "503"):
            await client.list_tools()
    assert ground.http.times("tools/call") == ground.http.times("tools/list") == 3


@row(
    "HTTP 429/503: 503 to a call",
    "HttpError; not sent twice, as it may have run",
    *HTTP,
    within=1.0,
)
async def may_have_run(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(HttpError, "503"):
        await client.call_tool("status", {"code": 503, "headers": {"Retry-After": "0"}})
    assert ground.http.times("tools/call") == 1


@row(
    "HTTP 429/503: for everybody",
    "one request in ten is sent again, after the first ten",
    JSON,
    SESSION,
    within=1.0,
)
async def is_overloaded(ground: Ground) -> None:
    client = await ground.open()
    ground.http.tell("tools/list", "status", code=503)
    with ground.flying_time():
        for _ in range(100):
            await all_of(client.list_tools())
    repeats = ground.http.times("tools/list") - 100
    assert 10 <= repeats <= 20
    with ground.promise(HttpError, "503"):
        await client.list_tools()


# Redirects


@row("Redirect", "RedirectRefused; nothing goes to the other server", *HTTP, within=1.0)
async def redirects_elsewhere(ground: Ground) -> None:
    client = await ground.open()
    other = await ground.stack.enter_async_context(EvilHttp())
    for code in (301, 302, 303, 307, 308):
        elsewhere = {"code": code, "headers": {"Location": other.url}}
        with ground.promise(RedirectRefused, "which is not its origin"):
            await client.call_tool("status", elsewhere)
    assert other.asked == []
    for target in ("file:///etc/passwd", "javascript:alert(1)", "//", "http://[", "\x7f"):
        with ground.promise(RedirectRefused):
            nowhere = {"code": 307, "headers": {"Location": target}}
            await client.call_tool("status", nowhere)
    await good(client)


@row("Redirect: inside the server", "followed once, with its method", *HTTP, within=1.0)
async def redirects_inside(ground: Ground) -> None:
    client = await ground.open()
    place = ground.http.asked[-1]
    here = f"{place.path}?{place.query}"
    for code in (307, 308):
        inside = {"code": code, "headers": {"Location": here}}
        ground.http.tell("tools/call", "status", times=1, **inside)
        with ground.promise(outcome="answered"):
            await good(client)
    assert ground.http.times("tools/call") == 4


@row("Redirect: in a circle", "RedirectRefused after the first", *HTTP, within=1.0)
async def redirects_in_a_circle(ground: Ground) -> None:
    client = await ground.open()
    place = ground.http.asked[-1]
    circle = {"code": 307, "headers": {"Location": f"{place.path}?{place.query}"}}
    with ground.promise(RedirectRefused, "redirects a second time"):
        await client.call_tool("status", circle)
    assert ground.http.times("tools/call") == 2


@row("Redirect: by another method", "RedirectRefused", *HTTP, within=1.0)
async def redirects_by_another_method(ground: Ground) -> None:
    client = await ground.open()
    for code in (301, 302, 303):
        inside = {"code": code, "headers": {"Location": "/mcp"}}
        with ground.promise(RedirectRefused, "does not keep the request"):
            await client.call_tool("status", inside)


@row("Redirect: messages at another server", "RemoteProtocolError at the start", OLDEST, within=1.0)
async def wants_messages_elsewhere(ground: Ground) -> None:
    client = await ground.client()
    other = await ground.stack.enter_async_context(EvilHttp())
    event = f"event: endpoint\ndata: {other.url}\n\n"
    ground.http.tell("GET", "status", code=200, body=event, type="text/event-stream")
    with ground.promise(RemoteProtocolError, "which is not its origin"):
        await client.open()
    assert other.asked == []


# Cut


@row(
    "Cut mid-SSE / clean EOF without answer",
    "StreamEnded; the call is not sent again",
    *POSTED,
    within=0.1,
)
async def cuts(ground: Ground) -> None:
    client = await ground.open()
    ways = [{"at": at} for at in ("start", "headers", "body", "event")]
    for way in (*ways, *({**way, "reset": True} for way in ways)):
        with ground.promise(StreamEnded):
            await client.call_tool("cut", way)
    for tool in ("quiet", "garbage", "half_close"):
        with ground.promise(StreamEnded):
            await client.call_tool(tool)
    assert ground.http.times("tools/call") == 11
    await good(client)


@row(
    "Cut mid-SSE / clean EOF without answer: the stream of all answers",
    "StreamEnded, for every call",
    OLDEST,
    within=0.1,
)
async def cuts_the_session(ground: Ground) -> None:
    for tool, arguments in (
        *(("cut", {"at": "start"}), ("cut", {"at": "event"})),
        *(("cut", {"at": "event", "reset": True}), ("quiet", {})),
    ):
        client = await ground.open()
        waiting = asyncio.create_task(client.call_tool("mute"))
        await ground.http.heard("tools/call")
        with ground.promise(StreamEnded):
            await client.call_tool(tool, arguments)
        assert isinstance((await all_of(waiting))[0], StreamEnded)


@row(
    "Cut mid-SSE / clean EOF without answer: of a call that may run twice",
    "sent again, and answered",
    *POSTED,
    within=1.0,
)
async def cuts_what_may_run_twice(ground: Ground) -> None:
    client = await ground.open()
    ground.http.tell("tools/call", "cut", times=1)
    with ground.promise(outcome="answered"):
        await client.call_tool("echo", {"text": "a"}, idempotent=True)
    ground.http.tell("tools/list", "cut", times=1, at="body")
    with ground.promise(outcome="answered"):
        await client.list_tools()
    assert ground.http.times("tools/call") == ground.http.times("tools/list") == 2


@row(
    "Cut mid-SSE / clean EOF without answer: of a stream that can be resumed",
    "the rest is fetched, nothing is sent twice; or StreamEnded, if that is refused",
    SESSION,
    within=1.0,
)
async def leaves(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(outcome="answered"):
        assert (await client.call_tool("leave", {"text": "later"})).text == "later"
    assert ground.http.asked[-1].headers["last-event-id"] == ground.http.asked[-2].id
    ground.http.tell("GET", "status", code=405)
    with ground.promise(StreamEnded, "the rest of an answer was lost: .*answered 405"):
        await client.call_tool("leave")
    assert ground.http.times("tools/call") == 2
    await good(client)


@row(
    "Cut mid-SSE / clean EOF without answer: a kept connection, as it is used again",
    "StreamEnded for a call, which may have run; lists are asked for again",
    *POSTED,
    within=1.0,
)
async def dies_at_reuse(ground: Ground) -> None:
    client = await ground.open()
    await client.call_tool("die_at_reuse")
    with ground.promise(StreamEnded, "closed the connection without an answer"):
        await good(client)
    await client.call_tool("die_at_reuse")
    with ground.promise(outcome="answered"):
        await client.list_tools()


@row("Server hangs: in the middle of its stream", "RequestTimeout (0.2 s)", *HTTP, within=0.7)
async def stops_in_the_middle(ground: Ground) -> None:
    client = await ground.open(timeout=0.2)
    with ground.promise(RequestTimeout, "within 0.2 s"):
        await client.call_tool("mute_stream")
    await good(client)


@row("Server hangs: at the end", "`close` returns all the same", SESSION, within=2.5)
async def hangs_at_the_end(ground: Ground) -> None:
    client = await ground.open()
    ground.http.tell("DELETE", "mute")
    with ground.flying_time(), ground.promise(outcome="closed"):
        await client.close()


# Too much


@row("Gzip bomb", "MessageTooLarge; under 64 MiB of memory", *POSTED, within=1.0)
async def sends_a_bomb(ground: Ground) -> None:
    client = await ground.open()
    for encoding in ("gzip", "deflate"):
        with ground.little_memory(64), ground.promise(MessageTooLarge):
            await client.call_tool("bomb", {"encoding": encoding})
    await good(client)


@row("Gzip bomb: at the start", "MessageTooLarge; under 64 MiB of memory", OLDEST, within=1.0)
async def begins_with_a_bomb(ground: Ground) -> None:
    client = await ground.client()
    ground.http.tell("GET", "bomb")
    with ground.little_memory(64), ground.promise(MessageTooLarge):
        await client.open()


@row(
    "100 MB line / endless line: a body without end",
    "MessageTooLarge; under 48 MiB of memory",
    JSON,
    within=1.0,
)
async def has_an_endless_body(ground: Ground) -> None:
    client = await ground.open()
    with ground.little_memory(48), ground.promise(MessageTooLarge):
        await client.call_tool("endless", {"what": "body"})
    with ground.little_memory(48), ground.promise(StreamEnded, "its headers are too long"):
        await client.call_tool("endless", {"what": "header"})
    await good(client)


@row(
    "100 MB line / endless line: a stream with an event without end",
    "MessageTooLarge; under 48 MiB of memory",
    *(SSE, SESSION, OLDEST),
    within=1.0,
)
async def has_an_endless_event(ground: Ground) -> None:
    for what in ("line", "event"):
        client = await ground.open()
        with ground.little_memory(48), ground.promise(MessageTooLarge):
            await client.call_tool("endless", {"what": what})


# Not there


@row("DNS failure / connect refused / TLS error", "Unreachable that says why", *HTTP, within=1.0)
async def is_not_there(ground: Ground) -> None:
    path = f"{'sse' if ground.transport == OLDEST else 'mcp'}?key={CANARY}"
    options = {**ground.secrets(), "pool": ground.pool}
    failure = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    no_name = mock.patch("socket.getaddrinfo", side_effect=failure)
    with no_name, ground.promise(Unreachable, "cannot be reached: its name has no address"):
        await Client.http(f"http://mcp.example.com/{path}", **options).open()
    with free_port() as port, ground.promise(Unreachable, "cannot be reached: Connection refused"):
        await Client.http(f"http://127.0.0.1:{port}/{path}", **options).open()
    async with talker(b"220 smtp.example.com ESMTP\r\n") as port:
        with ground.promise(Unreachable, "cannot be reached: no TLS"):
            await Client.http(f"https://127.0.0.1:{port}/{path}", **options).open()


@row(
    "DNS failure / connect refused / TLS error: a certificate that nobody knows",
    "Unreachable that says why",
    *HTTP,
    within=1.0,
)
async def is_not_trusted(ground: Ground) -> None:
    url = await ground.url(tls=self_signed(ground.folder))
    with ground.promise(Unreachable, "its certificate is not trusted"):
        await Client.http(url, **ground.secrets(), pool=ground.pool).open()
    assert ground.http.asked == []


@row(
    "DNS failure / connect refused / TLS error: no answer about its name",
    "RequestTimeout at the start, Unreachable later; not tried again",
    *HTTP,
    within=10.5,
)
async def has_no_answer_about_its_name(ground: Ground) -> None:
    url, answered = f"http://mcp.example.com/mcp?key={CANARY}", threading.Event()
    with mock.patch("socket.getaddrinfo", side_effect=lambda *_, **__: answered.wait()):
        for patience, kind in ((10.0, RequestTimeout), (60.0, Unreachable)):
            client = Client.http(url, pool=ground.pool, connect_timeout=patience)
            with ground.flying_time(), ground.promise(kind, "timed out|no answer"):
                await client.open()
        answered.set()


@row(
    "DNS failure / connect refused / TLS error: no answer to connecting",
    "RequestTimeout at the start, Unreachable later; not tried again",
    *HTTP,
    within=10.5,
)
async def does_not_take_connections(ground: Ground) -> None:
    with full_listener() as port:
        url = f"http://127.0.0.1:{port}/mcp?key={CANARY}"
        for patience, kind in ((10.0, RequestTimeout), (60.0, Unreachable)):
            client = Client.http(url, pool=ground.pool, connect_timeout=patience)
            with ground.flying_time(), ground.promise(kind, "timed out|no answer"):
                await client.open()


@row(
    "DNS failure / connect refused / TLS error: later",
    "asked twice more, then Unreachable; when it is back, all is well",
    *POSTED,
    within=3.0,
)
async def goes_away(ground: Ground) -> None:
    client = await ground.open()
    await ground.http.stop()
    with ground.flying_time(), ground.promise(Unreachable):
        await good(client)
    await ground.http.start()
    with ground.promise(outcome="then answered"):
        await good(client)


@asynccontextmanager
async def talker(words: bytes) -> AsyncIterator[int]:
    """Start a server that sends these bytes to each client; yield its port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextmanager
def full_listener() -> Iterator[int]:
    """Listen on a port with a full backlog, so that further connections hang."""
    with socket.socket() as subscriber:
        subscriber.bind(("127.0.0.1", 0))
        subscriber.listen(0)
        address = subscriber.getsockname()
        waiting = []
        try:
            for _ in range(3):  # more than may wait
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(address)
            yield address[1]
        finally:
            for each in waiting:
                each.close()


def self_signed(folder: Path) -> ssl.SSLContext:
    """Return a TLS context with a self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    today = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(pem)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@row(
    "fd / memory / pid limit reached: no thread to look up a name",
    "asked twice more, then Unreachable",
    *HTTP,
    within=3.0,
)
async def has_no_threads(ground: Ground) -> None:
    url = f"http://mcp.example.com/mcp?key={CANARY}"
    no_more = mock.patch("threading.Thread.start", side_effect=RuntimeError("no more threads"))
    with no_more, ground.flying_time(), ground.promise(Unreachable, "no more threads"):
        await Client.http(url, **ground.secrets(), pool=ground.pool).open()


@row(
    "fd / memory / pid limit reached: a client over HTTP",
    "Unreachable; open connections go on, and so does all when there is room",
    *POSTED,
    within=3.0,
)
async def has_no_descriptors(ground: Ground) -> None:
    client = await ground.open()
    await good(client)
    busy = asyncio.create_task(client.call_tool("mute", timeout=5))  # takes the open connection
    await ground.http.heard("tools/call", 2)
    with no_descriptors_left(), ground.flying_time(), ground.promise(Unreachable, "Too many open"):
        await good(client)
    busy.cancel()
    await all_of(busy)
    with ground.promise(outcome="then answered"):
        await good(client)
