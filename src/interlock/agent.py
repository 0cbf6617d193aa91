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
import base64
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from hashlib import sha256
from itertools import zip_longest
from time import monotonic
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock import observing, tool_loading
from interlock.calls import Call, Caller, Entry
from interlock.calls.call import Timing, new_call_id
from interlock.calls.endings import Ending, ending_of, reason_of
from interlock.compaction import ContextLimits
from interlock.config import ToolSearch
from interlock.errors import (
    ContextTooLong,
    InterlockError,
    InvalidArguments,
    ModelInterrupted,
    StepLimit,
)
from interlock.messages import (
    SEARCH_TOOLS,
    AssistantMessage,
    Attachment,
    Message,
    ToolCall,
    ToolMessage,
    interrupted,
    told_to_model,
)
from interlock.models import (
    Model,
    ModelEvent,
    Notice,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolDefinition,
    Usage,
)
from interlock.models.answer_size import AnswerSize, check_size
from interlock.models.whole_deltas import WholeDeltas
from interlock.protocol import Progress, ProgressHandler
from interlock.protocol.envelope import encode
from interlock.text.surrogates import has_halves, repair_value
from interlock.toolbox import Tools
from interlock.toolbox.resource_tool import LINK
from interlock.toolbox.search_tool import loads_of
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

__all__ = [
    "Agent",
    "AgentEvent",
    "ApprovalAsked",
    "Compacted",
    "Done",
    "QuestionAsked",
    "Stopped",
    "ToolFinished",
    "ToolProgress",
    "ToolStarted",
    "text_of",
]

AGENT = Caller(surface="agent")
MAX_ROUNDS = 10
MAX_CALLS = 64  # tool calls that run for one answer
TOO_MANY_CALLS = (
    f"error: not run: one answer may make {MAX_CALLS} tool calls; call it in your next one"
)
NO_OUTPUT = "the tool ran without output"  # some providers refuse an empty message
MAX_FILE = 5 * 1024 * 1024  # bytes; larger images and sounds in results are not sent to the model
SLICE_SECONDS = 0.002  # after this time, other tasks run before more of an answer is read
MAX_FILES = 8  # images and sounds of one result

Record = Callable[[Sequence[Message]], Awaitable[object]]
_Explain = Callable[[str, Entry], str]  # adds parameters to an error about a call's arguments
_contexts = ContextLimits()
_log = logging.getLogger("interlock.agent")


class ToolStarted(Struct, frozen=True):
    """A tool call begins. `address` is the tool's wire name if the toolbox lacks the tool.

    `id` is the call's id from the model, and `call_id` its id in the audit trail. `agent` is the id
    of the subagent that makes the call; "" if no subagent does.
    """

    id: str
    address: str
    arguments: dict[str, Any]
    agent: str = ""
    call_id: str = ""


class ToolProgress(Struct, frozen=True):
    """A running tool reported its progress."""

    id: str
    progress: float
    total: float | None = None
    message: str = ""


class ToolFinished(Struct, frozen=True):
    """A tool call ended. `result` is the text for the model.

    `duration` is the seconds that the server took, or until a layer refused the call. `reason` is
    the refusing layer's code; "" if the call was not refused.
    """

    id: str
    address: str
    arguments: dict[str, Any]
    result: str
    is_error: bool
    duration: float
    agent: str = ""
    call_id: str = ""
    ending: Ending = "ran"
    reason: str = ""


class ApprovalAsked(Struct, frozen=True):
    """A call waits until a person allows or denies it.

    `hash` is the hash of the address and the arguments; `expires` is a UTC time in ISO 8601. `rule`
    is the id of the rule that requires the approval; `approvers` may decide about it.
    """

    id: str
    tool_call_id: str
    address: str
    arguments: dict[str, Any]
    reason: str
    expires: str
    hash: str
    call_id: str = ""
    rule: str = ""
    risk: str = "write"
    approvers: tuple[str, ...] = ("caller",)


def approval_hash(address: str, arguments: dict[str, Any]) -> str:
    """Return the hash of a call's address and arguments, as in `ApprovalAsked.hash`."""
    shown = msgspec.json.encode([address, arguments], order="sorted")
    return sha256(shown).hexdigest()


class QuestionAsked(Struct, frozen=True):
    """A server asks the user a question during a call. `params` are the params of its request.

    `expires` is a UTC time in ISO 8601; "" if the question does not expire.
    """

    id: str
    tool_call_id: str
    server: str
    method: str
    params: dict[str, Any]
    expires: str = ""


class Compacted(Struct, frozen=True):
    """The conversation is longer than the model's context.

    The event has the number of messages that the request leaves out or shortens. They stay stored.
    """

    left_out: int


class Stopped(Struct, frozen=True):
    """The user stopped the answer, or must answer a question first. This is the last event."""

    reason: Literal["stopped", "waiting"]


class Done(Struct, frozen=True):
    """The answer is complete. This is the last event; `usage` is the sum of all rounds."""

    message: AssistantMessage
    usage: Usage
    stop_reason: str


AgentEvent = (
    TextDelta
    | ReasoningDelta
    | Notice
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalAsked
    | QuestionAsked
    | Compacted
    | Stopped
    | Done
)
"""An event of `Agent.run`; the last one is `Done`."""


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
            async with aclosing(self._act(message, messages, definitions)) as acts:
                async for act in acts:
                    yield act
        raise StepLimit(self._max_rounds)

    # Acting

    async def _act(
        self,
        message: AssistantMessage,
        messages: list[Message],
        definitions: Sequence[ToolDefinition],
    ) -> AsyncGenerator[AgentEvent, None]:
        """Run the calls of `message` concurrently; their results follow it in the calls' order."""
        calls = message.tool_calls
        tasks: list[asyncio.Task[_Outcome]] = []
        try:
            await self._add(messages, [message])
            ids = [new_call_id() for _ in calls]
            reports = Reports() if self._progress else None

            def explain(error: str, entry: Entry) -> str:
                return tool_loading.explained(error, entry, definitions, messages)

            tasks = [
                asyncio.create_task(
                    self._call(call, id, reports, explain)
                    if place < MAX_CALLS
                    else self._skip(call, id)
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

    async def _call(
        self, call: ToolCall, id: str, reports: Reports | None, explain: _Explain
    ) -> _Outcome:
        started, timing = monotonic(), Timing()
        seen = await self._observe(call, id, reports, timing, explain)
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

    async def _observe(
        self,
        call: ToolCall,
        id: str,
        reports: Reports | None,
        timing: Timing,
        explain: _Explain,
    ) -> _Seen:
        """Run one call; if it fails, return the error as text for the model."""
        if call.malformed is not None:
            return _Seen(f"error: the arguments are not a JSON object: {call.malformed[:500]}")
        toolbox = self._toolbox
        if toolbox is None:
            return _Seen(f"error: no tool {call.name!r}")
        try:
            entry = toolbox.find(call.name, self._caller)
            progress = None if reports is None else reports.handler(call.id)
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
            text = explain(str(error), entry)
            return _Seen(f"error: {text}", True, ending_of(error), reason_of(error))
        except InterlockError as error:
            return _Seen(f"error: {error}", True, ending_of(error), reason_of(error))
        except Exception:
            _log.exception("calling %s failed", call.name)
            return _Seen("error: the call failed because of a bug in the client program")
        ending: Ending = "failed" if result.is_error else "ran"
        loads = loads_of(result) if entry.wire_name == SEARCH_TOOLS else ()
        return _Seen(text_of(result), result.is_error, ending, files=files_of(result), loads=loads)

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

    def _address(self, wire_name: str) -> str:
        if self._toolbox is None:
            return wire_name
        try:
            return self._toolbox.find(wire_name, self._caller).address
        except InterlockError:
            return wire_name


def _definition(entry: Entry, description: str, deferred: bool = False) -> ToolDefinition:
    schema = entry.input_schema
    return ToolDefinition(entry.wire_name, description, schema, entry.address, deferred)


def request_answer(
    model: Model, messages: Sequence[Message], definitions: Sequence[ToolDefinition] = ()
) -> AsyncGenerator[ModelEvent | Compacted, None]:
    """Ask a model; leave out the oldest parts of the conversation if it is too long.

    Args:
        model: The model.
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


def text_of(result: CallToolResult) -> str:
    """Return a tool's result as text for a model, with a note for each block that is not text."""
    parts = [describe(block) for block in result.content]
    text = "\n".join(parts)
    if not text.strip():
        empty = "the tool failed without a message" if result.is_error else NO_OUTPUT
        text = empty if result.structured is None else encode(result.structured).decode()
    return f"{text}\nwarning: {result.warning}" if result.warning else text


def files_of(result: CallToolResult) -> tuple[Attachment, ...]:
    """Return the images and sounds of a tool's result that are within the limits."""
    files: list[Attachment] = []
    for block in result.content:
        if isinstance(block, ImageContent | AudioContent) and len(files) < MAX_FILES:
            try:
                data = base64.b64decode(block.data, validate=True)
            except ValueError:
                continue  # the result's text has a note about it
            if 0 < len(data) <= MAX_FILE:
                files.append(Attachment(block.mime_type.lower(), data))
    return tuple(files)


def describe(block: Content) -> str:
    """Return a content block as text, or a note about it."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.mime_type}, {len(block.data) * 3 // 4} bytes]"
    if isinstance(block, EmbeddedResource):
        return block.resource.text or f"{LINK}{block.resource.uri}]"
    if isinstance(block, ResourceLink):
        return f"{LINK}{block.uri}]"
    return "[content of an unknown type]"
