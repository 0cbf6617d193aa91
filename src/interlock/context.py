"""What a handler on a server may know of the request, and do for it.

One `Context` a request, whatever the era. Its link to the client differs: a modern client is
asked by ending the request with questions and running the handler again with the answers; a
legacy client is sent a request. A handler sees the same `elicit`, `sample` and `roots`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec
from msgspec import Raw, Struct

from interlock import revisions, schema
from interlock.auth.principal import Principal
from interlock.calls.back_channel import BackChannel
from interlock.connection import cancel_reason
from interlock.errors import (
    ClientRefused,
    InputRequired,
    InvalidArguments,
    MalformedAnswer,
    MissingCapability,
    RemoteError,
)
from interlock.protocol.envelope import encode, encode_lossy
from interlock.schema.elicitation import for_legacy
from interlock.types import (
    ClientCapabilities,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    Implementation,
    JsonObject,
    ListRootsResult,
    LogLevel,
    ProgressToken,
    RequestId,
    Root,
    SamplingMessage,
    TextContent,
)

LEVELS: tuple[LogLevel, ...] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
ASK_TIMEOUT = 600.0  # seconds; people take their time


class Question(Struct, frozen=True):
    """Something to ask the client; made by `elicitation`, `sampling` and `roots_list`."""

    method: str
    params: Struct | JsonObject
    answer: type[Any]


def elicitation(message: str, requested_schema: JsonObject) -> Question:
    """Ask the person to fill in a form. `requested_schema` is flat: see the specification."""
    params = ElicitParams(message=message, requested_schema=requested_schema)
    return Question("elicitation/create", params, ElicitResult)


def url_elicitation(message: str, url: str) -> Question:
    """Ask the person to go to a page, for what must not pass through the client."""
    return Question(
        "elicitation/create", ElicitParams(message=message, mode="url", url=url), ElicitResult
    )


def sampling(messages: str | Sequence[SamplingMessage], max_tokens: int, **more: Any) -> Question:
    """Ask the client's model. `more` are further members of `CreateMessageParams`."""
    if isinstance(messages, str):
        messages = [SamplingMessage(role="user", content=TextContent(text=messages))]
    params = CreateMessageParams(messages=list(messages), max_tokens=max_tokens, **more)
    return Question("sampling/createMessage", params, CreateMessageResult)


def roots_list() -> Question:
    """Ask for the client's roots."""
    return Question("roots/list", {}, ListRootsResult)


class Session(Struct):
    """What a legacy client has said for all its requests."""

    revision: str = ""  # "" until `initialize`
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Implementation | None = None
    log_level: LogLevel | None = "info"  # until it says otherwise
    subscriptions: set[str] = set()  # URIs


class Context(Struct, eq=False, kw_only=True):
    """The request that a handler works on. Made by the server, given to who asks for it.

    Attributes:
        revision: Protocol revision of this request.
        request_id: JSON-RPC id.
        client_info: Name and version of the client, for display only; None if not told.
        client_capabilities: What it can be asked.
        principal: Who asks; None when nobody has checked.
        meta: `_meta` of the request, such as `traceparent`.
        link: The way back to the client; used by the server.
        loop: The event loop of the request.
        progress_token: Under which the client wants progress; None when it does not.
        log_level: From which level on the client wants log messages; None for none.
        answers: To questions of earlier rounds, by key.
        finished: Set by the server when the answer is on its way; nothing may follow it.
        session: What a legacy client has told once for all its requests.
        call_params: Params of `tools/call`, where they have been decoded; used by the server.
    """

    revision: str
    request_id: RequestId
    link: BackChannel
    loop: asyncio.AbstractEventLoop
    client_capabilities: ClientCapabilities
    client_info: Implementation | None = None
    principal: Principal | None = None
    meta: JsonObject = {}
    progress_token: ProgressToken | None = None
    log_level: LogLevel | None = None
    session: Session | None = None
    answers: dict[str, Raw] = {}  # to questions of earlier rounds, by key
    finished: bool = False
    call_params: Struct | None = None
    _told: float = float("-inf")
    _asked: int = 0

    @property
    def is_modern(self) -> bool:
        """Whether the request carried its own metadata."""
        return revisions.is_modern(self.revision)

    # Telling

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell how far the work is; nothing is sent if the client did not ask for it.

        Args:
            progress: Must grow, and be finite; else it is not sent.
            total: If known, in the same unit.
            message: For people; clients before 2025-03-26 do not get it.
        """
        if self.progress_token is None or not self._told < progress < float("inf"):
            return
        self._told = progress
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": progress}
        if total is not None and isfinite(total):
            params["total"] = total
        if message is not None and revisions.at_least(self.revision, "2025-03-26"):
            params["message"] = message
        self._notify("notifications/progress", params)

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message, if the client wants messages of this level. No secrets.

        Args:
            level: debug, info, notice, warning, error, critical, alert or emergency.
            data: Any JSON value.
            logger: Name of what logs.
        """
        if level not in LEVELS:
            raise InvalidArguments(f"log level {level!r} is not one of {', '.join(LEVELS)}")
        wanted = self.log_level
        if wanted is None or LEVELS.index(level) < LEVELS.index(wanted):
            return
        params = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        self._notify("notifications/message", params)

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        encoded = encode_lossy(params)
        if self._is_here():
            self._send(method, encoded)
        else:
            self.loop.call_soon_threadsafe(self._send, method, encoded)

    def _is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False  # a plain function, in its thread

    def _send(self, method: str, params: bytes) -> None:
        if not self.finished:  # nothing may follow the answer
            self.link.notify(method, params)

    def close_stream(self, retry_ms: int = 1000) -> None:
        """Let the client's connection go while the work goes on; it comes back for the rest.

        For work that takes longer than connections live. Legacy clients over HTTP know this
        since 2025-11-25; for others nothing happens.

        Args:
            retry_ms: Milliseconds after which the client shall come back.
        """
        if self._is_here():
            self._close_stream(retry_ms)
        else:
            self.loop.call_soon_threadsafe(self._close_stream, retry_ms)

    def _close_stream(self, retry_ms: int) -> None:
        if not self.finished:
            self.link.close_stream(retry_ms)

    def cancel_reason(self, error: asyncio.CancelledError) -> str:
        """Return why the client cancelled this request, from the error that the handler caught.

        "" if the client gave no reason, or something else cancelled the handler.
        """
        return cancel_reason(error)

    # Asking

    def can(self, capability: str) -> bool:
        """Whether the client can be asked: "sampling", "elicitation.url", "roots" and so on."""
        name, _, detail = capability.partition(".")
        declared: JsonObject | None = getattr(self.client_capabilities, name, None)
        if declared is None:
            return False
        # Before there was a choice, elicitation meant forms.
        is_form = detail == "form" and "url" not in declared
        return not detail or detail in declared or is_form

    async def elicit(
        self, message: str, requested_schema: JsonObject, *, key: str | None = None
    ) -> ElicitResult:
        """Ask the person to fill in a form. Check `action` before `content`.

        A modern client answers by a new request, so the handler runs again from its top: what
        it does before the question is done again. See `ask` for `key` and errors.
        """
        answer: ElicitResult = await self._ask_one(elicitation(message, requested_schema), key)
        return answer

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> ElicitResult:
        """Ask the person to go to a page; as `elicit`."""
        answer: ElicitResult = await self._ask_one(url_elicitation(message, url), key)
        return answer

    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        max_tokens: int,
        *,
        key: str | None = None,
        **more: Any,
    ) -> CreateMessageResult:
        """Ask the client's model; as `elicit`. `more`: see `CreateMessageParams`."""
        question = sampling(messages, max_tokens, **more)
        answer: CreateMessageResult = await self._ask_one(question, key)
        return answer

    async def roots(self, *, key: str | None = None) -> list[Root]:
        """Ask for the client's roots; as `elicit`."""
        answer: ListRootsResult = await self._ask_one(roots_list(), key)
        return answer.roots

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask several things at once.

        Args:
            questions: By key. A key stands for the same question in every round.

        Returns:
            The answers by key: `ElicitResult`, `CreateMessageResult`, `ListRootsResult`.

        Raises:
            MissingCapability: The client did not declare that it can be asked this.
            CapabilityError: An older client cannot show a field of the form.
            MalformedAnswer: What it said is no answer.
            ClientRefused: The user or the client refused; legacy clients only.
        """
        for question in questions.values():
            self._check(question)
        if self.is_modern:
            missing = {key: each for key, each in questions.items() if key not in self.answers}
            if missing:
                raise InputRequired(
                    {key: (q.method, encode_lossy(q.params)) for key, q in missing.items()}
                )
            return {key: self._recorded(key, each) for key, each in questions.items()}
        answers = await asyncio.gather(*map(self._ask_legacy, questions.values()))
        return dict(zip(questions, answers, strict=True))

    async def begin_task(self) -> None:
        """Go on as a task, in a tool with `task="later"`: the call is answered with a handle.

        What the function asks before this, it asks by ending the call with questions; what it
        asks afterwards, the task asks, and waits. Nothing happens when the client does not
        know tasks; the function should do its work all the same.
        """

    async def _ask_one(self, question: Question, key: str | None) -> Any:
        self._asked += 1  # a handler asks in the same order in every round
        name = key or f"question-{self._asked}"
        return (await self.ask({name: question}))[name]

    def _recorded(self, key: str, question: Question) -> Any:
        try:
            answer = msgspec.json.decode(self.answers[key], type=question.answer)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedAnswer(f"inputResponses.{key} is not an answer: {error}") from None
        return _checked(answer, question, f"inputResponses.{key}")

    async def _ask_legacy(self, question: Question) -> Any:
        params = question.params
        if isinstance(params, ElicitParams):
            params = for_legacy(params, self.revision)
        try:
            raw = await self.link.ask(question.method, encode_lossy(params), timeout=ASK_TIMEOUT)
        except RemoteError as error:
            raise ClientRefused(question.method, error) from None
        try:
            answer = msgspec.json.decode(raw, type=question.answer)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedAnswer(f"malformed answer to {question.method}: {error}") from None
        return _checked(answer, question, question.method)

    def _check(self, question: Question) -> None:
        known = revisions.has_method(revisions.SERVER_METHODS, question.method, self.revision)
        for needed in _needed(question):
            if not known or not self.can(needed):
                raise MissingCapability(needed)


def _checked(answer: Any, question: Question, place: str) -> Any:
    """Hold an accepted form against what was asked for; the client should have done so, too."""
    params = question.params
    if not (isinstance(answer, ElicitResult) and isinstance(params, ElicitParams)):
        return answer
    if answer.action == "accept" and params.mode == "form" and params.requested_schema:
        form = schema.compile(encode(params.requested_schema), member="field")
        problems = form.errors(answer.content or {})
        if problems:
            raise MalformedAnswer(f"{place}: {'; '.join(problems)}")
    return answer


def _needed(question: Question) -> tuple[str, ...]:
    """Name what a client must declare to be asked this, the whole before its part."""
    params = question.params
    if isinstance(params, ElicitParams):
        return ("elicitation.url",) if params.mode == "url" else ("elicitation", "elicitation.form")
    if isinstance(params, CreateMessageParams):
        has_tools = params.tools is not None or params.tool_choice is not None
        return ("sampling", "sampling.tools") if has_tools else ("sampling",)
    return ("roots",)


__all__ = [
    "ASK_TIMEOUT",
    "LEVELS",
    "BackChannel",
    "Context",
    "Question",
    "Session",
    "elicitation",
    "roots_list",
    "sampling",
    "url_elicitation",
]
