"""Ask, act, repeat: a model and tools, over a plain list of messages.

Rules:

1. The list is extended in place. It is valid for every provider whenever the agent is not
   running: each tool call has its result, in order, whatever happens (see `messages`).
2. Errors that the model can repair go back to it as text: unknown tools, wrong arguments, failed
   calls, too many calls. All others are raised: `ModelError`, `StepLimit`.
3. An answer over `MAX_ANSWER_BYTES` raises `ModelInterrupted`, and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import zip_longest
from time import monotonic
from typing import Any, Self

from msgspec import Struct

from interlock.calls import Caller
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
from interlock.models.answer_size import AnswerSize, check_size
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

AGENT = Caller(surface="agent")
MAX_ROUNDS = 10
MAX_CALLS = 64  # tool calls of one answer that run
MAX_RESULT = 100_000  # characters of one tool result that go to the model

Record = Callable[[Sequence[Message]], Awaitable[None]]
_log = logging.getLogger("interlock.agent")


class ToolStarted(Struct, frozen=True):
    """A tool call begins. `address` is the wire name if the toolbox has no such tool.

    `agent` is the subagent that makes the call; "" for none.
    """

    id: str
    address: str
    arguments: dict[str, Any]
    agent: str = ""


class ToolFinished(Struct, frozen=True):
    """A tool call ended. `result` is the text for the model; `duration` is in seconds."""

    id: str
    address: str
    arguments: dict[str, Any]
    result: str
    is_error: bool
    duration: float
    agent: str = ""


class Done(Struct, frozen=True):
    """The answer is complete. Always the last event. `usage` is the sum of all rounds."""

    message: AssistantMessage
    usage: Usage
    stop_reason: str


AgentEvent = TextDelta | ReasoningDelta | ToolStarted | ToolFinished | Done


class Agent:
    """A model that may use tools.

    Args:
        model: A model, its name as for `--model` ("anthropic:..."), or None to let
            `models.choose` pick one.
        tools: An open toolbox; None for a model without tools.
        max_rounds: How often the model may call tools before `StepLimit` is raised.
        record: Awaited with messages as they are added, so that they can be stored. A tool
            call is recorded before it runs.
        caller: On whose behalf tools are called.
    """

    def __init__(
        self,
        model: Model | str | None = None,
        tools: Toolbox | None = None,
        *,
        max_rounds: int = MAX_ROUNDS,
        record: Record | None = None,
        caller: Caller = AGENT,
    ) -> None:
        self._model = model
        self._toolbox = tools
        self._caller = caller
        self._max_rounds = max_rounds
        self._record = record
        self._saving: asyncio.Task[None] | None = None  # the latest
        self._choosing = asyncio.Lock()
        self._own_model: Model | None = None  # made from a name, so closed here

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the model if it was given by name. The toolbox stays open."""
        if self._own_model is not None:
            await self._own_model.close()

    async def complete(self, messages: list[Message]) -> AssistantMessage:
        """Answer the last message, using tools as needed.

        Args:
            messages: The conversation; extended in place.

        Returns:
            The answer, which is also the last message.

        Raises:
            StepLimit: The model was still calling tools after `max_rounds`.
            ModelError: The model failed; the rounds before it are in `messages`.
        """
        async with aclosing(self.stream(messages)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.message
        raise ModelInterrupted("the answer ended without its last event")

    async def stream(self, messages: list[Message]) -> AsyncGenerator[AgentEvent, None]:
        """As `complete`, but yield each event as it happens; `Done` comes last."""
        model = await self._ready()
        used = Usage()
        for _ in range(self._max_rounds):
            reply: Reply | None = None
            size = AnswerSize(model.name)
            async with aclosing(model.stream(messages, await self._definitions())) as events:
                async for event in events:
                    if isinstance(event, Reply):
                        reply = event
                    else:
                        size.add(event.text)
                        yield event
            if reply is None:
                raise ModelInterrupted(f"the answer of {model.name} was cut off")
            check_size(reply.message, model.name)
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
        """Run the calls of `message` concurrently; their results follow it in the calls' order."""
        calls = message.tool_calls
        tasks: list[asyncio.Task[ToolFinished]] = []
        try:
            await self._add(messages, [message])
            tasks = [asyncio.create_task(self._call(call)) for call in calls[:MAX_CALLS]]
            tasks += [asyncio.create_task(self._skip(call)) for call in calls[MAX_CALLS:]]
            for call in calls:
                yield ToolStarted(call.id, self._address(call.name), call.input)
            running = set(tasks)
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task in done:
                        yield task.result()
        finally:
            # A stopped answer needs a result for each of its calls, too.
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            try:
                if unfinished:
                    await asyncio.wait(unfinished)
            finally:
                if messages and messages[-1] is message:
                    pairs = zip_longest(calls, tasks)
                    await self._add(messages, [_result(call, task) for call, task in pairs])

    async def _call(self, call: ToolCall) -> ToolFinished:
        started = monotonic()
        text, is_error = await self._observe(call)
        duration = monotonic() - started
        return ToolFinished(call.id, self._address(call.name), call.input, text, is_error, duration)

    async def _skip(self, call: ToolCall) -> ToolFinished:
        text = (
            f"error: not run: one answer may make {MAX_CALLS} tool calls; call it in your next one"
        )
        return ToolFinished(call.id, self._address(call.name), call.input, text, True, 0.0)

    async def _observe(self, call: ToolCall) -> tuple[str, bool]:
        """Run one call; return the text for the model and whether it is an error."""
        if call.malformed is not None:
            return f"error: the arguments are not a JSON object: {call.malformed[:500]}", True
        if self._toolbox is None:
            return f"error: no tool {call.name!r}", True
        try:
            result = await self._toolbox.call(call.name, call.input, caller=self._caller)
        except InterlockError as error:
            return f"error: {error}", True
        except Exception:
            _log.exception("calling %s failed", call.name)
            return "error: the call failed because of a bug in the client program", True
        return text_of(result), result.is_error

    async def _add(self, messages: list[Message], new: Sequence[Message]) -> None:
        messages += new
        if self._record is not None:
            # Records run one after another, and finish even while this task is cancelled.
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

    # Model and tools

    async def _ready(self) -> Model:
        async with self._choosing:  # two answers may start at the same time
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


def _result(call: ToolCall, task: asyncio.Task[ToolFinished] | None) -> ToolMessage:
    """Return the result of a call; `task` is None if the call never started."""
    if task is None or not task.done() or task.cancelled() or task.exception() is not None:
        return interrupted(call)
    outcome = task.result()
    return ToolMessage(call.id, outcome.result, call.name, outcome.is_error)


def text_of(result: CallToolResult) -> str:
    """Return a tool's result as text for a model, with a note for each block that is not text."""
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
