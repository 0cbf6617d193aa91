"""Running calls that wait while their client answers questions.

A task is such a call. Another example is a gateway's call to a server that asks a question during
the call: the gateway's client gets the question as the answer to its request, and sends its answer
with the next request.

Rules:

1. A parked call belongs to the principal that made it; for other principals it does not exist.
2. A parked call is cancelled when its time limit is over.
3. Each question is answered once. Answers without an open question are ignored.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from interlock.auth.principal import Principal
from interlock.context import Question
from interlock.errors import (
    InterlockError,
    LocalProtocolError,
    MalformedAnswer,
    RequestTimeout,
)
from interlock.protocol.leniency import decode_leniently

_T = TypeVar("_T")


class _Asked(Struct):
    question: Question
    answer: asyncio.Future[Raw]


class ParkedCall:
    """A running call that can ask its client questions.

    Args:
        owner: The owner of the call; see `owner_of`.
        ttl: The seconds that the call may take.
        changed: Awaited whenever the set of open questions has changed.
    """

    def __init__(
        self, owner: str, ttl: float, changed: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.owner = owner
        self.work: asyncio.Task[Any]  # the task of the call; set when the call is started
        self._ttl = ttl
        self._changed = changed
        self._asked: dict[str, _Asked] = {}
        self._turn: asyncio.Future[None] | None = None  # wakes the request in `asks_or_ends`

    @property
    def questions(self) -> dict[str, Question]:
        return {key: each.question for key, each in self._asked.items() if not each.answer.done()}

    async def limited(self, call: Awaitable[_T]) -> _T:
        """Await the call; cancel it when its time limit is over.

        Raises:
            RequestTimeout: The call exceeded its time limit.
        """
        try:
            async with asyncio.timeout(self._ttl) as limit:
                return await call
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(f"the call did not end within {self._ttl:g} s") from None

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Raw]:
        """Ask the client, and wait until all questions have been answered.

        Raises:
            LocalProtocolError: A question with one of these keys is already open.
        """
        twice = sorted(set(questions) & set(self._asked))
        if twice:
            raise LocalProtocolError(f"questions with the keys {', '.join(twice)} are already open")
        loop = asyncio.get_running_loop()
        asked = {key: _Asked(each, loop.create_future()) for key, each in questions.items()}
        self._asked |= asked
        try:
            await self._note_change()
            await asyncio.wait([each.answer for each in asked.values()])
            return {key: each.answer.result() for key, each in asked.items()}
        finally:
            is_answered = all(each.answer.done() for each in asked.values())
            for key in asked:
                del self._asked[key]
            if not is_answered:  # the wait was cancelled, so the questions are no longer open
                await self._note_change()

    async def update(self, answers: Mapping[str, Raw]) -> None:
        """Accept the client's answers to open questions.

        Raises:
            MalformedAnswer: An answer is malformed, so none of the answers was accepted.
        """
        answered = {
            key: each
            for key, each in self._asked.items()
            if key in answers and not each.answer.done()
        }
        for key, each in answered.items():
            try:
                decode_leniently(each.question.answer, answers[key])
            except (msgspec.DecodeError, RecursionError) as error:
                raise MalformedAnswer(f"inputResponses.{key} is not an answer: {error}") from None
        for key, each in answered.items():
            each.answer.set_result(Raw(bytes(answers[key])))  # a copy, so that the request is freed
        if answered:
            await self._note_change()

    async def asks_or_ends(self) -> bool:
        """Wait until questions are open (return True) or `work` has ended (return False)."""
        if not self.questions and not self.work.done():
            self._turn = self.work.get_loop().create_future()
            self.work.add_done_callback(self._end_turn)
            try:
                await self._turn
            finally:
                self.work.remove_done_callback(self._end_turn)
                self._turn = None
        return not self.work.done() and bool(self.questions)

    def _end_turn(self, _: asyncio.Task[Any] | None = None) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    async def _note_change(self) -> None:
        if self.questions:
            self._end_turn()
        if self._changed is not None:
            await self._changed()


_C = TypeVar("_C", bound=ParkedCall)


class ParkedCalls(Generic[_C]):
    """A server's parked calls, keyed by id.

    Args:
        noun: The word for such calls in error messages.
        limit: The most calls that may be parked.
        limit_each: The most calls that one principal may have parked.
    """

    def __init__(self, noun: str, limit: int, limit_each: int) -> None:
        self._noun = noun
        self._limit = limit
        self._limit_each = limit_each
        self._open: dict[str, _C] = {}

    def __iter__(self) -> Iterator[_C]:
        return iter(list(self._open.values()))

    def add(self, call: _C) -> None:
        """Add a call; the call stays until `remove`.

        Raises:
            InterlockError: Too many calls are parked, in all or for this owner.
        """
        if len(self._open) >= self._limit:
            raise InterlockError(
                f"too many {self._noun} run ({len(self._open)}, limit {self._limit}); "
                "try again later"
            )
        owned = sum(each.owner == call.owner for each in self) if call.owner else 0
        if owned >= self._limit_each:
            raise InterlockError(
                f"too many of your {self._noun} run ({owned}, limit {self._limit_each}); "
                "try again later"
            )
        self._open[call.id] = call

    def remove(self, call: _C) -> None:
        self._open.pop(call.id, None)

    def find(self, id: str, owner: str) -> _C | None:
        """Return the call with this id; None if it does not exist or has another owner."""
        call = self._open.get(id)
        return call if call is not None and call.owner == owner else None

    async def close(self) -> None:
        works = [call.work for call in self]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


def owner_of(principal: Principal | None) -> str:
    """Return the owner of a principal's calls; "" for all unauthenticated callers together."""
    return principal.owner if principal else ""
