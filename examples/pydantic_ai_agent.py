"""Pydantic AI with the tools of a toolbox: as functions, and as a toolset with exact schemas."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from interlock import StdioServer, Toolbox
from interlock.agent import text_of
from interlock.callables import callables
from interlock.errors import InterlockError

NOTES = StdioServer(command=sys.executable, args=(str(Path(__file__).with_name("demo_server.py")),))
ANY = SchemaValidator(core_schema.dict_schema())  # the toolbox validates


class ToolboxToolset(AbstractToolset[Any]):
    """The tools of a toolbox, as they are at each step."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    @property
    def id(self) -> str:
        """Name the toolset."""
        return "interlock"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools with their schemas."""
        await self._toolbox.refresh()
        found = {}
        for entry in self._toolbox.tools:
            schema = msgspec.json.decode(entry.input_schema)
            about = ToolDefinition(
                name=entry.wire_name,
                description=entry.tool.description,
                parameters_json_schema=schema,
            )
            found[entry.wire_name] = ToolsetTool(
                toolset=self, tool_def=about, max_retries=ctx.max_retries, args_validator=ANY
            )
        return found

    async def call_tool(self, name: str, tool_args: dict[str, Any], *_: Any) -> str:
        """Call a tool."""
        try:
            return text_of(await self._toolbox.call(name, tool_args))
        except InterlockError as error:
            return f"error: {error}"


async def main() -> None:
    async with Toolbox({"notes": NOTES}) as toolbox:
        model = TestModel(call_tools=["notes__search"])
        agent = Agent(model, tools=list(callables(toolbox)))
        print((await agent.run("What is there?")).output)

        agent = Agent(model, toolsets=[ToolboxToolset(toolbox)])
        print((await agent.run("What is there?")).output)


asyncio.run(main())
