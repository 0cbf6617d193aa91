"""The running of the tool calls in an answer of a model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from itertools import zip_longest
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from interlock import tool_loading
from interlock.agent.events import AgentEvent, ToolFinished, ToolProgress, ToolStarted
from interlock.agent.tool_results import files_of, text_of
from interlock.calls import Call, Caller
from interlock.calls.call import Timing, new_call_id
from interlock.calls.endings import Ending, ending_of, reason_of
from interlock.errors import InterlockError, InvalidArguments
from interlock.messages import (
    SEARCH_TOOLS,
    AssistantMessage,
    Attachment,
    Message,
    ToolCall,
    ToolMessage,
    interrupted,
)
from interlock.models import ToolDefinition
from interlock.protocol import Progress, ProgressHandler
from interlock.toolbox import Tools
from interlock.toolbox.search_tool import loads_of

MAX_CALLS = 64  # tool calls that run for one answer
TOO_MANY_CALLS = (
    f"error: not run: one answer may make {MAX_CALLS} tool calls; call it in your next one"
)

_log = logging.getLogger("interlock.agent")


class AnswerCalls:
    """The tool calls of one answer.

    Args:
        message: The answer.
        messages: The conversation.
        definitions: The tools that the model was offered.
        tools: The tools; None for a model without tools.
        caller: The caller on whose behalf tools are called.
        add: Adds messages to the conversation.
        progress: Whether tools are asked for progress.
    """

    def __init__(
        self,
        message: AssistantMessage,
        messages: list[Message],
        definitions: Sequence[ToolDefinition],
        *,
        tools: Tools | None,
        caller: Caller,
        add: Callable[[list[Message], Sequence[Message]], Awaitable[None]],
        progress: bool,
    ) -> None:
        self._message = message
        self._messages = messages
        self._definitions = definitions
        self._toolbox = tools
        self._caller = caller
        self._add = add
        self._reports = Reports() if progress else None

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        """Add the answer, run its calls concurrently, and add their results in the calls' order."""
        message, messages, reports = self._message, self._messages, self._reports
        calls = message.tool_calls
        tasks: list[asyncio.Task[_Outcome]] = []
        try:
            await self._add(messages, [message])
            ids = [new_call_id() for _ in calls]
            tasks = [
                asyncio.create_task(
                    self._call(call, id) if place < MAX_CALLS else self._skip(call, id)
                )
                for place, (call, id) in enumerate(zip(calls, ids, strict=True))
            ]
            for call, id in zip(calls, ids, strict=True):
                yield ToolStarted(call.id, self._address(call.name), call.input, call_id=id)
            running = set(tasks)
            while running:
                done, running = await _first_of(running, reports)
                for event in reports.take() if reports else ():
                    yield event
                for task in tasks:
                    if task in done:
                        yield task.result().event
        finally:
            # Even a stopped answer needs a result for each of its calls.
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

    async def _call(self, call: ToolCall, id: str) -> _Outcome:
        started, timing = monotonic(), Timing()
        seen = await self._observe(call, id, timing)
        # Measure only the server's time, because the call may have waited for an approval before.
        duration = monotonic() - started if timing.at_server is None else timing.at_server
        address = self._address(call.name)
        event = ToolFinished(
            *(call.id, address, call.input, seen.text, seen.is_error, duration),
            call_id=id,
            ending=seen.ending,
            reason=seen.reason,
        )
        return _Outcome(event, seen.files, seen.loads)

    async def _skip(self, call: ToolCall, id: str) -> _Outcome:
        address = self._address(call.name)
        event = ToolFinished(
            *(call.id, address, call.input, TOO_MANY_CALLS, True, 0.0), call_id=id, ending="refused"
        )
        return _Outcome(event)

    async def _observe(self, call: ToolCall, id: str, timing: Timing) -> _Seen:
        """Run one call; if it fails, return the error as text for the model."""
        if call.malformed is not None:
            return _Seen(f"error: the arguments are not a JSON object: {call.malformed[:500]}")
        toolbox = self._toolbox
        if toolbox is None:
            return _Seen(f"error: no tool {call.name!r}")
        try:
            entry = toolbox.find(call.name, self._caller)
            progress = None if self._reports is None else self._reports.handler(call.id)
            made = Call(
                entry,
                dict(call.input),
                self._caller,
                progress=progress,
                id=id,
                tool_call_id=call.id,
                timing=timing,
            )
            if call.name == SEARCH_TOOLS:
                made.offered = lambda: toolbox.tools
            result = (await toolbox.handle(made)).result
        except InvalidArguments as error:
            text = tool_loading.explained(str(error), entry, self._definitions, self._messages)
            return _Seen(f"error: {text}", True, ending_of(error), reason_of(error))
        except InterlockError as error:
            return _Seen(f"error: {error}", True, ending_of(error), reason_of(error))
        except Exception:
            _log.exception("calling %s failed", call.name)
            return _Seen("error: the call failed because of a bug in the client program")
        ending: Ending = "failed" if result.is_error else "ran"
        loads = loads_of(result) if entry.wire_name == SEARCH_TOOLS else ()
        return _Seen(text_of(result), result.is_error, ending, files=files_of(result), loads=loads)

    def _address(self, wire_name: str) -> str:
        if self._toolbox is None:
            return wire_name
        try:
            return self._toolbox.find(wire_name, self._caller).address
        except InterlockError:
            return wire_name


class _Seen(Struct, frozen=True):
    """The result of a call. `text` is for the model."""

    text: str
    is_error: bool = True
    ending: Ending = "failed"
    reason: str = ""
    files: tuple[Attachment, ...] = ()
    loads: tuple[str, ...] = ()


class _Outcome(Struct, frozen=True):
    """The event that ends a call, its result's files for the model, and the tools that it loads."""

    event: ToolFinished
    files: tuple[Attachment, ...] = ()
    loads: tuple[str, ...] = ()


class Reports:
    """Collects progress events of concurrent calls until they are read."""

    def __init__(self) -> None:
        self._events: list[AgentEvent] = []
        self._arrived = asyncio.Event()

    def handler(self, id: str) -> ProgressHandler:
        def report(progress: Progress) -> None:
            text = progress.message or ""
            self._events.append(ToolProgress(id, progress.progress, progress.total, text))
            self._arrived.set()

        return report

    def take(self) -> list[AgentEvent]:
        events, self._events = self._events, []
        self._arrived.clear()
        return events

    async def wait(self) -> None:
        await self._arrived.wait()


async def _first_of(
    running: set[asyncio.Task[_Outcome]], reports: Reports | None
) -> tuple[set[asyncio.Task[_Outcome]], set[asyncio.Task[_Outcome]]]:
    """Wait until any call has ended or reported progress; return the ended and running calls."""
    if reports is None:
        return await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    waiting: asyncio.Task[Any] = asyncio.create_task(reports.wait())
    try:
        await asyncio.wait({*running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    done = {each for each in running if each.done()}
    return done, running - done


def _result(call: ToolCall, task: asyncio.Task[_Outcome] | None) -> ToolMessage:
    """Return the result of a call; `task` is None if the call never started."""
    if task is None or not task.done() or task.cancelled() or task.exception() is not None:
        return interrupted(call)
    event, files, loads = msgspec.structs.astuple(task.result())
    return ToolMessage(call.id, event.result, call.name, event.is_error, files, loads)
