"""Functions as tools: described once, then called with checked arguments."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict

from interlock import schema
from interlock.context import Context
from interlock.errors import (
    AuthError,
    InputRequired,
    InterlockError,
    InvalidArguments,
    LocalProtocolError,
    MalformedAnswer,
    MissingCapability,
    RequestTimeout,
    SignatureError,
    ToolError,
)
from interlock.protocol.envelope import encode
from interlock.schema.signature import describe, find_context, is_async, problem, summary
from interlock.server.catalogue import ServedTool
from interlock.server.values import tool_result
from interlock.types import CallToolResult, Icon, JsonObject, TextContent, Tool, ToolAnnotations

WORKERS = 16  # plain functions that run at once
MAX_QUEUED = 256  # ... and that wait for a worker; the next one is told to come later

_EMPTY = Raw(b"{}")
_FOR_THE_MODEL = (ToolError, InvalidArguments, RequestTimeout)
_log = logging.getLogger("interlock.server")


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What `Server.tool` accepts besides the function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    timeout: float | None = None
    concurrency: int | None = None
    meta: JsonObject | None = None
    task: bool | Literal["required", "later"] = False


class _Job(NamedTuple):
    """A call that waits for a worker, and who waits for its end."""

    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[Any]


class Workers:
    """Threads for plain functions, with a bound on what waits for one.

    The threads are daemons, so that a call that never ends cannot keep the program alive.
    """

    def __init__(self, count: int = WORKERS, max_queued: int = MAX_QUEUED) -> None:
        self._count = count
        self._limit = count + max_queued
        self._open = 0
        self._threads = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()

    async def run(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call a plain function in a worker.

        Raises:
            ToolError: Too many calls wait already, or there is no thread to be had.
        """
        if self._open >= self._limit:
            raise ToolError(f"busy: {self._open} calls run or wait already; try again later")
        if self._threads < min(self._open + 1, self._count):
            self._add_thread()
        self._open += 1
        loop = asyncio.get_running_loop()
        call = partial(contextvars.copy_context().run, function, **arguments)
        job = _Job(call, loop, loop.create_future())
        self._jobs.put(job)
        value = await job.ended
        # A decorator around an async function makes a plain one, whose value is to be awaited.
        return await value if hasattr(value, "__await__") else value

    def _add_thread(self) -> None:
        thread = Thread(target=self._work, args=(self._jobs,), name="interlock-tool", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more; those that there are take turns
            if not self._threads:
                raise ToolError("busy: the system gives no thread; try again later") from None
        else:
            self._threads += 1

    def _work(self, jobs: SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            value, error = None, None
            try:
                if not job.ended.cancelled():
                    value = job.call()
            except BaseException as raised:
                error = raised
            try:
                job.loop.call_soon_threadsafe(self._end, job.ended, value, error)
            except RuntimeError:  # the loop has been closed meanwhile
                self._open -= 1
            del job, value, error  # not to be kept until the next call

    def _end(self, ended: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        # A thread cannot be stopped: its place is free only now, not when the caller left.
        self._open -= 1
        if ended.cancelled():
            return
        if isinstance(error, StopIteration | GeneratorExit):  # which no future passes on
            error = RuntimeError(f"the function raised {type(error).__name__}")
        if error is None:
            ended.set_result(value)
        else:
            ended.set_exception(error)

    def close(self) -> None:
        """Let the threads go; calls that run in them are left to end. `run` may follow."""
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0
        self._jobs = SimpleQueue()


class FunctionTool:
    """A function that is served as a tool.

    Args:
        function: Plain (runs in a worker thread) or async (runs in the event loop).
        options: See `ToolOptions`.
        workers: For plain functions.

    Raises:
        SignatureError: A parameter cannot be described; the text names it.
        SchemaError: An explicit schema cannot be used.
    """

    def __init__(
        self, function: Callable[..., Any], options: ToolOptions, workers: Workers
    ) -> None:
        name = options.name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise SignatureError(f"{function!r} has no name; give it one: tool(name=...)")
        self.timeout = options.timeout
        if options.task not in (True, False, "required", "later"):
            raise LocalProtocolError(f"task={options.task!r} is not True, 'required' or 'later'")
        self.task = options.task
        self._function = function
        self._workers = workers
        self._slots = asyncio.Semaphore(options.concurrency) if options.concurrency else None
        self._is_limited = bool(options.concurrency) or options.timeout is not None
        if options.input_schema is not None:
            self._prepare_explicit(function, options.input_schema)
        else:
            signature = describe(function, Context)
            self._decode: Callable[[Raw], Struct] | None = signature.decode
            self._context, self._is_async = signature.context, signature.is_async
            self._inferred_output = signature.output_schema
            self._input_schema: JsonObject = signature.input_schema
        output = (
            options.output_schema if options.output_schema is not None else self._inferred_output
        )
        self._output = None if output is None else schema.compile(encode(output), member="member")
        self.definition = Tool(
            name=name,
            title=options.title,
            description=summary(function) if options.description is None else options.description,
            input_schema=dict(self._input_schema),
            output_schema=None if output is None else dict(output),
            annotations=options.annotations,
            icons=options.icons,
            meta=options.meta,
        )

    def _prepare_explicit(self, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
        """Use a schema word for word; the function takes the arguments by name."""
        encoded = encode(given)
        schema.check_tool_input(encoded)
        self._validator = schema.compile(encoded)
        self._decode = None
        self._input_schema = dict(given)
        self._inferred_output = None
        self._context, self._is_async = find_context(function, Context), is_async(function)

    def _check_explicit(self, raw: Raw) -> dict[str, Any]:
        arguments = msgspec.json.decode(raw)
        problems = self._validator.errors(arguments, echo=False)
        if problems:
            raise InvalidArguments("; ".join(problems))
        return dict(arguments)

    async def call(self, arguments: Raw | None, context: Context) -> CallToolResult:
        """Check the arguments and run the function; what goes wrong in it is a result, too.

        Raises:
            InputRequired, MissingCapability, MalformedAnswer, AuthError: The client has to do
                something.
        """
        raw = _EMPTY if arguments is None else arguments
        try:
            named = self._check_explicit(raw) if self._decode is None else asdict(self._decode(raw))
        except InvalidArguments as error:
            return _failure(str(error))
        except (msgspec.DecodeError, RecursionError, TypeError) as error:
            return _failure(problem(error))
        if self._context is not None:
            named[self._context] = context
        try:
            if self._is_async and not self._is_limited:
                value = await self._function(**named)
            else:
                value = await self._invoke_limited(named)
            if self._output is None and type(value) is str:
                return CallToolResult(content=[TextContent(text=value)])
            return self._result(value)
        except (InputRequired, MissingCapability, MalformedAnswer, AuthError):
            raise
        except BaseException as error:
            return _failed(self.definition.name, error)

    def _result(self, value: Any) -> CallToolResult:
        result = tool_result(value, structured=self._output is not None)
        if self._output is not None and not result.is_error:
            self._check(result)
        return result

    async def _invoke(self, arguments: dict[str, Any]) -> Any:
        if self._is_async:
            return await self._function(**arguments)
        return await self._workers.run(self._function, arguments)

    async def _invoke_limited(self, arguments: dict[str, Any]) -> Any:
        async with self._slots or _NO_LIMIT:
            try:
                async with asyncio.timeout(self.timeout) as limit:
                    return await self._invoke(arguments)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise RequestTimeout(
                    f"{self.definition.name} did not end within {self.timeout:g} s"
                ) from None

    def _check(self, result: CallToolResult) -> None:
        structured = result.structured_content
        value = msgspec.json.decode(structured) if isinstance(structured, Raw) else structured
        problems = self._output.errors(value, echo=False) if self._output else []
        if problems:
            raise LocalProtocolError(f"the result does not fit: {'; '.join(problems)}")


async def call_foreign(
    tool: ServedTool, arguments: Raw | None, context: Context
) -> CallToolResult | Raw:
    """Call a tool that is not a function; report its failures as `FunctionTool.call` does.

    Raises:
        InterlockError: Any but those that the model may read; the request fails.
    """
    try:
        return await tool.call(arguments, context)
    except BaseException as error:
        if isinstance(error, InterlockError) and (
            isinstance(error, MalformedAnswer) or not isinstance(error, _FOR_THE_MODEL)
        ):
            raise
        definition = tool.definition
        name = definition.name if isinstance(definition, Tool) else definition["name"]
        return _failed(name, error)


def _failed(tool: str, error: BaseException) -> CallToolResult:
    """Return the result of a failed call; log the error unless its text is for the model."""
    if isinstance(error, _FOR_THE_MODEL):
        return _failure(str(error))
    if isinstance(error, asyncio.CancelledError) and _is_cancelled():
        raise error
    # No tool may end the server, so SystemExit and KeyboardInterrupt end here as well.
    number = secrets.token_hex(4)
    _log.error("tool %s failed, reference %s", tool, number, exc_info=error)
    kind = "returned a result that its schema forbids" if _is_ours(error) else "failed"
    return _failure(f"tool {tool} {kind}; the server's log has the details under {number}")


class _NoLimit:
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *exc: object) -> None: ...


_NO_LIMIT = _NoLimit()


def _is_cancelled() -> bool:
    """Whether somebody cancels this call, and the tool has not made it up."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, LocalProtocolError)


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
