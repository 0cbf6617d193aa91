"""Tools that are functions: described once, and called with checked arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict

from interlock import schema
from interlock.context import Context
from interlock.errors import (
    AuthError,
    CapabilityError,
    ClientRefused,
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
from interlock.server.dependencies import CONTEXT, Marks
from interlock.server.resolver import Resolver, Runtime
from interlock.server.values import check_finite, encode_value_into, to_json, tool_result
from interlock.server.wire_errors import log_bug, log_name
from interlock.types import CallToolResult, Icon, JsonObject, TextContent, Tool, ToolAnnotations

_EMPTY, _NULL = Raw(b"{}"), Raw(b"null")
# Errors that the client must act on, so the request fails.
_FOR_THE_CLIENT = (InputRequired, MissingCapability, MalformedAnswer, AuthError)
# Errors that the model can act on, so their text becomes the tool's result.
_FOR_THE_MODEL = (ToolError, InvalidArguments, RequestTimeout, CapabilityError, ClientRefused)


class ToolOptions(Struct, frozen=True, kw_only=True):
    """The options of `Server.tool`, with their defaults."""

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


class FunctionTool:
    """A tool that calls a Python function.

    Args:
        function: A plain function, which runs in a worker thread, or an async function.
        options: The options of the tool.
        runtime: The objects that the functions of the server share.

    Raises:
        SignatureError: A parameter's type cannot be described by a schema; the text names it.
        SchemaError: A schema in the options is not usable.
    """

    def __init__(
        self, function: Callable[..., Any], options: ToolOptions, runtime: Runtime
    ) -> None:
        name = options.name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise SignatureError(f"{function!r} has no name; set one with tool(name=...)")
        self.timeout = options.timeout
        if options.task not in (True, False, "required", "later"):
            raise LocalProtocolError(f"task={options.task!r} is not True, 'required' or 'later'")
        self.task = options.task
        self._function = function
        self._workers = runtime.workers
        self._lifespan = runtime.lifespan
        self._slots = asyncio.Semaphore(options.concurrency) if options.concurrency else None
        self._is_limited = bool(options.concurrency) or options.timeout is not None
        marks = Marks(function, runtime.yields)
        if options.input_schema is not None:
            marks.search()
            self._prepare_explicit(function, options.input_schema)
        else:
            signature = describe(function, Context, fills=marks)
            self._decode: Callable[[Raw], Struct] | None = signature.decode
            self._context, self._is_async = signature.context, signature.is_async
            self._inferred_output = signature.output_schema
            self._input_schema: JsonObject = signature.input_schema
        if marks.found:
            arguments = self._input_schema.get("properties", ())
            self._function = Resolver(function, marks.found, arguments, self._context, runtime)
            self._context, self._is_async = CONTEXT, self._function.is_async
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
        """Use the schema from the options; the function gets the arguments as keywords."""
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
        """Check the arguments and run the function. Most errors become a result for the model.

        Raises:
            InputRequired: The client must answer questions first.
            MissingCapability: The function needs a feature that the client lacks.
            MalformedAnswer: The client's answer to a question is malformed.
            AuthError: The caller lacks a right.
        """
        raw = _EMPTY if arguments is None else arguments
        try:
            named = self._check_explicit(raw) if self._decode is None else asdict(self._decode(raw))
        except (InvalidArguments, msgspec.DecodeError, RecursionError, TypeError) as error:
            if raw == _NULL:  # some clients write this for missing arguments
                return await self.call(None, context)
            return _failure(str(error) if isinstance(error, InvalidArguments) else problem(error))
        if self._context is not None:
            context.lifespan = self._lifespan.value
            named[self._context] = context
        try:
            if self._is_limited:
                value = await self._run_limited(named, context)
            elif self._is_async:
                value = await self._function(**named)
            else:
                value = await self._workers.submit(self._function, named, context)
                if hasattr(value, "__await__"):  # a plain decorator wraps an async function
                    value = await value
            if self._output is not None:
                return self._structured(value, self._output)
            if type(value) is str:
                return CallToolResult(content=[TextContent(text=value)])
            return tool_result(value)
        except _FOR_THE_CLIENT:
            raise
        except BaseException as error:
            return _failed(self.definition.name, error)

    def _structured(self, value: Any, output: schema.Validator) -> CallToolResult:
        if isinstance(value, CallToolResult):
            return value if value.is_error else _checked(value, output)
        encoded = bytearray()
        try:
            encode_value_into(value, encoded)
        except (TypeError, ValueError, OverflowError, RecursionError):
            encoded[:] = to_json(value)
        if b"null" in encoded:
            check_finite(value)
        problems = output.errors(msgspec.json.decode(encoded), echo=False)
        if problems:
            raise LocalProtocolError(
                f"the result is not valid for the output schema: {'; '.join(problems)}"
            )
        text = TextContent(text=encoded.decode())
        return CallToolResult(content=[text], structured_content=Raw(bytes(encoded)))

    async def _run_limited(self, arguments: dict[str, Any], context: Context) -> Any:
        if self._slots is None:
            return await self._run_timed(arguments, context)
        async with self._slots:
            return await self._run_timed(arguments, context)

    async def _run_timed(self, arguments: dict[str, Any], context: Context) -> Any:
        try:
            async with asyncio.timeout(self.timeout) as limit:
                if self._is_async:
                    return await self._function(**arguments)
                return await self._workers.run(self._function, arguments, context)
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(
                f"{self.definition.name} did not end within {self.timeout:g} s"
            ) from None


def failed(tool: ServedTool, error: BaseException) -> CallToolResult | None:
    """Return the result for a call that raised an error, of a tool that is not a function.

    Return None if the error is not for the model, so the request should fail.
    """
    if isinstance(error, _FOR_THE_CLIENT):
        return None
    if isinstance(error, InterlockError) and not isinstance(error, _FOR_THE_MODEL):
        return None
    definition = tool.definition
    name = definition.name if isinstance(definition, Tool) else definition["name"]
    return _failed(name, error)


def _checked(result: CallToolResult, output: schema.Validator) -> CallToolResult:
    structured = result.structured_content
    if isinstance(structured, Raw):
        value = msgspec.json.decode(structured)
    else:
        value = structured
        check_finite(value)
    problems = output.errors(value, echo=False)
    if problems:
        raise LocalProtocolError(
            f"the result is not valid for the output schema: {'; '.join(problems)}"
        )
    return result


def _failed(tool: str, error: BaseException) -> CallToolResult:
    """Return the result for a failed call. Log the error if its text is not for the model."""
    if isinstance(error, _FOR_THE_MODEL):
        return _failure(str(error))
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
        raise error  # the call was cancelled, and not just a task inside the function
    # SystemExit and KeyboardInterrupt are converted as well: a tool must not end the server.
    reference = log_bug(f"tool {tool}", error)
    is_ours = isinstance(error, LocalProtocolError)
    kind = "returned a result that its schema forbids" if is_ours else "failed"
    return _failure(f"tool {tool} {kind}; {log_name()} has the details under {reference}")


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
