"""The wire: a record of an inspected connection's messages, stderr lines and HTTP exchanges.

Secrets are removed before an entry is stored.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from interlock.errors import ParseError
from interlock.protocol import envelope
from interlock.text.redaction import Redactor
from interlock.transports.trace import Note
from interlock.types import JsonObject, RequestId

MAX_ENTRIES = 2_000
MAX_BYTES = 8 * 1024 * 1024  # bytes of all entries' texts together
MAX_TEXT = 1024 * 1024  # characters of one entry's text
SHOWN = 16 * 1024  # characters of an entry's text in a list
MAX_OPEN = 1_000  # unanswered requests that are remembered, to match their answers

Kind = Literal["sent", "received"] | Note
Form = Literal["request", "notification", "result", "error", "invalid"]


class WireEntry(Struct, frozen=True, omit_defaults=True):
    """An entry of the wire: a message or another event.

    Attributes:
        n: The entry's number, from 1.
        at: The time, in seconds since the inspection began.
        kind: The direction of a message, or the kind of another event.
        size: The message's size in bytes.
        text: The text, from which secrets are removed.
        form: The JSON-RPC form of a message, such as a request.
        method: The method of a message, or the method of the request that it answers.
        name: The tool, prompt or URI that a request names.
        id: The JSON-RPC id of a request or an answer.
        of: The number of the request's entry, if this is an answer; 0 otherwise.
        ms: Milliseconds since that request.
        problem: Why a message is not valid; "" if it is valid.
    """

    n: int
    at: float
    kind: Kind
    size: int
    text: str
    form: Form | None = None
    method: str = ""
    name: str = ""
    id: RequestId | None = None
    of: int = 0
    ms: float | None = None
    problem: str = ""

    def shown(self, *, whole: bool = False) -> JsonObject:
        """Return the entry as JSON for a page; a long text is cut unless `whole` is true."""
        shown: JsonObject = msgspec.to_builtins(self)
        if not whole and len(self.text) > SHOWN:
            shown |= {"text": self.text[:SHOWN], "isCut": True}
        return shown


class _Named(Struct):
    name: Any = ""
    uri: Any = ""


_decode_named = msgspec.json.Decoder(_Named).decode


class InspectedWire:
    """Records a connection's last entries. It implements `Trace`.

    Args:
        on_stderr: Called with what the server's program writes to stderr.

    Attributes:
        redactor: Removes secrets from texts; see `Trace`.
        is_paused: Whether recording is paused, so that new entries are dropped.
        dropped: The number of old entries that were dropped to make room.
    """

    def __init__(self, on_stderr: Callable[[str], object] = lambda _: None) -> None:
        self.redactor = Redactor()
        self._on_stderr = on_stderr
        self.dropped = 0
        self._entries: deque[WireEntry] = deque()
        self._bytes = 0
        self._last = 0
        self._began = monotonic()
        self._open: OrderedDict[tuple[Kind, RequestId], WireEntry] = OrderedDict()
        self._stderr = ""  # the line that is not complete yet
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def last(self) -> int:
        """The number of the newest entry; 0 before the first entry."""
        return self._last

    # Implementation of `Trace`

    def sent(self, frame: bytes) -> None:
        self._message("sent", frame)

    def received(self, frame: bytes) -> None:
        self._message("received", frame)

    def noted(self, kind: Note, text: str) -> None:
        if kind != "stderr":
            if kind in ("exit", "lost"):
                self._end_stderr()
            self._add(kind, text)
            return
        self._on_stderr(text)
        *lines, self._stderr = (self._stderr + text).split("\n")
        for line in lines:
            self._add("stderr", line.removesuffix("\r"))
        if len(self._stderr) > MAX_TEXT:
            self._end_stderr()

    def _end_stderr(self) -> None:
        line, self._stderr = self._stderr, ""
        if line:
            self._add("stderr", line)

    # Reading

    def since(self, after: int, limit: int) -> list[WireEntry]:
        first = self._entries[0].n if self._entries else 1
        begin = max(0, after + 1 - first)
        return [self._entries[at] for at in range(begin, min(len(self._entries), begin + limit))]

    def entries(self) -> tuple[WireEntry, ...]:
        return tuple(self._entries)

    def answer(self, method: str, name: str, after: int) -> WireEntry | None:
        """Return the newest result for `method` and `name` among the entries after a number."""
        for entry in reversed(self._entries):
            if entry.n <= after:
                return None
            is_answer = entry.form == "result" and entry.of > after
            if is_answer and (entry.method, entry.name) == (method, name):
                return entry
        return None

    async def wait(self, after: int, seconds: float) -> None:
        """Wait until an entry after a number exists, but at most `seconds`."""
        if self._last > after:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter
        finally:
            self._waiters.discard(waiter)

    def wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Adding

    def _message(self, kind: Literal["sent", "received"], frame: bytes) -> None:
        try:
            message = envelope.decode(frame)
        except ParseError as error:
            is_batch = frame[:1] == b"["
            problem = "" if is_batch else self.redactor.redact(str(error))
            self._add(kind, frame, form="invalid", problem=problem, method="batch" * is_batch)
            return
        id = message.id if isinstance(message.id, int | str) else None
        if message.method is not UNSET:
            form: Form = "notification" if message.id is UNSET else "request"
            name = ""
            if message.params is not UNSET:
                name = _name_in(message.params)
            entry = self._add(kind, frame, form=form, method=message.method, name=name, id=id)
            if id is not None:
                self._open[kind, id] = entry
                if len(self._open) > MAX_OPEN:
                    self._open.popitem(last=False)
            return
        asked = None
        if id is not None:
            asked = self._open.pop(("received" if kind == "sent" else "sent", id), None)
        form = "error" if message.error is not UNSET else "result"
        if asked is None:
            self._add(kind, frame, form=form, id=id)
            return
        ms = round((monotonic() - self._began - asked.at) * 1000, 1)
        self._add(
            kind,
            frame,
            form=form,
            method=asked.method,
            name=asked.name,
            id=id,
            of=asked.n,
            ms=ms,
        )

    def _add(self, kind: Kind, text: str | bytes, **fields: Any) -> WireEntry:
        size = len(text if isinstance(text, bytes) else text.encode(errors="replace"))
        if isinstance(text, bytes):
            text = text.decode(errors="backslashreplace")
        self._last += 1
        entry = WireEntry(
            n=self._last,
            at=round(monotonic() - self._began, 4),
            kind=kind,
            size=size,
            text=self.redactor.redact(text)[:MAX_TEXT],
            **fields,
        )
        self._entries.append(entry)
        self._bytes += len(entry.text)
        while len(self._entries) > MAX_ENTRIES or self._bytes > MAX_BYTES:
            self._bytes -= len(self._entries.popleft().text)
            self.dropped += 1
        self.wake()
        return entry


def _name_in(params: msgspec.Raw) -> str:
    with suppress(msgspec.DecodeError, RecursionError):
        found = _decode_named(params)
        name = found.name or found.uri
        return name[:200] if isinstance(name, str) else ""
    return ""
