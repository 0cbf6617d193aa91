"""An incoming HTTP request: its headers, its principal, and its body up to a limit."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, TypeVar

from interlock.auth import Authenticator
from interlock.auth.principal import Principal
from interlock.observing import TraceContext, header_context
from interlock.server.http.responses import (
    AT_ONCE,
    AtOnce,
    ClientGone,
    Header,
    HttpRefusal,
    Message,
    Receive,
    Scope,
    Send,
    no_memory,
)
from interlock.text.redaction import NO_VALUES, HiddenValues

BODY_DEADLINE = 30.0  # seconds within which the whole body must arrive
# The most bytes, and seconds, for which a refused body is still read. A client that is sending its
# body does not read the refusal if the connection closes at once.
MAX_DISCARDED = 64 * 1024 * 1024
DISCARD_DEADLINE = 10.0
TICK = 0.02  # seconds; a request is late after one to two ticks
MAX_CACHED = 1_000  # bytes; longer Accept headers are parsed each time

# Headers that must not be repeated, because two programs could each use a different value.
_SINGLE = frozenset((b"host", b"origin", b"content-type", b"content-length", b"mcp-session-id"))

_OWN_JSON = re.compile(rb"application/[\w.-]+\+json")

# The key of the `RequestHeaders` in an ASGI scope, if the host has already parsed the headers.
SAID = "interlock.headers"

T = TypeVar("T")


class RequestHeaders:
    """The parsed headers of a request. Requests with equal headers can share this object.

    Attributes:
        by_name: Values by lower-case name; for a repeated header, its last value.
        repeated: The names of headers that occur more than once.
        takes_json, takes_stream: Whether the client accepts JSON, and event streams.
    """

    __slots__ = ("by_name", "repeated", "takes_json", "takes_stream")

    def __init__(self, headers: list[Header]) -> None:
        self.by_name: dict[bytes, bytes] = dict(headers)
        self.repeated: frozenset[bytes] = frozenset()
        accept = self.by_name.get(b"accept", b"*/*")
        read = _accepted if len(accept) <= MAX_CACHED else _read_accept
        self.takes_json, self.takes_stream = read(accept)
        if len(self.by_name) != len(headers):
            times = Counter(name for name, _ in headers)
            self.repeated = frozenset(name for name in times if times[name] > 1)

    def with_length(self, length: bytes) -> RequestHeaders:
        """Return a copy with a different `Content-Length`."""
        other = RequestHeaders.__new__(RequestHeaders)
        other.by_name = {**self.by_name, b"content-length": length}
        other.repeated = self.repeated
        other.takes_json = self.takes_json
        other.takes_stream = self.takes_stream
        return other


class HttpRequest:
    """An HTTP request, and the functions that send its response.

    Attributes:
        address: The client's address; "" if it is unknown.
        headers: Values by lower-case name; for a repeated header, its last value.
        repeated: The names of headers that occur more than once.
        caller_headers: The headers that a gateway may pass on to servers; see `HttpOptions`.
        principal: The caller, once authenticated; None before that, or without authentication.
        authenticator: Identifies the caller; None if any client may call.
        extra: Headers to add to every response.
        at_once: Sends a whole response in one step, if the host supports it; see `AT_ONCE`.
        takes_json, takes_stream: Whether the client accepts JSON, and event streams.
        is_late: Whether the request has been running for longer than most requests do.
        on_late: Called when `is_late` becomes true. Check `is_late` first when you set it.
    """

    __slots__ = (
        "_is_read", "_timer", "address", "at_once", "authenticator", "caller_headers", "extra",
        "headers", "is_late", "on_late", "principal", "receive", "repeated", "scope", "send",
        "takes_json", "takes_stream", "task",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        client = scope.get("client")
        self.address: str = client[0] if client else ""
        said = scope.get(SAID) or RequestHeaders(scope["headers"])
        self.headers: dict[bytes, bytes] = said.by_name
        self.repeated: frozenset[bytes] = said.repeated
        self.takes_json: bool = said.takes_json
        self.takes_stream: bool = said.takes_stream
        self.caller_headers = NO_VALUES
        self.principal: Principal | None = None
        self.authenticator: Authenticator | None = None
        self.extra: list[Header] = []
        extensions = scope.get("extensions")
        self.at_once: AtOnce | None = extensions.get(AT_ONCE) if extensions else None
        self.is_late = False
        self.on_late: Callable[[], None] | None = None
        # Not None, because an ASGI application always runs in a task.
        self.task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        self._timer: CancelTimer | None = None
        self._is_read = False

    def check_single(self) -> None:
        """Refuse a request that repeats a header in `_SINGLE`."""
        twice = self.repeated & _SINGLE
        if twice:
            raise HttpRefusal(400, f"header given twice: {b', '.join(sorted(twice)).decode()}")

    def header(self, name: bytes) -> str | None:
        """Return a header's value without surrounding whitespace; None if it is missing."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip(" \t")

    @property
    def trace(self) -> TraceContext | None:
        """The trace context in the headers; None if there is none, or several."""
        if b"traceparent" in self.repeated:
            return None
        return header_context(self.headers.get(b"traceparent"), self.headers.get(b"tracestate"))

    def check_media(self) -> None:
        """Refuse a body that is not declared as JSON: web pages can send other types anywhere.

        Raises:
            HttpRefusal: 415: the media type or the encoding is not accepted.
        """
        kind = self.headers.get(b"content-type", b"")
        if kind != b"application/json":
            name = kind.partition(b";")[0].strip(b" \t").lower()
            # A page cannot send these types to another origin without the server's consent.
            if name != b"application/json" and not _OWN_JSON.fullmatch(name):
                raise HttpRefusal(415, "Content-Type must be application/json")
        if self.headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise HttpRefusal(415, "compressed bodies are not accepted")

    def read_caller_headers(self, names: Collection[str]) -> None:
        """Read the headers that a gateway may pass on to servers.

        Raises:
            HttpRefusal: 400: one of them is given twice, or is not UTF-8.
        """
        found = HiddenValues()
        for name in names:
            key = name.encode()
            value = self.headers.get(key)
            if value is None:
                continue
            if key in self.repeated:
                raise HttpRefusal(400, f"header given twice: {name}")
            try:
                found[name] = value.decode().strip(" \t")
            except UnicodeDecodeError:
                raise HttpRefusal(400, f"header {name} is not UTF-8") from None
        self.caller_headers = found

    # Deadlines

    def mark_late(self) -> None:
        self.is_late = True
        if self.on_late is not None:
            self.on_late()

    async def within(self, work: Awaitable[T], seconds: float) -> T:
        """Await `work` with a deadline; a timer is started only once the request is late.

        Raises:
            TimeoutError: The deadline has passed before `work` was done.
        """
        self.on_late = partial(self._start_timer, seconds)
        if self.is_late:
            self.on_late()
        try:
            return await work
        except asyncio.CancelledError:
            if self._timer is None or not self._timer.has_fired:
                raise
            self.task.uncancel()
            raise TimeoutError from None
        finally:
            self.on_late = None
            if self._timer is not None:
                self._timer.stop()

    def _start_timer(self, seconds: float) -> None:
        self._timer = CancelTimer(self.task, seconds)

    # Body

    async def read_body(self, max_bytes: int) -> bytes:
        """Read the body, and stop as soon as it exceeds `max_bytes`.

        Raises:
            HttpRefusal: 413: too large; 408: too slow; 503: it does not fit into memory.
            ClientGone: The client closed the connection.
        """
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18:
            raise HttpRefusal(400, "malformed Content-Length")
        if int(length) > max_bytes:
            raise _too_large(max_bytes)
        # The code of `within`, inlined to save a coroutine for each request.
        self.on_late = partial(self._start_timer, BODY_DEADLINE)
        if self.is_late:
            self.on_late()
        try:
            message = await self.receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body"):
                body, message = await self._read_on(message, max_bytes)
        except asyncio.CancelledError:
            if self._timer is None or not self._timer.has_fired:
                raise
            self.task.uncancel()
            raise HttpRefusal(408, f"the body did not arrive within {BODY_DEADLINE:g} s") from None
        except MemoryError:
            raise no_memory() from None
        finally:
            self.on_late = None
            if self._timer is not None:
                self._timer.stop()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._is_read = not message.get("more_body")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        return body

    async def _read_on(self, message: Message, max_bytes: int) -> tuple[bytes, Message]:
        """Read the rest of a body; return the parts before the last one, and the last message."""
        parts = [message.get("body", b"")]
        size = len(parts[0])
        while message.get("more_body") and size <= max_bytes:
            message = await self.receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        return b"".join(parts), message

    def leaves_body(self, max_bytes: int) -> bool:
        """Return whether the unread body may be too long to read it and keep the connection."""
        length = self.headers.get(b"content-length", b"0")
        is_bounded = length.isdigit() and len(length) < 19 and int(length) <= max_bytes
        is_bounded = is_bounded and (self._timer is None or not self._timer.has_fired)
        return not self._is_read and (not is_bounded or b"transfer-encoding" in self.headers)

    async def discard_body(self) -> None:
        """Read and discard the rest of the body, within `MAX_DISCARDED` and `DISCARD_DEADLINE`."""
        left = 0 if self._timer is not None and self._timer.has_fired else MAX_DISCARDED
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_DEADLINE):
                while left > 0:
                    message = await self.receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body"):
                        break


def _too_large(max_bytes: int) -> HttpRefusal:
    return HttpRefusal(413, f"body too large (limit {max_bytes} bytes)")


def _read_accept(accept: bytes) -> tuple[bool, bool]:
    """Return whether an Accept header allows JSON, and whether it allows event streams."""
    accepted: dict[str, bool] = {}
    for part in accept.decode("latin-1").lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        accepted.setdefault(name, quality.strip("0.") != "")
    return _allows(accepted, "application/json"), _allows(accepted, "text/event-stream")


def _allows(accepted: dict[str, bool], type: str) -> bool:
    names = ("*/*", type, f"{type.partition('/')[0]}/*")
    return next((allowed for name, allowed in accepted.items() if name in names), False)


_accepted = lru_cache(256)(_read_accept)


class CancelTimer:
    """A timer that cancels a task after a number of seconds."""

    __slots__ = ("_task", "_timer", "has_fired")

    def __init__(self, task: asyncio.Task[Any], seconds: float) -> None:
        self._task = task
        self.has_fired = False
        self._timer = task.get_loop().call_later(seconds, self._fire)

    def stop(self) -> None:
        """Stop the timer, so that the task is not cancelled."""
        self._timer.cancel()

    def _fire(self) -> None:
        self.has_fired = True
        self._task.cancel()


class RequestsUnderWay:
    """Marks slow requests as late. One timer serves all requests, so quick requests cost little.

    Attributes:
        new: The requests that began since the last tick.
        is_ticking: Whether the timer is running. If not, code that adds a request to `new` must
            call `begin_ticking`.
    """

    def __init__(self) -> None:
        self.new: set[HttpRequest] = set()
        self._old: set[HttpRequest] = set()
        self._late: set[HttpRequest] = set()
        self.is_ticking = False

    def __len__(self) -> int:
        return len(self.new) + len(self._old) + len(self._late)

    def begin_ticking(self) -> None:
        self.is_ticking = True
        asyncio.get_running_loop().call_later(TICK, self._on_tick)

    def remove(self, request: HttpRequest) -> None:
        for each in (self.new, self._old, self._late):
            each.discard(request)

    def _on_tick(self) -> None:
        late, self._old, self.new = self._old, self.new, set()
        self._late |= late
        self.is_ticking = bool(self._old)
        if self.is_ticking:
            asyncio.get_running_loop().call_later(TICK, self._on_tick)
        for request in late:
            request.mark_late()
