"""Calls of a server's tools in tests, without an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from interlock.client import Client
from interlock.errors import LocalProtocolError, ToolError
from interlock.server.debugging import observer
from interlock.transports import InProcessServer
from interlock.types import CallToolResult

__all__ = ["call"]


def call(server: InProcessServer, tool: str, /, **arguments: Any) -> CallToolResult:
    """Call a tool as a client does, and return its result.

    The server's lifespan is entered before the call and exited after it.

    Args:
        server: The server, in this process.
        tool: The tool's name.
        arguments: The arguments, as JSON or as values that can be encoded as JSON.

    Raises:
        Exception: What the function raised, with its traceback.
        InvalidArguments: The arguments do not fit the tool's schema.
        ToolError: The function returned a result that is an error.
        UnknownTool: The server has no tool with this name.
        LocalProtocolError: An event loop runs already.
    """
    failures: list[tuple[str, BaseException]] = []

    def observe(error: BaseException, text: str) -> str:
        failures.append((text, error))
        return text

    async def called() -> CallToolResult:
        token = observer.set(observe)
        try:
            async with Client(server) as client:
                return await client.call_tool(tool, arguments)
        finally:
            observer.reset(token)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        result = asyncio.run(called())
    else:
        raise LocalProtocolError(
            f"testing.call({tool!r}) cannot run in an event loop; write: async with Client(server) "
            f"as client: await client.call_tool({tool!r}, ...)"
        )
    if not result.is_error:
        return result
    for text, error in reversed(failures):
        if text == result.text:
            raise error
    raise ToolError(result.text)
