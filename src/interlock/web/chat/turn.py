"""A turn: an answer that the server keeps, no matter which clients are connected.

1. A conversation has one owner, and at most one turn at a time.
2. A turn's events are numbered. A client that reconnects gets the events it missed.
3. Exactly one `complete` or `error` ends a turn. Before it, each `tool_start` is followed by its
   `tool_complete`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from time import monotonic
from typing import Any, Protocol

from msgspec import Struct

from interlock.agent import AgentEvent, ApprovalAsked, Done, QuestionAsked, Stopped
from interlock.calls import Caller
from interlock.config.settings import Price
from interlock.errors import InterlockError
from interlock.messages import Unfinished
from interlock.streamed_answer import StreamedAnswer
from interlock.types import JsonObject
from interlock.web.chat.errors import TurnError, explained
from interlock.web.chat.events import TEXTS, TurnEvent, fields_of, now, stopped_call
from interlock.web.chat.turn_log import TurnLog, TurnText

_log = logging.getLogger("interlock.web")

Listener = Callable[["Turn", TurnEvent], None]


class Asked(Struct, frozen=True):
    """A client's request that starts a turn.

    Attributes:
        content: The message; "" to continue an interrupted turn.
        model: The model that answers; "" uses the conversation's model.
        files: Ids of the message's attached files.
        replaces: Position of an earlier message that this message replaces. The turn then
            continues in a copy of the conversation up to that position.
        continues: Whether the model continues from the last message, without a new message.
    """

    content: str
    model: str = ""
    files: tuple[str, ...] = ()
    replaces: int | None = None
    continues: bool = False


class TurnLimits(Struct, frozen=True):
    """Limits of turns. Times are in seconds."""

    turn: float = 600.0  # seconds of work, without the time in which a person is asked
    turns: int = 4  # concurrent turns of one user, without those that wait for a person
    messages: int = 30  # messages of one user in a period
    period: float = 60.0
    all_turns: int = 1_000
    kept: float = 300.0  # how long an ended turn is kept for clients that reconnect
    message: int = 32 * 1024  # characters of a message
    sockets: int = 16  # open sockets of one user


class Engine(Protocol):
    """An engine that answers messages, such as `AgentEngine` and `GraphEngine`."""

    async def open(self, owner: str, conversation: str | None, title: str) -> str:
        """Check that the owner has the conversation, or create one if it is None; return its id.

        Raises:
            UnknownConversation: The conversation has another owner, or does not exist.
        """
        ...

    async def messages(self, owner: str, conversation: str) -> list[JsonObject]:
        """Return a conversation's messages, each with "role" and "content"."""
        ...

    async def branch(self, owner: str, conversation: str, count: int) -> str:
        """Copy the first `count` messages of a conversation; return the copy's id.

        Raises:
            TurnError: The engine cannot copy conversations.
        """
        ...

    def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:
        """Answer a message. If decisions are needed, the last event is `Stopped("waiting")`."""
        ...

    def resume(
        self, turn: Turn, decisions: dict[str, JsonObject]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Continue a run that waits for decisions; `decisions` has them by approval id."""
        ...

    async def broken_off(self, turn: Turn, why: Unfinished) -> None:
        """Keep the text so far, and make the conversation valid again after a run was cancelled."""
        ...


class Turn:
    """The answer to one message, which runs whether or not clients are connected.

    Attributes:
        id: The turn's unique id.
        conversation: The id of the conversation.
        owner: The owner of the conversation.
        caller: The caller on whose behalf tools are called.
        asked: The request that started the turn.
        first: Position of the turn's first message in the conversation; None until it is stored.
        position: Position of the message that the turn answers; None until it is stored.
        price: Price of the model's tokens; None if the user has not set one.
        tool_states: The conversation's settings for tools; see `TurnToolbox`.
        streamed: Stores the text of the answer; None before it, and if the engine does so itself.
        has_ended: Whether there will be no more events.
        decided: Decisions about calls, by the model's id of the call.
        log: The turn's latest events.
    """

    def __init__(
        self,
        engine: Engine,
        limits: TurnLimits,
        conversation: str,
        owner: str,
        caller: Caller,
        asked: Asked,
        *,
        is_local: bool = False,
    ) -> None:
        self.id = f"t_{secrets.token_urlsafe(12)}"
        self.conversation = conversation
        self.owner = owner
        self.caller = caller
        self.asked = asked
        self.first: int | None = None
        self.position: int | None = None
        self.price: Price | None = None
        self.tool_states: dict[str, str] = {}
        self.streamed: StreamedAnswer | None = None
        self.has_ended = False
        self.decided: dict[str, JsonObject] = {}
        self._engine = engine
        self._is_local = is_local
        self._left = limits.turn
        self.log = TurnLog()
        self._listeners: dict[Listener, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._limit: asyncio.Timeout | None = None
        self._is_stopping = False
        self._text: list[str] = []  # the text of the current reply
        self._waiting = TurnText(self._emit_text)
        self._open: dict[str, JsonObject] = {}  # calls that have started and not ended
        self._approvals: dict[str, ApprovalAsked] = {}
        self._decisions: dict[str, JsonObject] = {}
        self._deciders: dict[str, asyncio.Future[JsonObject]] = {}
        self._questions: dict[str, QuestionAsked] = {}
        self._people = 0  # number of calls and questions that wait for a person
        self._calls: dict[str, asyncio.Task[Any]] = {}  # calls that can be stopped, by id

    # Events

    def emit(self, **fields: Any) -> TurnEvent:
        """Add an event and send it to all listeners, after any text that is still waiting."""
        self._waiting.flush()
        return self._emit(fields)

    def _emit_text(self, kind: str, text: str) -> None:
        self._emit({"type": kind, "content": text})

    def _emit(self, fields: JsonObject) -> TurnEvent:
        fields["conversation_id"] = self.conversation
        fields["turn_id"] = self.id
        event = self.log.append(fields)
        for listener in [*self._listeners]:
            listener(self, event)
        return event

    def follow(self, listener: Listener) -> None:
        """Call a function with each event from now on. The function must not block."""
        self._listeners[listener] = None

    def unfollow(self, listener: Listener) -> None:
        self._listeners.pop(listener, None)

    @property
    def is_waiting(self) -> bool:
        """Whether the turn cannot continue until a person decides."""
        open_approvals = self._approvals.keys() - self._decisions.keys()
        waiting = {self._approvals[id].tool_call_id for id in open_approvals}
        waiting |= {each.tool_call_id for each in self._questions.values()}
        return bool(waiting) and self._open.keys() <= waiting

    @property
    def state(self) -> str:
        """ "waiting" (for a person), "running" or "ended"."""
        if self.has_ended:
            return "ended"
        has_open = bool(self._approvals.keys() - self._decisions.keys() or self._questions)
        return "waiting" if has_open else "running"

    @property
    def announced(self) -> frozenset[str]:
        asked = (each.tool_call_id for each in self._approvals.values())
        return frozenset((*self._open, *asked))

    def hash_of(self, approval: str) -> str:
        return self._approvals[approval].hash

    def tool_call_of(self, call_id: str) -> str:
        """Return the model's id of a running call, given the audit trail's id; "" if unknown."""
        for id, started in self._open.items():
            if started["call_id"] == call_id:
                return id
        return ""

    # Running

    def start(self, message_id: str | None, earlier: Turn | None = None) -> None:
        """Start the answer, once the conversation's earlier turn is stored completely."""
        asked = self.asked
        fields: JsonObject = {"message_id": message_id} if message_id else {}
        if not asked.continues:
            fields["content"] = asked.content
        if asked.files:
            fields["files"] = list(asked.files)
        if asked.model:
            fields["model"] = asked.model
        self.emit(type="started", **fields)
        after = None if earlier is None else earlier._task
        self._task = asyncio.create_task(self._run(self._engine.run(self, asked.content), after))

    async def _run(
        self, events: AsyncGenerator[AgentEvent, None], after: asyncio.Task[None] | None = None
    ) -> None:
        started, limit = monotonic(), asyncio.timeout(None)
        try:
            if after is not None:
                await asyncio.wait({after})
            started = monotonic()
            self._limit = limit = asyncio.timeout(max(self._left, 0.0))
            async with limit:
                await self._take_all(events)
        except asyncio.CancelledError:
            await self._cancelled()
        except Exception as error:
            if limit.expired():
                await self._break_off("timeout", "the turn took too long")
            else:
                await self._fail(error)
        finally:
            self._left -= monotonic() - started

    async def _take_all(self, events: AsyncGenerator[AgentEvent, None]) -> None:
        is_asking = False
        async with aclosing(events):
            async for event in events:
                fields = fields_of(event)
                if fields is not None and fields["type"] in TEXTS:
                    self._say(fields["type"], fields["content"])
                elif fields is not None:
                    self._note(fields)
                    if isinstance(event, ApprovalAsked):
                        is_asking = True
                        self._approvals[event.id] = event
                    self.emit(**fields)
                elif isinstance(event, Done):
                    self._complete(event)
                elif isinstance(event, Stopped) and event.reason == "stopped":
                    self._stop()
                elif isinstance(event, Stopped) and not is_asking:
                    # The graph was interrupted for something other than an approval.
                    text = "the answer waits for something that this chat cannot ask"
                    self._end("error", code="interrupted", message=text)

    def _say(self, kind: str, piece: str) -> None:
        if kind == "token":
            self._text.append(piece)
        self._waiting.add(kind, piece)

    def _note(self, fields: JsonObject) -> None:
        match fields["type"]:
            case "tool_start":
                self._text.clear()  # the answer is only the text after the last call
                self._open[fields["tool_call_id"]] = fields
            case "tool_complete":
                self._open.pop(fields["tool_call_id"], None)

    def _complete(self, done: Done) -> None:
        usage: JsonObject = {
            "input_tokens": done.usage.input_tokens,
            "output_tokens": done.usage.output_tokens,
        }
        if self.price is not None:
            usage["cost"] = self.price.cost(done.usage)
        self._end(
            "complete",
            message_id=f"m_{self.id[2:]}",
            content=done.message.content,
            usage=usage,
            stop_reason="length" if done.stop_reason == "length" else "end",
        )

    def _stop(self) -> None:
        self._end(
            "complete",
            message_id=f"m_{self.id[2:]}",
            content="".join(self._text),
            usage={},
            stop_reason="stopped",
        )

    async def _fail(self, error: Exception) -> None:
        code, text = explained(error, is_local=self._is_local)
        if code == "internal":
            number = secrets.token_hex(4)
            _log.error("turn %s failed (%s)", self.id, number, exc_info=error)
            text = f"internal error ({number})"
        elif code in ("model_failed", "failed"):
            _log.warning("turn %s failed: %s", self.id, error)
        await self._break_off(code, text)

    async def _break_off(self, code: str, text: str) -> None:
        """End the turn before its answer is complete, for a reason that the page shows.

        The page hears it first, because a busy database may take a while to store it.
        """
        if self.has_ended:
            return
        if code == "stopped":
            self._stop()
        else:
            self._end("error", code=code, message=text)
        try:
            await self._engine.broken_off(self, Unfinished(code, text))
        except InterlockError as error:
            _log.warning("the end of turn %s was not stored: %s", self.id, error)
        except Exception:
            _log.exception("the end of turn %s was not stored", self.id)

    async def settled(self) -> None:
        """Wait until everything of a turn that has ended is stored."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _end(self, kind: str, **fields: Any) -> None:
        if self.has_ended:
            return
        for started in [*self._open.values()]:
            self.emit(**stopped_call(started))
        self._open.clear()
        self._questions.clear()
        self.has_ended = True
        if self.position is not None:
            fields["position"] = self.position
        self.emit(type=kind, **fields)

    async def _cancelled(self) -> None:
        if self._is_stopping:
            await self._break_off("stopped", "")
        else:  # the server shuts down
            await self._break_off("interrupted", "the server was ended")

    async def stop(self) -> None:
        if self.has_ended:
            return
        self._is_stopping = True
        await self.close()

    async def close(self) -> None:
        if not self.has_ended:
            if self._task is not None and not self._task.done():
                self._task.cancel()
            else:  # the turn waits for a person
                self._task = asyncio.create_task(self._cancelled())
        await self.settled()

    # Approvals

    def decide(
        self,
        id: str,
        hash: str,
        decision: str,
        note: str,
        by: str,
        arguments: JsonObject | None = None,
    ) -> None:
        """Allow or deny a call.

        Args:
            id: The id of the approval.
            hash: The hash of the call that the person was shown.
            decision: "allow" or "deny".
            note: A remark for the model.
            by: The person who decides.
            arguments: The person's changed arguments. The call is denied, and the person is asked
                about the call with these arguments instead.

        Raises:
            TurnError: The approval does not exist or was decided already, or the call has changed.
        """
        approval = self._approvals.get(id)
        if approval is None or id in self._decisions or self.has_ended:
            raise TurnError("approval_closed", "this approval is not open")
        if approval.hash != hash:
            raise TurnError("approval_changed", "the call is not the one that was shown")
        if decision not in ("allow", "deny"):
            raise TurnError("bad_message", 'decision must be "allow" or "deny"')
        waiting = self._deciders.get(id)
        if arguments is not None and waiting is None:
            raise TurnError("bad_message", "the arguments of this call cannot be changed")
        chosen: JsonObject = {"decision": decision, "hash": hash, "note": note}
        if arguments is not None:
            chosen["arguments"] = arguments
        self._decisions[id] = chosen
        self._note_decision(approval, "approved" if decision == "allow" else "denied", by)
        if waiting is not None:
            waiting.set_result(chosen)
        elif self._decisions.keys() >= self._approvals.keys():
            decisions, self._decisions, self._approvals = self._decisions, {}, {}
            # The run that asked may not have ended yet, so the next run waits for it.
            resumed = self._run(self._engine.resume(self, decisions), after=self._task)
            self._task = asyncio.create_task(resumed)

    def _note_decision(self, approval: ApprovalAsked, state: str, by: str) -> None:
        at = now()
        self.decided[approval.tool_call_id] = {
            "state": state,
            "by": by,
            "at": at,
            "rule": approval.rule,
        }
        self.emit(type="approval_done", approval_id=approval.id, state=state, by=by, timestamp=at)

    async def ask(self, approval: ApprovalAsked, seconds: float | None = None) -> JsonObject:
        """Ask the people who see the turn for a decision, and wait for it in the call's task.

        Raises:
            TimeoutError: No decision came in time.
        """
        id = approval.id
        self._approvals[id] = approval
        self._deciders[id] = decided = asyncio.get_running_loop().create_future()
        self.emit(**(fields_of(approval) or {}))
        try:
            async with self._waiting_for_person():
                found: JsonObject = await asyncio.wait_for(decided, seconds)
                return found
        except TimeoutError:
            self._decisions[id] = {"decision": "deny"}
            self._note_decision(approval, "expired", "")
            raise
        except asyncio.CancelledError:
            if id not in self._decisions and not self.has_ended:  # stopped, or decided elsewhere
                self._decisions[id] = {}
                self.emit(type="approval_done", approval_id=id, state="closed", by="")
            raise
        finally:
            self._deciders.pop(id, None)

    def approval(self, id: str) -> ApprovalAsked | None:
        return self._approvals.get(id)

    # Questions

    async def ask_question(self, question: QuestionAsked, seconds: float) -> JsonObject:
        """Ask the people who see the turn a server's question, and wait in the call's task.

        Raises:
            TimeoutError: No answer came in time.
        """
        id = question.id
        self._questions[id] = question
        self._deciders[id] = answered = asyncio.get_running_loop().create_future()
        self.emit(**(fields_of(question) or {}))
        action = "cancel"
        try:
            async with self._waiting_for_person():
                found: JsonObject = await asyncio.wait_for(answered, seconds)
                action = found["action"]
                return found
        finally:
            self._deciders.pop(id, None)
            if self._questions.pop(id, None) is not None and not self.has_ended:
                self.emit(type="question_done", question_id=id, action=action)

    def question(self, id: str) -> QuestionAsked | None:
        return self._questions.get(id)

    def answer(self, id: str, answer: JsonObject) -> None:
        """Answer a question.

        Raises:
            TurnError: The question is not open.
        """
        waiting = self._deciders.get(id)
        if id not in self._questions or waiting is None or waiting.done():
            raise TurnError("approval_closed", "this question is not open")
        waiting.set_result(answer)

    @asynccontextmanager
    async def _waiting_for_person(self) -> AsyncIterator[None]:
        """Pause the turn's time limit while it waits for a person."""
        clock = asyncio.get_running_loop().time
        self._people += 1
        if self._people == 1 and self._limit is not None:
            self._left = (self._limit.when() or 0.0) - clock()
            self._limit.reschedule(None)
        try:
            yield
        finally:
            self._people -= 1
            if not self._people and self._limit is not None and not self._is_stopping:
                self._limit.reschedule(clock() + self._left)

    # Stopping one call

    @contextmanager
    def stoppable(self, call_id: str, task: asyncio.Task[Any]) -> Iterator[None]:
        self._calls[call_id] = task
        try:
            yield
        finally:
            del self._calls[call_id]

    def is_calling(self, call_id: str) -> bool:
        """Return whether a call is running, or waits for a person."""
        return call_id in self._calls

    def stop_call(self, call_id: str) -> None:
        """Stop one call; the turn continues.

        Raises:
            TurnError: The call is not running.
        """
        task = self._calls.get(call_id)
        if task is None:
            raise TurnError("not_found", "no such call is running")
        task.cancel()
