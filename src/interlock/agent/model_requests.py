"""Requests to a model, which leave out the oldest parts of a conversation that is too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from time import monotonic

from msgspec.structs import replace

from interlock import observing, tool_loading
from interlock.agent.events import Compacted
from interlock.compaction import ContextLimits
from interlock.errors import ContextTooLong, ModelInterrupted
from interlock.messages import Message, told_to_model
from interlock.models import Model, ModelEvent, Reply, ToolDefinition, Usage
from interlock.models.answer_size import AnswerSize, check_size
from interlock.models.whole_deltas import WholeDeltas
from interlock.text.surrogates import has_halves, repair_value

SLICE_SECONDS = 0.002  # after this time, other tasks run before more of an answer is read

_contexts = ContextLimits()


def request_answer(
    model: Model, messages: Sequence[Message], definitions: Sequence[ToolDefinition] = ()
) -> AsyncGenerator[ModelEvent | Compacted, None]:
    """Ask a model; leave out the oldest parts of the conversation if it is too long.

    Args:
        messages: The conversation.
        definitions: The tools that the model is offered.

    Yields:
        The events of `Model.stream`; the message of the `Reply` includes its usage.

    Raises:
        ModelError: The model failed, or its answer is cut off or too large.
    """
    events = _request_answer(model, messages, definitions)
    if observing.observer is not None:
        return observing.observer.model(model, events)
    return events


async def _request_answer(
    model: Model, messages: Sequence[Message], definitions: Sequence[ToolDefinition]
) -> AsyncGenerator[ModelEvent | Compacted, None]:
    messages = told_to_model(messages)
    paused = monotonic()
    while True:
        request = _contexts.request(model.name, messages)
        offered = definitions
        if request.left_out:
            yield Compacted(request.left_out)
            offered = tool_loading.fitted(definitions, messages, request.messages)
        size, whole = AnswerSize(model.name), WholeDeltas()
        try:
            async with aclosing(model.stream(request.messages, offered)) as events:
                async for event in events:
                    if isinstance(event, Reply):
                        for rest in whole.end():
                            yield rest
                        yield _checked(event, model.name)
                        return
                    size.add(event.text)
                    # An answer that arrives faster than it is read never waits by itself, and then
                    # nothing else would run, such as the request that stops it.
                    if monotonic() - paused > SLICE_SECONDS:
                        await asyncio.sleep(0)
                        paused = monotonic()
                    if (delta := whole.add(event)) is not None:
                        yield delta
        except ContextTooLong as error:
            if not _contexts.learn(model.name, request, error):
                raise
        else:
            raise ModelInterrupted(f"the answer of {model.name} was cut off")


def _checked(reply: Reply, name: str) -> Reply:
    message = reply.message
    check_size(message, name)
    if has_halves(message):
        calls = [replace(each, input=repair_value(each.input)) for each in message.tool_calls]
        message = replace(message, content=repair_value(message.content), tool_calls=tuple(calls))
    if reply.usage != Usage():
        message = replace(message, usage=reply.usage)
    return reply if message is reply.message else replace(reply, message=message)
