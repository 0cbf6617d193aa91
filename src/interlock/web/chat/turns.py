"""The turns of all users, which run whether or not clients are connected."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from time import monotonic
from typing import Any

from interlock.calls import Caller
from interlock.errors import StoreFull, UnknownConversation
from interlock.types import JsonObject
from interlock.web.chat.errors import TurnError, explained
from interlock.web.chat.events import TurnEvent
from interlock.web.chat.turn import Asked, Engine, Listener, Turn, TurnLimits

MAX_FOLLOWED = 256  # conversations that one socket can follow
# Kinds of events after which a list of conversations must be updated.
_TELLING = frozenset(
    ("started", "approval", "approval_done", "question", "question_done", "complete", "error")
)


class Turns:
    """Starts, finds and keeps the turns of all users.

    Args:
        engine: The engine that answers.
        limits: See `TurnLimits`.
        is_local: Whether every caller is the person at this machine, who may see all errors.
    """

    def __init__(
        self, engine: Engine, limits: TurnLimits | None = None, *, is_local: bool = False
    ) -> None:
        self._is_local = is_local
        self.limits = limits or TurnLimits()
        self._engine = engine
        self._turns: dict[str, Turn] = {}
        self._latest: dict[str, Turn] = {}  # each conversation's latest turn
        self._by_message: dict[tuple[str, str], Turn] = {}
        self._stopping: set[asyncio.Future[None]] = set()
        self._asked: dict[str, deque[float]] = {}  # times of recent messages, by owner
        self._followers: dict[
            str, dict[Listener, str]
        ] = {}  # listeners and their owners, by conversation
        self._watchers: dict[str, dict[Listener, None]] = {}  # listeners, by owner

    async def start(
        self,
        caller: Caller,
        content: str,
        conversation: str | None = None,
        message_id: str | None = None,
        *,
        asked: Asked | None = None,
        follow: Listener | None = None,
    ) -> Turn:
        """Start a turn.

        Args:
            caller: The caller on whose behalf the turn runs.
            content: The message.
            conversation: The conversation; None for a new one.
            message_id: The client's id of the message. If the id was used before, its turn is
                returned.
            asked: The whole request; None if it has only `content`.
            follow: Called with each event, from the first event on.

        Raises:
            TurnError: The message was refused.
        """
        owner = caller.owner
        if message_id and (known := self._by_message.get((owner, message_id))):
            return known
        asked = asked or Asked(content)
        self._check(owner, asked)
        try:
            id = await self._engine.open(owner, conversation, content)
            if asked.replaces is not None:
                id = await self._engine.branch(owner, id, asked.replaces)
        except (StoreFull, UnknownConversation) as error:
            raise TurnError(*explained(error)) from None
        latest = self._latest.get(id)
        if latest is not None and not latest.has_ended:
            raise TurnError("busy", "a turn of this conversation is under way")
        turn = Turn(*(self._engine, self.limits, id, owner, caller, asked), is_local=self._is_local)
        self._turns[turn.id] = self._latest[id] = turn
        if message_id:
            self._by_message[owner, message_id] = turn
        turn.follow(lambda turn, event: self._note(turn, event, message_id))
        for listener, who in self._followers.get(id, {}).items():
            if who == owner:
                turn.follow(listener)
        if follow is not None:
            turn.follow(follow)
        turn.start(message_id, latest)
        return turn

    def _check(self, owner: str, asked: Asked) -> None:
        limits, content = self.limits, asked.content
        if not content.strip() and not asked.continues and not asked.files:
            raise TurnError("bad_message", "the message is empty")
        if len(content) > limits.message:
            raise TurnError(
                "too_large",
                f"the message is too long ({len(content):,} characters, limit {limits.message:,})",
            )
        now, times = monotonic(), self._asked.setdefault(owner, deque())
        while times and times[0] <= now - limits.period:
            times.popleft()
        if len(times) >= limits.messages:
            wait = round(times[0] + limits.period - now, 1)
            text = f"more than {limits.messages} messages in {limits.period:g} s"
            raise TurnError("rate_limited", text, wait)
        # A turn that waits for a person uses no model and no server. The expiry of approvals and
        # the limit of messages bound the number of such turns.
        running = [
            each for each in self._turns.values() if not each.has_ended and not each.is_waiting
        ]
        if sum(each.owner == owner for each in running) >= limits.turns:
            text = "1 answer is" if limits.turns == 1 else f"{limits.turns} answers are"
            raise TurnError(
                "rate_limited",
                f"{text} being written, which is the limit; send it again when one has ended",
                5.0,
            )
        if len(running) >= limits.all_turns:
            raise TurnError(
                "overloaded", "the server writes too many answers; try again later", 5.0
            )
        times.append(now)

    def _note(self, turn: Turn, event: TurnEvent, message_id: str | None) -> None:
        if event.kind not in _TELLING:
            return
        for listener in [*self._watchers.get(turn.owner, ())]:
            listener(turn, event)
        if event.kind in ("complete", "error"):
            loop = asyncio.get_running_loop()
            loop.call_later(self.limits.kept, self._forget, turn, message_id)

    def _forget(self, turn: Turn, message_id: str | None) -> None:
        self._turns.pop(turn.id, None)
        if self._latest.get(turn.conversation) is turn:
            del self._latest[turn.conversation]
        if message_id:
            self._by_message.pop((turn.owner, message_id), None)
        times = self._asked.get(turn.owner)
        if times is not None and (not times or times[-1] <= monotonic() - self.limits.period):
            del self._asked[turn.owner]

    def find(self, owner: str, conversation: str, turn: str | None = None) -> Turn | None:
        """Return a conversation's turn, by default its latest; None if it is unknown."""
        found = self._turns.get(turn) if turn else self._latest.get(conversation)
        if found is None or found.owner != owner or found.conversation != conversation:
            return None
        return found

    def find_approval(self, owner: str, approval: str) -> Turn | None:
        for turn in self._latest.values():
            if turn.owner == owner and turn.approval(approval) is not None:
                return turn
        return None

    def find_question(self, owner: str, question: str) -> Turn | None:
        for turn in self._latest.values():
            if turn.owner == owner and turn.question(question) is not None:
                return turn
        return None

    def stop_call(self, owner: str, call_id: str) -> bool:
        """Stop one of a user's calls; return whether it was running."""
        for turn in self._latest.values():
            if turn.owner == owner and turn.is_calling(call_id):
                turn.stop_call(call_id)
                return True
        return False

    # Listeners beyond one turn

    def follow(self, owner: str, conversation: str, listener: Listener) -> None:
        """Call a function with each event of a conversation's later turns.

        Raises:
            TurnError: The function follows too many conversations.
        """
        followed = sum(listener in each for each in self._followers.values())
        if followed >= MAX_FOLLOWED and listener not in self._followers.get(conversation, {}):
            raise TurnError("rate_limited", f"more than {MAX_FOLLOWED} conversations are followed")
        self._followers.setdefault(conversation, {})[listener] = owner

    def watch(self, owner: str, listener: Listener) -> None:
        """Call a function when one of a user's turns starts, waits, continues or ends."""
        self._watchers.setdefault(owner, {})[listener] = None

    def forget(self, owner: str, *listeners: Listener) -> None:
        for places in (self._followers, self._watchers):
            names = [owner] if places is self._watchers else [*places]
            for name in names:
                found: dict[Listener, Any] = places.get(name, {})
                for listener in listeners:
                    found.pop(listener, None)
                if not found:
                    places.pop(name, None)

    async def snapshot(self, owner: str, conversation: str) -> list[JsonObject]:
        """Return the messages of a conversation, without a draft of the answer under way.

        Raises:
            TurnError: The conversation has another owner, or does not exist.
        """
        turn = self._latest.get(conversation)
        if turn is not None and turn.has_ended:
            await turn.settled()
        try:
            found = await self._engine.messages(owner, conversation)
        except UnknownConversation:
            raise TurnError("not_found", "no such conversation") from None
        if turn is not None and not turn.has_ended and found and found[-1].get("draft"):
            found.pop()
        return found

    def end_credentials(self, keys: Collection[str]) -> None:
        for turn in self._turns.values():
            principal = turn.caller.principal
            if principal is not None and principal.ends_with(keys) and not turn.has_ended:
                stopping = asyncio.ensure_future(turn.stop())
                self._stopping.add(stopping)
                stopping.add_done_callback(self._stopping.discard)

    async def close(self) -> None:
        await asyncio.gather(*(turn.close() for turn in [*self._turns.values()]))
