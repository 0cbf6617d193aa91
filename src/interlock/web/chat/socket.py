"""The chat over a WebSocket: one JSON object in each text frame."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Generator
from time import monotonic
from types import coroutine
from typing import Any

import msgspec

from interlock.auth.authenticator import Authenticator, Headers, values_of
from interlock.auth.page_session import PAGE_KEY
from interlock.auth.principal import Principal
from interlock.calls import Caller
from interlock.errors import AuthError
from interlock.types import JsonObject
from interlock.web.chat.errors import TurnError
from interlock.web.chat.events import TEXTS, TurnEvent, decoded
from interlock.web.chat.questions import checked_answer
from interlock.web.chat.turn import Asked, Turn
from interlock.web.chat.turns import Turns

SUBPROTOCOL = "interlock.chat.1"
MAX_FRAME = 64 * 1024  # bytes of a frame from a client
MAX_HELLO = 4 * 1024
HELLO_SECONDS = 5.0
MAX_QUEUE = 256 * 1024  # bytes that wait for a slow client
SLOW_SECONDS = 10.0  # a socket whose queue is full for longer is closed
CHECK_SECONDS = 1.0  # seconds between two checks of all sockets
PING_SECONDS = 20.0  # without other frames; scripts in a page cannot see WebSocket pings
PING = {"type": "ping"}

MALFORMED, LOGIN, ORIGIN, SLOW, TOO_LARGE, TOO_MANY, RESTART = (
    4400, 4401, 4403, 4408, 4413, 4429, 1001,
)  # fmt: skip
_log = logging.getLogger("interlock.web")
_encode = msgspec.json.Encoder().encode


LOCAL_USER = Principal("user:local")


class Closing(Exception):
    """Raised to close the socket with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Sockets:
    """Serves all WebSocket connections of a server.

    Args:
        turns: The turns of all users.
        authenticator: Checks the token in the first frame; None if every caller is the local user.
        is_local: Whether every authenticated caller is the local user.
    """

    def __init__(
        self, turns: Turns, authenticator: Authenticator | None, *, is_local: bool = False
    ) -> None:
        self.turns = turns
        self.authenticator = authenticator
        self.is_local = is_local
        self._sockets: set[Socket] = set()
        self._checks: set[asyncio.Task[None]] = set()

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection, after its Host and Origin have been checked."""
        offered = scope.get("subprotocols") or ()
        chosen = SUBPROTOCOL if SUBPROTOCOL in offered else None
        await send({"type": "websocket.accept", "subprotocol": chosen})
        socket = Socket(self, scope, receive, send)
        self._sockets.add(socket)
        if not self._checks and self.authenticator is not None:
            checks = self._check_credentials(), self._ping_pages()
            self._checks = {asyncio.create_task(each) for each in checks}
        try:
            await socket.run()
        finally:
            self._sockets.discard(socket)

    def count(self, owner: str) -> int:
        return sum(each.owner == owner for each in self._sockets)

    async def _check_credentials(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for socket in [*self._sockets]:
                await socket.check_credential()

    async def _ping_pages(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = monotonic()
            for socket in self._sockets:
                socket.ping(now)

    async def close(self) -> None:
        """Close all sockets; clients can reconnect and resume."""
        for check in self._checks:
            check.cancel()
        if self._checks:
            await asyncio.wait(self._checks)
        for socket in [*self._sockets]:
            socket.close(RESTART, "restart")


class Socket:
    """One WebSocket connection of a page."""

    def __init__(self, sockets: Sockets, scope: Any, receive: Any, send: Any) -> None:
        self.owner: str | None = None
        self._sockets = sockets
        self._turns = sockets.turns
        self._scope = scope
        self._receive = receive
        self._send = send
        self._caller = Caller(surface="web")
        self._headers: Headers = ()
        self._user = "local"
        self._queue: deque[_Frame] = deque()
        self._queued = 0  # bytes
        self._full_since: float | None = None
        self._idle: asyncio.Future[None] | None = None  # the writer waits for it
        self._under_way: Awaitable[None] | None = None  # the unfinished send from `_send_now`
        self._closing: Closing | None = None
        self._followed: set[Turn] = set()
        self._sent = monotonic()
        self._reading: asyncio.Task[None] | None = None
        self._is_gone = False
        self._is_page = False

    async def run(self) -> None:
        writing = asyncio.create_task(self._write())
        self._reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait({writing, self._reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for turn in self._followed:
                turn.unfollow(self._on_event)
            self._turns.forget(self._caller.owner, self._on_event, self._on_change)
            tasks = {writing, self._reading}
            if not writing.done() and self._closing is not None:
                await asyncio.wait({writing}, timeout=1.0)  # the writer sends the close frame
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled() and (error := task.exception()) is not None:
                    _log.error("a WebSocket of the chat failed", exc_info=error)

    def close(self, code: int, reason: str) -> None:
        if self._closing is None:
            self._closing = Closing(code, reason)
            self._wake()

    # Reading

    async def _read(self) -> None:
        try:
            await self._receive()  # websocket.connect
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await self._frame(MAX_HELLO)
            await self._hello(hello)
            while True:
                await self._handle(await self._frame(MAX_FRAME))
        except TimeoutError:
            self.close(LOGIN, "no hello in time")
        except Closing as closing:
            self.close(closing.code, closing.reason)
        except _Gone:
            self._is_gone = True
            self.close(RESTART, "")

    async def _frame(self, most: int) -> JsonObject:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise _Gone
        text = message.get("text")
        if text is None:
            raise Closing(MALFORMED, "frames must be text")
        if len(text) > most or (len(text) * 4 > most and len(text.encode()) > most):
            raise Closing(TOO_LARGE, "the frame is too large")
        try:
            found: JsonObject = decoded(text)
        except ValueError:
            raise Closing(MALFORMED, "the frame is not a JSON object") from None
        return found

    async def _hello(self, hello: JsonObject) -> None:
        if hello.get("type") != "hello":
            raise Closing(LOGIN, "the first frame must be hello")
        if self._sockets.authenticator is not None:
            self._headers = self._credential(hello)
            principal = await self._authenticate()
            if not self._sockets.is_local:
                self._caller = Caller(principal, surface="web")
                self._user = principal.id
        owner = self._caller.owner
        if self._sockets.count(owner) >= self._turns.limits.sockets:
            raise Closing(TOO_MANY, "too many connections")
        self.owner = owner
        limits = {"frame": MAX_FRAME, "turns": self._turns.limits.turns}
        self.send({"type": "ready", "user": self._user, "limits": limits})

    def _credential(self, hello: JsonObject) -> Headers:
        """Return headers that authenticate the client: its token, or its page's session cookie."""
        name = "key" if "key" in hello else "token"
        secret = hello.get(name)
        if not isinstance(secret, str) or not secret.isascii() or not secret.isprintable():
            raise Closing(LOGIN, "a token is needed")
        if name == "token":
            return ((b"authorization", b"Bearer " + secret.encode()),)
        if not any(values_of(self._scope["headers"], b"origin")):
            raise Closing(LOGIN, "a page session needs an Origin header")
        self._is_page = True
        cookies = [(b"cookie", each) for each in values_of(self._scope["headers"], b"cookie")]
        return (*cookies, (PAGE_KEY, secret.encode()))

    async def _authenticate(self) -> Principal:
        authenticator = self._sockets.authenticator
        if authenticator is None:
            return LOCAL_USER
        client = self._scope.get("client")
        try:
            return await authenticator.authenticate(self._headers, client[0] if client else None)
        except AuthError as error:
            raise Closing(LOGIN, "the token is not valid") from error

    async def check_credential(self) -> None:
        if self.owner is None:
            return
        try:
            await self._authenticate()
        except Closing as closing:
            if isinstance(closing.__cause__, AuthError) and closing.__cause__.status != 503:
                self.close(closing.code, closing.reason)

    async def _handle(self, frame: JsonObject) -> None:
        handlers = {
            "message": self._message,
            "stop": self._stop,
            "resume": self._resume,
            "approve": self._approve,
            "change": self._change,
            "answer": self._answer,
            "watch": self._watch,
            "unwatch": self._unwatch,
        }
        handle = handlers.get(str(frame.get("type")))
        try:
            if handle is None:
                raise TurnError("bad_message", "unknown message type")
            await self._authenticate()
            await handle(frame)
        except TurnError as error:
            fields: JsonObject = {"type": "error", "code": error.code, "message": str(error)}
            if error.retry_after is not None:
                fields["retry_after"] = error.retry_after
            for key in ("conversation_id", "message_id", "approval_id", "question_id", "call_id"):
                if isinstance(frame.get(key), str):
                    fields[key] = frame[key]
            self.send(fields)

    async def _message(self, frame: JsonObject) -> None:
        known = text_of(frame, "message_id")
        content, conversation = text_of(frame, "content") or "", text_of(frame, "conversation_id")
        turn = await self._turns.start(
            self._caller,
            content,
            conversation,
            known,
            asked=_asked(frame, content),
            follow=self._on_event,
        )
        self._turns.follow(self._caller.owner, turn.conversation, self._on_event)
        if turn not in self._followed:
            self._follow(turn, 0)  # the client repeated the message

    async def _stop(self, frame: JsonObject) -> None:
        turn = self._turns.find(self._caller.owner, text_of(frame, "conversation_id") or "")
        if turn is None:
            raise TurnError("not_found", "no such turn")
        call = text_of(frame, "call_id")
        if call is None:
            await turn.stop()
        else:
            turn.stop_call(call)

    async def _resume(self, frame: JsonObject) -> None:
        conversation = text_of(frame, "conversation_id") or ""
        after = frame.get("after", 0)
        if not isinstance(after, int) or after < 0:
            raise TurnError("bad_message", "after must be a whole number")
        owner = self._caller.owner
        turn = self._turns.find(owner, conversation, text_of(frame, "turn_id"))
        if turn is not None and turn.log.since(after) is not None:
            self._turns.follow(owner, conversation, self._on_event)
            self._follow(turn, after)
            return
        is_brief = frame.get("brief") is True  # the page reads messages over HTTP
        messages = [] if is_brief else await self._turns.snapshot(owner, conversation)
        self._turns.follow(owner, conversation, self._on_event)
        seq = turn.log.seq if turn is not None else 0
        self.send(
            {
                "type": "snapshot",
                "conversation_id": conversation,
                "messages": messages,
                "seq": seq,
                **({"turn_id": turn.id} if turn is not None else {}),
            }
        )
        if turn is not None:
            self._follow(turn, seq)

    async def _approve(self, frame: JsonObject) -> None:
        decision, note = text_of(frame, "decision") or "", text_of(frame, "note") or ""
        self._decide(frame, decision, note, None)

    async def _change(self, frame: JsonObject) -> None:
        arguments = frame.get("arguments")
        if not isinstance(arguments, dict):
            raise TurnError("bad_message", "arguments must be an object")
        self._decide(frame, "deny", "", arguments)

    def _decide(
        self, frame: JsonObject, decision: str, note: str, arguments: JsonObject | None
    ) -> None:
        id = text_of(frame, "approval_id") or ""
        turn = self._turns.find_approval(self._caller.owner, id)
        if turn is None:
            raise TurnError("approval_closed", "this approval is not open")
        hash, user = text_of(frame, "hash") or "", self._user.removeprefix("user:")
        turn.decide(id, hash, decision, note, f"user:{user}", arguments)

    async def _answer(self, frame: JsonObject) -> None:
        id = text_of(frame, "question_id") or ""
        turn = self._turns.find_question(self._caller.owner, id)
        question = None if turn is None else turn.question(id)
        if turn is None or question is None:
            raise TurnError("approval_closed", "this question is not open")
        action = text_of(frame, "action") or ""
        turn.answer(id, checked_answer(question, action, frame.get("content")))

    async def _watch(self, frame: JsonObject) -> None:
        if text_of(frame, "topic") != "conversations":
            raise TurnError("not_found", "no such topic")
        self._turns.watch(self._caller.owner, self._on_change)

    async def _unwatch(self, _frame: JsonObject) -> None:
        self._turns.forget(self._caller.owner, self._on_change)

    def _on_change(self, turn: Turn, event: TurnEvent) -> None:
        data = {"conversation_id": turn.conversation, "state": turn.state, "event": event.kind}
        self.send({"type": "update", "topic": "conversations", "data": data})

    # Events

    def _follow(self, turn: Turn, after: int) -> None:
        turn.unfollow(self._on_event)
        for event in turn.log.since(after) or ():
            self._on_event(turn, event)
        self._followed.add(turn)
        if not turn.has_ended:
            turn.follow(self._on_event)

    def _on_event(self, turn: Turn, event: TurnEvent) -> None:
        self._followed.add(turn)
        if self._idle is not None:
            self._send_now(event.text)
        elif self._queue and self._queue[-1].joins(turn, event):
            self._queue[-1].add(event)
            self._queued += len(event.fields["content"])
        else:
            self._push(_Frame(turn, event))
        if turn.has_ended:
            self._followed.discard(turn)
        if self._queued > MAX_QUEUE:
            self._note_full()

    def send(self, fields: JsonObject) -> None:
        """Send a frame that is not an event of a turn."""
        event = TurnEvent(0, fields)
        if self._idle is not None:
            self._send_now(event.text)
        else:
            self._push(_Frame(None, event))

    def _push(self, frame: _Frame) -> None:
        self._queue.append(frame)
        self._queued += frame.size

    def _send_now(self, text: str) -> None:
        """Send a frame in this task; leave the rest to the writer if the connection is busy.

        Most sends complete at once, and waking the writer would cost more than the send.
        """
        sending = self._send({"type": "websocket.send", "text": text})
        self._sent = monotonic()
        try:
            waiting = sending.send(None)
        except StopIteration:
            return
        except Exception as error:
            self._under_way = _failed(error)
        else:
            self._under_way = _rest(sending, waiting)
        self._wake()

    def _wake(self) -> None:
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _note_full(self) -> None:
        if self._full_since is None:
            self._full_since = monotonic()
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self._check_slow)
        if self._queued > 4 * MAX_QUEUE:
            self.close(SLOW, "too slow; resume later")

    def _check_slow(self) -> None:
        if self._full_since is not None and monotonic() - self._full_since >= SLOW_SECONDS * 0.9:
            self.close(SLOW, "too slow; resume later")

    # Writing

    async def _write(self) -> None:
        try:
            await self._write_all()
        except OSError:  # uvicorn raises it when the client has disconnected
            return

    def ping(self, now: float) -> None:
        """Send a ping if the page has received no frame for `PING_SECONDS`."""
        if self._is_page and not self._queue and now - self._sent >= PING_SECONDS:
            self.send(PING)

    async def _write_all(self) -> None:
        queue, loop = self._queue, asyncio.get_running_loop()
        while not self._is_gone:
            if not queue and self._closing is None:
                self._idle = loop.create_future()
                await self._idle
            if self._under_way is not None:
                under_way, self._under_way = self._under_way, None
                await under_way
            while queue and (self._closing is None or self._closing.code != SLOW):
                frame = queue.popleft()
                self._queued -= frame.size
                if self._queued <= MAX_QUEUE:
                    self._full_since = None
                await self._send({"type": "websocket.send", "text": frame.text})
                self._sent = monotonic()
            if self._closing is not None and not self._is_gone:
                code, reason = self._closing.code, self._closing.reason
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return


class _Frame:
    """A frame in the queue: one event, or several texts of one turn joined to one."""

    __slots__ = ("_event", "_last", "_pieces", "_turn")

    def __init__(self, turn: Turn | None, event: TurnEvent) -> None:
        self._turn = turn
        self._event = event
        self._last = event.seq
        self._pieces: list[str] | None = None  # None if the frame is one event

    def joins(self, turn: Turn, event: TurnEvent) -> bool:
        is_same = event.kind in TEXTS and self._event.kind == event.kind and self._turn is turn
        return is_same and event.begin == self._last + 1

    def add(self, event: TurnEvent) -> None:
        if self._pieces is None:
            self._pieces = [self._event.fields["content"]]
        self._pieces.append(event.fields["content"])
        self._last = event.seq

    @property
    def size(self) -> int:
        if self._pieces is None:
            return self._event.size
        return 200 + sum(map(len, self._pieces))

    @property
    def text(self) -> str:
        if self._pieces is None:
            return self._event.text
        joined = {"content": "".join(self._pieces), "seq": self._last, "from": self._event.begin}
        return _encode(self._event.fields | joined).decode()


@coroutine
def _rest(sending: Coroutine[Any, Any, None], waiting: Any) -> Generator[Any, Any, None]:
    """Finish a coroutine that was started by hand, and now waits for the future `waiting`."""
    yield waiting
    yield from sending


async def _failed(error: Exception) -> None:
    raise error


class _Gone(Exception):
    """The client closed the connection."""


def _asked(frame: JsonObject, content: str) -> Asked:
    files, replaces = frame.get("files", []), frame.get("replaces")
    if not isinstance(files, list) or not all(isinstance(each, str) for each in files):
        raise TurnError("bad_message", "files must be a list of ids")
    if replaces is not None and (not isinstance(replaces, int) or replaces < 0):
        raise TurnError("bad_message", "replaces must be the position of a message")
    continues = frame.get("continues", False)
    if not isinstance(continues, bool):
        raise TurnError("bad_message", "continues must be true or false")
    model = text_of(frame, "model") or ""
    return Asked(content, model, tuple(files), replaces, continues)


def text_of(frame: JsonObject, key: str) -> str | None:
    """Return a frame's member that must be a string; None if the frame lacks it.

    Raises:
        TurnError: The member is not a string.
    """
    value = frame.get(key)
    if value is not None and not isinstance(value, str):
        raise TurnError("bad_message", f"{key} must be a string")
    return value
