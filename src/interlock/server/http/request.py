"""One HTTP request on its way in: its headers, its body within bounds, and who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from interlock.auth.principal import Principal
from interlock.server.http.responses import (
    ClientGone,
    Header,
    HttpRefusal,
    Receive,
    Scope,
    Send,
    no_memory,
)

BODY_DEADLINE = 30.0  # seconds for the whole body
MAX_DISCARDED = 64 * 1024 * 1024  # bytes of a refused body that are read, so that the client ...
DISCARD_DEADLINE = 10.0  # ... reads the refusal; seconds
MAX_REMEMBERED = 1_000  # bytes of a header whose meaning is remembered

# Given twice, the first and the last one could be seen by different programs.
_SINGLE = frozenset((b"host", b"origin", b"content-type", b"content-length", b"mcp-session-id"))


class HttpRequest:
    """A request and its way back.

    Attributes:
        headers: By lower-case name; of a name given twice, the last one.
        repeated: Names given twice.
        principal: Who asks, once that was proven.
        extra: Headers for every reply.

    Raises:
        HttpRefusal: 400; a header that must be single is there twice.
    """

    __slots__ = (
        "_alarm", "_is_late", "_is_read", "_when_late", "extra", "headers", "principal",
        "receive", "repeated", "scope", "send", "task",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        raw: list[Header] = scope["headers"]
        self.headers: dict[bytes, bytes] = dict(raw)
        self.repeated: frozenset[bytes] = frozenset()
        self.principal: Principal | None = None
        self.extra: list[Header] = []
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - an ASGI application runs in a task
        self.task = task
        self._alarm: CancelTimer | None = None
        self._is_late = False
        self._is_read = False
        self._when_late: Callable[[], None] | None = None
        if len(self.headers) != len(raw):
            names = [name for name, _ in raw]
            self.repeated = frozenset(name for name in names if names.count(name) > 1)

    def check_single(self) -> None:
        """Refuse what has a header twice that must be single."""
        twice = self.repeated & _SINGLE
        if twice:
            raise HttpRefusal(400, f"header given twice: {b', '.join(sorted(twice)).decode()}")

    def header(self, name: bytes) -> str | None:
        """Give a header's value without blanks around it."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip(" \t")

    def all(self, name: bytes) -> list[bytes]:
        """Give every value of a header."""
        if name not in self.repeated:
            value = self.headers.get(name)
            return [] if value is None else [value]
        return [value for each, value in self.scope["headers"] if each == name]

    def accepts(self, type: str) -> bool:
        """Whether the client takes a media type; one that says nothing takes all."""
        accept = self.headers.get(b"accept", b"*/*")
        return (_accepts if len(accept) <= MAX_REMEMBERED else _read_accept)(accept, type)

    def leaves_body(self, max_bytes: int) -> bool:
        """Whether more of the body may follow than a server reads to keep the connection."""
        length = self.headers.get(b"content-length", b"0")
        is_bounded = length.isdigit() and len(length) < 19 and int(length) <= max_bytes
        is_bounded = is_bounded and (self._alarm is None or not self._alarm.rang)
        return not self._is_read and (not is_bounded or b"transfer-encoding" in self.headers)

    async def discard_body(self) -> None:
        """Read the rest of the body, up to a limit, and keep nothing of it."""
        left = 0 if self._alarm is not None and self._alarm.rang else MAX_DISCARDED
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_DEADLINE):
                while left > 0:
                    message = await self.receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body"):
                        break

    def when_late(self, act: Callable[[], None] | None) -> None:
        """Call a function if what is done now takes longer than most; None: do not."""
        self._when_late = act
        if self._is_late and act is not None:
            act()

    def grow_late(self) -> None:
        """Learn that the exchange takes longer than most."""
        self._is_late = True
        if self._when_late is not None:
            self._when_late()

    def check_json(self) -> None:
        """Refuse a body that is not plain JSON; this also stops what any web page may send.

        Raises:
            HttpRefusal: 415.
        """
        kind = self.headers.get(b"content-type", b"")
        if kind != b"application/json":
            name = kind.partition(b";")[0].strip(b" \t").lower()
            if name != b"application/json":
                raise HttpRefusal(415, "Content-Type must be application/json")
        if self.headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise HttpRefusal(415, "compressed bodies are not accepted")

    async def read_body(self, max_bytes: int) -> bytes:
        """Read the body, and stop as soon as it is over a bound.

        Raises:
            HttpRefusal: 413, 408, or 503 if there is no memory for it.
            ClientGone: It never came.
        """
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18:
            raise HttpRefusal(400, "malformed Content-Length")
        if int(length) > max_bytes:
            raise _too_large(max_bytes)
        self.when_late(self._set_alarm)
        try:
            message = await self.receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body"):
                parts = [body]
                size = len(body)
                while message.get("more_body") and size <= max_bytes:
                    message = await self.receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                body = b"".join(parts)
        except asyncio.CancelledError:
            if self._alarm is None or not self._alarm.rang:
                raise
            self.task.uncancel()
            raise HttpRefusal(408, f"no whole body within {BODY_DEADLINE:g} s") from None
        except MemoryError:
            raise no_memory() from None
        finally:
            self.when_late(None)
            if self._alarm is not None:
                self._alarm.stop()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._is_read = not message.get("more_body")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        return body

    def _set_alarm(self) -> None:
        self._alarm = CancelTimer(self.task, BODY_DEADLINE)


def _too_large(max_bytes: int) -> HttpRefusal:
    return HttpRefusal(413, f"body of over {max_bytes} bytes")


def _read_accept(accept: bytes, type: str) -> bool:
    main = type.partition("/")[0]
    for part in accept.decode("latin-1").lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name in ("*/*", type, f"{main}/*"):
            quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
            return quality.strip("0.") != ""
    return False


_accepts = lru_cache(256)(_read_accept)


class CancelTimer:
    """Cancels a task after a number of seconds."""

    __slots__ = ("_task", "_timer", "rang")

    def __init__(self, task: asyncio.Task[Any], seconds: float) -> None:
        self._task = task
        self.rang = False
        self._timer = task.get_loop().call_later(seconds, self._ring)

    def stop(self) -> None:
        """Count no more."""
        self._timer.cancel()

    def _ring(self) -> None:
        self.rang = True
        self._task.cancel()


class SlowRequests:
    """Finds out which exchanges take long. One timer serves all, so quick ones cost little.

    Args:
        tick: Seconds; an exchange is late after one to two of them.
    """

    def __init__(self, tick: float = 0.02) -> None:
        self._tick = tick
        self._young: set[HttpRequest] = set()
        self._old: set[HttpRequest] = set()
        self._armed = False

    def add(self, exchange: HttpRequest) -> None:
        """Begin to wait."""
        self._young.add(exchange)
        if not self._armed:
            self._arm()

    def remove(self, exchange: HttpRequest) -> None:
        """Wait no more."""
        self._young.discard(exchange)
        self._old.discard(exchange)

    def _arm(self) -> None:
        self._armed = True
        asyncio.get_running_loop().call_later(self._tick, self._ticked)

    def _ticked(self) -> None:
        self._armed = False
        late, self._old, self._young = self._old, self._young, set()
        if self._old:
            self._arm()
        for exchange in late:
            exchange.grow_late()
