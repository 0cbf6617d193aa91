"""Asks a model's API; leaves out what a refusal shows that the API does not take.

Each request after a refusal is smaller than the one before, so there is an end. If the last allowed
request still has a tool that is refused, it is sent without tools: no tool ends a conversation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import ModelInterrupted
from interlock.messages import AssistantMessage, Message, ToolMessage, UserMessage
from interlock.models.call_arguments import unique_ids
from interlock.models.http.api_refusal import ApiRefusal
from interlock.models.http.model_api import AnswerStream, ModelApi
from interlock.models.http.model_limits import ModelLimits
from interlock.models.http.refusal_lessons import SentRequest, lessons_in
from interlock.models.learned import Lesson
from interlock.models.model import ModelEvent, Notice, Reply, ToolDefinition
from interlock.models.vendors import kind_of, unread_files
from interlock.models.wire_tools import WireTools

MOST_REQUESTS = 12  # for one answer


class AnswerBuilder(Protocol):
    """Assembles an answer from the events of an API."""

    def add(self, data: Any) -> list[ModelEvent]: ...

    def add_whole(self, answer: Any) -> list[ModelEvent]: ...

    @property
    def is_stated(self) -> bool:
        """Whether the provider has stated why the answer ends."""
        ...

    def reply(self, *, marked: bool = False) -> Reply:
        """Return the answer; `marked` states whether the stream ended with `[DONE]`."""
        ...


class RequestFormat(Struct, frozen=True):
    """The format of an API's requests and answers.

    Attributes:
        path: The path of the API, below the URL of the model.
        needed: Members that the API requires.
        build: Returns a request with messages and tools; the last argument states whether to send
            parts that the provider has signed.
        answer: Returns a new builder for an answer.
        files: Media types of files that the API takes.
        largest: The largest image in bytes that the API takes; 0 for any.
        defers_tools: Whether the API loads deferred tools where a result names them.
    """

    path: str
    needed: frozenset[str]
    build: Callable[[Sequence[Message], Sequence[ToolDefinition], bool], dict[str, Any]]
    answer: Callable[[], AnswerBuilder]
    files: frozenset[str] = frozenset()
    largest: int = 0
    defers_tools: bool = False


class AcceptedRequest(Struct, frozen=True):
    """An accepted request: its answer, the answer's builder, and remarks for the user."""

    answer: AnswerStream
    builder: AnswerBuilder
    notices: list[Notice]


class ModelRequests:
    """The requests to one model.

    Args:
        api: The API of the model.
        limits: The limits of the API.
        options: Members of each request that the user has set.
        formats: Returns the format of the next request, given its tools.
    """

    def __init__(
        self,
        api: ModelApi,
        limits: ModelLimits,
        options: Mapping[str, Any],
        formats: Callable[[Sequence[ToolDefinition]], RequestFormat],
    ) -> None:
        self.api = api
        self._limits = limits
        self._options = frozenset(options)
        self._formats = formats
        self._told: set[str] = set()

    async def answer(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model; yield notices, the answer's pieces and the reply, as `Model.stream`."""
        wire = WireTools(tools, self.api.endpoint.name)
        asked = await self.ask(wire.sent(messages), wire.definitions)
        builder, endpoint = asked.builder, self.api.endpoint
        async with asked.answer as answer:
            for notice in asked.notices:
                yield notice
            try:
                if answer.whole is not None:
                    for piece in builder.add_whole(answer.whole):
                        yield piece
                async for event in answer:
                    for piece in builder.add(event):
                        yield piece
            except ValueError as error:  # an event that is not of this API
                raise endpoint.cut_off(str(error)) from error
            except ModelInterrupted:
                if not builder.is_stated:
                    raise
        yield wire.received(_with_new_ids(builder.reply(marked=answer.marked), messages))

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> AcceptedRequest:
        """Send a request until the API accepts it.

        Raises:
            ModelError: The API refused the request for a reason that teaches nothing.
        """
        attempt = _Attempt()
        refusal: ApiRefusal | None = None
        for number in range(MOST_REQUESTS):
            format = self._formats(tools)
            offered = self._limits.offered(_fitted(tools, messages, format))
            with_tools = not (attempt.guess or number == MOST_REQUESTS - 1)
            sent = offered.tools if with_tools else []
            readable = self._limits.read(messages)
            body = self._limits.fitted(format.build(readable, sent, attempt.is_signed))
            if (format.path, body) == attempt.last:
                break
            attempt.last = (format.path, body)
            try:
                answer = await self.api.post(format.path, body)
            except ApiRefusal as error:
                refusal = error
                request = self._sent(format, body, sent, readable, attempt.is_signed)
                lessons = lessons_in(error, request)
                if not lessons:
                    break
                await self._learn(lessons, attempt)
                if number == MOST_REQUESTS - 2 and not attempt.guess:
                    attempt.notices.append(
                        f"{self.api.endpoint.name} refuses many tools, so this answer is without "
                        f"tools: {error.reason}"
                    )
                continue
            if attempt.guess and tools:
                # The answer shows that one of the tools was the reason.
                await self._limits.learn([Lesson("no_tools", reason=attempt.guess)])
                offered = self._limits.offered(tools)
            texts = [offered.notice, *attempt.notices] if tools else attempt.notices
            notices = list(self._untold(texts, messages))
            if not attempt.has_lost_files:
                taken = self._limits.readable(format.files)
                name = self.api.endpoint.name
                notices += unread_files(name, messages, taken, largest=format.largest)
            return AcceptedRequest(answer, format.answer(), notices)
        if refusal is None:
            raise AssertionError("the loop ends early only after a refusal")
        raise self.api.endpoint.explain(refusal) from refusal

    async def _learn(self, lessons: Sequence[Lesson], attempt: _Attempt) -> None:
        lasting = []
        for each in lessons:
            if each.kind == "unsigned":
                attempt.is_signed = False
            elif each.kind == "guess":
                attempt.guess = each.reason
            else:
                attempt.has_lost_files |= each.kind == "unread"
                lasting.append(each)
                attempt.notices.append(self._notice(each))
        if lasting:
            await self._limits.learn(lasting)

    def _notice(self, lesson: Lesson) -> str:
        name = self.api.endpoint.name
        if lesson.kind == "member" and lesson.what in self._options and not lesson.name:
            return (
                f"{name} does not take the option {lesson.what}, which is left out: "
                f"{lesson.reason}; remove it from the options of this model"
            )
        if lesson.kind == "unread":
            return f"{name} cannot read {lesson.what}, so it gets their names: {lesson.reason}"
        return ""

    def _sent(
        self,
        format: RequestFormat,
        body: dict[str, Any],
        tools: Sequence[ToolDefinition],
        messages: Sequence[Message],
        is_signed: bool,
    ) -> SentRequest:
        plain = self._limits.fitted(format.build(messages, tools, False)) if is_signed else body
        return SentRequest(
            body,
            tools if "tools" in body else (),
            format.needed,
            self._options,
            frozenset(_kinds_of_files(messages)),
            plain != body,
        )

    def _untold(self, notices: Sequence[str], messages: Sequence[Message]) -> Iterator[Notice]:
        """Yield the notices that are new, or all if the conversation begins."""
        is_first = not any(isinstance(each, AssistantMessage) for each in messages)
        for text in notices:
            if text and (is_first or text not in self._told):
                self._told.add(text)
                yield Notice(text)


class _Attempt:
    """The state of one request to the model, over all its refusals."""

    def __init__(self) -> None:
        self.is_signed = True
        self.has_lost_files = False  # a notice states that the model cannot read them
        self.guess = ""  # why a tool was refused, if the refusal names none
        self.notices: list[str] = []
        self.last: tuple[str, dict[str, Any]] | None = None


def _with_new_ids(reply: Reply, messages: Sequence[Message]) -> Reply:
    """Return an answer whose calls have ids that are new in the conversation.

    Some servers count the calls of each answer from 0: https://github.com/vllm-project/vllm/issues/50295
    Anthropic refuses such a conversation: https://github.com/anthropics/claude-code/issues/28515
    """
    calls = reply.message.tool_calls
    if not calls:
        return reply
    earlier = (each for each in messages if isinstance(each, AssistantMessage))
    taken = {call.id for each in earlier for call in each.tool_calls}
    if taken.isdisjoint(call.id for call in calls):
        return reply
    new = unique_ids(calls, taken)
    data = reply.message.provider_data
    if data and "calls" in data:
        ids = {old.id: call.id for old, call in zip(calls, new, strict=True)}
        data = {**data, "calls": {ids[id]: each for id, each in data["calls"].items()}}
    return replace(reply, message=replace(reply.message, tool_calls=new, provider_data=data))


def _fitted(
    tools: Sequence[ToolDefinition], messages: Sequence[Message], format: RequestFormat
) -> Sequence[ToolDefinition]:
    """Return tools for an API; if it cannot defer them, list those that results have loaded."""
    is_any_listed = any(not each.deferred for each in tools)
    if format.defers_tools and is_any_listed:
        return tools
    loaded = {name for each in messages if isinstance(each, ToolMessage) for name in each.loads}
    return [
        replace(each, deferred=False) for each in tools if not each.deferred or each.name in loaded
    ]


def _kinds_of_files(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, UserMessage | ToolMessage):
            for file in message.attachments:
                yield kind_of(file.media_type)
                yield file.media_type
