"""Functions as resources, prompts and completions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from interlock.context import Context
from interlock.errors import InvalidArguments, SignatureError, UnknownResource
from interlock.schema.docstrings import summary
from interlock.schema.signature import (
    Signature,
    at_caller,
    describe,
    find_context,
    is_async,
    located,
    name_of,
    problem,
)
from interlock.server.dependencies import CONTEXT, Marks
from interlock.server.options import checked_annotations
from interlock.server.prompt_messages import prompt_result
from interlock.server.resolver import Resolver, Runtime
from interlock.server.text_arguments import TextArguments
from interlock.server.uri_templates import UriTemplate
from interlock.server.values import resource_result
from interlock.server.workers import Workers
from interlock.types import (
    Annotations,
    GetPromptResult,
    Icon,
    JsonObject,
    Prompt,
    PromptArgument,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)


class ItemOptions(Struct, frozen=True, kw_only=True):
    """The options of `Server.resource` and `Server.prompt`."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | Mapping[str, Any] | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    meta: JsonObject | None = None


class _Function:
    """A function that is called with keyword arguments, which arrive as text."""

    def __init__(self, function: Callable[..., Any], runtime: Runtime) -> None:
        marks = Marks(function, runtime.yields)
        self.signature: Signature = describe(
            function, Context, strict=False, fills=marks, has_output=False
        )
        self.text = TextArguments(self.signature.input_schema)
        self._function = function
        self._workers = runtime.workers
        self._lifespan = runtime.lifespan
        self._context, self._is_async = self.signature.context, self.signature.is_async
        if marks.found:
            arguments = self.signature.fields
            try:
                resolver = Resolver(function, marks.found, arguments, self._context, runtime)
            except SignatureError as error:
                raise located(function, str(error)) from error.__cause__
            self._function = resolver
            self._context, self._is_async = CONTEXT, resolver.is_async

    async def __call__(self, values: dict[str, str], context: Context) -> Any:
        try:
            arguments = asdict(self.signature.decode(self.text.encoded(values)))
        except msgspec.ValidationError as error:
            raise InvalidArguments(problem(error)) from None
        if self._context is not None:
            context.lifespan = self._lifespan.value
            arguments[self._context] = context
        if self._is_async:
            running: Awaitable[Any] = self._function(**arguments)
            return await running
        return await self._workers.run(self._function, arguments, context)


class FunctionResource:
    """A function that is a resource, or a resource template if `uri` contains variables."""

    def __init__(
        self, uri: str, function: Callable[..., Any], options: ItemOptions, runtime: Runtime
    ) -> None:
        try:
            self.template = UriTemplate(uri)
        except SignatureError as error:
            raise located(function, str(error)) from None
        self._options = options
        self._call = _Function(function, runtime)
        variables = self.template.variables
        try:
            self._check_variables()
            annotations = checked_annotations(options.annotations, Annotations)
        except SignatureError as error:
            raise located(function, str(error)) from None
        common: dict[str, Any] = {
            "name": options.name or getattr(function, "__name__", uri),
            "title": options.title,
            "description": options.description or summary(function) or None,
            "mime_type": options.mime_type,
            "icons": options.icons,
            "annotations": annotations,
            "meta": options.meta,
        }
        self.definition: Resource | ResourceTemplate = (
            ResourceTemplate(uri_template=uri, **common)
            if variables
            else Resource(uri=uri, **common)
        )

    def _check_variables(self) -> None:
        signature, uri = self._call.signature, self.template.text
        required = signature.input_schema.get("required", ())
        variables = self.template.variables
        for name in variables:
            if name not in signature.parameters:
                raise SignatureError(
                    f"resource {uri!r} has the variable {name!r}, which is not a parameter of its "
                    "function; add the parameter"
                )
        for name in required:
            if name not in variables:
                raise SignatureError(
                    f"resource {uri!r} has no value for the parameter {name!r}; add {{{name}}} to "
                    "the URI, or give the parameter a default"
                )
        for name in self.template.query:
            if name in required:
                raise SignatureError(
                    f"resource {uri!r}: the query variable {name!r} may be absent; give its "
                    "parameter a default"
                )

    @property
    def choices(self) -> Mapping[str, list[str]]:
        """The possible values of variables that have a few."""
        return self._call.text.choices

    def serves(self, uri: str) -> bool:
        return self.template.match(uri) is not None

    async def read(self, uri: str, context: Context) -> ReadResourceResult:
        """Call the function with the variables in `uri`; return its result as contents."""
        values = self.template.match(uri)
        if values is None:
            raise UnknownResource(uri)
        result = resource_result(await self._call(values, context), uri, self._options.mime_type)
        if result.ttl_ms == 0 and self._options.ttl_ms:
            result = replace(
                result, ttl_ms=self._options.ttl_ms, cache_scope=self._options.cache_scope
            )
        return result


class FunctionPrompt:
    """A prompt: a function that takes arguments as text and returns messages."""

    def __init__(
        self, function: Callable[..., Any], options: ItemOptions, runtime: Runtime
    ) -> None:
        if not options.name and name_of(function) in ("", "<lambda>"):
            raise located(function, "the function has no name; set one with prompt(name=...)")
        self._call = _Function(function, runtime)
        signature = self._call.signature
        properties = signature.input_schema["properties"]
        required = signature.input_schema.get("required", [])
        arguments = [
            PromptArgument(
                name=name,
                description=_described(
                    properties[name].get("description"), self._call.text.hint(name)
                ),
                required=name in required,
            )
            for name in signature.parameters
        ]
        self.definition = Prompt(
            name=options.name or name_of(function),
            title=options.title,
            description=options.description or summary(function) or None,
            arguments=arguments or None,
            icons=options.icons,
            meta=options.meta,
        )

    @property
    def choices(self) -> Mapping[str, list[str]]:
        """The possible values of arguments that have a few."""
        return self._call.text.choices

    async def get(self, arguments: dict[str, str], context: Context) -> GetPromptResult:
        """Call the function, and return its messages.

        Raises:
            InvalidArguments: An argument is missing or unknown.
        """
        name = self.definition.name
        try:
            value = await self._call(arguments, context)
        except InvalidArguments as error:
            raise InvalidArguments(f"prompt {name!r}: {error}") from None
        return prompt_result(value, self.definition.description)


def _described(description: str | None, hint: str) -> str | None:
    return " ".join(filter(None, (description, hint))) or None


class FunctionCompletion:
    """A function that suggests values for one argument of a prompt or template.

    It is called with what the user has typed and, if it has a second parameter, with the values of
    the other arguments.
    """

    def __init__(self, function: Callable[..., Any], workers: Workers) -> None:
        if not callable(function):
            raise at_caller(f"a completion is a function, not {type(function).__name__}")
        name = getattr(function, "__name__", function)
        if Marks(function, Any).search().found or find_context(function, Context):
            raise located(
                function, f"completion {name} can have neither dependencies nor a context"
            )
        count = len(inspect.signature(function).parameters)
        if count not in (1, 2):
            raise located(
                function,
                f"completion {name} has {count} parameters; define (value) or (value, arguments)",
            )
        self._takes_arguments = count == 2
        self._is_async = is_async(function)
        self._function = function
        self._workers = workers

    async def complete(self, value: str, arguments: dict[str, str], context: Context) -> Any:
        given: tuple[Any, ...] = (value, arguments) if self._takes_arguments else (value,)
        if self._is_async:
            return await self._function(*given)
        return await self._workers.run(lambda: self._function(*given), {}, context)
