"""Tools that are functions: described once, and called with checked arguments."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

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
from interlock.schema.conversion import convert, whole_numbers
from interlock.schema.docstrings import summary
from interlock.schema.signature import (
    bound_arguments,
    check_kind,
    describe,
    find_context,
    is_async,
    located,
    name_of,
    problem,
)
from interlock.server.catalogue import ServedTool
from interlock.server.debugging import observer
from interlock.server.dependencies import CONTEXT, Marks
from interlock.server.options import check_limits, check_name, checked_annotations
from interlock.server.resolver import Resolver, Runtime
from interlock.server.tool_edits import ArgumentEdits
from interlock.server.tool_layers import LayerStack, ServedCall, pass_on
from interlock.server.tool_options import Visible, checked_scopes, checked_visible, with_hints
from interlock.server.values import (
    MARK,
    check_finite,
    encode_value_into,
    listed,
    refuse_content,
    to_json,
    tool_result,
)
from interlock.server.wire_errors import log_bug, log_name
from interlock.types import CallToolResult, Icon, JsonObject, TextContent, Tool, ToolAnnotations

_EMPTY = Raw(b"{}")
_NOTHING = (Raw(b"null"), Raw(b"[]"))  # `[]` is PHP's empty object
# Errors that the client must act on, so the request fails.
_FOR_THE_CLIENT = (InputRequired, MissingCapability, MalformedAnswer, AuthError)
# Errors that the model can act on, so their text becomes the tool's result.
_FOR_THE_MODEL = (ToolError, InvalidArguments, RequestTimeout, CapabilityError, ClientRefused)


class ToolOptions(Struct, frozen=True, kw_only=True):
    """The options of `Server.tool`, with their defaults."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | Mapping[str, Any] | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    scopes: Sequence[str] = ()
    visible: Visible | None = None
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
        runtime: The objects that the functions of the server share.
        strict: Whether arguments must have the types of the schema; False also reads JSON from
            text where nothing is lost.

    Attributes:
        scopes: The scopes that callers over HTTP need.
        visible: Returns whether a caller may see the tool; None if all callers may.
        layers: The layers around calls, those of the outermost server first.

    Raises:
        SignatureError: A parameter's type cannot be described by a schema; the text names it.
        SchemaError: A schema in the options is not usable.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: ToolOptions,
        runtime: Runtime,
        *,
        strict: bool = True,
    ) -> None:
        self._function = function
        self._workers = runtime.workers
        self._lifespan = runtime.lifespan
        try:
            self._prepare(function, options, runtime, strict=strict)
        except SignatureError as error:
            raise located(function, str(error)) from error.__cause__

    def _prepare(
        self, function: Callable[..., Any], options: ToolOptions, runtime: Runtime, *, strict: bool
    ) -> None:
        name = options.name or name_of(function)
        check_name(name)
        self._set_options(options)
        marks = Marks(function, runtime.yields)
        if options.input_schema is not None:
            check_kind(function, name)
            marks.search()
            self._prepare_explicit(function, options.input_schema)
            arguments = tuple(self._input_schema.get("properties", ()))
        else:
            signature = describe(function, Context, fills=marks)
            self._decode: Callable[[Raw], Struct] | None = signature.decode
            self._context, self._is_async = signature.context, signature.is_async
            self._inferred_output, self._write = signature.output_schema, signature.write
            self._input_schema: JsonObject = signature.input_schema
            arguments = signature.fields
        self._inputs = None if strict else schema.compile(encode(self._input_schema))
        if marks.found:
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
            annotations=with_hints(
                checked_annotations(options.annotations, ToolAnnotations),
                read_only=options.read_only,
                destructive=options.destructive,
                idempotent=options.idempotent,
                open_world=options.open_world,
            ),
            icons=options.icons,
            meta=options.meta,
        )

    def _set_options(self, options: ToolOptions) -> None:
        check_limits(options.timeout, options.concurrency)
        self.timeout = options.timeout
        if options.task not in (True, False, "required", "later"):
            raise SignatureError(f"task={options.task!r} is not True, 'required' or 'later'")
        self.task = options.task
        self.scopes = checked_scopes(options.scopes)
        self.visible = checked_visible(options.visible)
        self.layers: tuple[LayerStack, ...] = ()
        self._slots = asyncio.Semaphore(options.concurrency) if options.concurrency else None
        self._is_limited = bool(options.concurrency) or options.timeout is not None

    def _prepare_explicit(self, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
        """Use the schema from the options; the function gets the arguments as keywords."""
        encoded = encode(given)
        schema.check_tool_input(encoded)
        self._validator = schema.compile(encoded)
        self._bound = bound_arguments(function)
        if shown := self._bound & set(given.get("properties", ())):
            raise SignatureError(f"input_schema has {min(shown)!r}, which the partial has bound")
        self._decode = None
        self._restore: Callable[[JsonObject], JsonObject] = dict
        self._input_schema = dict(given)
        self._inferred_output = self._write = None
        self._context, self._is_async = find_context(function, Context), is_async(function)

    def _check_explicit(self, raw: Raw) -> dict[str, Any]:
        arguments = msgspec.json.decode(raw)
        problems = self._validator.errors(arguments, echo=False)
        problems += [f"unknown argument {each!r}" for each in self._bound & dict(arguments).keys()]
        if problems:
            raise InvalidArguments("; ".join(problems))
        return self._restore(arguments)

    def with_definition(self, definition: Tool, edits: ArgumentEdits | None) -> Self:
        """Return a copy with another definition, whose arguments have been edited.

        Raises:
            SignatureError: A constant in the edits is not valid.
        """
        tool = copy.copy(self)
        tool.definition = definition
        if self._inputs is not None:
            tool._inputs = schema.compile(encode(definition.input_schema))
        if edits is not None and self._decode is not None:
            tool._decode = edits.decode_by(self._decode)
        elif edits is not None:
            tool._validator = schema.compile(encode(edits.schema))
            tool._restore = edits.restore
        return tool

    def _read_leniently(self, raw: Raw) -> dict[str, Any] | None:
        """Convert arguments of the wrong type, if their meaning is plain and nothing is lost.

        A whole number may be written as 3.0. Without `strict`, text may stand for other JSON, as
        `schema.conversion` describes. Return None if the arguments do not fit even so.
        """
        try:
            arguments = whole_numbers(msgspec.json.decode(raw))
            if self._inputs is not None and isinstance(arguments, dict):
                arguments, _ = convert(arguments, self._inputs)
            read = Raw(encode(arguments))
            return (
                self._check_explicit(read) if self._decode is None else asdict(self._decode(read))
            )
        except (InvalidArguments, msgspec.DecodeError, RecursionError, TypeError):
            return None

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
            if raw in _NOTHING:  # some clients write this for missing arguments
                return await self.call(None, context)
            read = self._read_leniently(raw)
            if read is None:
                if not isinstance(error, InvalidArguments):
                    error = InvalidArguments(problem(error))
                return _failed(self.definition.name, error)
            named = read
        if self._context is not None and not self.layers:
            context.lifespan = self._lifespan.value
            named[self._context] = context
        try:
            if self.layers:
                outermost = self.layers[0]
                context.lifespan = outermost.lifespan.value
                value = await outermost.handle(ServedCall(outermost.name, named, context, self))
            elif self._is_limited:
                value = await self._run_limited(named, context)
            elif self._is_async:
                value = await self._function(**named)
            else:
                value = await self._workers.submit(self._function, named, context)
                if hasattr(value, "__await__"):  # a plain decorator wraps an async function
                    value = await value
                elif hasattr(value, "__next__"):  # each step may block, as the function may
                    value = await self._workers.submit(listed, {"values": value}, context)
            if self._output is not None:
                return self._structured(value, self._output)
            if type(value) is str:
                return CallToolResult(content=[TextContent(text=value)])
            return tool_result(value)
        except _FOR_THE_CLIENT:
            raise
        except BaseException as error:
            return _failed(self.definition.name, error)

    async def proceed(self, call: ServedCall) -> Any:
        """Run a call that has passed a stack of layers; return what the function returned."""
        depth, context = call._depth + 1, call.context
        outer = context.lifespan
        try:
            if depth < len(self.layers):
                return await pass_on(call, self.layers[depth])
            context.lifespan = self._lifespan.value
            named = call.arguments
            if self._context is not None:
                named = {**named, self._context: context}
            if self._is_limited:
                return await self._run_limited(named, context)
            if self._is_async:
                return await self._function(**named)
            return await self._run_in_thread(named, context)
        finally:
            context.lifespan = outer  # the layers see this value after the call, too

    async def _run_in_thread(self, arguments: dict[str, Any], context: Context) -> Any:
        value = await self._workers.run(self._function, arguments, context)
        if hasattr(value, "__next__"):  # each step may block, as the function may
            value = await self._workers.submit(listed, {"values": value}, context)
        return value

    def _structured(self, value: Any, output: schema.Validator) -> CallToolResult:
        if isinstance(value, CallToolResult):
            return value if value.is_error else _checked(value, output)
        if self._write is not None:
            value = self._write(value)
        encoded = bytearray()
        try:
            encode_value_into(value, encoded)
        except (TypeError, ValueError, OverflowError, RecursionError):
            if isinstance(value, Iterator):
                value = listed(value)
            encoded[:] = to_json(value)
        if b"null" in encoded:
            check_finite(value)
        if MARK in encoded:
            refuse_content(value, encoded)
        plain = msgspec.json.decode(encoded)
        problems = output.errors(plain, echo=False)
        if problems:
            raise LocalProtocolError(
                f"the result is not valid for the output schema: {'; '.join(problems)}"
            )
        text = plain if type(plain) is str else encoded.decode()
        structured = Raw(bytes(encoded))
        return CallToolResult(content=[TextContent(text=text)], structured_content=structured)

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
                return await self._run_in_thread(arguments, context)
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
        return _failure(error, str(error))
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
        raise error  # the call was cancelled, and not just a task inside the function
    # SystemExit and KeyboardInterrupt are converted as well: a tool must not end the server.
    reference = log_bug(f"tool {tool}", error)
    is_ours = isinstance(error, LocalProtocolError)
    kind = "returned a result that its schema forbids" if is_ours else "failed"
    return _failure(error, f"tool {tool} {kind}; {log_name()} has the details under {reference}")


def _failure(error: BaseException, text: str) -> CallToolResult:
    observe = observer.get()
    if observe is not None:
        text = observe(error, text)
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
