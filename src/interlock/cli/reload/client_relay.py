"""Connects a client on stdin and stdout to the process that serves the file now.

Rules:

1. A request is answered by the process that got it. A process that is replaced answers its running
   requests first, for at most `DRAIN` seconds.
2. A new process gets what the client has told its predecessor: `initialize`, the log level and the
   subscriptions. The client sees only the first answers to them.
3. Then the client is notified that all lists may have changed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from interlock import revisions
from interlock.cli.reload.child_server import ChildReport, ChildServer
from interlock.errors import InterlockError, ParseError
from interlock.protocol import envelope
from interlock.protocol.envelope import Envelope
from interlock.transports.pipes import PipeTransport
from interlock.types import RequestId

DRAIN = 30.0  # seconds
START_PATIENCE = 10.0  # seconds that a process may take to start after the end of the input
MAX_WAITING = 1_000  # messages that wait until the file is served
MAX_REPLAYED = 1_000  # subscriptions that are repeated to a new process
_LISTS = ("tools", "prompts", "resources")
_OWN = "interlock-reload-"


class _Cancelled(Struct, frozen=True):
    request_id: RequestId | None = msgspec.field(name="requestId", default=None)


class _Initialized(Struct, frozen=True):
    capabilities: dict[str, Raw] = {}


class _Subscription(Struct, frozen=True):
    uri: str = ""


class _StreamId(Struct, frozen=True):
    id: RequestId | None = msgspec.field(name=revisions.SUBSCRIPTION_KEY, default=None)


class _OfStream(Struct, frozen=True):
    meta: _StreamId = msgspec.field(name="_meta", default=_StreamId())


class _Wanted(Struct, frozen=True, rename="camel"):
    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False


class _Listening(Struct, frozen=True):
    notifications: _Wanted = _Wanted()


class _Question(Struct, frozen=True):
    """A request of a process to the client, which has another id there."""

    child: ChildServer
    id: RequestId


class ClientRelay:
    """The connection to the client. It outlives the processes that answer.

    Args:
        source: The descriptor from which the client's messages are read.
        target: The descriptor to which messages for the client are written.

    Attributes:
        current: The process that gets new requests; None while there is none.
        ended: Set when the client has disconnected.
    """

    def __init__(self, source: int, target: int) -> None:
        self.current: ChildServer | None = None
        self.ended = asyncio.Event()
        self._client = PipeTransport(source, target)
        self._waiting: list[bytes] = []  # until the file is served
        self._problem = ""  # why the file is not served
        self._has_served = False
        self._running: dict[RequestId, ChildServer] = {}
        self._listens: dict[RequestId, bytes] = {}  # running requests without an answer
        self._idle = asyncio.Event()  # changes when a running request has ended
        self._questions: dict[int, _Question] = {}
        self._numbers = 0
        self._own: dict[RequestId, asyncio.Future[None]] = {}  # requests by this relay
        self._initialize: tuple[RequestId, Raw] | None = None
        self._is_accepted = False  # whether `initialize` was answered
        self._initialized = b""
        self._lists: set[str] = set()
        self._replayed: dict[str, tuple[str, Raw]] = {}  # requests to repeat, by what they set
        self._repeated: set[RequestId] = set()  # subscriptions that are acknowledged a second time

    async def open(self) -> None:
        await self._client.open(self)

    async def close(self) -> None:
        await self._client.close()

    # From the client

    def frames_received(self, frames: list[bytes], _request: RequestId | None = None) -> None:
        for frame in frames:
            try:
                messages = envelope.messages_in(frame)
            except ParseError:
                messages = [frame]  # invalid: the server answers with an error
            for each in messages:
                self._from_client(each)

    def _from_client(self, frame: bytes) -> None:
        if self.current is None and not self._problem and len(self._waiting) < MAX_WAITING:
            self._waiting.append(frame)
            return
        child = self.current
        try:
            message = envelope.decode(frame)
        except ParseError:
            if child is not None:
                child.send(frame)
            return
        if message.method is UNSET:
            self._answered(message)
        elif envelope.is_notification(message):
            self._notified(message, frame)
        elif child is None:
            id = message.id if message.id is not UNSET else None
            text = f"the server cannot be reached: {self._problem or 'too many messages wait'}"
            self._client.send([envelope.error(id, -32603, text)])
        else:
            self._requested(message, frame, child)

    def _requested(self, message: Envelope, frame: bytes, child: ChildServer) -> None:
        id, params = message.id, message.params
        if id is None or id is UNSET:
            child.send(frame)  # invalid: the server answers with an error
            return
        self._running[id] = child
        match message.method:
            case "initialize":
                self._initialize = (id, Raw(b"{}") if params is UNSET else params)
                self._is_accepted = False
            case "logging/setLevel" if params is not UNSET:
                self._replayed["level"] = ("logging/setLevel", params)
            case "resources/subscribe" if params is not UNSET:
                if len(self._replayed) < MAX_REPLAYED:
                    uri = _read(params, _Subscription).uri
                    self._replayed[f"uri {uri}"] = ("resources/subscribe", params)
            case "resources/unsubscribe" if params is not UNSET:
                self._replayed.pop(f"uri {_read(params, _Subscription).uri}", None)
            case "subscriptions/listen":
                self._listens[id] = frame
        child.send(frame)

    def _notified(self, message: Envelope, frame: bytes) -> None:
        child = self.current
        if message.method == "notifications/initialized":
            self._initialized = frame
        elif message.method == "notifications/cancelled" and message.params is not UNSET:
            id = _read(message.params, _Cancelled).request_id
            if id is not None and id in self._running:
                child = self._running[id]
                self._end_request(id)
        if child is not None:
            child.send(frame)

    def _answered(self, message: Envelope) -> None:
        """Pass on the answer to a question of a process."""
        number = message.id if isinstance(message.id, int) else None
        question = self._questions.pop(number, None) if number is not None else None
        if question is None:
            return
        if message.error is not UNSET:
            body = b'"error":%b' % message.error
        else:
            body = b'"result":%b' % (b"{}" if message.result is UNSET else message.result)
        id = envelope.encode(question.id)
        question.child.send(b'{"jsonrpc":"2.0","id":%b,%b}' % (id, body))

    # From a process

    def reported(self, child: ChildServer, report: ChildReport) -> None:
        """Do nothing: the process is ready once it answers."""

    def from_child(self, child: ChildServer, frames: list[bytes]) -> None:
        """Handle messages of a process."""
        for frame in frames:
            try:
                message = envelope.decode(frame)
            except ParseError:
                continue
            if message.method is UNSET:
                self._child_answered(child, message, frame)
            elif envelope.is_notification(message):
                self._child_notified(child, message, frame)
            elif message.id is not None and message.id is not UNSET:
                self._numbers += 1
                self._questions[self._numbers] = _Question(child, message.id)
                params = b"{}" if message.params is UNSET else bytes(message.params)
                self._client.send([envelope.request(self._numbers, message.method, params)])

    def _child_answered(self, child: ChildServer, message: Envelope, frame: bytes) -> None:
        id = message.id
        if id is None or id is UNSET:
            if child is self.current:
                self._client.send([frame])  # about a message that could not be read
            return
        if id in self._own:
            if not self._own[id].done():
                self._own[id].set_result(None)
            return
        if self._running.get(id) is not child:
            return
        self._end_request(id)
        if self._initialize is not None and id == self._initialize[0] and not self._is_accepted:
            self._is_accepted = message.result is not UNSET
            self._take_lists(message.result)
        self._client.send([frame])

    def _take_lists(self, result: Raw | msgspec.UnsetType) -> None:
        if result is not UNSET:
            self._lists |= {*_read(result, _Initialized).capabilities} & {*_LISTS}

    def _child_notified(self, child: ChildServer, message: Envelope, frame: bytes) -> None:
        method = message.method
        if method == "notifications/cancelled" and message.params is not UNSET:
            asked = _Question(child, _read(message.params, _Cancelled).request_id or 0)
            for number, question in self._questions.items():
                if question == asked:
                    del self._questions[number]
                    params = envelope.encode({"requestId": number})
                    self._client.send([envelope.notification("notifications/cancelled", params)])
                    return
        if method == "notifications/subscriptions/acknowledged" and message.params is not UNSET:
            id = _read(message.params, _OfStream).meta.id
            if id in self._repeated:
                self._repeated.discard(id)
                return
        is_of_request = method in ("notifications/progress", "notifications/message")
        if child is self.current or (is_of_request and child in self._running.values()):
            self._client.send([frame])

    def _end_request(self, id: RequestId) -> None:
        self._running.pop(id, None)
        self._listens.pop(id, None)
        self._idle.set()

    # The processes

    async def introduce(self, child: ChildServer) -> None:
        """Repeat the client's settings to a new process; return when it is ready.

        The process is ready once it answers, because it answers nothing before its lifespan.
        """
        if self._initialize is None or not self._is_accepted:
            await self._ask(child, "ping", b"{}")
            return
        await self._ask(child, "initialize", self._initialize[1])
        if self._initialized:
            child.send(self._initialized)
        for method, params in [*self._replayed.values()]:
            await self._ask(child, method, params)

    async def _ask(self, child: ChildServer, method: str, params: bytes) -> None:
        self._numbers += 1
        id = f"{_OWN}{self._numbers}"
        self._own[id] = answered = asyncio.get_running_loop().create_future()
        try:
            child.send(envelope.request(id, method, params))
            await answered
        finally:
            del self._own[id]

    async def use(self, child: ChildServer) -> None:
        """Send requests to a process that is ready, from now on."""
        self.current, self._problem = child, ""
        for id, frame in self._listens.items():
            self._running[id] = child
            self._repeated.add(id)
            child.send(frame)
        if self._has_served:
            self._announce()
        self._has_served = True
        self._handle_waiting()

    def _handle_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            self._from_client(frame)
        self._idle.set()

    def _announce(self) -> None:
        """Notify the client that all lists may have changed."""
        frames = []
        if self._initialized:
            frames = [
                envelope.notification(f"notifications/{kind}/list_changed", b"{}")
                for kind in _LISTS
                if kind in self._lists
            ]
        for id, frame in self._listens.items():
            params = envelope.decode(frame).params
            wanted = _Wanted() if params is UNSET else _read(params, _Listening).notifications
            stream = envelope.encode(_OfStream(_StreamId(id)))
            frames += [
                envelope.notification(f"notifications/{kind}/list_changed", stream)
                for kind in _LISTS
                if getattr(wanted, f"{kind}_list_changed")
            ]
        if frames:
            self._client.send(frames)

    def fail(self, problem: str) -> None:
        """Refuse requests until the file can be served."""
        if self.current is not None:
            return
        self._problem = problem
        self._handle_waiting()

    async def drained(self, child: ChildServer) -> None:
        """Wait until a process that was replaced has answered, for at most `DRAIN` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                await self._settled(child)

    def lost(self, child: ChildServer) -> None:
        """Answer the requests of a process that has ended."""
        if self.current is child:
            self.current = None
        for id in [id for id, each in self._running.items() if each is child]:
            if id not in self._listens:
                self._end_request(id)
                text = f"the server ended during the request: {child.reason}"
                self._client.send([envelope.error(id, -32603, text)])
        for number in [number for number, each in self._questions.items() if each.child is child]:
            del self._questions[number]

    async def _settled(self, child: ChildServer | None) -> None:
        """Wait until the requests of a process, or all requests, are answered."""
        while any(
            each is child or child is None
            for id, each in self._running.items()
            if id not in self._listens
        ):
            self._idle.clear()
            await self._idle.wait()

    # The other methods of a receiver

    def awaits(self, _id: RequestId) -> bool:
        return False

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        """Do nothing: this is for HTTP."""

    async def settle(self, timeout: float) -> None:
        """Answer the requests that the client sent before its input ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_PATIENCE if self._waiting else timeout):
                while self._waiting:
                    self._idle.clear()
                    await self._idle.wait()
                await self._settled(None)

    def connection_lost(self, _error: InterlockError) -> None:
        self.ended.set()


def _read(params: Raw, type: type[Any]) -> Any:
    """Decode the known members of params; the server itself refuses invalid params."""
    try:
        return msgspec.json.decode(params, type=type)
    except (msgspec.DecodeError, RecursionError):
        return type()
