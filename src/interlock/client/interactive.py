"""Requests during which a server asks questions, or that it runs as a task."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TypeVar, cast

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from interlock import revisions
from interlock.client import tasks
from interlock.client.caller_answers import CallerAnswers
from interlock.client.features import Answers, ClientFeatures, answer_all
from interlock.client.handshake import meta_of
from interlock.client.listing import Listing
from interlock.client.reconnecting import ReconnectingConnection, own_info
from interlock.errors import RemoteError, RemoteProtocolError
from interlock.observing import TraceContext
from interlock.protocol import Counted, ProgressHandler, RequestOptions
from interlock.protocol.back_channel import BackChannel
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode
from interlock.text.redaction import NO_VALUES, HiddenValues
from interlock.types import ClientCapabilities, JsonObject, LogLevel, Result, Tool

MAX_ROUNDS = 10  # rounds of "input_required"
MAX_CALLERS = 16  # callers whose encoded `_meta` is cached

_NO_CAPABILITIES = ClientCapabilities()
_COMPLETE = b'{"resultType":"complete"'
_T = TypeVar("_T")


class InteractiveRequests:
    """Sends requests, answers the server's questions, and waits for tasks.

    Args:
        channel: The connection to the server.
        features: Answers the server's questions, unless a request has its own `answers`.
        timeout: Default timeout of a request without progress, in seconds.
        hard_timeout: Default timeout of a whole request, in seconds.

    Attributes:
        log_level: The log level to send in each request to a modern server.
        task_tools: The tools of a 2025-11-25 server that run only as tasks.
    """

    def __init__(
        self,
        channel: ReconnectingConnection,
        features: ClientFeatures,
        timeout: float,
        hard_timeout: float,
    ) -> None:
        self.log_level: LogLevel | None = None
        self._channel = channel
        self._features = features
        self._timeout = timeout
        self._hard_timeout = hard_timeout
        self.task_tools: set[str] = set()
        self._callers: deque[tuple[ClientCapabilities, str, str, bytes]] = deque(maxlen=MAX_CALLERS)

    def use_tools(self, tools: Listing[Tool]) -> None:
        """Remember which of the listed tools run only as tasks."""
        self.task_tools = {
            tool.name
            for tool, definition in zip(tools, tools.definitions, strict=True)
            if self._needs_legacy_task(definition)
        }

    def _needs_legacy_task(self, definition: JsonObject) -> bool:
        execution = definition.get("execution")
        return (
            self._revision == revisions.LEGACY_TASKS
            and isinstance(execution, dict)
            and execution.get("taskSupport") == "required"
        )

    @property
    def _revision(self) -> str:
        return self._channel.negotiated.revision

    # Options of a request

    def options(
        self,
        timeout: float | None,
        *,
        progress: ProgressHandler | None = None,
        meta: bytes = b"",
        name: str | None = None,
        idempotent: bool = False,
        back: BackChannel | None = None,
        capabilities: ClientCapabilities | None = None,
        log_level: LogLevel | None = None,
        counted: Counted | None = None,
        headers: HiddenValues = NO_VALUES,
        trace: TraceContext | None = None,
    ) -> RequestOptions:
        """Return the options for a request by this client, or on behalf of another client.

        Args:
            timeout: Seconds without progress; None for the default. A timeout over the hard
                timeout extends it.
            progress, meta, name, idempotent, trace: See `RequestOptions`.
            back: The channel to the other client, which answers questions; None if this client
                answers them.
            capabilities: The other client's capabilities, which are sent to a modern server.
            log_level: The other client's log level, which is sent to a modern server.
            counted: The operation whose count of messages includes this request and its follow-up
                requests.
            headers: HTTP headers of this request and its follow-up requests only.
        """
        hard = self._hard_timeout
        if timeout is None:
            timeout = self._timeout
        elif timeout > hard:
            hard = timeout
        answers: Answers = self._features
        if back is not None:
            answers = CallerAnswers(back, capabilities or _NO_CAPABILITIES, self._features.count)
        states = capabilities is not None and self._channel.negotiated.revision in revisions.MODERN
        if capabilities is not None and states:
            stated = self._stated(capabilities, log_level)
            meta = b"%b,%b" % (stated, meta) if meta else stated
        return RequestOptions(
            *(timeout, hard, progress, meta, states, name, idempotent, answers, counted, headers),
            trace,
        )

    def restate(self) -> None:
        """Update the `_meta` for later requests to a modern server after a change of log level."""
        own = self._features.capabilities(self._revision)
        self._channel.connection.protocol.meta = self._stated(own, self.log_level)

    def _stated(self, capabilities: ClientCapabilities, log_level: LogLevel | None) -> bytes:
        """Return a client's encoded `_meta`, cached because each client sends the same `_meta`."""
        level = log_level or ""
        revision = self._channel.negotiated.revision
        for known, known_revision, known_level, stated in self._callers:
            if known == capabilities and known_revision == revision and known_level == level:
                return stated
        stated = meta_of(revision, capabilities, own_info(), level)
        self._callers.append((capabilities, revision, level, stated))
        return stated

    # Sending

    async def send(self, method: str, params: bytes, options: RequestOptions) -> tuple[Raw, int]:
        """Send a request; while the server returns questions, answer them and send it again.

        Returns:
            The result, and the number of rounds of questions.

        Raises:
            InterlockError: See `Client.call_tool`.
        """
        modern = self._channel.negotiated.revision in revisions.MODERN
        if not modern and method == "tools/call" and options.name in self.task_tools:
            return await self._run_task(b'%b,"task":{}}' % params[:-1], options), 0
        sent = params
        for rounds in range(MAX_ROUNDS + 1):
            try:
                raw = await self._channel.request(method, sent, options)
            except RemoteError as error:
                if method != "tools/call" or not _needs_task(error) or options.replace_meta:
                    raise
                return await self._run_task(sent, self._with_tasks(options)), rounds
            if not modern or bytes(memoryview(raw)[: len(_COMPLETE)]) == _COMPLETE:
                return raw, rounds
            result = self.decode(Result, raw, f"{method} result")
            if result.result_type == "complete":
                return raw, rounds
            if result.result_type == "task" and method == "tools/call":
                return await self._finish_task(raw, options), rounds
            if result.result_type != "input_required":
                raise self._channel.named(unknown_type(method, result))
            answers = cast("Answers", options.answers)
            found = await answer_all(answers, result, self._revision)
            sent = _with_answers(params, result, found)
        endless = f"{method} still asks for input after {MAX_ROUNDS} rounds"
        raise self._channel.named(RemoteProtocolError(endless))

    def decode(self, type: type[_T], raw: Raw, what: str) -> _T:
        """Decode a result.

        Raises:
            RemoteProtocolError: The result is malformed. Over HTTP, the error names the URL.
        """
        try:
            return decode(type, raw, what)
        except RemoteProtocolError as error:
            raise self._channel.named(error) from None

    # Tasks

    def _with_tasks(self, options: RequestOptions) -> RequestOptions:
        """Declare the tasks extension in one request, because its tool runs only as a task."""
        capabilities = self._features.capabilities(self._revision, tasks=True)
        return _with_meta(options, self._stated(capabilities, self.log_level))

    async def _run_task(self, params: bytes, options: RequestOptions) -> Raw:
        raw = await self._channel.request("tools/call", params, options)
        if revisions.is_modern(self._revision):
            head = self.decode(Result, raw, "tools/call result")
            if head.result_type != "task":
                return raw
        elif self.decode(_LegacyTask, raw, "tools/call result").task is UNSET:
            return raw  # the server ran it as an ordinary call
        return await self._finish_task(raw, options)

    async def _finish_task(self, raw: Raw, options: RequestOptions) -> Raw:
        stated = options.meta if options.replace_meta else b""

        async def ask(method: str, params: bytes, id: str) -> Raw:
            more = replace(
                self.options(options.timeout, meta=stated, name=id, idempotent=True),
                replace_meta=options.replace_meta,
                answers=options.answers,
                counted=options.counted,
                trace=options.trace,
            )
            return await self._channel.request(method, params, more)

        return await tasks.finish(
            tasks.created(raw, self._revision),
            ask,
            cast("Answers", options.answers),
            self._revision,
            hard_timeout=options.hard_timeout or self._hard_timeout,
            progress=options.progress,
        )


def unknown_type(method: str, result: Result) -> RemoteProtocolError:
    """Return the error for a result whose `resultType` is not valid for the method."""
    return RemoteProtocolError(
        f"{method} was answered with unknown resultType {result.result_type[:40]!r}"
    )


def _with_meta(options: RequestOptions, stated: bytes) -> RequestOptions:
    """Replace the connection's `_meta` by `stated`, followed by the request's own members."""
    joined = b"%b,%b" % (stated, options.meta) if options.meta else stated
    return replace(options, meta=joined, replace_meta=True)


def _needs_task(error: RemoteError) -> bool:
    if error.code != revisions.MISSING_CAPABILITY or not isinstance(error.data, dict):
        return False
    required = error.data.get("requiredCapabilities")
    extensions = required.get("extensions") if isinstance(required, dict) else None
    return isinstance(extensions, dict) and revisions.TASKS_EXTENSION in extensions


def _with_answers(params: bytes, result: Result, answers: Mapping[str, Raw]) -> bytes:
    """Add the answers to a result's questions, and the result's state, to encoded params."""
    members = b""
    if answers:
        members = b',"inputResponses":%b' % encode(answers)
    if result.request_state is not None:
        members += b',"requestState":%b' % encode(result.request_state)
    return b"%b%b}" % (params[:-1], members)


class _LegacyTask(Struct):
    task: Raw | UnsetType = UNSET
