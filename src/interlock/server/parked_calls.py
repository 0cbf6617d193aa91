"""Running calls that wait in place for the answers of their client.

A task is such a call. So is a gateway's call to another server that asks a question during the
call: our client gets the question as the answer to its request, and answers with its next request.

Rules:

1. A parked call belongs to the principal that made it; for others it does not exist.
2. It ends at the latest when its time to live is over.
3. Each question is answered once. Answers to no open question are ignored.
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

_T = TypeVar("_T")


class _Asked(Struct):
    question: Question
    answer: asyncio.Future[Raw]


class ParkedCall:
    """One call that may ask its client.

    Args:
        owner: See `owner_of`.
        ttl: Seconds that the call may take.
        changed: Awaited whenever the open questions have changed.
    """

    def __init__(
        self, owner: str, ttl: float, changed: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.owner = owner
        self.work: asyncio.Task[Any]  # set when the call is started
        self._ttl = ttl
        self._changed = changed
        self._asked: dict[str, _Asked] = {}
        self._turn: asyncio.Future[None] | None = None  # of a request that waits for this call

    @property
    def questions(self) -> dict[str, Question]:
        return {key: each.question for key, each in self._asked.items() if not each.answer.done()}

    async def limited(self, call: Awaitable[_T]) -> _T:
        """Await a call until the time to live is over.

        Raises:
            RequestTimeout: The call did not end in time.
        """
        try:
            async with asyncio.timeout(self._ttl) as limit:
                return await call
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(f"the call did not end within {self._ttl:g} s") from None

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Raw]:
        """Ask the client, and wait until it has answered all questions.

        Raises:
            LocalProtocolError: A question with one of these keys is open already.
        """
        twice = sorted(set(questions) & set(self._asked))
        if twice:
            raise LocalProtocolError(f"questions are open under the keys {', '.join(twice)}")
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
            if not is_answered:  # the function stopped waiting
                await self._note_change()

    async def update(self, answers: Mapping[str, Raw]) -> None:
        """Answer open questions.

        Raises:
            MalformedAnswer: An answer is malformed; no answer was accepted.
        """
        answered = {
            key: each
            for key, each in self._asked.items()
            if key in answers and not each.answer.done()
        }
        for key, each in answered.items():
            try:
                msgspec.json.decode(answers[key], type=each.question.answer)
            except (msgspec.DecodeError, RecursionError) as error:
                raise MalformedAnswer(f"inputResponses.{key} is not an answer: {error}") from None
        for key, each in answered.items():
            each.answer.set_result(Raw(bytes(answers[key])))  # a copy, to free the whole request
        if answered:
            await self._note_change()

    async def asks_or_ends(self) -> bool:
        """Wait until questions are open (True), or `work` has ended (False)."""
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
    """The parked calls of a server, by id.

    Args:
        noun: The word for the calls in error texts.
        limit: Maximum number of calls.
        limit_each: Maximum number of calls of one principal.
    """

    def __init__(self, noun: str, limit: int, limit_each: int) -> None:
        self._noun = noun
        self._limit = limit
        self._limit_each = limit_each
        self._open: dict[str, _C] = {}

    def __iter__(self) -> Iterator[_C]:
        return iter(list(self._open.values()))

    def add(self, call: _C) -> None:
        """Add a call; it stays until `remove`.

        Raises:
            InterlockError: There are too many, or its owner has too many.
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
        """Return the call with this id; None if another principal owns it."""
        call = self._open.get(id)
        return call if call is not None and call.owner == owner else None

    async def close(self) -> None:
        works = [call.work for call in self]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


def owner_of(principal: Principal | None) -> str:
    """Return the owner of a caller's calls; "" for all unauthenticated callers."""
    return principal.id if principal else ""
