"""What a connection or an HTTP endpoint uses of a server; a gateway is one without subclassing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from msgspec import Raw

from interlock.context import Context
from interlock.protocol import Request
from interlock.server.subscribers import Subscribers
from interlock.types import CallToolResult, JsonObject, Tool


class ServedTool(Protocol):
    """A tool that a server offers: a function, an operation of an API, another server's tool."""

    @property
    def definition(self) -> Tool | JsonObject:
        """What clients list. Members of a plain object that `Tool` lacks are sent, too."""
        ...

    async def call(self, arguments: Raw | None, context: Context) -> CallToolResult | Raw:
        """Run the tool with its encoded arguments; None if the client sent none.

        An encoded result is sent as it is, with members that `CallToolResult` lacks.

        Raises:
            ToolError, InvalidArguments, RequestTimeout: The result is an error for the model.
            InterlockError: The request fails.
        """
        ...


class Answering(Protocol):
    """Something that answers MCP requests. `Server` is one."""

    @property
    def dropped(self) -> Counter[str]:
        """Number of messages and requests that were dropped, by reason."""
        ...

    @property
    def subscribers(self) -> Subscribers:
        """The clients to notify of changes."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold the lifespan open; the first holder enters it, the last one leaves it."""
        ...

    def answer(self, request: Request, context: Context, /) -> Awaitable[bytes]:
        """Answer one request with an encoded result.

        Raises:
            InterlockError: The request fails.
        """
        ...

    def find(self, kind: Literal["tools"], name: str, context: Context) -> ServedTool | None:
        """Return the tool of this name that the caller may use."""
        ...


def input_schema(definition: Tool | JsonObject) -> JsonObject:
    """Return the input schema of a tool's definition."""
    if isinstance(definition, Tool):
        return definition.input_schema
    schema: JsonObject = definition["inputSchema"]
    return schema
