"""A tool that is an object and not a function."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from interlock import Context
from interlock.types import CallToolResult, TextContent, Tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


class Echo:
    """A tool that returns `answer`, raises it, or echoes its arguments."""

    def __init__(self, definition: Any = None, answer: Any = None) -> None:
        self.definition = definition or Tool(name="echo", input_schema=SCHEMA)
        self.answer = answer

    async def call(self, arguments: Raw | None, context: Context) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        if self.answer is not None:
            return self.answer
        return CallToolResult(content=[TextContent(text=bytes(arguments or b"").decode())])
