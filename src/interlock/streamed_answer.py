"""Stores the text of an answer while it streams, so that a crash loses little of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from interlock.errors import InterlockError
from interlock.messages import AssistantMessage, Message, Unfinished

SAVE_SECONDS = 0.5  # between the arrival of a text and its save
_log = logging.getLogger("interlock.chat")

Append = Callable[[Sequence[Message], "int | None"], Awaitable["int | None"]]


class StreamedAnswer:
    """The answer to one message: drafts of its text, and then its messages.

    Args:
        append: Stores messages, of which the first replaces the draft at a position if one is
            given; returns the position of the last message, or None if it was not stored.
    """

    def __init__(self, append: Append) -> None:
        self._append = append
        self._pieces: list[str] = []  # the text since the last message
        self._draft: int | None = None  # the position of its draft
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def add(self, text: str) -> None:
        """Add a piece of text, which is stored within a second."""
        self._pieces.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAVE_SECONDS, self._begin_save)

    async def record(self, messages: Sequence[Message]) -> None:
        """Store messages, as the `record` of an agent; the first one replaces the draft."""
        async with self._writing:
            self._stop_saving()
            draft = self._draft if self._pieces else None
            position = await self._append(messages, draft)
            self._pieces.clear()
            self._draft = None
            last = messages[-1] if messages else None
            if isinstance(last, AssistantMessage) and last.is_draft:  # the agent was stopped
                self._pieces, self._draft = [last.content], position

    async def end(self, why: Unfinished) -> AssistantMessage:
        """Store the text so far as an answer that is not complete; return it."""
        async with self._writing:
            self._stop_saving()
            message = AssistantMessage("".join(self._pieces), unfinished=why)
            await self._append([message], self._draft)
            self._pieces.clear()
            self._draft = None
            return message

    def _stop_saving(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._saving is not None:
            self._saving.cancel()

    def _begin_save(self) -> None:
        self._timer = None
        self._saving = asyncio.ensure_future(self._save())

    async def _save(self) -> None:
        try:
            if self._draft is not None:
                await self._append([self._as_draft()], self._draft)
                return
            async with self._writing:
                if self._pieces:
                    self._draft = await self._append([self._as_draft()], self._draft)
        except InterlockError as error:  # the message itself may still be stored
            _log.warning("a draft of an answer was not stored: %s", error)

    def _as_draft(self) -> AssistantMessage:
        self._pieces = ["".join(self._pieces)]
        return AssistantMessage(self._pieces[0], unfinished=Unfinished())


def ended(messages: list[Message], answer: AssistantMessage) -> None:
    """Add an unfinished answer to a conversation; it replaces a draft at the end."""
    last = messages[-1] if messages else None
    if isinstance(last, AssistantMessage) and last.is_draft:
        messages.pop()
    messages.append(answer)
