"""Ask, act, repeat: a model and tools, over a plain list of messages.

Rules:

1. The list is extended in place. It is valid for every provider whenever the agent is not
   running: each tool call has its result, in order, whatever happens (see `messages`).
2. Errors that the model can correct are returned to it as text: unknown tools, wrong arguments,
   failed calls, too many calls. Other errors are raised: `ModelError`, `StepLimit`.
3. A conversation that is longer than the model's context is sent without its oldest parts.
4. An answer over `MAX_ANSWER_BYTES` raises `ModelInterrupted`, and no part of it is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Self

from interlock import observing, tool_loading
from interlock.agent.events import AgentEvent, Compacted, Done
from interlock.agent.model_requests import request_answer
from interlock.agent.tool_calls import AnswerCalls
from interlock.calls import Caller, Entry
from interlock.config import ToolSearch
from interlock.errors import ModelInterrupted, StepLimit
from interlock.messages import AssistantMessage, Message, ToolMessage
from interlock.models import Model, Notice, Reply, ToolDefinition, Usage
from interlock.toolbox import Tools

AGENT = Caller(surface="agent")
MAX_ROUNDS = 10

Record = Callable[[Sequence[Message]], Awaitable[object]]


class Agent:
    """A model that may use tools.

    Args:
        model: A model, its name as for `--model` ("anthropic:..."), or None to let
            `models.choosing` pick a model.
        tools: An open toolbox, or other `Tools`; None for a model without tools.
        max_rounds: Number of rounds of tool calls before `StepLimit` is raised.
        record: Stores messages; awaited with new messages when they are added. A tool call is
            recorded before it runs.
        caller: The caller on whose behalf tools are called.
        progress: Whether tools are asked for progress, which `stream` yields as `ToolProgress`.
        conversation: Returns the conversation's id, or "" before it has one; traces contain a keyed
            hash of it.
        tool_search: Whether the model searches for tools instead of reading all definitions:
            "auto", "on", "off", or a `ToolSearch`.
    """

    def __init__(
        self,
        model: Model | str | None = None,
        tools: Tools | None = None,
        *,
        max_rounds: int = MAX_ROUNDS,
        record: Record | None = None,
        caller: Caller = AGENT,
        progress: bool = False,
        conversation: Callable[[], str] = str,
        tool_search: ToolSearch | str = "auto",
    ) -> None:
        self._conversation = conversation
        self._search = ToolSearch.of(tool_search)
        self._model = model
        self._progress = progress
        self._toolbox = tools
        self._caller = caller
        self._max_rounds = max_rounds
        self._record = record
        self._saving: asyncio.Task[None] | None = None  # the latest recording
        self._choosing = asyncio.Lock()
        self._own_model: Model | None = None  # made from a name, so `close` closes it

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

    def stream(self, messages: list[Message]) -> AsyncGenerator[AgentEvent, None]:
        """Answer the last message as `complete` does; yield each event, `Done` as the last."""
        events = self._stream(messages)
        if observing.observer is not None:
            return observing.observer.answer("interlock", events, self._conversation)
        return events

    async def _stream(self, messages: list[Message]) -> AsyncGenerator[AgentEvent, None]:
        model = await self._ready()
        used = Usage()
        left_out = 0  # the number that was last reported to the user
        rounds = searches = 0
        while rounds < self._max_rounds:
            definitions = await self._definitions(messages, model)
            if self._toolbox is not None and (
                text := tool_loading.notice(self._search, messages, definitions, self._toolbox)
            ):
                yield Notice(text)
            async with aclosing(request_answer(model, messages, definitions)) as events:
                async for event in events:
                    if isinstance(event, Reply):
                        reply = event
                    elif not isinstance(event, Compacted):
                        yield event
                    elif not left_out:
                        left_out = event.left_out
                        yield event
            used = used.plus(reply.usage)
            message = reply.message
            if not message.tool_calls:
                await self._add(messages, [message])
                yield Done(message, used, reply.stop_reason)
                return
            if searches < tool_loading.FREE_ROUNDS and tool_loading.only_searches(message):
                searches += 1
            else:
                rounds += 1
            calls = AnswerCalls(
                *(message, messages, definitions),
                tools=self._toolbox,
                caller=self._caller,
                add=self._add,
                progress=self._progress,
            )
            async with aclosing(calls.run()) as acts:
                async for act in acts:
                    yield act
        raise StepLimit(self._max_rounds)

    # Messages

    async def _add(self, messages: list[Message], new: Sequence[Message]) -> None:
        messages += new
        if self._record is not None:
            # A separate task, so that recording finishes even if this task is cancelled. It first
            # waits for the previous recording, so that messages stay in order.
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
        async with self._choosing:  # two answers that start together must share a model
            if self._model is None or isinstance(self._model, str):
                # Imported late, because a program that passes a model needs no providers.
                from interlock.models import choosing

                self._model = self._own_model = await choosing.choose(self._model)
            return self._model

    async def _definitions(self, messages: Sequence[Message], model: Model) -> list[ToolDefinition]:
        if self._toolbox is None:
            return []
        await self._toolbox.refresh()
        entries = self._toolbox.tools
        results = [each for each in messages if isinstance(each, ToolMessage)]
        if self._searches(entries, results, model):
            used, defers = tool_loading.uses(messages), getattr(model, "defers_tools", False)
            listed = tool_loading.listed(
                self._toolbox, entries, self._caller, used, self._search, defers=defers
            )
            return [_definition(each.entry, each.description, each.deferred) for each in listed]
        texts = [each.content for each in results]
        entries += self._toolbox.own.offered(self._caller, texts)
        return [_definition(each, each.tool.description) for each in entries]

    def _searches(
        self, entries: Sequence[Entry], results: Sequence[ToolMessage], model: Model
    ) -> bool:
        if self._search.mode == "off" or getattr(model, "selects_tools", False):
            return False
        has_loaded = any(each.loads for each in results)
        return tool_loading.is_on(self._search, entries, has_loaded=has_loaded)


def _definition(entry: Entry, description: str, deferred: bool = False) -> ToolDefinition:
    schema = entry.input_schema
    return ToolDefinition(entry.wire_name, description, schema, entry.address, deferred)
