"""The events while Claude Code answers, and the answer itself.

Events that `Agent` yields too have the same classes here: `TextDelta`, `ToolStarted` and so on.
Their `agent` is the id of the tool call that started the subagent, or "" for Claude itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from interlock import agent
from interlock.agent import ToolFinished, ToolStarted
from interlock.models import ReasoningDelta, TextDelta, Usage
from interlock.types import JsonObject

MAX_EVENTS = 1_000  # events that wait for a slow reader


class ClaudeToolProgress(Struct, frozen=True):
    """A call of a tool from one of our servers reported progress."""

    id: str
    address: str
    progress: float
    total: float | None = None
    message: str | None = None
    agent: str = ""


class Retrying(Struct, frozen=True):
    """A request to the model failed; Claude Code will retry it after `seconds`."""

    attempt: int
    seconds: float
    reason: str


class ClaudeNotice(Struct, frozen=True):
    """Any other message from Claude Code about its state; `kind` is Claude Code's name for it."""

    kind: str
    text: str
    agent: str = ""


class ClaudeAnswer(Struct, frozen=True):
    """The answer to one prompt.

    Attributes:
        text: The answer, or why the turn failed.
        structured: The answer as a JSON value, if the option `output_schema` is set.
        is_error: Whether the turn failed; `reason` states why.
        reason: Why the turn failed or ended early; "" if it is complete.
        stop_reason: "end_turn", "interrupted", "max_turns", "max_cost", "output_schema",
            "api_error", "error", or another stop reason from the model's provider.
        session: The session's id, for the option `resume`.
        turns: Number of requests to the model.
        cost: The cost in US dollars, as Claude Code estimates it.
        usage: The tokens that this answer used.
        usage_by_model: Claude Code's own totals for each model since the session was opened.
        duration: Seconds that the turn took.
        denials: Addresses of tools whose calls were denied.
        prompt: The UUID of the prompt, for `ClaudeCode.rewind`.
    """

    text: str
    structured: Any = None
    is_error: bool = False
    reason: str = ""
    stop_reason: str = "end_turn"
    session: str = ""
    turns: int = 0
    cost: float = 0.0
    usage: Usage = Usage()
    usage_by_model: JsonObject = {}
    duration: float = 0.0
    denials: tuple[str, ...] = ()
    prompt: str = ""


class ClaudeDone(agent.Done, frozen=True, kw_only=True):
    """The answer is complete. This is always the last event of `stream`."""

    answer: ClaudeAnswer


ClaudeEvent = (
    TextDelta
    | ReasoningDelta
    | ToolStarted
    | ClaudeToolProgress
    | ToolFinished
    | Retrying
    | ClaudeNotice
    | ClaudeDone
)
"""An event of `ClaudeCode.stream`; the last one is `ClaudeDone`."""


_MINOR = (ClaudeToolProgress, Retrying, ClaudeNotice)


class EventQueue:
    """A queue of events for one reader. Successive pieces of text are joined while they wait.

    Args:
        keeps_calls: Whether a full queue drops only progress, retries and notices, not the oldest
            event.
    """

    def __init__(self, *, keeps_calls: bool = True) -> None:
        self._events: deque[ClaudeEvent] = deque(maxlen=None if keeps_calls else MAX_EVENTS)
        self._waiting: asyncio.Future[None] | None = None

    def put(self, event: ClaudeEvent) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(event, TextDelta | ReasoningDelta):
            if type(last) is type(event) and last.agent == event.agent:
                self._events[-1] = replace(last, text=last.text + event.text)
                return
        elif len(self._events) >= MAX_EVENTS and isinstance(event, _MINOR):
            return
        self._events.append(event)
        self.wake()

    def wake(self) -> None:
        """Wake the waiting reader without adding an event."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def pop(self) -> ClaudeEvent | None:
        """Remove and return the first event; None if the queue is empty."""
        return self._events.popleft() if self._events else None

    def clear(self) -> None:
        self._events.clear()

    async def wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting
