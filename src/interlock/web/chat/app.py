"""The chat as an ASGI application with the paths /ws, /ag-ui and /api/chat."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from interlock.auth.authenticator import Authenticator
from interlock.calls import Caller
from interlock.errors import AuthError
from interlock.server.http.guard import Guard
from interlock.server.http.page_guard import check_has_origin
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import HttpRefusal, disconnected
from interlock.text.surrogates import repair_json
from interlock.web.chat import aisdk
from interlock.web.chat.agui import AguiEncoder, AguiInput
from interlock.web.chat.aisdk import AiSdkEncoder, AiSdkInput
from interlock.web.chat.encoding import TurnEncoder
from interlock.web.chat.errors import TurnError
from interlock.web.chat.socket import Sockets
from interlock.web.chat.turn import Engine, Turn, TurnLimits
from interlock.web.chat.turns import Turns

MAX_BODY = 4 * 1024 * 1024  # bytes: clients send the whole history, though it is ignored
MAX_THREADS = 10_000  # conversation ids of clients that are remembered

_STATUS = {
    "bad_message": 400,
    "not_found": 404,
    "busy": 409,
    "approval_closed": 409,
    "approval_changed": 409,
    "too_large": 413,
    "rate_limited": 429,
    "overloaded": 503,
    "storage_full": 507,
}
_Input: TypeAlias = AguiInput | AiSdkInput
_log = logging.getLogger("interlock.web")
_encode = msgspec.json.Encoder().encode


class ChatApp:
    """An ASGI application that serves the chat. Mount it, or serve it alone.

    Args:
        engine: The engine that answers: an `AgentEngine` or a `GraphEngine`.
        authenticator: Identifies callers; None if every caller is the local user.
        limits: See `TurnLimits`.
        hosts: Allowed values of the header `Host`; see `Guard`.
        origins: Allowed values of the header `Origin`.
        is_local: Whether every authenticated caller is the local user.
    """

    def __init__(
        self,
        engine: Engine,
        authenticator: Authenticator | None = None,
        *,
        limits: TurnLimits | None = None,
        hosts: Sequence[str] | None = None,
        origins: Sequence[str] = (),
        is_local: bool = False,
    ) -> None:
        self.turns = Turns(engine, limits, is_local=is_local)
        self._authenticator = authenticator
        self._guard = Guard(hosts, origins, ())
        self._is_local = is_local
        self._sockets = Sockets(self.turns, authenticator, is_local=is_local)
        # Clients choose their own conversation ids; this maps an owner and such an id to our id.
        self._threads: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._ignored: set[str] = set()

    async def close(self) -> None:
        await self.turns.close()
        await self._sockets.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["type"] == "http":
            try:
                await self._http(scope, receive, send)
            except _Refused as refused:
                await _reply(send, refused.status, refused.body, refused.headers)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _socket(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path != "/ws" or self._problem(scope, receive, send) is not None:
            await send({"type": "websocket.close", "code": 4403})  # before accept: status 403
            return
        await self._sockets.serve(scope, receive, send)

    def _problem(self, scope: Any, receive: Any, send: Any) -> HttpRefusal | None:
        try:
            request = HttpRequest({"method": "GET", **scope}, receive, send)
            self._guard.check(request)
            check_has_origin(request)
        except HttpRefusal as refusal:
            return refusal
        return None

    # HTTP

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        if (problem := self._problem(scope, receive, send)) is not None:
            raise _Refused(403, "forbidden", str(problem))
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        kinds: dict[str, type[_Input]] = {"/ag-ui": AguiInput, "/api/chat": AiSdkInput}
        kind = kinds.get(path.removesuffix("/stop"))
        if kind is None:
            raise _Refused(404, "not_found", "no such path")
        if scope["method"] != "POST":
            raise _Refused(405, "bad_message", "use POST", [(b"allow", b"POST")])
        headers = dict(scope["headers"])
        if headers.get(b"content-type", b"").partition(b";")[0].strip() != b"application/json":
            raise _Refused(415, "bad_message", "the content type must be application/json")
        caller = await self._caller(scope)
        try:
            given = msgspec.json.decode(repair_json(await _body(receive)), type=kind)
        except (ValueError, RecursionError) as error:  # their texts show no values
            raise _Refused(400, "bad_message", str(error)[:200]) from None
        if path.endswith("/stop"):
            await self._stop(caller, given)
            await _reply(send, 204, b"", [])
            return
        for each in set(given.ignored) - self._ignored:
            self._ignored.add(each)  # log it once: clients repeat it with each message
            _log.warning("%s: the %s of clients are ignored", path, each)
        turn, after, encoder = await self._turn(caller, given)
        await self._stream(turn, after, encoder, receive, send)

    async def _caller(self, scope: Any) -> Caller:
        if self._authenticator is None:
            return Caller(surface="web")
        client = scope.get("client")
        try:
            principal = await self._authenticator.authenticate(
                scope["headers"], client[0] if client else None
            )
        except AuthError as error:
            challenge = error.challenge or self._authenticator.challenge
            headers = [(b"www-authenticate", challenge.encode())] if challenge else []
            raise _Refused(error.status, "denied", "authentication failed", headers) from None
        return Caller(None if self._is_local else principal, surface="web")

    async def _stop(self, caller: Caller, given: _Input) -> None:
        turn = self.turns.find(caller.owner, self._conversation(caller, _thread(given)) or "")
        if turn is None:
            raise _Refused(404, "not_found", "no such turn")
        await turn.stop()

    def _conversation(self, caller: Caller, thread: str) -> str | None:
        return self._threads.get((caller.owner, thread))

    async def _turn(self, caller: Caller, given: _Input) -> tuple[Turn, int, TurnEncoder]:
        """Start a turn, or continue a turn with decisions.

        Returns:
            The turn, the number of the event after which events are sent, and their encoder.
        """
        try:
            if given.decisions:
                return self._decided(caller, given)
            thread = _thread(given)
            conversation = self._conversation(caller, thread)
            # The same message id always gets the first answer, so a repeated request does no work.
            message = f"{thread} {given.message_id}" if given.message_id else None
            turn = await self.turns.start(caller, given.content, conversation, message)
        except TurnError as error:
            wait = error.retry_after
            headers = [] if wait is None else [(b"retry-after", b"%d" % max(1, round(wait)))]
            status = _STATUS.get(error.code, 400)
            raise _Refused(status, error.code, str(error), headers) from None
        self._threads[caller.owner, thread] = turn.conversation
        self._threads.move_to_end((caller.owner, thread))
        if len(self._threads) > MAX_THREADS:
            self._threads.popitem(last=False)
        return turn, 0, _encoder(given, turn, frozenset())

    def _decided(self, caller: Caller, given: _Input) -> tuple[Turn, int, TurnEncoder]:
        found = {id: self.turns.find_approval(caller.owner, id) for id in given.decisions}
        turn = next((each for each in found.values() if each is not None), None)
        if turn is None:
            raise TurnError("approval_closed", "this approval is not open")
        announced, after = turn.announced, turn.log.seq
        for id, (decision, note) in given.decisions.items():
            # These clients send no hash of the arguments, so use the hash of the waiting call.
            if found[id] is turn:
                turn.decide(id, turn.hash_of(id), decision, note, f"user:{caller.owner or 'local'}")
        return turn, after, _encoder(given, turn, announced)

    async def _stream(
        self, turn: Turn, after: int, encoder: TurnEncoder, receive: Any, send: Any
    ) -> None:
        arrived = asyncio.Event()
        waiting = [event.fields for event in turn.log.since(after) or ()]

        def take(_: Turn, event: Any) -> None:
            waiting.append(event.fields)
            arrived.set()

        turn.follow(take)
        gone = asyncio.create_task(disconnected(receive))
        gone.add_done_callback(lambda _: arrived.set())
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        if isinstance(encoder, AiSdkEncoder):
            headers.append(aisdk.HEADER)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            chunks, is_over = encoder.start(), False
            while not is_over and not gone.done():
                for fields in waiting:
                    chunks += encoder.feed(fields)
                    is_over = is_over or fields["type"] in ("complete", "error")
                waiting.clear()
                if not is_over and turn.is_waiting:
                    chunks += encoder.interrupted()
                    is_over = True
                body = b"".join(b"data: %b\n\n" % _encode(each) for each in chunks)
                if is_over and isinstance(encoder, AiSdkEncoder):
                    body += aisdk.END
                chunks = []
                await send({"type": "http.response.body", "body": body, "more_body": not is_over})
                if not is_over:
                    await arrived.wait()
                    arrived.clear()
        finally:
            turn.unfollow(take)
            gone.cancel()


class _Refused(Exception):
    def __init__(
        self, status: int, code: str, message: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self.status = status
        self.body = _encode({"error": {"code": code, "message": message}})
        self.headers = headers


def _thread(given: _Input) -> str:
    return given.thread_id if isinstance(given, AguiInput) else given.id


def _encoder(given: _Input, turn: Turn, announced: frozenset[str]) -> TurnEncoder:
    if isinstance(given, AguiInput):
        return AguiEncoder(given.thread_id, given.run_id, turn.id, announced)
    return AiSdkEncoder(given.reply_id or f"m_{turn.id[2:]}", announced)


async def _body(receive: Any) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "bad_message", "the request was cut off")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            raise _Refused(413, "too_large", f"the request is too large (limit {MAX_BODY:,} bytes)")
        more = message.get("more_body", False)
    return b"".join(parts)


async def _reply(
    send: Any, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> None:
    given: list[tuple[bytes, bytes]] = [*headers, (b"content-length", b"%d" % len(body))]
    if body:
        given.append((b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": body})
