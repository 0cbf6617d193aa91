"""The interface to a server's items. Each method gets the caller, as items may depend on it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, overload, runtime_checkable

import msgspec
from msgspec import Raw, Struct

from interlock.context import Context
from interlock.types import (
    CallToolResult,
    GetPromptResult,
    JsonObject,
    PromptReference,
    ReadResourceResult,
    ResourceTemplateReference,
    ServerCapabilities,
    Tool,
)

Kind = Literal["tools", "resources", "resourceTemplates", "prompts"]


class EncodedDefinition:
    """A definition that another server has encoded, and that is decoded only when necessary.

    Attributes:
        raw: The encoded definition.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = Raw(raw)

    @cached_property
    def fields(self) -> JsonObject:
        fields: JsonObject = msgspec.json.decode(self.raw)
        return fields


Definition = Struct | JsonObject | EncodedDefinition


@runtime_checkable
class ServedTool(Protocol):
    """A tool that a server offers: a function, an API's operation, or another server's tool."""

    @property
    def definition(self) -> Tool | JsonObject:
        """The definition that clients see. A dict may contain members that `Tool` does not have."""
        ...

    async def call(self, arguments: Raw | None, context: Context) -> CallToolResult | Raw:
        """Run the tool with its encoded arguments, which are None if the client sent none.

        A result that is already encoded is sent unchanged, including members that `CallToolResult`
        does not have. It is decoded only if the client's revision lacks something in it.

        Raises:
            ToolError, InvalidArguments, RequestTimeout: The text becomes the result, for the model.
            InterlockError: The request fails, and the client gets an error.
        """
        ...


class ServedResource(Protocol):
    """A resource that a server offers, or a resource template."""

    async def read(self, uri: str, context: Context) -> ReadResourceResult | Raw:
        """Return the contents of `uri`, decoded or encoded as in `ServedTool.call`.

        Raises:
            UnknownResource: No resource has this URI.
        """
        ...


class ServedPrompt(Protocol):
    """A prompt that a server offers."""

    async def get(self, arguments: dict[str, str], context: Context) -> GetPromptResult | Raw:
        """Return the prompt's messages, decoded or encoded as in `ServedTool.call`.

        Raises:
            InvalidArguments: An argument is missing or unknown.
        """
        ...


class ServedCompletion(Protocol):
    """A function that suggests values for one argument of a prompt or resource template."""

    async def complete(self, value: str, arguments: dict[str, str], context: Context) -> Any:
        """Return a `Completion`, a list of strings that match `value`, or an encoded result."""
        ...


class Catalogue(Protocol):
    """A server's tools, resources and prompts, as each caller may see them."""

    @property
    def version(self) -> int:
        """A number that changes whenever a list or a capability changes."""
        ...

    def capabilities(self) -> ServerCapabilities:
        """Return the capabilities to declare; methods of other capabilities are refused."""
        ...

    def view(self, context: Context) -> Hashable:
        """Return a cache key for encoded lists; only callers with equal lists may share it."""
        ...

    def page(
        self, kind: Kind, cursor: str, context: Context
    ) -> tuple[Sequence[Definition], str | None]:
        """Return a page of definitions, and the cursor of the next page; None after the last page.

        Args:
            kind: The list to read.
            cursor: The cursor from the previous page; "" for the first page.
            context: The context of the caller's request.

        Raises:
            InvalidArguments: The cursor is not valid.
        """
        ...

    def list_meta(self, kind: Kind, context: Context) -> JsonObject:
        """Return members for `_meta` on a list's first page, for example about missing items."""
        ...

    @overload
    def find(self, kind: Literal["tools"], name: str, context: Context) -> ServedTool | None: ...
    @overload
    def find(
        self, kind: Literal["resources"], name: str, context: Context
    ) -> ServedResource | None: ...
    @overload
    def find(
        self, kind: Literal["prompts"], name: str, context: Context
    ) -> ServedPrompt | None: ...

    def find_completion(
        self, ref: PromptReference | ResourceTemplateReference, argument: str, context: Context
    ) -> ServedCompletion | None:
        """Return the completion for an argument; None if the argument has no completion.

        Raises:
            InvalidArguments: The prompt or template does not exist for the caller.
        """
        ...


def input_schema(definition: Tool | JsonObject) -> JsonObject:
    """Return the input schema in a tool's definition."""
    if isinstance(definition, Tool):
        return definition.input_schema
    schema: JsonObject = definition["inputSchema"]
    return schema


def output_schema(definition: Tool | JsonObject) -> JsonObject | None:
    """Return the output schema in a tool's definition; None if it has none."""
    if isinstance(definition, Tool):
        return definition.output_schema
    return definition.get("outputSchema")
