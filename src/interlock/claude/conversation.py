"""The conversation with Claude Code, without IO: lines in, events and answers out.

Rules:

1. One prompt is answered at a time. Each prompt has a UUID. A `result` ends the running turn if it
   has the turn's UUID. Old programs send no UUID: there, any `result` that is not about a
   background task ends the turn.
2. Messages outside of our turns go to `background`: Claude also writes without a prompt, when a
   subagent in the background has ended.
3. Interrupts and denials are recorded here, because old programs do not report them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any

import msgspec
from msgspec import Struct

from interlock.agent import ToolFinished, ToolStarted
from interlock.claude.events import (
    ClaudeAnswer,
    ClaudeDone,
    ClaudeEvent,
    ClaudeNotice,
    EventQueue,
    Retrying,
)
from interlock.errors import InterlockError
from interlock.messages import AssistantMessage
from interlock.models import ReasoningDelta, TextDelta, Usage
from interlock.types import JsonObject

LIMITS = {
    "error_max_turns": ("max_turns", "the limit of turns is reached"),
    "error_max_budget_usd": ("max_cost", "the limit of cost is reached"),
    "error_max_structured_output_retries": (
        "output_schema",
        "no answer that fits the output schema",
    ),
}
INTERRUPTED = "interrupted"
MAX_STARTED = 10_000  # tool calls without a result that are remembered


class PromptTurn:
    """A prompt and the events of its answer.

    Attributes:
        uuid: The prompt's UUID.
        events: The turn's events, until the caller has read them.
        answer: The answer; set when the turn has ended.
        error: Why Claude Code ended before the turn was complete; None otherwise.
        is_interrupted: Whether we interrupted the turn.
        denials: Addresses of the tools whose calls we denied.
        context: The context variables of the prompt's sender, for the calls that it causes.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.events = EventQueue()
        self.answer: ClaudeAnswer | None = None
        self.error: InterlockError | None = None
        self.is_interrupted = False
        self.denials: list[str] = []
        self.context = copy_context()

    @property
    def is_over(self) -> bool:
        """Whether no more events will come."""
        return self.answer is not None or self.error is not None


class _Started(Struct):
    address: str
    arguments: JsonObject
    at: float


class _StreamEvent(Struct):
    event: JsonObject
    parent_tool_use_id: str | None = None


class _Content(Struct):
    id: str = ""
    content: str | list[JsonObject] = ""


class _Message(Struct):
    message: _Content
    parent_tool_use_id: str | None = None


class _Used(Struct, frozen=True):
    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class _Result(Struct):
    subtype: str = ""
    is_error: bool = False
    result: str | None = None
    structured_output: Any = None
    errors: list[Any] | None = None
    api_error_status: Any = None
    stop_reason: str | None = None
    session_id: str = ""
    num_turns: int = 0
    total_cost_usd: float = 0.0
    duration_ms: float = 0.0
    usage: _Used = _Used()
    model_usage: JsonObject = msgspec.field(name="modelUsage", default={})
    permission_denials: list[JsonObject] | None = None
    user_message_uuids: list[str] | None = None
    origin: JsonObject | None = None


class SystemInit(Struct):
    """Claude Code's description of itself at the start of a turn."""

    session_id: str = ""
    tools: list[str] = []
    model: str = ""
    capabilities: list[str] = []
    claude_code_version: str = ""
    mcp_servers: list[JsonObject] = []


class _System(Struct):
    subtype: str = ""
    content: Any = None
    attempt: int = 0
    retry_delay_ms: float = 0.0
    error_status: Any = None
    error: Any = None
    description: str | None = None
    summary: str | None = None
    status: Any = None


class ConversationState:
    """Tracks a conversation with Claude Code from the lines that it sends.

    Args:
        address: Converts Claude Code's name for a tool to the tool's address.
        on_init: Called with Claude Code's description of itself, once per turn.
        on_result: Called with each tool result: the call's id, the text, whether it is an error.
        on_end: Called at the end of each turn.
        arguments: Returns a call's arguments with the server's names, given the program's name for
            the tool.

    Attributes:
        background: Events outside of our turns.
        turn: The running turn, or None.
        session: The id of the session; "" until it is known.
        last_error: Why the last failed turn failed. Old programs state here why they cannot start.
    """

    def __init__(
        self,
        address: Callable[[str], str],
        on_init: Callable[[SystemInit], None],
        *,
        on_result: Callable[[str, str, bool], None] = lambda *_: None,
        on_end: Callable[[], None] = lambda: None,
        arguments: Callable[[str, JsonObject], JsonObject] = lambda _, given: given,
    ) -> None:
        self.background = EventQueue(keeps_calls=False)
        self.turn: PromptTurn | None = None
        self.session = ""
        self.last_error = ""
        self._address = address
        self._on_init = on_init
        self._on_result = on_result
        self._on_end = on_end
        self._arguments = arguments
        self._started: dict[str, _Started] = {}
        self._streamed: set[str] = set()  # ids of messages whose text came in pieces
        self._cost = 0.0  # US dollars of all turns so far
        self._agents: dict[str, str] = {}  # call id -> the subagent that made the call

    def begin(self, uuid: str) -> PromptTurn:
        self.turn = PromptTurn(uuid)
        return self.turn

    def cancel(self, turn: PromptTurn) -> None:
        """End a turn whose prompt Claude Code has not begun to answer."""
        turn.answer = ClaudeAnswer(
            "", reason=INTERRUPTED, stop_reason=INTERRUPTED, session=self.session
        )
        turn.events.put(_done(turn.answer))
        if self.turn is turn:
            self.turn = None

    def fail(self, error: InterlockError) -> None:
        turn, self.turn = self.turn, None
        if turn is not None:
            turn.error = error
            turn.events.wake()
        self.background.wake()

    def put(self, event: ClaudeEvent) -> None:
        """Add an event to the running turn, or to the background."""
        (self.turn.events if self.turn is not None else self.background).put(event)

    def agent_of(self, id: str) -> str:
        """Return the subagent that made a tool call; "" for Claude itself."""
        return self._agents.get(id, "")

    # Receiving

    def receive(self, kind: str, line: bytes, *, now: float) -> None:
        """Handle one line. Unknown and malformed lines are ignored."""
        handler = _HANDLERS.get(kind)
        if handler is not None:
            try:
                handler(self, line, now)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                return  # a newer program has changed this kind of line

    def _stream_event(self, line: bytes, _: float) -> None:
        decoded = _decode_stream(line)
        event = decoded.event
        agent = decoded.parent_tool_use_id or ""
        kind = event.get("type")
        if kind == "content_block_delta":
            delta = event.get("delta")
            if not isinstance(delta, dict):
                return
            if isinstance(text := delta.get("text"), str):
                self.put(TextDelta(text, agent))
            elif isinstance(text := delta.get("thinking"), str):
                self.put(ReasoningDelta(text, agent))
        elif kind == "message_start":
            message = event.get("message")
            if isinstance(message, dict) and isinstance(id := message.get("id"), str):
                if len(self._streamed) > MAX_STARTED:
                    self._streamed.clear()
                self._streamed.add(id)

    def _assistant(self, line: bytes, now: float) -> None:
        decoded = _decode_message(line)
        agent = decoded.parent_tool_use_id or ""
        for block in _blocks(decoded.message):
            match block:
                case {"type": "tool_use", "id": str(id), "name": str(name)}:
                    given = block.get("input")
                    arguments = self._arguments(name, given) if isinstance(given, dict) else {}
                    self._start(id, self._address(name), arguments, agent, now)
                case {"type": "text", "text": str(text)}:
                    if decoded.message.id not in self._streamed:
                        self.put(TextDelta(text, agent))
                case {"type": "thinking", "thinking": str(text)}:
                    if decoded.message.id not in self._streamed:
                        self.put(ReasoningDelta(text, agent))

    def _start(self, id: str, address: str, arguments: JsonObject, agent: str, now: float) -> None:
        if id in self._started:
            return
        if len(self._started) >= MAX_STARTED:
            self._started.clear()
            self._agents.clear()
        self._started[id] = _Started(address, arguments, now)
        if agent:
            self._agents[id] = agent
        self.put(ToolStarted(id, address, arguments, agent))

    def _user(self, line: bytes, now: float) -> None:
        for block in _blocks(_decode_message(line).message):
            if block.get("type") != "tool_result":
                continue
            id = block.get("tool_use_id")
            if not isinstance(id, str):
                continue
            text, is_error = _text_of(block.get("content")), block.get("is_error") is True
            self._on_result(id, text, is_error)
            started = self._started.pop(id, None)
            if started is None:
                continue
            self.put(
                ToolFinished(
                    id,
                    started.address,
                    started.arguments,
                    text,
                    is_error,
                    now - started.at,
                    self._agents.pop(id, ""),
                )
            )

    def _system(self, line: bytes, _: float) -> None:
        system = _decode_system(line)
        if system.subtype == "init":
            init = _decode_init(line)
            self.session = init.session_id or self.session
            self._on_init(init)
        elif system.subtype == "api_retry":
            reason = f"{system.error_status or ''} {system.error or ''}".strip()
            self.put(Retrying(system.attempt, system.retry_delay_ms / 1000, reason))
        else:
            said = (system.content, system.summary, system.description)
            text = next((each for each in said if isinstance(each, str) and each), "")
            if text or system.subtype == "compact_boundary":
                self.put(ClaudeNotice(system.subtype, text))

    def _result(self, line: bytes, _: float) -> None:
        try:
            result = _decode_result(line)
        except msgspec.DecodeError as error:  # the turn has ended in any case
            result = _Result("error", errors=[f"Claude Code's result could not be read: {error}"])
        self.session = result.session_id or self.session
        cost, self._cost = result.total_cost_usd - self._cost, result.total_cost_usd
        refused = [each.get("tool_name") for each in result.permission_denials or ()]
        denied = [self._address(each) for each in refused if isinstance(each, str)]
        turn = self.turn
        if turn is None or not _is_of(result, turn.uuid):
            answer = _answer(result, None, cost, denied)
            self.last_error = answer.reason
            self.background.put(_done(answer))
            return
        self._on_end()
        turn.answer = _answer(result, turn, cost, [*turn.denials, *denied])
        turn.events.put(_done(turn.answer))
        self.turn = None


_HANDLERS: dict[str, Callable[[ConversationState, bytes, float], None]] = {
    "stream_event": ConversationState._stream_event,
    "assistant": ConversationState._assistant,
    "user": ConversationState._user,
    "system": ConversationState._system,
    "result": ConversationState._result,
}
_decode_stream = msgspec.json.Decoder(_StreamEvent).decode
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_system = msgspec.json.Decoder(_System).decode
_decode_init = msgspec.json.Decoder(SystemInit).decode
_decode_result = msgspec.json.Decoder(_Result).decode


def _blocks(message: _Content) -> list[JsonObject]:
    return message.content if isinstance(message.content, list) else []


def _is_of(result: _Result, uuid: str) -> bool:
    if result.user_message_uuids:
        return uuid in result.user_message_uuids
    return (result.origin or {}).get("kind") != "task-notification"


def _answer(
    result: _Result, turn: PromptTurn | None, cost: float, denials: Iterable[str]
) -> ClaudeAnswer:
    interrupted = turn is not None and turn.is_interrupted
    stop, reason = result.stop_reason or "end_turn", ""
    if interrupted:
        stop, reason = INTERRUPTED, INTERRUPTED
    elif result.subtype in LIMITS:
        stop, reason = LIMITS[result.subtype]
    elif result.is_error or result.subtype.startswith("error"):
        stop = "api_error" if result.subtype == "success" else "error"
        said = [each for each in result.errors or () if isinstance(each, str)]
        status = result.api_error_status
        reason = "; ".join(said) or result.result or (f"status {status}" if status else stop)
    used = result.usage
    read = used.input_tokens + used.cache_creation_input_tokens + used.cache_read_input_tokens
    return ClaudeAnswer(
        text=result.result or reason,
        structured=result.structured_output,
        is_error=bool(reason) and not interrupted,
        reason=reason,
        stop_reason=stop,
        session=result.session_id,
        turns=result.num_turns,
        cost=cost,
        usage=Usage(read, used.output_tokens, used.cache_read_input_tokens),
        usage_by_model=result.model_usage,
        duration=result.duration_ms / 1000,
        denials=tuple(dict.fromkeys(denials)),
        prompt="" if turn is None else turn.uuid,
    )


def _done(answer: ClaudeAnswer) -> ClaudeDone:
    return ClaudeDone(
        AssistantMessage(answer.text), answer.usage, answer.stop_reason, answer=answer
    )


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = []
    for block in content:
        if isinstance(block, dict):
            text = block.get("text")
            texts.append(text if isinstance(text, str) else f"[{block.get('type')}]")
    return "\n".join(texts)
