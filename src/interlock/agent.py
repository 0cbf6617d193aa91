"""Ask, act, repeat: a model and tools, over a plain list of messages.

Rules:

1. The list is extended in place, and is valid for every provider whenever nobody runs it:
   each tool call is answered, in order, whatever happens (see `messages`).
2. What the model can repair goes back to it as text: unknown tools, wrong arguments, failed
   calls. What it cannot is raised: `ModelError`, `StepLimit`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any, Self

from msgspec import Struct

from interlock.errors import InterlockError, ModelInterrupted, StepLimit
from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, interrupted
from interlock.models import (
    Model,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolDefinition,
    Usage,
    choose,
)
from interlock.protocol.envelope import encode
from interlock.toolbox import Toolbox
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

MAX_ROUNDS = 10
MAX_RESULT = 100_000  # characters of one tool result that go to the model

Record = Callable[[Sequence[Message]], Awaitable[None]]
_log = logging.getLogger("interlock.agent")


class ToolStarted(Struct, frozen=True):
    """The model's call begins. `address` is the wire name when there is no such tool."""

    id: str
    address: str
    arguments: dict[str, Any]


class ToolFinished(Struct, frozen=True):
    """The call ended. `result` is what the model gets; `duration` is in seconds."""

    id: str
    address: str
    arguments: dict[str, Any]
    result: str
    is_error: bool
    duration: float


class Done(Struct, frozen=True):
    """The answer is complete. Always the last event. `usage` is of all rounds together."""

    message: AssistantMessage
    usage: Usage
    stop_reason: str


AgentEvent = TextDelta | ReasoningDelta | ToolStarted | ToolFinished | Done


class Agent:
    """A model that may use tools.

    Args:
        model: A model, its name as for `--model` ("anthropic:..."), or None for the choice
            that `models.choose` makes.
        tools: An open toolbox; None for a model without tools.
        max_rounds: How often the model may ask for tools before `StepLimit`.
        record: Awaited with messages as they are added, before anything else happens, so
            that they can be stored. A tool's call is recorded before it runs.
    """

    def __init__(
        self,
        model: Model | str | None = None,
        tools: Toolbox | None = None,
        *,
        max_rounds: int = MAX_ROUNDS,
        record: Record | None = None,
    ) -> None:
        self._model = model
        self._toolbox = tools
        self._max_rounds = max_rounds
        self._record = record
        self._saving: asyncio.Task[None] | None = None  # the last one
        self._choosing = asyncio.Lock()
        self._own_model: Model | None = None  # made from a name, so it is ours to close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the model if it was given by name. The toolbox stays open."""
        if self._own_model is not None:
            await self._own_model.close()

    async def complete(self, messages: list[Message]) -> AssistantMessage:
        """Answer the last message, using tools as needed.

        Args:
            messages: The conversation; extended in place with all that happens.

        Returns:
            The answer, which is also the last message.

        Raises:
            StepLimit: The model was still calling tools after `max_rounds`.
            ModelError: The model failed; what was complete before is in `messages`.
        """
        async with aclosing(self.stream(messages)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.message
        raise ModelInterrupted("the answer ended without saying so")

    async def stream(self, messages: list[Message]) -> AsyncGenerator[AgentEvent, None]:
        """As `complete`, telling what happens while it happens; `Done` comes last."""
        model = await self._ready()
        used = Usage()
        for _ in range(self._max_rounds):
            reply: Reply | None = None
            async with aclosing(model.stream(messages, await self._definitions())) as events:
                async for event in events:
                    if isinstance(event, Reply):
                        reply = event
                    else:
                        yield event
            if reply is None:
                raise ModelInterrupted(f"{model.name} ended its answer without saying so")
            used = Usage(
                used.input_tokens + reply.usage.input_tokens,
                used.output_tokens + reply.usage.output_tokens,
            )
            if not reply.message.tool_calls:
                await self._add(messages, [reply.message])
                yield Done(reply.message, used, reply.stop_reason)
                return
            async with aclosing(self._act(reply.message, messages)) as acts:
                async for act in acts:
                    yield act
        raise StepLimit(self._max_rounds)

    # Acting

    async def _act(
        self, message: AssistantMessage, messages: list[Message]
    ) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        """Run all calls of `message` at once; their answers follow it in the calls' order."""
        calls = message.tool_calls
        tasks: list[asyncio.Task[ToolFinished]] = []
        try:
            await self._add(messages, [message])
            tasks = [asyncio.create_task(self._call(call)) for call in calls]
            for call in calls:
                yield ToolStarted(call.id, self._address(call.name), call.input)
            open = set(tasks)
            while open:
                _, still_open = await asyncio.wait(open, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task in open and task not in still_open:
                        yield task.result()
                open = still_open
        finally:
            # Also when the answer was stopped half-way: every call needs its answer.
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            try:
                if unfinished:
                    await asyncio.wait(unfinished)
            finally:
                if messages and messages[-1] is message:
                    answers = [_answer(call, tasks[i : i + 1]) for i, call in enumerate(calls)]
                    await self._add(messages, answers)

    async def _call(self, call: ToolCall) -> ToolFinished:
        started = monotonic()
        text, is_error = await self._observe(call)
        duration = monotonic() - started
        return ToolFinished(call.id, self._address(call.name), call.input, text, is_error, duration)

    async def _observe(self, call: ToolCall) -> tuple[str, bool]:
        """Run one call and tell the model how it went; failures are words, too."""
        if call.malformed is not None:
            return f"error: the arguments are not a JSON object: {call.malformed[:500]}", True
        if self._toolbox is None:
            return f"error: no tool {call.name!r}", True
        try:
            result = await self._toolbox.call(call.name, call.input)
        except InterlockError as error:
            return f"error: {error}", True
        except Exception:
            _log.exception("calling %s failed", call.name)
            return "error: the call failed inside the program that runs you", True
        return text_of(result), result.is_error

    async def _add(self, messages: list[Message], new: Sequence[Message]) -> None:
        messages += new
        if self._record is not None:
            # One after the other and to its end, even if we are being stopped right now.
            self._saving = saving = asyncio.create_task(self._save(self._record, new, self._saving))
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:
                await asyncio.wait({saving})
                raise

    @staticmethod
    async def _save(
        record: Record, new: Sequence[Message], earlier: asyncio.Task[None] | None
    ) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        await record(new)

    # Looking

    async def _ready(self) -> Model:
        async with self._choosing:  # two answers may begin at once
            if self._model is None or isinstance(self._model, str):
                self._model = self._own_model = await choose.choose(self._model)
            return self._model

    async def _definitions(self) -> list[ToolDefinition]:
        if self._toolbox is None:
            return []
        await self._toolbox.refresh()
        return [
            ToolDefinition(each.wire_name, each.tool.description, each.input_schema)
            for each in self._toolbox.tools
        ]

    def _address(self, wire_name: str) -> str:
        if self._toolbox is None:
            return wire_name
        try:
            return self._toolbox.find(wire_name).address
        except InterlockError:
            return wire_name


def _answer(call: ToolCall, task: list[asyncio.Task[ToolFinished]]) -> ToolMessage:
    """Make the answer to a call; `task` is empty when the call was never begun."""
    if not task or not task[0].done() or task[0].cancelled() or task[0].exception() is not None:
        return interrupted(call)
    outcome = task[0].result()
    return ToolMessage(call.id, outcome.result, call.name, outcome.is_error)


def text_of(result: CallToolResult) -> str:
    """Write a tool's result for a model: its text, and a note for what is not text."""
    parts = [_describe(block) for block in result.content]
    if not result.content and result.structured is not None:
        parts = [encode(result.structured).decode()]
    text = "\n".join(parts)
    if len(text) > MAX_RESULT:
        return f"{text[:MAX_RESULT]}\n[cut: {len(text) - MAX_RESULT} more characters]"
    return text


def _describe(block: Content) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.mime_type}, {len(block.data) * 3 // 4} bytes]"
    if isinstance(block, EmbeddedResource):
        return block.resource.text or f"[resource {block.resource.uri}]"
    if isinstance(block, ResourceLink):
        return f"[resource {block.uri}]"
    return "[content of an unknown type]"
