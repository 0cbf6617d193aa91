"""Parking: modern clients' calls wait here while legacy servers ask questions during a call.

A modern client receives a server's questions in the response to its request. Meanwhile the call
waits at the server. The client's next request brings the answers and a sealed state::

        tools/call -> Parking.run -> the stack -> server asks -> _ParkedAtServer.ask ->
        InputRequired
        tools/call with answers -> Parking.resume -> the same call continues -> its result

Rules:

1. Only the same user can continue a parked call, once for each state and with the same request.
2. A parked call occupies no slot, and its deadlines are suspended.
3. A parked call ends after `TTL`, when its key is revoked, when its user loses the right to the
   tool, or when its server is removed from the configuration. After `ABANDONED` it also ends when
   its server asks a question that may belong to it or to another call.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection

import msgspec
from msgspec import Raw, Struct

from interlock import aio
from interlock.auth.principal import Principal
from interlock.calls import Call, Outcome, Slots
from interlock.context import Context, Question
from interlock.errors import (
    AskRefused,
    CallRefused,
    InputRequired,
    InterlockError,
    MalformedAnswer,
    RequestTimeout,
)
from interlock.gateway.forwarding.call_link import CallLink
from interlock.protocol.envelope import encode
from interlock.server.parked_calls import ParkedCall, ParkedCalls, owner_of
from interlock.types import CreateMessageResult, ElicitResult, ListRootsResult

TOGETHER = 0.02  # seconds to collect a server's questions, so that the client gets them at once
TTL = 600.0  # seconds that a call may be parked
ABANDONED = 60.0  # seconds that a client has to answer before the call counts as abandoned
MAX_EACH = 8  # parked calls of one principal
MAX_OF_SERVER = 32
MAX_ALL = 1_024

CallHandler = Callable[[Call], Awaitable[Outcome]]
_ANSWERS: dict[str, type] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}


class Ticket(Struct, tag="parked"):
    """The sealed state with which a client continues a parked call."""

    parked: str  # the parked call's id
    once: str  # the id of the current questions
    call: str  # the call's id in the audit trail


class StaleState(MalformedAnswer):
    """The client sent the state of a call that is no longer parked."""


class Parking:
    """The parked calls of a gateway.

    Args:
        handle: The toolbox's stack.
    """

    def __init__(self, handle: CallHandler) -> None:
        self._handle = handle
        self._parked: ParkedCalls[_ParkedAtServer] = ParkedCalls("waiting calls", MAX_ALL, MAX_EACH)
        self._of_server: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(1 for _ in self._parked)

    async def run(self, call: Call, context: Context) -> Outcome:
        """Send a call, and return its result.

        Args:
            call: The call, without a back channel.
            context: The client's request.

        Raises:
            InputRequired: The client must answer questions first; the call is parked.
            InterlockError: The stack refused the call, or the call failed.
        """
        parked = _ParkedAtServer(self, call, context)
        parked.work = aio.start(self._send(parked.call), loop=context.loop)
        parked.work.add_done_callback(_note_end)
        return await self._follow(parked)

    async def _send(self, call: Call) -> Outcome:
        return await self._handle(call)

    async def resume(self, ticket: Ticket, context: Context) -> Outcome:
        """Continue a parked call with the answers in a request, and return its result; see `run`.

        Raises:
            StaleState: The call has ended, or its questions are already answered.
            MalformedAnswer: An answer is malformed; the call stays parked.
        """
        parked = self._find(ticket, context)
        if parked is None:
            raise StaleState(
                "requestState was used already, or its call has ended; start the request again"
            )
        parked.link.context = context
        await parked.update(context.answers)
        context.answers.clear()  # later rounds must not use these answers again
        parked.once = ""
        return await self._follow(parked)

    def end_one(self, ticket: Ticket, context: Context) -> None:
        parked = self._find(ticket, context)
        if parked is not None:
            parked.work.cancel()

    def _find(self, ticket: Ticket, context: Context) -> _ParkedAtServer | None:
        parked = self._parked.find(ticket.parked, owner_of(context.principal))
        return parked if parked is not None and parked.once == ticket.once else None

    async def _follow(self, parked: _ParkedAtServer) -> Outcome:
        """Wait until a call ends or its server asks questions; return the result or raise."""
        try:
            while asks := await parked.asks_or_ends():
                await asyncio.sleep(TOGETHER)  # the server may ask several questions at once
                if parked.questions:
                    break
        except asyncio.CancelledError as error:
            parked.work.cancel(*error.args)  # the arguments state why the client cancelled
            raise
        if not asks:
            parked.link.flush()
            if parked.work.cancelled():  # by another event than this request
                raise CallRefused("the call was ended while it waited for the client", "cancelled")
            outcome: Outcome = parked.work.result()
            return outcome
        parked.once = secrets.token_hex(8)
        questions = {
            key: (each.method, encode(each.params)) for key, each in parked.questions.items()
        }
        raise InputRequired(
            questions, encode(Ticket(parked.id, parked.once, parked.call.id)).decode()
        )

    def add(self, parked: _ParkedAtServer) -> None:
        """Register a call that begins to wait for its client.

        Raises:
            AskRefused: Too many calls are already waiting.
        """
        server = parked.call.entry.server
        if self._of_server[server] >= MAX_OF_SERVER:
            text = f"too many calls of server {server!r} wait for clients (limit {MAX_OF_SERVER})"
            raise AskRefused(text, "cannot_ask")
        try:
            self._parked.add(parked)
        except InterlockError as error:
            raise AskRefused(str(error), "cannot_ask") from None
        self._of_server[server] += 1

    def remove(self, parked: _ParkedAtServer) -> None:
        """Unregister a call that continues or has ended."""
        self._parked.remove(parked)
        self._of_server[parked.call.entry.server] -= 1

    def end(self, is_over: Callable[[Principal | None], bool]) -> None:
        """End the parked calls of certain principals, such as users of a revoked key."""
        for parked in self._parked:
            if is_over(parked.link.context.principal):
                parked.work.cancel()

    def keep(self, servers: Collection[str]) -> None:
        """End the parked calls of all servers except these."""
        for parked in self._parked:
            if parked.call.entry.server not in servers:
                parked.work.cancel()

    async def close(self) -> None:
        await self._parked.close()


class _ParkedAtServer(ParkedCall):
    """A modern client's call that waits at its server for the client's answers."""

    def __init__(self, parking: Parking, call: Call, context: Context) -> None:
        super().__init__(owner_of(context.principal), TTL)
        self.link = CallLink(context, call.entry.server, self._ask_client, self._end_if_abandoned)
        self.slots = Slots()
        self.call = msgspec.structs.replace(
            call,
            back=self.link,
            slots=self.slots,
            progress=None if context.progress_token is None else self.link.progress,
        )
        self.once = ""  # the id of the unanswered questions; "" if there are none
        self._parking = parking
        self._waiting = 0  # the number of unanswered questions
        self._since = 0.0  # when the call began to wait, by the event loop's clock
        self._count = 0

    async def _ask_client(self, method: str, params: bytes) -> Raw:
        if not self._waiting:
            self._parking.add(self)
            self._since = asyncio.get_running_loop().time()
            self.slots.give_back()
        self._waiting += 1
        self._count += 1
        key = f"question-{self._count}"
        question = Question(method, msgspec.json.decode(params), _ANSWERS[method])
        try:
            async with asyncio.timeout(TTL):
                return (await self.ask({key: question}))[key]
        except TimeoutError:
            self.work.cancel()
            raise RequestTimeout(f"the client did not answer {method} within {TTL:g} s") from None
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._parking.remove(self)

    def _end_if_abandoned(self) -> None:
        waited = asyncio.get_running_loop().time() - self._since
        if self._waiting and waited >= ABANDONED:
            self.work.cancel()


def _note_end(work: asyncio.Task[Outcome]) -> None:
    """Mark a call's error as retrieved, because the client may never continue the call."""
    if not work.cancelled():
        work.exception()
