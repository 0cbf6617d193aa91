"""The layers that every tool call of a server passes: functions from handler to handler.

The path of a call with layers::

    tool.call -> first layer -> ... -> last layer -> tool.proceed -> your function

A mounted tool has the layers of the parent and those of the child, one `LayerStack` each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from interlock.context import Context
from interlock.protocol.envelope import encode_large
from interlock.schema.signature import at_caller
from interlock.server.catalogue import ServedTool
from interlock.server.lifespan import Lifespan
from interlock.server.values import tool_result
from interlock.types import CallToolResult, JsonObject, Tool


class ServedCall(Struct, eq=False):
    """A call of a server's tool, as layers see it. They may change `arguments` and `context`.

    Attributes:
        arguments: The decoded arguments by name, as the function gets them.
        context: The context of the request.
    """

    _name: str
    arguments: dict[str, Any]
    context: Context
    _tool: LayeredTool
    _depth: int = 0

    @property
    def name(self) -> str:
        """The tool's name at the server that has the layer."""
        return self._name


ToolHandler: TypeAlias = Callable[[ServedCall], Awaitable[Any]]
"""Runs a call, and returns what the tool's function returned."""
ToolLayer: TypeAlias = Callable[[ToolHandler], ToolHandler]
"""Takes the next handler of a server's tool calls and returns its own."""


class LayerStack(NamedTuple):
    """The layers of one server around a tool, with that server's lifespan and name of the tool."""

    handle: ToolHandler
    lifespan: Lifespan
    name: str = ""


class LayeredTool(Protocol):
    """A tool that is called through layers."""

    async def proceed(self, call: ServedCall) -> Any:
        """Run a call that has passed a stack of layers."""
        ...


def build_layers(layers: Sequence[ToolLayer], lifespan: Lifespan) -> LayerStack | None:
    """Return a server's layers, the first one outermost; None if there are none.

    Raises:
        SignatureError: A layer does not return a handler.
    """
    if not layers:
        return None
    handle: ToolHandler = _proceed
    for layer in reversed(layers):
        name = getattr(layer, "__name__", repr(layer))
        handle = layer(handle)
        if not callable(handle):
            if hasattr(handle, "close"):
                handle.close()
            raise at_caller(
                f"layer {name} returned no handler; a layer is a plain function that takes the "
                "next handler and returns an async function of one ServedCall"
            )
    return LayerStack(handle, lifespan)


def _proceed(call: ServedCall) -> Awaitable[Any]:
    return call._tool.proceed(call)


def pass_on(call: ServedCall, stack: LayerStack) -> Awaitable[Any]:
    """Pass a call that has passed the layers of one server through those of another."""
    call.context.lifespan = stack.lifespan.value
    inner = ServedCall(stack.name, call.arguments, call.context, call._tool, call._depth + 1)
    return stack.handle(inner)


class LayeredObject:
    """A tool that is not a function, with layers.

    Args:
        layers: The layers, those of the outermost server first.
    """

    def __init__(self, tool: ServedTool, layers: tuple[LayerStack, ...]) -> None:
        self._tool = tool
        self.layers = layers

    @property
    def definition(self) -> Tool | JsonObject:
        return self._tool.definition

    async def call(self, arguments: Raw | None, context: Context) -> CallToolResult | Raw:
        """Call the tool through the layers, which get its result as the tool returned it."""
        named = {} if arguments is None else msgspec.json.decode(arguments, type=dict[str, Any])
        outermost = self.layers[0]
        context.lifespan = outermost.lifespan.value
        value = await outermost.handle(ServedCall(outermost.name, named, context, self))
        return value if isinstance(value, CallToolResult | Raw) else tool_result(value)

    async def proceed(self, call: ServedCall) -> Any:
        depth, outer = call._depth + 1, call.context.lifespan
        if depth < len(self.layers):
            try:
                return await pass_on(call, self.layers[depth])
            finally:
                call.context.lifespan = outer  # the layers see this value after the call, too
        return await self._tool.call(Raw(encode_large(call.arguments)), call.context)
