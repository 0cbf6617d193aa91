"""A running Claude Code: its pipes, its protocol, and the tasks that answer its requests.

Rules:

1. The reader never waits for a handler: a request that cannot be answered at once gets its own
   task, so that an interrupt is always read.
2. Each request gets one answer, even if its handler fails or is cancelled.
3. When Claude Code ends, our open requests fail, and the tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from time import monotonic
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from interlock.aio import start
from interlock.claude.facade import RpcError, rpc_error, rpc_result
from interlock.claude.protocol import (
    CONTROL_TIMEOUT,
    ControlProtocol,
    ControlRequest,
    ControlResponse,
    Failed,
    McpMessage,
    Message,
    Withdrawn,
)
from interlock.claude.questions import UnsupportedQuestion
from interlock.errors import InterlockError, MessageTooLarge
from interlock.transports import Transport
from interlock.types import JsonObject, RequestId

CANCELLED = -32800
INTERNAL_ERROR = -32603
ACKNOWLEDGED = b'{"mcp_response":{"jsonrpc":"2.0","result":{}}}'
_log = logging.getLogger("interlock.claude")


class Answerer(Protocol):
    """The object that answers Claude Code's requests."""

    @property
    def running_context(self) -> Context | None:
        """A copy of the context of the running turn, in which requests are answered; None if no
        turn is running.
        """
        ...

    def answer_mcp(self, server: str, method: str, params: Raw) -> Coroutine[Any, Any, bytes]:
        """Answer a JSON-RPC request to one of our servers; the coroutine may raise `RpcError`."""
        ...

    def answer_question(self, subtype: str, line: bytes) -> bytes | Coroutine[Any, Any, bytes]:
        """Return the encoded answer to another control request, or a coroutine that returns it.

        Raises:
            UnsupportedQuestion: The request is not supported.
        """
        ...

    def message_received(self, kind: str, line: bytes) -> None:
        """Handle a line that belongs to the conversation."""
        ...

    def program_ended(self, error: InterlockError) -> None:
        """Handle the end of Claude Code without a call of `close`."""
        ...


class _Cancelled(Struct, rename="camel"):
    request_id: RequestId | UnsetType = UNSET


_decode_cancelled = msgspec.json.Decoder(_Cancelled).decode


class Link:
    """The connection to one Claude Code program; `open` starts the program.

    Args:
        transport: Carries Claude Code's lines.
        host: Answers Claude Code's requests.
    """

    def __init__(self, transport: Transport, host: Answerer) -> None:
        self._transport = transport
        self._host = host
        self._protocol = ControlProtocol()
        self._waiting: dict[str, asyncio.Future[Raw]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by Claude Code's id of the request
        self._calls: dict[tuple[str, RequestId], list[str]] = {}  # keys in `_tasks`, by JSON-RPC id
        self._timer: asyncio.TimerHandle | None = None
        self._is_flushing = False  # whether a flush will follow in this turn
        self._error: InterlockError | None = None

    @property
    def error(self) -> InterlockError | None:
        """Why Claude Code ended; None while it runs."""
        return self._error

    @property
    def dropped(self) -> dict[str, int]:
        """The number of lines from Claude Code that were ignored, by reason."""
        return dict(self._protocol.dropped)

    async def open(self) -> None:
        """Start Claude Code.

        Raises:
            SpawnError: Claude Code cannot be started.
        """
        self._loop = asyncio.get_running_loop()
        await self._transport.open(self)

    async def close(self) -> None:
        """End Claude Code and all processes that it started, within 5 seconds."""
        self._end(InterlockError("Claude Code is closed"))
        await self._transport.close()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def abort(self, error: InterlockError) -> None:
        self._transport.abort(error)

    def diagnostics(self) -> str:
        """Return the last lines of Claude Code's stderr."""
        return self._transport.diagnostics()

    # Our requests

    async def control(self, subtype: str, timeout: float = CONTROL_TIMEOUT, **fields: Any) -> Raw:
        """Send a control request and return its encoded answer.

        Raises:
            RemoteError: Claude Code refused the request, or does not support it.
            RequestTimeout: Claude Code did not answer in time.
            InterlockError: Claude Code has ended.
        """
        if self._error is not None:
            raise self._error
        id = self._protocol.request(subtype, fields, now=monotonic(), timeout=timeout)
        future: asyncio.Future[Raw] = self._loop.create_future()
        self._waiting[id] = future
        self._set_timer()
        self._flush_soon()
        try:
            return await future
        finally:
            self._waiting.pop(id, None)

    def prompt(self, content: object, uuid: str, *, verbatim: bool = False) -> None:
        self._protocol.prompt(content, uuid, verbatim=verbatim)
        self._flush_soon()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._protocol.next_deadline
        if deadline is not None:
            self._timer = self._loop.call_later(max(0.0, deadline - monotonic()), self._expire)

    def _expire(self) -> None:
        for failed in self._protocol.expire(now=monotonic()):
            self._settle(failed)
        self._set_timer()

    def _settle(self, event: ControlResponse | Failed) -> None:
        future = self._waiting.pop(event.id, None)
        if future is None or future.done():
            return
        if isinstance(event, Failed):
            future.set_exception(event.error)
        else:
            future.set_result(event.value)

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush_answers(self) -> None:
        """Send queued lines in this turn of the event loop, together with answers that follow."""
        if self._protocol.has_lines and not self._is_flushing:
            if self._tasks:
                self._flush_soon()
            else:
                self._flush()

    def _flush(self) -> None:
        self._is_flushing = False
        lines = self._protocol.lines_to_send()
        if lines and self._error is None:
            self._transport.send(lines)

    # Claude Code's lines

    def frames_received(self, frames: list[bytes], request: RequestId | None = None) -> None:  # noqa: ARG002
        # Send the replies to all these frames in one flush.
        was_flushing, self._is_flushing = self._is_flushing, True
        try:
            for line in frames:
                event = self._protocol.receive(line)
                match event:
                    case McpMessage():
                        self._mcp(event)
                    case Message():
                        self._host.message_received(event.kind, event.line)
                    case ControlRequest():
                        self._question(event)
                    case Withdrawn():
                        self._cancel(event.id)
                    case ControlResponse() | Failed():
                        self._settle(event)
                        self._set_timer()
        finally:
            self._is_flushing = was_flushing
        self._flush_answers()

    def awaits(self, id: RequestId) -> bool:  # noqa: ARG002 - of `Receiver`; for HTTP
        """Return False: only HTTP transports need this."""
        return False

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        """Do nothing: only HTTP transports call this."""

    async def settle(self, timeout: float) -> None:
        """Do nothing: only a server's input ends before its output."""

    def connection_lost(self, error: InterlockError) -> None:
        if self._error is not None:
            return
        if isinstance(error, MessageTooLarge):
            error = MessageTooLarge(f"{error}; raise max_line_bytes")
        self._end(error)
        self._host.program_ended(error)

    def _end(self, error: InterlockError) -> None:
        if self._error is None:
            self._error = error
        if self._timer is not None:
            self._timer.cancel()
        for failed in self._protocol.close(self._error):
            self._settle(failed)
        for id in [*self._tasks]:
            self._cancel(id)

    # Answering

    def _mcp(self, message: McpMessage) -> None:
        if message.rpc_id is not UNSET:
            self._calls.setdefault((message.server, message.rpc_id), []).append(message.id)
            self._start(message.id, self._answer_mcp(message, message.rpc_id))
            return
        self._protocol.answer(message.id, ACKNOWLEDGED)
        if message.method == "notifications/cancelled":
            self._cancel_call(message)

    def _question(self, question: ControlRequest) -> None:
        try:
            answer = self._host.answer_question(question.subtype, question.line)
        except Exception as error:
            self._refuse(question, error)
            return
        if isinstance(answer, bytes):
            self._protocol.answer(question.id, answer)
        else:
            self._start(question.id, self._answer_question(question, answer))

    def _cancel_call(self, message: McpMessage) -> None:
        try:
            id = _decode_cancelled(message.params).request_id
        except msgspec.DecodeError:
            return
        if id is not UNSET and (running := self._calls.get((message.server, id))):
            self._cancel(running[-1])

    def _cancel(self, id: str) -> None:
        if task := self._tasks.get(id):
            # Cancel later: a task that is cancelled before its first step sends no answer.
            self._loop.call_soon(task.cancel)

    def _start(self, id: str, answering: Coroutine[Any, Any, None]) -> None:
        task = start(answering, loop=self._loop, context=self._host.running_context)
        if not task.done():
            self._tasks[id] = task

    async def _answer_mcp(self, message: McpMessage, rpc_id: RequestId) -> None:
        id, server = message.id, message.server
        try:
            result = await self._host.answer_mcp(server, message.method, message.params)
            answer = rpc_result(rpc_id, result)
        except RpcError as error:
            answer = rpc_error(rpc_id, error.code, str(error))
        except asyncio.CancelledError:
            answer = rpc_error(rpc_id, CANCELLED, "cancelled")
        except Exception:
            _log.exception("answering %s of %r failed", message.method, server)
            answer = rpc_error(rpc_id, INTERNAL_ERROR, "internal error")
        self._protocol.answer(id, answer)
        running = self._calls[server, rpc_id]
        running.remove(id)
        if not running:
            del self._calls[server, rpc_id]
        self._task_ends(id)

    async def _answer_question(
        self, question: ControlRequest, answering: Coroutine[Any, Any, bytes]
    ) -> None:
        try:
            self._protocol.answer(question.id, await answering)
        except asyncio.CancelledError:
            self._protocol.refuse(question.id, "cancelled")
        except Exception as error:
            self._refuse(question, error)
        self._task_ends(question.id)

    def _refuse(self, question: ControlRequest, error: Exception) -> None:
        if isinstance(error, UnsupportedQuestion):
            self._protocol.refuse(question.id, f"unsupported: {question.subtype}")
            return
        _log.error("answering %s failed", question.subtype, exc_info=error)
        self._protocol.refuse(question.id, "internal error")

    def _task_ends(self, id: str) -> None:
        # Done here, because a done callback would delay each answer by a turn of the loop.
        self._tasks.pop(id, None)
        self._flush_answers()


def object_of(raw: Raw) -> JsonObject:
    """Decode an answer from Claude Code; return {} if it is not a JSON object."""
    value = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {}
