"""The context of a request: its metadata for the handler, and questions to the client.

Every request has a `Context`. A legacy client gets a question as a request on the back channel. A
modern client gets a result with questions; its next request has the answers, and the handler runs
again. For the handler, `elicit`, `sample` and `roots` are the same in both eras.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import isfinite
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import msgspec
from msgspec import Raw, Struct, field

from interlock import revisions, schema
from interlock.auth.principal import Principal
from interlock.connection import cancel_reason
from interlock.errors import (
    CapabilityError,
    ClientRefused,
    InputRequired,
    InvalidArguments,
    MalformedAnswer,
    MissingCapability,
    RemoteError,
)
from interlock.observing import TraceContext
from interlock.protocol.back_channel import BackChannel, HasHeaders
from interlock.protocol.envelope import encode, encode_lossy
from interlock.protocol.leniency import decode_leniently
from interlock.schema.elicitation import for_legacy
from interlock.schema.forms import check_form, form_of
from interlock.text.redaction import NO_VALUES, HiddenValues
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

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # With this default, type checkers read a bare `Context` as `Context[Any]`.
    _Lifespan = TypeVar("_Lifespan", default=Any)
else:
    from typing import TypeVar

    _Lifespan = TypeVar("_Lifespan")
_T = TypeVar("_T")

LEVELS: tuple[LogLevel, ...] = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
"""The levels of log messages, the least severe first."""
ASK_TIMEOUT = 600.0  # seconds
"""Seconds that a user has to answer a question."""


# Without authentication, the id of a session is a credential as well.
_CREDENTIALS = frozenset(
    {b"authorization", b"cookie", b"mcp-session-id", b"proxy-authorization", b"x-api-key"}
)
# The names of FastMCP and of the MCP SDK for what `Context` offers, with the names here.
_ELSEWHERE = {
    **dict.fromkeys(("debug", "info", "warning", "error"), "log(level, data)"),
    **dict.fromkeys(("report_progress",), "progress(progress, total, message)"),
    **dict.fromkeys(("get_state", "set_state", "delete_state"), 'state, a dict: state["key"]'),
    **dict.fromkeys(("lifespan_context", "request_context"), "lifespan, the object it yielded"),
    **dict.fromkeys(("get_http_request", "request"), "headers and address"),
    **dict.fromkeys(("access_token", "auth", "get_access_token"), "principal"),
    **dict.fromkeys(("client_id",), "principal or client_info"),
    **dict.fromkeys(("client_params", "client_capabilities_of"), "client_capabilities"),
    **dict.fromkeys(("list_roots",), "roots()"),
    **dict.fromkeys(("session_id",), "session"),
    **dict.fromkeys(("protocol_version",), "revision"),
    **dict.fromkeys(("fastmcp", "mcp_server", "server"), "the `server` of your module"),
    **dict.fromkeys(("send_resource_updated",), "server.resource_updated(uri)"),
    **dict.fromkeys(("send_notification",), 'server.list_changed("tools")'),
    **dict.fromkeys(("enable_components", "disable_components"), "the option visible= of a tool"),
    **dict.fromkeys(("transport",), "headers, which is {} on stdio"),
    **dict.fromkeys(("read_resource", "list_resources"), "the resource's function itself"),
    **dict.fromkeys(("get_prompt", "list_prompts"), "the prompt's function itself"),
}


class OwnQuestion(bytes):
    """The encoded params of a question that interlock asks itself, such as to log in.

    A gateway adds the name of the server to the params of all other questions.
    """


class Question(Struct, frozen=True):
    """A question to the client, from `elicitation`, `sampling` or `roots_list`."""

    method: str
    params: Struct | JsonObject
    answer: type[Any]


def elicitation(message: str, requested_schema: JsonObject) -> Question:
    """Ask the user to fill in a form. `requested_schema` is flat: see the specification."""
    params = ElicitParams(message=message, requested_schema=requested_schema)
    return Question("elicitation/create", params, ElicitResult)


def url_elicitation(message: str, url: str) -> Question:
    """Ask the user to open a page, for secrets that must not pass through the client."""
    return Question(
        "elicitation/create", ElicitParams(message=message, mode="url", url=url), ElicitResult
    )


class Accepted(Struct, Generic[_T], frozen=True):
    """The answer of a user who filled in a form. `data` has the type that the form was made of."""

    data: _T
    action: Literal["accept"] = "accept"


class Refused(Struct, frozen=True):
    """The answer of a user who did not fill in a form: "decline" says no, "cancel" says nothing."""

    action: Literal["decline", "cancel"]


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
    """The state of a legacy client, which holds for all its requests."""

    id: str = field(default_factory=lambda: token_hex(8))

    revision: str = ""  # "" until `initialize`
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Implementation | None = None
    log_level: LogLevel | None = "info"  # until `logging/setLevel`
    subscriptions: set[str] = set()  # URIs
    is_stateless: bool = False  # whether the session ends with its request


class Context(Struct, Generic[_Lifespan], eq=False, kw_only=True):
    """The request that a handler answers. A handler gets it by a parameter with this type hint.

    `Context[Database]` is the hint if the server's lifespan yields a `Database`.

    Attributes:
        lifespan: The object that the server's lifespan yielded.
        trace: The position of the request in a distributed trace; None if the client sent none.
        trusts_trace: Whether servers behind a gateway get `trace`; for the server.
        state: A dict that layers, dependencies and the function share during this request. If the
            function runs again for the answer to a question, the dict is empty again.
        revision: Protocol revision of this request.
        request_id: JSON-RPC id.
        client_info: Name and version of the client, for display only; None if not stated.
        client_capabilities: The kinds of questions that the client can answer.
        principal: The authenticated caller; None without authentication.
        meta: `_meta` of the request, such as `traceparent`.
        link: The way back to the client; for the server.
        loop: The event loop of the request.
        progress_token: The token for progress notifications; None without progress.
        log_level: The lowest level of log messages that the client accepts; None for none.
        answers: Answers to questions of earlier rounds, by key.
        round_state: The `state` of the `InputRequired` that ended the last round.
        finished: Whether the request is answered; nothing can be sent for it any more.
        session: The state of a legacy client.
        is_local: Whether the client is connected by stdio or in this process, so that it acts for
            the user who started the server.
        address: The client's address over HTTP; "" otherwise.
        caller_headers: Headers of the request that a gateway may pass on; for the server.
        call_params: Decoded params of `tools/call`; for the server.
        tool: The tool that the params name, if it was looked up; for the server.
        is_measured: Whether the layers of a call measure the request; for the server.
        called: The address of the tool that a gateway has found, for the metrics; "" for none.
        error_type: Why the answer is a refusal, for the metrics; "" otherwise.
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
    is_local: bool = False
    address: str = ""
    caller_headers: HiddenValues = NO_VALUES
    answers: dict[str, Raw] = {}
    round_state: str | None = None
    finished: bool = False
    call_params: Struct | None = None
    trace: TraceContext | None = None
    trusts_trace: bool = False
    tool: Any = None
    is_measured: bool = False
    called: str = ""
    error_type: str = ""
    lifespan: _Lifespan = None  # type: ignore[assignment]  # until the server has set it
    state: dict[str, Any] = {}
    _progress: float = float("-inf")
    _asked: int = 0

    @property
    def is_modern(self) -> bool:
        return self.revision in revisions.MODERN

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request, in lower case; empty on other transports.

        Values of a repeated header are joined by ", ". Headers with credentials are left out:
        `principal` is the authenticated caller.
        """
        link = self.link
        if not isinstance(link, HasHeaders):
            return MappingProxyType({})
        found: dict[str, str] = {}
        for name, value in link.headers:
            if name not in _CREDENTIALS:
                key, text = name.decode("latin-1"), value.decode("latin-1")
                found[key] = f"{found[key]}, {text}" if key in found else text
        return MappingProxyType(found)

    if not TYPE_CHECKING:  # type checkers report an unknown name themselves

        def __getattr__(self, name: str) -> Any:
            ours = _ELSEWHERE.get(name)
            hint = f"; use {ours}" if ours else ""
            raise AttributeError(
                f"the context has no attribute {name!r}{hint}", name=name, obj=self
            )

    # Notifications

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send a progress notification, if the client asked for progress.

        Args:
            progress: Must be finite and larger than the last one; otherwise nothing is sent.
            total: The last value of `progress`, if it is known.
            message: For users; clients before 2025-03-26 do not get it.
        """
        if self.progress_token is None or not self._progress < progress < float("inf"):
            return
        self._progress = progress
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": progress}
        if total is not None and isfinite(total):
            params["total"] = total
        if message is not None and revisions.at_least(self.revision, "2025-03-26"):
            params["message"] = message
        self._notify("notifications/progress", params)

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message, if the client accepts its level. It must not contain secrets.

        Args:
            level: debug, info, notice, warning, error, critical, alert or emergency.
            data: Any JSON value.
            logger: Name of the logger.
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
            return False  # the caller is a plain function in a thread

    def _send(self, method: str, params: bytes) -> None:
        if not self.finished:  # a notification must not follow the answer
            self.link.notify(method, params)

    def close_stream(self, retry_ms: int = 1000) -> None:
        """Close the client's HTTP stream while the work goes on; the client reconnects.

        Use it for work that takes longer than connections live. It has an effect only for legacy
        clients over HTTP since 2025-11-25.

        Args:
            retry_ms: Milliseconds after which the client reconnects.
        """
        if self._is_here():
            self._close_stream(retry_ms)
        else:
            self.loop.call_soon_threadsafe(self._close_stream, retry_ms)

    def _close_stream(self, retry_ms: int) -> None:
        if not self.finished:
            self.link.close_stream(retry_ms)

    def cancel_reason(self, error: asyncio.CancelledError) -> str:
        """Return the client's reason for cancelling this request, from the error that was caught.

        Return "" if the client gave no reason, or something else cancelled the handler.
        """
        return cancel_reason(error)

    # Questions

    def can(self, capability: str) -> bool:
        """Return whether the client has a capability: "sampling", "elicitation.url", "roots" …"""
        name, _, detail = capability.partition(".")
        declared: JsonObject | None = getattr(self.client_capabilities, name, None)
        if declared is None:
            return False
        # Spec 2025-11-25: client/elicitation. An empty capability means forms only.
        is_form = detail == "form" and "url" not in declared
        return not detail or detail in declared or is_form

    @overload
    async def elicit(  # type: ignore[overload-overlap]  # a schema is a dict, which no type is
        self, message: str, form: JsonObject, *, key: str | None = None
    ) -> ElicitResult: ...
    @overload
    async def elicit(
        self, message: str, form: type[_T], *, key: str | None = None
    ) -> Accepted[_T] | Refused: ...
    @overload
    async def elicit(
        self, message: str, form: object, *, key: str | None = None
    ) -> Accepted[Any] | Refused: ...
    async def elicit(self, message: str, form: Any, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form. Check `action` before `data` or `content`.

        A modern client answers with a new request, so the handler runs again from its top and
        repeats the work before the question. See `ask` for `key` and errors.

        Args:
            message: The question, for the user.
            form: A dataclass, Struct, TypedDict or pydantic model whose members are text, numbers,
                booleans, dates, choices or lists of choices; or one such type alone, such as `int`
                or an `Enum`; or None to ask for consent only. A dict is the form's JSON Schema.
            key: The question's name in all rounds; by default, its number.

        Returns:
            `Accepted` with `data` of the form's type, or `Refused`. For a JSON Schema, an
            `ElicitResult`.

        Raises:
            SignatureError: The type or schema cannot be a form; the text names the member.
        """
        if isinstance(form, dict):
            check_form(form)
        typed = None if isinstance(form, dict) else form_of(form)
        question = elicitation(message, form if typed is None else typed.requested_schema)
        answer: ElicitResult = await self._ask_one(question, key)
        if typed is None:
            return answer
        if answer.action != "accept":
            return Refused(answer.action)
        return Accepted(typed.decode(answer.content or {}))

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> ElicitResult:
        """Ask the user to open a page. The handler may run again, as for `elicit`."""
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
        """Ask the client's model. The handler may run again, as for `elicit`.

        `more` are further members of `CreateMessageParams`.
        """
        question = sampling(messages, max_tokens, **more)
        answer: CreateMessageResult = await self._ask_one(question, key)
        return answer

    async def roots(self, *, key: str | None = None) -> list[Root]:
        """Ask for the client's roots. The handler may run again, as for `elicit`."""
        answer: ListRootsResult = await self._ask_one(roots_list(), key)
        return answer.roots

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask several questions at once.

        Args:
            questions: Questions by key. A key must mean the same question in every round.

        Returns:
            The answers by key: `ElicitResult`, `CreateMessageResult`, `ListRootsResult`.

        Raises:
            MissingCapability: The client did not declare that it answers such questions.
            CapabilityError: The client's revision lacks a field of the form.
            MalformedAnswer: The client's answer is not valid.
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
        """Turn the call of a tool with `task="later"` into a task; the client gets its handle now.

        If the function asks a question before `begin_task`, it is run again with the answer; after
        `begin_task` it waits for the answer. If the client does not support tasks, `begin_task` has
        no effect, so the function should do its work in any case.
        """

    async def _ask_one(self, question: Question, key: str | None) -> Any:
        self._asked += 1  # handlers ask in the same order in every round
        name = key or f"question-{self._asked}"
        return (await self.ask({name: question}))[name]

    def _recorded(self, key: str, question: Question) -> Any:
        try:
            answer = decode_leniently(question.answer, self.answers[key])
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
            answer = decode_leniently(question.answer, raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedAnswer(f"malformed answer to {question.method}: {error}") from None
        return _checked(answer, question, question.method)

    def _check(self, question: Question) -> None:
        if self.session is not None and self.session.is_stateless:
            raise CapabilityError(
                f"the server keeps no sessions (stateless=True), so a client of {self.revision} "
                "cannot be asked; work without the question, or use a client of 2026-07-28"
            )
        known = revisions.has_method(revisions.SERVER_METHODS, question.method, self.revision)
        for needed in _needed(question):
            if not known or not self.can(needed):
                raise MissingCapability(needed)


def _checked(answer: Any, question: Question, place: str) -> Any:
    """Check an accepted form against its schema, which the client should have done as well."""
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
    """Return the capabilities that a question needs, from general to special."""
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
    "Accepted",
    "BackChannel",
    "Context",
    "Question",
    "Refused",
    "Session",
    "elicitation",
    "roots_list",
    "sampling",
    "url_elicitation",
]
