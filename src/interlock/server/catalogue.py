"""The items that a server offers. Each look-up has the caller, as items may differ by caller."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, overload

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
    """A definition that another server has encoded. It is decoded only if necessary.

    Attributes:
        raw: The definition.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = Raw(raw)

    @cached_property
    def fields(self) -> JsonObject:
        fields: JsonObject = msgspec.json.decode(self.raw)
        return fields


Definition = Struct | JsonObject | EncodedDefinition


class ServedTool(Protocol):
    """A tool that a server offers: a function, an operation of an API, another server's tool."""

    @property
    def definition(self) -> Tool | JsonObject:
        """The definition that clients list. A plain object may have members that `Tool` lacks."""
        ...

    async def call(self, arguments: Raw | None, context: Context) -> CallToolResult | Raw:
        """Run the tool with its encoded arguments; None if the client sent none.

        An encoded result is sent unchanged, with members that `CallToolResult` lacks. It is decoded
        only for clients of revisions that lack something in it.

        Raises:
            ToolError, InvalidArguments, RequestTimeout: The model reads the text as the result.
            InterlockError: The request fails.
        """
        ...


class ServedResource(Protocol):
    """A resource, or a family of resources."""

    async def read(self, uri: str, context: Context) -> ReadResourceResult | Raw:
        """Return the contents of `uri`. For an encoded result see `ServedTool.call`.

        Raises:
            UnknownResource: No resource has this URI.
        """
        ...


class ServedPrompt(Protocol):
    """A prompt that a server offers."""

    async def get(self, arguments: dict[str, str], context: Context) -> GetPromptResult | Raw:
        """Return the messages. For an encoded result see `ServedTool.call`.

        Raises:
            InvalidArguments: An argument is missing or unknown.
        """
        ...


class ServedCompletion(Protocol):
    """Proposals for one argument of a prompt or resource template."""

    async def complete(self, value: str, arguments: dict[str, str], context: Context) -> Any:
        """Return a `Completion`, a list of strings that continue `value`, or an encoded result."""
        ...


class Catalogue(Protocol):
    """The tools, resources and prompts of a server, in the selection for each caller."""

    @property
    def version(self) -> int:
        """A number that changes when any list or capability changes."""
        ...

    def capabilities(self) -> ServerCapabilities:
        """Return the declared capabilities; methods of other capabilities are not answered."""
        ...

    def view(self, context: Context) -> Hashable:
        """Return a key that only callers with equal lists share; encoded lists are cached by it."""
        ...

    def page(
        self, kind: Kind, cursor: str, context: Context
    ) -> tuple[Sequence[Definition], str | None]:
        """Return one page of definitions, and the cursor of the next page.

        Args:
            kind: The list.
            cursor: "" for the first page.
            context: The caller's request.

        Raises:
            InvalidArguments: The cursor is not valid.
        """
        ...

    def list_meta(self, kind: Kind, context: Context) -> JsonObject:
        """Return members of `_meta` for the first page of a list, such as missing items."""
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
        """Return the completion for an argument; None if there is none.

        Raises:
            InvalidArguments: The caller cannot see such a prompt or template.
        """
        ...


def input_schema(definition: Tool | JsonObject) -> JsonObject:
    """Return the input schema of a tool's definition."""
    if isinstance(definition, Tool):
        return definition.input_schema
    schema: JsonObject = definition["inputSchema"]
    return schema


def output_schema(definition: Tool | JsonObject) -> JsonObject | None:
    """Return the output schema of a tool's definition."""
    if isinstance(definition, Tool):
        return definition.output_schema
    return definition.get("outputSchema")
